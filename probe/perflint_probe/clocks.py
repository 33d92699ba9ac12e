"""Notes where a program reads a clock. Needs no torch, because a script may take a clock's name before it imports torch."""

import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
HERE = str(Path(__file__).parent)
STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]
Place = tuple[str, int]


def is_of_program(file: str) -> bool:
    """Whether a source file is neither an installed package's nor Python's own."""
    is_installed = any(folder in file for folder in ("site-packages", "dist-packages", "perflint_runtime"))
    return not is_installed and not file.startswith((STANDARD_LIBRARY, HERE, "<"))


class Clocks:
    """The first place at which the program itself read a clock of the module `time`, once `install` has been called."""

    def __init__(self) -> None:
        self.read_at: Place | None = None

    def install(self) -> None:
        """Take the places of the clocks in `time`."""
        for name in CLOCKS:
            for full in (name, f"{name}_ns"):
                setattr(time, full, _Clock(full, getattr(time, full), self))

    def note(self, file: str, line: int) -> None:
        """A clock was read there."""
        if self.read_at is None and is_of_program(file):
            self.read_at = file, line


class _Clock:
    """A clock that tells who reads it. An object, because a function that is a class's attribute would become a method."""

    def __init__(self, name: str, clock: Callable[[], Any], clocks: Clocks) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "time"
        self._clock = clock
        self._clocks = clocks

    def __call__(self) -> Any:
        frame = sys._getframe(1)
        self._clocks.note(frame.f_code.co_filename, frame.f_lineno)
        return self._clock()

    def __reduce__(self) -> str:
        return self.__name__
