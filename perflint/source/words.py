"""Tables of names, written as running text; nouns with their numbers; how names and code are looked up in texts."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, AnyStr, Final, cast

BETWEEN = rb"(?:[\s\\]|#[^\n]*\n)*"
"""What may stand between two tokens: white space, backslashes and comments, or nothing."""


NO_MEMBER = rb"(?:\A|[^\w.\s\\]|\w[\s\\]+)[\s\\]*\b"
"""What stands before a name that is no attribute and no part of a longer one, however the code is laid out."""


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def plural(noun: str) -> str:
    """Several of what a regular noun names."""
    return noun + ("es" if noun.endswith(("ch", "s", "x")) else "s")


def counted(number: int, noun: str) -> str:
    """`1 fix`, `2 fixes`."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


@cache
def keyword(name: str) -> tuple[str, re.Pattern[bytes]]:
    """What finds a keyword in a text: the space behind it that nearly everybody writes, and what else may stand there."""
    return f"{name} ", made(name.encode() + rb"[\s\\(]")


_BORDER: Final = re.compile(
    rb"(?:\A|(?<=[|:]))(?:\\b|\(\?<!(\\.|\w+|\[\^?\]?(?:\\.|[^\]\\])*\])\))(?:(\w+)|\(\?:(\w+(?:\|\w+)*)\))(?![*+?{])"
)
"""Where a pattern, or an alternative of it, begins with what may not stand before a literal, or before one of several."""


def literal_first(pattern: bytes) -> bytes:
    r"""The same pattern, as fast as it can be searched for: a search jumps to a literal, but tries `\b` at each place.

    `\bname` becomes `name(?<!\wname)`, and `(?<!\.)(?:get|set)` becomes `(?:get(?<!\.get)|set(?<!\.set))`.
    """

    def turned(match: re.Match[bytes]) -> bytes:
        before, literal, literals = match[1] or rb"\w", match[2], match[3]
        behind = [rb"%b(?<!%b%b)" % (name, before, name) for name in (literal or literals).split(b"|")]
        return behind[0] if literal else rb"(?:%b)" % b"|".join(behind)

    return _BORDER.sub(turned, pattern)


class _Uncompiled:
    """What stands for a pattern until it is first searched for: many never are, and compiling takes time."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern, self.flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """What a compiled pattern does; from now on all of it is found at once."""
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(literal_first(self.pattern) if isinstance(self.pattern, bytes) else self.pattern, self.flags)
        for method in ("search", "match", "fullmatch", "findall", "finditer", "sub", "split"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return made, (self.pattern, self.flags)


_MADE: dict[tuple[type, str | bytes, int], _Uncompiled] = {}


def made(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """`re.compile`, as late as can be; the same pattern is the same object."""
    key = (type(pattern), pattern, int(flags))
    found = _MADE.get(key)
    if found is None:
        found = _MADE[key] = _Uncompiled(pattern, int(flags))
    return cast("re.Pattern[AnyStr]", found)


@cache
def any_layout(pattern: bytes, flags: int = 0) -> re.Pattern[bytes]:
    r"""A pattern over code, in which a blank stands for whatever may stand between two tokens: `\. item \(`.

    So what it finds does not depend on how somebody, or a formatter, breaks lines. A blank that is escaped, as `re.escape` does
    it in a file's name, is one.
    """
    return made(pattern.replace(rb"\ ", rb"\x20").replace(b" ", BETWEEN), int(flags))


def whole(*names: str) -> bytes:
    """The part of a pattern that finds some identifiers."""
    return b"|".join(rb"%b(?<!\w%b)\b" % (name, name) for name in map(str.encode, names))


@cache
def call_pattern(*names: str) -> re.Pattern[bytes]:
    """What finds the calls of some names in a text, whatever stands before the parenthesis."""
    found = []
    for name in names:  # first a literal, for which a search jumps, and then that no longer name ends with it
        first, *rest = map(re.escape, name.encode().split(b"."))  # what a text defines need be no identifier
        found.append(rb"(?<!\w".join((first, first)) + b")" if first else b"")
        found[-1] += b"".join(rb" \. " + word for word in rest) + rb" \("
    return any_layout(b"|".join(pattern.lstrip() for pattern in found))
