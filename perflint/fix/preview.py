"""What one fix makes of a file, as a short diff: nothing is checked or written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from perflint.fix.fixer import apply_edits
from perflint.rule.finding import Edit, Fix
from perflint.source.cells import restored
from perflint.source.lines import common
from perflint.source.source import Source, split_lines

CONTEXT = 2
"""Unchanged lines around a change."""


def preview(source: Source, fix: Fix) -> Iterator[str]:
    """The lines of a unified diff, without a head; imports that the fix needs come first, without a place."""
    for wanted in fix.imports:
        yield f"+{f'import {wanted.module}' if wanted.name is None else f'from {wanted.module} import {wanted.name}'}"
    for first, last, edits in _neighbours(source, fix.edits):
        start = source.starts[first - 1]
        end = source.starts[last] if last < len(source.starts) else len(source.raw)
        moved = [replace(edit, start=edit.start - start, end=edit.end - start) for edit in edits]
        before = source.raw[start:end]
        after = apply_edits(before, moved)
        yield f"@@ -{source.place(first).row} @@"
        yield from _compared(_lines(before), _lines(after))


def _neighbours(source: Source, edits: Sequence[Edit]) -> Iterator[tuple[int, int, list[Edit]]]:
    """Edits that stand together, with the rows to show of them."""
    group: list[Edit] = []
    first = last = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        above, end = source.rows_around(edit.start)
        top = max(above + 1, source.row_at(edit.start) - CONTEXT)
        bottom = min(end, source.row_at(edit.end) + CONTEXT)
        if group and top > last + 1:
            yield first, last, group
            group = []
        if not group:
            first, last = top, bottom
        group.append(edit)
        last = max(last, bottom)
    if group:
        yield first, last, group


def _compared(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """The lines of a diff: what begins and ends alike stays, so that a change shows where it is made, also beside its like."""
    head = common(before, after)
    tail = common(reversed(before[head:]), reversed(after[head:]))
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    yield from (f" {line}" for line in before[:head])
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (f" {line}" for line in old[a:b])
        else:
            yield from (f"-{line}" for line in old[a:b])
            yield from (f"+{line}" for line in new[c:d])
    yield from (f" {line}" for line in before[len(before) - tail :])


def _lines(text: bytes) -> list[str]:
    return [restored(line.rstrip("\r\n")) for line in split_lines(text.decode("utf-8", "replace"))]
