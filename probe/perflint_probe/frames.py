"""Which lines of the program are running when torch is asked for something."""

import linecache
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from perflint_probe.clocks import HERE, STANDARD_LIBRARY, is_of_program

if TYPE_CHECKING:
    from types import FrameType

TORCH = str(Path(torch.__file__).parent)
Line = tuple[str, int]
Asked = tuple[str, int, str, tuple[Line, ...]]
"""A line of the program, what was asked for there, and the lines of the program that led to it, from the outside in."""

_HOST = re.compile(r"""["']cpu(?::0)?["']""")
_ASKS = re.compile(
    r"""non_blocking\s*=\s*(?:[\w.]+\.type\s*==\s*["']cuda["']|["']cuda["']\s+in\s+str\()|\.is_cuda\s+else\s.*\.item\(\)"""
)


def asked_from(what: str = "wait") -> Asked:
    """The innermost line of the program that runs. If a library asks, `what` says where the library does."""
    lines: list[Line] = []
    library: Line | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if _is_ours(name):
            lines.append((name, frame.f_lineno))
        elif library is None and not lines and not name.startswith((TORCH, HERE, STANDARD_LIBRARY, "<")):
            library = name, frame.f_lineno
        frame = frame.f_back
    if not lines:
        return (*(library or ("?", 0)), what, ())
    if library is not None:
        what = f"{what} in {Path(library[0]).name}:{library[1]}"
    return (*lines[0], what, tuple(lines[:0:-1]))


def text_of(asked: Asked) -> str:
    """The text of a line of the program."""
    return linecache.getline(*asked[:2])


def lines_of_program() -> set[Line]:
    """All lines of the program that run now."""
    found: set[Line] = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _is_ours(frame.f_code.co_filename):
            found.add((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def line_asking_torch() -> str | None:
    """The text of the line that calls torch, if it is the program's own and no library's."""
    frame = _caller()
    if frame is None or not _is_ours(frame.f_code.co_filename):
        return None
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno)


def is_asked_by(module: str) -> bool:
    """Whether a module calls torch."""
    frame = _caller()
    return frame is not None and frame.f_globals.get("__name__") == module


def joins_list() -> bool:
    """Whether a copy to the host is a further one of a `HostList`, which on CUDA waits for all of them when somebody looks.

    The copy that comes first stands for that wait.
    """
    frame = _caller()
    if frame is None or frame.f_globals.get("__name__") != "perflint_runtime.host_list" or frame.f_back is None:
        return False
    return bool(getattr(frame.f_back.f_locals.get("self"), "_values", None))


def _caller() -> "FrameType | None":
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return frame


def names_host(line: str) -> bool:
    """Whether a line speaks of the host, and not of whichever device there is."""
    return _HOST.search(line) is not None and "cuda" not in line


def asks_whether_cuda(line: str) -> bool:
    """Whether a line waits for no CUDA device: it asks the device or a tensor, and the host, which stands for one, says no."""
    return _ASKS.search(line) is not None


@cache
def _is_ours(name: str) -> bool:
    return is_of_program(name) and not name.startswith(TORCH)
