"""Ctrl-C, whenever it comes.

Python raises `KeyboardInterrupt` between any two instructions. Out of a `__del__` or the callback of a weak reference no
exception gets: Python shows it and goes on. C code may turn it into another exception. So it is noted here, and raised again.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

AGAIN_S = 0.01

_noted = False


def heed() -> None:
    """Raise `KeyboardInterrupt` at each Ctrl-C from now on."""
    signal.signal(signal.SIGINT, _interrupted)
    sys.unraisablehook = _swallowed


def noted() -> bool:
    """Whether there was a Ctrl-C: what happens then need not be what the program says."""
    return _noted


def _interrupted(number: int, frame: FrameType | None) -> None:
    global _noted
    _noted = True
    raise KeyboardInterrupt


def _swallowed(about: sys.UnraisableHookArgs) -> None:
    if not issubclass(about.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(about)
        return
    import _thread
    import threading

    threading.Timer(AGAIN_S, _thread.interrupt_main).start()
