"""Which code Lightning's Trainer trains, and so what it sets itself for all that it trains."""

from __future__ import annotations

from typing import Final

from perflint.facts.facts import Facts
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, made

_IMPORTED: Final = any_layout(rb"\b(?:import|from) (?:pytorch_)?lightning\b")
_NAMED: Final = made(rb"lightning")
_TRAINS: Final = any_layout(rb"\bLightningModule\b|\bTrainer \(")
_OWN_STEPS: Final = any_layout(rb"(?m:^[^#\n]*)\. backward \(")
"""A backward pass that the program starts itself, in no comment: not all of its training is the trainer's."""
_WITHIN: Final = made(r"^(?:on_(?!fit_|exception)\w+|optimizer_\w+|\w*step|forward|backward|\w*loss\w*)$")
"""Methods that the trainer runs while it fits."""
_PACKAGES = ("pytorch-lightning", "lightning")
_SETS_ANOMALY_MODE = "1.5"
"""The first version that fits within `torch.autograd.set_detect_anomaly(trainer._detect_anomaly)`."""


def trainer_sets_anomaly_mode(facts: Facts, scope: Scope) -> bool:
    """Whether a scope runs before Lightning's trainer does, which puts its own `detect_anomaly` in the place of torch's switch.

    Since 1.5 it does: programs whose requirements admit none of these versions are left out.
    """
    project, path = facts.project, scope.module.source.path
    return (
        _WITHIN.search(scope.name) is None
        and project.program_holds(path, _IMPORTED, _NAMED)
        and project.program_holds(path, _TRAINS)
        and not project.program_holds(path, _OWN_STEPS)
        and not any(facts.is_held_below(package, _SETS_ANOMALY_MODE) for package in _PACKAGES)
    )
