"""Patterns of .gitignore files and of `exclude`.

What a pattern means is pathspec's matter. But most patterns are plain names, and most paths hold nothing that any other pattern
asks for. These are told apart here, for to import pathspec takes as long as to list a thousand folders.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_NAME = re.compile(r"[\w.$~+@,=-]+/?")
_DOUBTFUL = re.compile(r"\\|^\s*!\s*$|\[[^\]]*-")
"""What may be no pattern: a backslash may stand at the end, a range of characters may be the wrong way round."""

_PIECE = re.compile(r"[*/]+|\?|\[[!^]?\]?[^\]]*\]|[^*/?\[]+")

Asked = Sequence[tuple[str, int]]
"""Texts that stand in a path one after the other, each followed by that many characters at least."""


class Ignores:
    """An ordered list of patterns, of which the last one that matches a path decides.

    strict: whether a line that is no pattern is an error; git passes over such lines.

    Raises:
        ValueError: a pattern is none.

    """

    def __init__(self, lines: Iterable[str], *, strict: bool = True) -> None:
        self._lines = [line for line in lines if line.strip() and not line.startswith("#") and (strict or _is_pattern(line))]
        self._names: dict[str, list[int]] = {}
        self._folders: dict[str, list[int]] = {}
        self._others: list[tuple[int, Asked]] = []
        self._specs: dict[tuple[int, ...], GitIgnoreSpec] = {}
        for index, line in enumerate(self._lines):
            if _NAME.fullmatch(line):
                (self._folders if line.endswith("/") else self._names).setdefault(line.rstrip("/"), []).append(index)
            else:
                self._others.append((index, _asked_for(line)))
                if strict and _DOUBTFUL.search(line):
                    ignore_spec([line])

    def verdict(self, path: str) -> bool | None:
        """Whether a path is ignored; None where no pattern matches it.

        path: relative to the folder of the patterns, with `/` between its parts, and at its end if it is a folder.
        """
        parts = path.split("/")
        found = [index for part in parts if part in self._names for index in self._names[part]]
        if self._folders:
            found += [index for part in parts[:-1] if part in self._folders for index in self._folders[part]]
        others = [index for index, asked in self._others if _holds(path, asked)]
        if not others:
            return True if found else None
        chosen = tuple(sorted({*found, *others}))
        if chosen not in self._specs:
            self._specs[chosen] = ignore_spec([self._lines[index] for index in chosen])
        return self._specs[chosen].check_file(path).include


def _is_pattern(line: str) -> bool:
    if not _DOUBTFUL.search(line):
        return True
    try:
        ignore_spec([line])
    except ValueError:
        return False
    return True


def _asked_for(pattern: str) -> Asked:
    """What a path must hold to match a pattern, as far as this shows at once."""
    asked: list[tuple[str, int]] = []
    text = pattern.strip().removeprefix("!")
    pieces = _PIECE.findall(text)
    if "\\" in text or "[:" in text or sum(map(len, pieces)) < len(text):
        return ()
    for piece in pieces:
        if piece[0] in "?[":
            literal, following = asked.pop() if asked else ("", 0)
            asked.append((literal, following + 1))
        elif piece[0] not in "*/":
            asked.append((piece, 0))
    return asked


def _holds(path: str, asked: Asked) -> bool:
    at = 0
    for literal, following in asked:
        found = path.find(literal, at)
        if found < 0:
            return False
        at = found + len(literal) + following
    return at <= len(path)


def ignore_spec(patterns: Iterable[str]) -> GitIgnoreSpec:
    """Patterns of .gitignore, in linear time: a `*` that another one follows takes as little as it can, once and for all.

    Otherwise a pattern with ten of them would be tried in each of the ways to share a long name between them.

    Raises:
        ValueError: a pattern is none.

    """
    from pathspec import GitIgnoreSpec, RegexPattern

    try:
        spec = GitIgnoreSpec.from_lines(patterns)
    except re.error as error:
        raise ValueError(str(error)) from None
    for pattern in spec.patterns:
        if isinstance(pattern, RegexPattern) and pattern.regex is not None and pattern.regex.pattern.count(_ANY) > 1:
            pattern.regex = re.compile(_linear(pattern.regex.pattern))
    return GitIgnoreSpec(spec.patterns)


_ANY = "[^/]*"
_PART = re.compile(r"\\.|\[\^/\]\*|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.S)


def _linear(regex: str) -> str:
    """A regular expression that pathspec made of a pattern, without backtracking into all but the last `*` of a segment."""
    parts = [f"(?!/){part}" if part.startswith("[^") and part != _ANY else part for part in _PART.findall(regex)]
    stars = [index for index, part in enumerate(parts) if part == _ANY]
    for number, (this, following) in enumerate(itertools.pairwise(stars)):
        if not any(part in ("/", "(", ")") for part in parts[this + 1 : following]):
            parts[this] = f"(?=(?P<star{number}>[^/]*?"
            parts[following - 1] += f"))(?P=star{number})"
    return "".join(parts)
