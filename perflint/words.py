"""Tables of names, written as running text; nouns with their numbers; names as they are looked up in texts."""

import re
from functools import cache


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
def call_pattern(*names: str) -> re.Pattern[bytes]:
    """What finds the calls of some names in a text, whatever stands before the parenthesis."""
    found = []
    for name in map(re.escape, names):
        word = name.encode()  # first the literal, for which a search jumps, and then that no longer name ends with it
        found.append(word + (b"" if name.startswith("\\.") else rb"(?<!\w" + word + b")") + rb"[\s\\]*\(")
    return re.compile(b"|".join(found))
