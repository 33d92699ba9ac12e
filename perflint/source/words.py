"""Tables of names, written as running text; nouns with their numbers; how names and code are looked up in texts."""

import re
from functools import cache

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
    return f"{name} ", re.compile(name.encode() + rb"[\s\\(]")


@cache
def any_layout(pattern: bytes, flags: int = 0) -> re.Pattern[bytes]:
    r"""A pattern over code, in which a blank stands for whatever may stand between two tokens: `\. item \(`.

    So what it finds does not depend on how somebody, or a formatter, breaks lines.
    """
    return re.compile(pattern.replace(b" ", BETWEEN), flags)


class Unread:
    """What `any_layout` gives, made when it is first asked for: to compile a pattern takes longer than many a search."""

    def __init__(self, pattern: bytes, flags: int = 0) -> None:
        self._pattern, self._flags = pattern, flags

    @property
    def pattern(self) -> re.Pattern[bytes]:
        """The pattern."""
        return any_layout(self._pattern, self._flags)


def whole(*names: str) -> bytes:
    """The part of a pattern that finds some identifiers: each begins with a literal, for which a search jumps."""
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
