"""Unified diffs that `git apply` and `patch` accept; of notebooks, those of their cells."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator

from perflint.run.result import FixedFile
from perflint.source.cells import SUFFIX
from perflint.source.words import made

_UNSAFE = made(rb'[\x00-\x1f\x7f"\\]')
_CONTROLS = made(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
_COLOURS = {b"--- ": 1, b"+++ ": 1, b"@@": 36, b"-": 31, b"+": 32}
_NO_NEWLINE = b"\\ No newline at end of file\n"


def patch(fixed: FixedFile) -> Iterator[bytes]:
    """The lines of a patch, with the line ends of the file."""
    if fixed.path.endswith(SUFFIX):
        yield from _patch_of_cells(fixed)
    else:
        yield from _patch(fixed.path, fixed.before, fixed.after)


def _patch_of_cells(fixed: FixedFile) -> Iterator[bytes]:
    """A patch for each cell of a notebook: to read, for no tool can apply it."""
    from perflint.source.notebook import Notebook

    for old, new in zip(Notebook.parse(fixed.before).cells, Notebook.parse(fixed.after).cells, strict=True):
        if old != new:
            yield from _patch(f"{fixed.path}:cell {old.number}", _whole_lines(old.source), _whole_lines(new.source))


def _whole_lines(source: str) -> bytes:
    return source.encode("utf-8", "replace") + (b"" if source.endswith("\n") else b"\n")


def _patch(path: str, old_data: bytes, new_data: bytes) -> Iterator[bytes]:
    name = os.fsencode(path.replace(os.sep, "/").lstrip("/"))
    old, new = _quoted(b"a/" + name), _quoted(b"b/" + name)
    before, after = _lines(old_data), _lines(new_data)
    yield b"--- " + old + b"\n"
    yield b"+++ " + new + b"\n"
    for line in list(difflib.diff_bytes(difflib.unified_diff, before, after, lineterm=b"\n"))[2:]:
        if line.startswith(b"@@") or line.endswith(b"\n"):
            yield line
        else:
            yield line + b"\n"
            yield _NO_NEWLINE


def _quoted(name: bytes) -> bytes:
    """A file name as git writes it in a patch: one with control characters would begin a line of its own."""
    if not _UNSAFE.search(name):
        return name
    return b'"' + _UNSAFE.sub(lambda found: b"\\%03o" % found[0][0], name) + b'"'


def without_controls(line: bytes) -> bytes:
    """A line of a patch without what a terminal would take for commands."""
    return _CONTROLS.sub(b"?", line)


def coloured(line: bytes) -> bytes:
    """A line of a patch in the colours that git gives it."""
    colour = next((code for start, code in _COLOURS.items() if line.startswith(start)), None)
    if colour is None:
        return line
    text = line.rstrip(b"\r\n")
    return b"\x1b[%dm%b\x1b[0m%b" % (colour, text, line[len(text) :])


def _lines(data: bytes) -> list[bytes]:
    pieces = data.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
