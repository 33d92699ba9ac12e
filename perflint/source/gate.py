"""Which texts of a file a rule needs to see, by bytes alone: most of a program stops here.

Each word is looked for once per file, whatever the number of rules that ask for it and of functions that hold it. Words are
looked for in the text without its white space, so that they are found however the code is laid out; a word that holds white
space itself, and a pattern, is looked for in the text as it stands. Patterns that do not depend on the layout, either, are made
by `words.any_layout`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property

from perflint.source.vocabulary import may_hold, vocabulary
from perflint.source.words import BETWEEN, made

Word = str | re.Pattern[bytes]
"""A word as it stands in the text, or a pattern over the text's bytes."""

_Needle = bytes | re.Pattern[bytes]

LOOKS_WITHOUT_WORDS = 16
"""How many needles a text is searched for before its words are listed, which takes as long as about so many searches."""

_WHITE_SPACE = b" \t\n\r\f\\"
_WORD = made(rb"\w+")
_LITERAL = made(rb"(?:\w|[ ,=:@'\"]|\\[^\w\s])+(?![*?{])")


@cache
def beginning(pattern: re.Pattern[bytes]) -> bytes:
    """What each match of a pattern begins with, without white space; empty when there is none, as far as this shows."""
    text = pattern.pattern.replace(BETWEEN, b"")
    outside = re.sub(rb"\[[^]]*\]", b"", re.sub(rb"\\.", b"", text, flags=re.S))
    while (flatter := re.sub(rb"\([^()]*\)", b"", outside)) != outside:
        outside = flatter
    found = _LITERAL.match(text.removeprefix(rb"\b"))
    if found is None or b"|" in outside or pattern.flags & (re.I | re.X):
        return b""
    return squeezed(found.group())


def squeezed(text: bytes) -> bytes:
    """A text without white space and backslashes: no layout changes it, but for comments and commas at the end of brackets."""
    return text.translate(None, _WHITE_SPACE)


@cache
def _has_white_space(word: bytes) -> bool:
    return squeezed(word) != word


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
        self._made: list[tuple[_Needle, ...]] = []

    @classmethod
    def of(cls, groups: Iterable[Iterable[Word]]) -> Gate:
        """The gate of groups as a rule declares them; groups of plain words come first, for they are looked up faster."""
        needles = [tuple(map(_needle, group)) for group in groups]
        needles.sort(key=lambda group: sum(not isinstance(needle, bytes) for needle in group))
        gate = cls(tuple(word for group in needles for word in ("", *map(_as_word, group))))
        gate._made = [_same(group) for group in needles]
        return gate

    @property
    def groups(self) -> tuple[tuple[_Needle, ...], ...]:
        """Words and patterns to look for."""
        return tuple(self.in_turn())

    def in_turn(self) -> Iterator[tuple[_Needle, ...]]:
        """`groups` one by one: patterns are compiled when their group's turn comes, and many texts lack what comes before."""
        return iter(self._made) if len(self._made) == len(self._declared) else self._made_in_turn()

    def _made_in_turn(self) -> Iterator[tuple[_Needle, ...]]:
        for index, words in enumerate(self._declared):
            if index == len(self._made):
                self._made.append(_same(tuple(map(_as_needle, words))))
            yield self._made[index]

    @cached_property
    def parts(self) -> tuple[Gate, ...]:
        """A gate for each group: different texts may hold what these ask for."""
        return tuple(Gate(("", *words)) for words in self._declared)

    @cached_property
    def _declared(self) -> list[list[str]]:
        """The words of each group, as `words` has them."""
        groups: list[list[str]] = []
        for word in self.words:
            if not word:
                groups.append([])
            else:
                groups[-1].append(word)
        return groups

    @cached_property
    def _hash(self) -> int:
        return hash(self.words)

    def __hash__(self) -> int:
        """Worked out once, for gates are asked for by file."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gate) and self.words == other.words

    def widened(self, group: Iterable[str], others: Iterable[str]) -> Gate:
        """The gate with further words for one of its groups of words."""
        wanted = tuple(word.encode() for word in group)
        return Gate.of(
            [
                *(needle.decode() if isinstance(needle, bytes) else needle for needle in held),
                *(sorted(others) if held == wanted else ()),
            ]
            for held in self.groups
        )

    def passes(self, text: bytes) -> bool:
        """Whether the text holds what every group asks for."""
        return all(any(_holds(text, needle) for needle in group) for group in self.in_turn())


@cache
def _longest_word(needle: bytes) -> bytes:
    """The longest part of a needle that white space cannot divide."""
    return max(_WORD.findall(needle), key=len, default=b"")


class _Words:
    """The words of a file's text, listed once many were looked for: most texts that no rule wants lack one of the first."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._looks = 0

    def may_hold(self, needle: bytes) -> bool:
        """Whether the text may hold a needle, as far as its words tell."""
        self._looks += 1
        return self._looks <= LOOKS_WITHOUT_WORDS or _longest_word(needle) in self.listed

    @cached_property
    def listed(self) -> bytes:
        """The words, as `vocabulary` gives them."""
        return vocabulary(self._text)


