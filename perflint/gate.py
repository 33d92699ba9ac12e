"""Which texts of a file a rule needs to see, by bytes alone: most of a program stops here.

Each word is looked for once per file, whatever the number of rules that ask for it and of functions that hold it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cache, cached_property

Word = str | re.Pattern[bytes]
"""A word as it stands in the text, or a pattern over the text's bytes."""

_Needle = bytes | re.Pattern[bytes]

_LITERAL = re.compile(rb"(?:\w|[ ,=:@'\"]|\\[^\w\s])+(?![*?{])")


@cache
def beginning(pattern: re.Pattern[bytes]) -> bytes:
    """The literal that each match of a pattern begins with; empty when there is none, as far as this shows."""
    outside = re.sub(rb"\[[^]]*\]", b"", re.sub(rb"\\.", b"", pattern.pattern, flags=re.S))
    while (flatter := re.sub(rb"\([^()]*\)", b"", outside)) != outside:
        outside = flatter
    found = _LITERAL.match(pattern.pattern)
    if found is None or b"|" in outside or pattern.flags & (re.I | re.X):
        return b""
    return found.group().replace(b"\\", b"")


@cache
def _same(group: tuple[_Needle, ...]) -> tuple[_Needle, ...]:
    """One object for equal groups, so that what is found out about one counts for all rules that have it."""
    return group


class Gate:
    """For each group of `groups`, a text must hold one of its words or match one of its patterns.

    words: the groups as plain text, each begun by an empty word. Patterns are compiled when they are first needed.
    """

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    @classmethod
    def of(cls, groups: Iterable[Iterable[Word]]) -> Gate:
        """The gate of groups as a rule declares them; groups of plain words come first, for they are looked up faster."""
        needles = [tuple(word.encode() if isinstance(word, str) else word for word in group) for group in groups]
        needles.sort(key=lambda group: sum(not isinstance(needle, bytes) for needle in group))
        gate = cls(tuple(word for group in needles for word in ("", *map(_as_word, group))))
        gate.groups = tuple(_same(group) for group in needles)
        return gate

    @cached_property
    def groups(self) -> tuple[tuple[_Needle, ...], ...]:
        """Words and patterns to look for."""
        groups: list[list[_Needle]] = []
        for word in self.words:
            kind, _, text = word.partition(" ")
            if not word:
                groups.append([])
            else:
                groups[-1].append(text.encode() if kind == "word" else re.compile(text.encode(), int(kind)))
        return tuple(_same(tuple(group)) for group in groups)

    @cached_property
    def _hash(self) -> int:
        return hash(self.words)

    def __hash__(self) -> int:
        """Worked out once, for gates are asked for by file."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gate) and self.words == other.words

    def passes(self, text: bytes) -> bool:
        """Whether the text holds what every group asks for."""
        return all(any(_holds(text, needle) for needle in group) for group in self.groups)


class Needles:
    """What a file's text holds. Text 0 is what stands outside the functions, text i the i-th outermost function.

    A pattern that begins with no literal is slow to look for, so only texts that pass all else are searched for it.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._first: dict[bytes, int] = {}
        self._matches: dict[int, bool] = {}
        self._opened: dict[int, bool] = {}
        """By the identity of needles and groups, which live as long as the rules do."""
        self._texts: dict[bytes, int] = {}
        self._spans: list[tuple[int, int]] = []
        self._starts: list[int] = []

    def opens(self, gate: Gate) -> bool:
        """Whether the file as a whole may pass a gate."""
        for group in gate.groups:
            known = self._opened.get(id(group))
            if known is None:
                known = self._opened[id(group)] = any(map(self._may_stand, group))
            if not known:
                return False
        return True

    def cut(self, spans: Sequence[tuple[int, int]]) -> None:
        """Tell where the outermost functions stand, in order."""
        self._spans = list(spans)
        self._starts = [start for start, _ in spans]

    def texts(self, gate: Gate) -> int:
        """The texts that pass a gate, as a bit set."""
        passing = (1 << (len(self._spans) + 1)) - 1
        for group in gate.groups:
            held = 0
            for needle in group:
                if isinstance(needle, bytes):
                    held |= self._holding(needle)
            for needle in group:
                if not isinstance(needle, bytes) and passing & ~held:
                    held |= self._matching(needle, passing & ~held)
            passing &= held
            if not passing:
                break
        return passing

    def _may_stand(self, needle: _Needle) -> bool:
        if isinstance(needle, bytes):
            return self._position(needle) >= 0
        known = self._matches.get(id(needle))
        if known is None:
            first = self._position(literal) if (literal := beginning(needle)) else 0
            known = first >= 0 and (not literal or needle.search(self._body, first) is not None)
            self._matches[id(needle)] = known
        return known

    def _matching(self, pattern: re.Pattern[bytes], among: int) -> int:
        """Those of some texts that match a pattern."""
        if not self._may_stand(pattern):
            return 0
        literal = beginning(pattern)
        if literal:
            among &= self._holding(literal)
        held = 0
        for index in range(among.bit_length()):
            if among >> index & 1 and any(pattern.search(self._body, start, end) for start, end in self._parts(index)):
                held |= 1 << index
        return held

    def _parts(self, index: int) -> Sequence[tuple[int, int]]:
        """Where a text stands: the one outside the functions in several parts."""
        if index:
            return self._spans[index - 1 : index]
        ends = [0, *(end for _, end in self._spans)]
        return list(zip(ends, [*self._starts, len(self._body)], strict=True))

    def _position(self, word: bytes) -> int:
        at = self._first.get(word)
        if at is None:
            at = self._first[word] = self._body.find(word)
        return at

    def _holding(self, needle: bytes) -> int:
        held = self._texts.get(needle)
        if held is None:
            held = 0
            at = self._position(needle)
            while at >= 0:
                index = bisect_right(self._starts, at)
                if index and at < self._spans[index - 1][1]:
                    held |= 1 << index
                    at = self._body.find(needle, self._spans[index - 1][1])
                else:
                    held |= 1
                    at = self._body.find(needle, self._starts[index]) if index < len(self._starts) else -1
            self._texts[needle] = held
        return held


def _as_word(needle: _Needle) -> str:
    return f"word {needle.decode()}" if isinstance(needle, bytes) else f"{needle.flags} {needle.pattern.decode()}"


def _holds(text: bytes, needle: _Needle) -> bool:
    return needle in text if isinstance(needle, bytes) else needle.search(text) is not None
