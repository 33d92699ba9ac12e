"""The words of a text, each once: what a text cannot hold shows in them, and they are a fraction of it.

A pattern is looked for in a text only where the letters, digits and underscores that it needs stand among the text's words.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import Union

from perflint.source.words import made

Needs = tuple[tuple[Union[bytes, "Needs"], ...], ...]
"""Alternatives, each a conjunction of parts of words and of further needs; an empty conjunction needs nothing."""

_WORD_BYTES = bytes(c for c in range(128) if chr(c).isalnum() or c == ord("_"))
_SPACED = bytes(c if c in _WORD_BYTES else ord(" ") for c in range(256))
_NOTHING: Needs = ((),)

_ATOM = made(
    rb"(?P<edge>\\b)|(?P<literal>\w)|\\x(?P<hex>[0-9a-f]{2})|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"
    rb"|\(\?<!(?:\\w|\[[^]]*\\w[^]]*\])(?P<begun>\w+)\)|(?P<open>\((?:\?:|\?P<\w+>|(?!\?)))|(?P<look>\(\?)|(?P<close>\))"
    rb"|(?P<bar>\|)|.",
    re.S,
)
_ONE_OF = made(rb"((?:\\b|\(\?<!\\.\))?)\(\?:(\w+(?:\|\w+)+)\)(?![*+?{])")
_REFERENCE = made(rb"\\[1-9]|\(\?(?:P=|\(|[aiLmsux]+\))")
_REPEATED = made(rb"(?:(?P<optional>[*?]|\{0?,\d*\}|\{0\})|\+|\{\d+(?:,\d*)?\})[?+]?")


def vocabulary(text: bytes) -> bytes:
    """The words of a text, each once, with a line end on both sides."""
    return b"\n%b\n" % b"\n".join(words_in(text))


def words_in(text: bytes) -> set[bytes]:
    """The words of a text."""
    return set(text.translate(_SPACED).split())


def may_hold(words: bytes, pattern: re.Pattern[bytes]) -> bool:
    """Whether a text with these words (see `vocabulary`) may match a pattern."""
    return _are_met(needs_of(pattern), words)


def _are_met(needs: Needs, words: bytes) -> bool:
    for branch in needs:
        for need in branch:
            if not (need in words if isinstance(need, bytes) else _are_met(need, words)):
                break
        else:
            return True
    return False


def holds(text: bytes, words: bytes, pattern: re.Pattern[bytes]) -> bool:
    """Whether a text with these words matches a pattern; an alternative whose words it lacks is not searched for."""
    return any(may_hold(words, branch) and branch.search(text) is not None for branch in branches(pattern))


@cache
def branches(pattern: re.Pattern[bytes]) -> tuple[re.Pattern[bytes], ...]:
    """The alternatives that a pattern consists of: one alone may begin with a literal, for which a search jumps."""
    text = pattern.pattern
    if b"|" not in text or pattern.flags & re.X or _REFERENCE.search(text):
        return (pattern,)
    bars, depth, at = [-1], 0, 0
    while (atom := _ATOM.match(text, at)) is not None:
        at = atom.end()
        depth += bool(atom["open"] or atom["look"]) - bool(atom["close"])
        if atom["bar"] and depth == 0:
            bars.append(atom.start())
    bars.append(len(text))
    parts = [part for start, end in pairwise(bars) for part in _spread(text[start + 1 : end])]
    return tuple(made(part, pattern.flags) for part in parts) if len(parts) > 1 else (pattern,)


def _spread(branch: bytes) -> list[bytes]:
    """A branch that begins with one of several literals, as one branch for each."""
    begun = _ONE_OF.match(branch)
    return [begun[1] + name + branch[begun.end() :] for name in begun[2].split(b"|")] if begun is not None else [branch]


@cache
def needs_of(pattern: re.Pattern[bytes]) -> Needs:
    """What of a text's words each match of a pattern holds, as far as the pattern tells."""
    return _NOTHING if pattern.flags & (re.I | re.X | re.L) else _Reader(pattern.pattern).alternatives()


class _Reader:
    """Reads a pattern once, from left to right; what it does not know of the syntax needs nothing."""

    def __init__(self, pattern: bytes) -> None:
        self._pattern, self._at = pattern, 0
        self._goes_on = False
        """Whether the branch that was read last ended at a bar."""

    def alternatives(self) -> Needs:
        """What is needed up to the end of the group that the reader is in."""
        branches = [self._branch()]
        while self._goes_on:
            branches.append(self._branch())
        return _NOTHING if () in branches else tuple(branches)

    def _branch(self) -> tuple[bytes | Needs, ...]:
        needed: list[bytes | Needs] = []
        run = b""
        while (atom := _ATOM.match(self._pattern, self._at)) is not None:
            self._at = atom.end()
            inner: Needs = _NOTHING
            if atom["open"] or atom["look"]:
                inner = self.alternatives()
            repeated = None if atom["close"] or atom["bar"] else _REPEATED.match(self._pattern, self._at)
            optional = repeated is not None and bool(repeated["optional"])
            self._at = repeated.end() if repeated is not None else self._at
            literal = bytes((int(atom["hex"], 16),)) if atom["hex"] else atom["literal"] or b""
            if literal and literal in _WORD_BYTES and not optional:
                run += literal
                if repeated is None:
                    continue
            if atom["begun"]:
                run = b"\n" + run if run == atom["begun"] else run
                continue
            if run.lstrip(b"\n"):
                needed.append(run + b"\n" if atom["edge"] else run)
            run = b"\n" if atom["edge"] else b""
            if inner != _NOTHING and not optional and not atom["look"]:
                needed.append(inner)
            if atom["bar"] or atom["close"]:
                self._goes_on = bool(atom["bar"])
                return tuple(needed)
        if run.lstrip(b"\n"):
            needed.append(run)
        self._goes_on = False
        return tuple(needed)
