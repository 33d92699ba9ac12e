"""What must be done to a text to make another one of it."""

from __future__ import annotations

import difflib
from itertools import accumulate

from perflint.rule.finding import Edit
from perflint.source.lines import common


def differences(before: bytes, after: bytes) -> list[Edit]:
    """Edits that make `after` of `before`, both in UTF-8, in order: whole lines are replaced, those that are the same stay."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, old))]
    head = common(old, new)
    tail = common(reversed(old[head:]), reversed(new[head:]))
    middle = difflib.SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail])
    return [
        Edit(starts[head + first], starts[head + last], b"".join(new[head + start : head + end]).decode())
        for kind, first, last, start, end in middle.get_opcodes()
        if kind != "equal"
    ]
