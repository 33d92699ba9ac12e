"""Small random training programs: what people write around PyTorch, mixed with what breaks a careless fixer's proofs.

`program(seed)` gives the files of one program, `main.py` and often `helpers.py`. A program is a scene or two (a training
loop, an evaluation, a recurrent network, ...) in which each choice is drawn, with *disturbances* strewn between the
statements: writes through aliases and views, closures, early exits, exceptions, helpers that keep what they are given.
Nearly all programs run to their end; those that raise do so on a value, and must raise the same after a fix.
"""

from __future__ import annotations

from fuzz.training_programs.scenes import Scenes
from fuzz.training_programs.words import Program


def program(seed: int) -> Program:
    """A random program."""
    return Scenes(seed).write()
