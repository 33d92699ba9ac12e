"""Lines that two texts have in common."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import AnyStr


def common(lines: Iterable[AnyStr], others: Iterable[AnyStr]) -> int:
    """How many lines are the same before the first that differ."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(lines, others, strict=False)))