class _Text:
    """A file's text, as it stands or without its white space, and where words stand in it.

    Part 0 is what stands outside of the functions, part i the i-th outermost function.
    """

    def __init__(self, text: bytes, words: _Words) -> None:
        self.text = text
        self._words = words
        self.spans: list[tuple[int, int]] = []
        self._starts: list[int] = []
        self._first: dict[bytes, int] = {}
        self._parts: dict[bytes, int] = {}

    def cut(self, spans: list[tuple[int, int]]) -> None:
        """Tell where the outermost functions stand, in order."""
        self.spans = spans
        self._starts = [start for start, _ in spans]

    def position(self, word: bytes) -> int:
        """Where a word stands first, or -1."""
        at = self._first.get(word)
        if at is None:
            at = self._first[word] = self.text.find(word) if self._words.may_hold(word) else -1
        return at

    def holding(self, word: bytes) -> int:
        """The parts that hold a word, as a bit set."""
        held = self._parts.get(word)
        if held is None:
            held = 0
            at = self.position(word)
            while at >= 0:
                index = bisect_right(self._starts, at)
                if index and at < self.spans[index - 1][1]:
                    part, end = index, self.spans[index - 1][1]
                else:
                    part, end = 0, self._starts[index] if index < len(self._starts) else len(self.text)
                stands = at + len(word) <= end
                held |= stands << part
                at = self.text.find(word, end if stands else at + 1)
            self._parts[word] = held
        return held

    def part(self, index: int) -> Sequence[tuple[int, int]]:
        """Where a part stands: the one outside of the functions in several pieces."""
        if index:
            return self.spans[index - 1 : index]
        ends = [0, *(end for _, end in self.spans)]
        return list(zip(ends, [*self._starts, len(self.text)], strict=True))


class Needles:
    """What the parts of a file's text hold (see `_Text`).

    A pattern that begins with no literal is slow to look for, so only parts that pass all else are searched for it.
    """

    def __init__(self, body: bytes) -> None:
        self._words = _Words(body)
        self._body = _Text(body, self._words)
        self._squeezed = _Text(squeezed(body), self._words)
        self._matches: dict[int, bool] = {}
        self._opened: dict[int, bool] = {}
        """By the identity of needles and groups, which live as long as the rules do."""

    def opens(self, gate: Gate) -> bool:
        """Whether the file as a whole may pass a gate."""
        for group in gate.in_turn():
            known = self._opened.get(id(group))
            if known is None:
                known = self._opened[id(group)] = any(map(self._may_stand, group))
            if not known:
                return False
        return True

    def cut(self, spans: Sequence[tuple[int, int]]) -> None:
        """Tell where the outermost functions stand, in order."""
        self._body.cut(list(spans))
        at = last = 0
        without: list[tuple[int, int]] = []
        for start, end in spans:
            first = at + len(squeezed(self._body.text[last:start]))
            at = first + len(squeezed(self._body.text[start:end]))
            without.append((first, at))
            last = end
        self._squeezed.cut(without)

    def texts(self, gate: Gate) -> int:
        """The parts that pass a gate, as a bit set."""
        passing = (1 << (len(self._body.spans) + 1)) - 1
        for group in gate.in_turn():
            held = 0
            for needle in group:
                if isinstance(needle, bytes):
                    held |= self._text_for(needle).holding(needle)
            for needle in group:
                if not isinstance(needle, bytes) and passing & ~held:
                    held |= self._matching(needle, passing & ~held)
            passing &= held
            if not passing:
                break
        return passing

    def _text_for(self, word: bytes) -> _Text:
        return self._body if _has_white_space(word) else self._squeezed

    def _may_stand(self, needle: _Needle) -> bool:
        if isinstance(needle, bytes):
            return self._text_for(needle).position(needle) >= 0
        known = self._matches.get(id(needle))
        if known is None:
            literal = beginning(needle)
            first = self._squeezed.position(literal) if literal else 0  # not behind the place in the text with white space
            known = first >= 0 and may_hold(self._words.listed, needle)
            known = known and (not literal or needle.search(self._body.text, first) is not None)
            self._matches[id(needle)] = known
        return known

    def _matching(self, pattern: re.Pattern[bytes], among: int) -> int:
        """Those of some parts that match a pattern."""
        if not self._may_stand(pattern):
            return 0
        literal = beginning(pattern)
        if literal:
            among &= self._squeezed.holding(literal)
        held = 0
        body = self._body
        for index in range(among.bit_length()):
            if among >> index & 1 and any(pattern.search(body.text, start, end) for start, end in body.part(index)):
                held |= 1 << index
        return held


def _needle(word: Word | _Needle) -> _Needle:
    if isinstance(word, str):
        return word.encode()
    return word if isinstance(word, bytes) else made(word.pattern, int(word.flags))


def _as_word(needle: _Needle) -> str:
    return f"word {needle.decode()}" if isinstance(needle, bytes) else f"{needle.flags} {needle.pattern.decode()}"


def _as_needle(word: str) -> _Needle:
    kind, _, text = word.partition(" ")
    return text.encode() if kind == "word" else made(text.encode(), int(kind))


def _holds(text: bytes, needle: _Needle) -> bool:
    if not isinstance(needle, bytes):
        return needle.search(text) is not None
    return needle in (text if _has_white_space(needle) else squeezed(text))
