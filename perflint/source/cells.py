"""A notebook as one Python text: its code cells one after the other, each begun by a line that tells them apart.

Such a line is a statement, so that a cell is complete in itself: no bracket, block or decorator goes on behind it. What only
IPython understands stands in comments, behind what runs in its place. So the text says all that there is to know of the cells:
where each begins, what each line is in the notebook.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from perflint.source.records import dataclass
from perflint.source.words import made

SUFFIX = ".ipynb"

HIDDEN = "#%ipython "
"""Behind it stands a line as it is in the notebook; before it, what runs in its place."""

_HEAD = made(rb"^pass  #%% cell (\d+)(?: fails at (\d+):(\d+): (.*))?$", re.M)


class CannotWriteBack(Exception):
    """A text does not fit the cells of the notebook that it is to be written to; the message says why."""


class Cell(NamedTuple):
    """A code cell. number: its place among all cells of the notebook, from 1. source: its text in the notebook."""

    number: int
    source: str


class Problem(NamedTuple):
    """Why a cell is no Python; the row and the column are 1-based and count from its beginning."""

    row: int
    column: int
    message: str


class Head(NamedTuple):
    """The line before a cell. row: its own, 1-based. start, end: the bytes of the cell behind it."""

    number: int
    row: int
    start: int
    end: int
    problem: Problem | None


@dataclass(frozen=True)
class Cells:
    """Where the cells of a text stand, in order."""

    heads: tuple[Head, ...]

    @classmethod
    def of(cls, text: bytes) -> Cells:
        """Find the cells of the text of a notebook."""
        found = list(_HEAD.finditer(text))
        ends = [head.start() for head in found[1:]] + [len(text)] * bool(found)
        row, counted = 1, 0
        heads: list[Head] = []
        for head, end in zip(found, ends, strict=True):
            row, counted = row + text.count(b"\n", counted, head.start()), head.start()
            number, at_row, at_column, message = head.groups()
            problem = Problem(int(at_row), int(at_column), message.decode()) if at_row else None
            heads.append(Head(int(number), row, head.end() + 1, end, problem))
        return cls(tuple(heads))

    def at(self, offset: int) -> Head | None:
        """The cell that a byte offset is in."""
        index = bisect_right(self.heads, offset, key=lambda head: head.start) - 1
        return self.heads[index] if index >= 0 else None


def joined(cells: Iterable[tuple[int, str, Problem | None]]) -> bytes:
    """The text of cells: the number of each, what stands for its source, and why that is no Python."""
    pieces: list[str] = []
    for number, text, problem in cells:
        fails = f" fails at {problem.row}:{problem.column}: {problem.message}" if problem is not None else ""
        pieces.append(f"pass  #%% cell {number}{fails}\n{text}\n")
    return "".join(pieces).encode()


def parted(text: bytes) -> list[tuple[int, str]]:
    """The numbers of a text's cells, and what stands for their sources.

    Raises:
        CannotWriteBack: something stands before the first cell, or a cell has lost its last line end.

    """
    heads = Cells.of(text).heads
    if text and not text.startswith(b"pass  #%% cell "):
        raise CannotWriteBack("there is text before the first cell")
    return [(head.number, _without_line_end(text[head.start : head.end].decode())) for head in heads]


def _without_line_end(text: str) -> str:
    if not text.endswith("\n"):
        raise CannotWriteBack("a cell goes on into the next one")
    return text[:-1]


def restored(text: str) -> str:
    """Lines as they are in the notebook."""
    if HIDDEN not in text:
        return text
    return "\n".join(line.partition(HIDDEN)[2] if HIDDEN in line else line for line in text.split("\n"))


def left_out(text: bytes) -> list[tuple[int, int, str]]:
    """What of a notebook does not run where its text runs as Python: the numbers of cells, rows in them, and their lines.

    Of several lines that belong together, such as the text below `%%bash`, it is the first.
    """
    found: list[tuple[int, int, str]] = []
    for head in Cells.of(text).heads:
        if head.problem is not None:
            found.append((head.number, head.problem.row, f"is no Python: {head.problem.message}"))
            continue
        goes_on = False
        for row, line in enumerate(text[head.start : head.end].decode().split("\n"), 1):
            runs, hidden, said = line.partition(HIDDEN)
            is_part = goes_on and not runs
            if hidden and not is_part and (runs.strip() in ("", "pass") or "get_ipython()." in runs):
                found.append((head.number, row, said.strip()))
            goes_on = bool(hidden)
    return found


def may_be_mistaken(source: str) -> bool:
    """Whether a cell has lines that would be taken for those that are written here."""
    return HIDDEN in source or _HEAD.search(source.encode("utf-8", "replace")) is not None
