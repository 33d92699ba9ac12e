"""Unified diffs that `git apply` and `patch` accept."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator

from perflint.run.result import FixedFile

_UNSAFE = re.compile(rb'[\x00-\x1f\x7f"\\]')
_CONTROLS = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
_COLOURS = {b"--- ": 1, b"+++ ": 1, b"@@": 36, b"-": 31, b"+": 32}
_NO_NEWLINE = b"\\ No newline at end of file\n"


def patch(fixed: FixedFile) -> Iterator[bytes]:
    """The lines of a patch, with the line ends of the file."""
    name = os.fsencode(fixed.path.replace(os.sep, "/").lstrip("/"))
    old, new = _quoted(b"a/" + name), _quoted(b"b/" + name)
    before, after = _lines(fixed.before), _lines(fixed.after)
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
