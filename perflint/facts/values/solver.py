"""Remembers answers to questions that may lead back to themselves.

A question in progress that is asked again is cut: it gets its bottom, the answer that says nothing. What a cut had a part in
depends on where the cycle was entered, so it is remembered for the cycle's head only, and the head's answer is not used while
another member of its cycle is in progress. That makes every answer a function of the program, whatever was asked before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

from perflint.project.trace import Trace

Answer = TypeVar("Answer")

_NO_CUT: Final = sys.maxsize

MAX_QUESTIONS = 1_000_000
"""What one file may cost, so that a file which is built to take for ever does not. The costliest file of five large packages
needs a twentieth of it. Questions are counted, not seconds: the outcome is the same on every machine."""


class TooExpensive(Exception):
    """A file costs more questions than any file that people write."""


class Solver:
    """Answers by key, each with what was asked of the project for it.

    One solver serves all questions that may ask each other.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: dict[object, tuple[Any, int]] = {}
        self._heads: dict[object, tuple[Any, int, frozenset[object]]] = {}
        """Answers of heads of cycles, each with the other members of its cycle."""
        self._provisional: dict[object, tuple[Any, int, int]] = {}
        """Answers inside cycles in progress, each with the depth of the outermost question that was cut for it."""
        self._active: dict[object, int] = {}
        self._cut = _NO_CUT
        """The depth of the outermost question in progress that was asked again, since the question in hand began."""
        self.asked = 0
        """How many questions the file in hand has cost."""
        self._passing: list[object] = []
        """What is remembered for the file in hand alone."""

    def begin_file(self) -> None:
        """Count the questions of the next file, and forget what was remembered for the last one alone."""
        for key in self._passing:
            self._known.pop(key, None)
            self._heads.pop(key, None)
        self._passing.clear()
        self.asked = 0

    def recall(self, key: object) -> Any:
        """The answer that is remembered under `key` for good; None without one."""
        known = self._known.get(key)
        if known is None:
            return None
        self.asked += 1
        self._trace.asked |= known[1]
        return known[0]

    def solve(self, key: object, compute: Callable[[], Answer], bottom: Answer, *, passing: bool = False) -> Answer:
        """`compute()`, remembered under `key`; `bottom` where the question asks itself.

        passing: whether the answer is hardly asked for again, such as one inside of a call of which the result is known; it is
        forgotten with the file in hand.

        Raises:
            TooExpensive: the file in hand has cost more than `MAX_QUESTIONS`.

        """
        self.asked += 1
        known = self._known.get(key)
        if known is not None:
            self._trace.asked |= known[1]
            answer: Answer = known[0]
            return answer
        if key in self._active:
            self._cut = min(self._cut, self._active[key])
            return bottom
        if key in self._heads:
            head: Answer
            head, asked, members = self._heads[key]
            if members.isdisjoint(self._active):
                self._trace.asked |= asked
                return head
        if key in self._provisional:
            inside: Answer
            inside, asked, cut = self._provisional[key]
            self._trace.asked |= asked
            self._cut = min(self._cut, cut)
            return inside
        if passing:
            self._passing.append(key)
        return self._computed(key, compute)

    def _computed(self, key: object, compute: Callable[[], Answer]) -> Answer:
        if self.asked > MAX_QUESTIONS:
            raise TooExpensive
        depth = len(self._active)
        before = len(self._provisional)
        outer, self._cut = self._cut, _NO_CUT
        self._active[key] = depth
        trace = self._trace
        asked_outside, trace.asked = trace.asked, 0
        try:
            result = compute()
        except BaseException:
            self._cut = outer
            self._drop(before)
            raise
        finally:
            del self._active[key]
            asked, trace.asked = trace.asked, asked_outside | trace.asked
        cut, self._cut = self._cut, outer
        if cut == _NO_CUT:
            self._known[key] = result, asked
        elif cut >= depth:
            self._heads[key] = result, asked, self._drop(before)
        else:
            self._provisional[key] = result, asked, cut
            self._cut = min(outer, cut)
        return result

    def _drop(self, before: int) -> frozenset[object]:
        """Forget the provisional answers since a point; they come last, for a dict keeps the order of insertion."""
        dropped = []
        while len(self._provisional) > before:
            dropped.append(self._provisional.popitem()[0])
        return frozenset(dropped)
