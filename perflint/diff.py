"""Unified diffs that `git apply` and `patch` accept."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator

from perflint.run import FixedFile

_NO_NEWLINE = b"\\ No newline at end of file\n"


def patch(fixed: FixedFile) -> Iterator[bytes]:
    """The lines of a patch, with the line ends of the file."""
    name = os.fsencode(fixed.path.replace(os.sep, "/").lstrip("/"))
    before, after = _lines(fixed.before), _lines(fixed.after)
    yield b"--- a/" + name + b"\n"
    yield b"+++ b/" + name + b"\n"
    for line in list(difflib.diff_bytes(difflib.unified_diff, before, after, lineterm=b"\n"))[2:]:
        if line.startswith(b"@@") or line.endswith(b"\n"):
            yield line
        else:
            yield line + b"\n"
            yield _NO_NEWLINE


def _lines(data: bytes) -> list[bytes]:
    pieces = data.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
