"""Which questions about the project an answer rests on.

Answers are remembered and shared between files, so each memory keeps, next to an answer, what was asked for it, and hands
that on to whoever gets the answer. So the questions behind a file's findings are known, whatever was asked before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Question = tuple[str, ...]
"""What is asked, and about what: `("text", path)`. `perflint.project.project` says which there are."""

Fact = tuple[Question, str]
"""A question with its answer."""

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Trace:
    """The questions that were asked for the answer in hand, each a bit of `asked`."""

    def __init__(self) -> None:
        self.asked = 0
        self.numbering = 0
        """How often the questions were numbered anew: bits of two numberings have nothing to do with each other."""
        self._bits: dict[Question, int] = {}
        self._questions: list[Question] = []

    def note(self, *question: str) -> None:
        """Say that a question is asked."""
        bit = self._bits.get(question)
        if bit is None:
            bit = self._bits[question] = 1 << len(self._bits)
            self._questions.append(question)
        self.asked |= bit

    def questions(self) -> list[Question]:
        """The questions that were asked, in the order in which they were first asked by anybody."""
        asked, found = self.asked, []
        while asked:  # by the bits that are set: a project may have asked as many questions as it has files
            bit = asked & -asked
            found.append(self._questions[bit.bit_length() - 1])
            asked ^= bit
        return found

    def forget(self) -> None:
        """Number the questions anew, because nobody holds a bit set any more: long bit sets are slow."""
        kept = self.questions()
        self.numbering += 1
        self._bits.clear()
        self._questions.clear()
        self.asked = 0
        for question in kept:
            self.note(*question)


class Memo(Generic[Key, Answer]):
    """Answers by key, each with the questions that it rests on."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: dict[Key, tuple[Answer, int]] = {}

    def get(self, key: Key, compute: Callable[[], Answer]) -> Answer:
        """`compute()`, remembered under `key`."""
        known = self._known.get(key)
        if known is not None:
            self._trace.asked |= known[1]
            return known[0]
        answer, asked = traced(self._trace, compute)
        self._known[key] = answer, asked
        return answer


class LastingMemo(Generic[Key, Answer]):
    """As `Memo`, of answers that outlive the trees which they were found in: no key and no answer holds a part of one."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: dict[Key, tuple[Answer, list[Question]]] = {}
        self._bits: dict[Key, tuple[int, int]] = {}
        """The questions as bits, with the numbering."""

    def get(self, key: Key, compute: Callable[[], Answer]) -> Answer:
        """`compute()`, remembered under `key`."""
        trace = self._trace
        if key not in self._known:
            outer, trace.asked = trace.asked, 0
            try:
                answer = compute()
                self._known[key] = answer, trace.questions()
                self._bits[key] = trace.numbering, trace.asked
            finally:
                trace.asked |= outer
            return answer
        answer, questions = self._known[key]
        numbering, asked = self._bits[key]
        if numbering != trace.numbering:
            outer, trace.asked = trace.asked, 0
            for question in questions:
                trace.note(*question)
            self._bits[key] = trace.numbering, trace.asked
            asked, trace.asked = trace.asked, outer
        trace.asked |= asked
        return answer

    def clear(self) -> None:
        """Forget all answers, because a text is another one."""
        self._known.clear()
        self._bits.clear()


def traced(trace: Trace, compute: Callable[[], Answer]) -> tuple[Answer, int]:
    """What `compute()` gives, and what was asked for it."""
    outer, trace.asked = trace.asked, 0
    try:
        answer = compute()
    finally:
        asked, trace.asked = trace.asked, outer | trace.asked
    return answer, asked
