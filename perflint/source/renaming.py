"""What else a file calls a name that it takes from elsewhere, as its text says: `import as`, and one name given to another."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from perflint.source.identifiers import occurrences
from perflint.source.source import Source
from perflint.source.vocabulary import words_in
from perflint.source.words import BETWEEN, any_layout, made


def renamed(source: Source, names: Collection[str]) -> frozenset[str]:
    """The other names: `ec` of `from torch.cuda import empty_cache as ec` and of `ec = torch.cuda.empty_cache`."""
    return _renamed(source.body, frozenset(names))


def renamed_in(text: bytes, names: Collection[str]) -> frozenset[str]:
    """The same for the text of a file."""
    return _renamed(text, frozenset(names))


@lru_cache(maxsize=256)
def _renamed(body: bytes, names: frozenset[str]) -> frozenset[str]:
    found: set[str] = set()
    if len(names) > _FEW:
        words = words_in(body)
        names = frozenset(name for name in names if name.encode() in words)
    pending = set(names)
    while pending:
        for other in _others(pending.pop().encode(), body):
            if other not in names and other not in found:
                found.add(other)
                pending.add(other)
    return frozenset(found)


def _others(name: bytes, body: bytes) -> set[str]:
    """What a name gets for another one by `as`, or by being all that is given to a variable."""
    others: set[str] = set()
    may_be_given = False
    for at in occurrences(name, body):
        end = at + len(name)
        if (other := _AS.match(body, end)) is not None:
            others.add(other[1].decode())
        elif not may_be_given and not _GOES_ON.match(body, end):
            before = body[max(at - _LOOK_BACK, 0) : at]
            may_be_given = b"#" in before or before.rstrip(b" \t\r\n\f\\")[-1:] in (b"", b".", b"=")
    if may_be_given:
        given = any_layout(rb"= (?:\w+ \. )*%b\b(?![\t\x20]*[.(\[])" % name)
        if given.search(body):
            others.update(match[1].decode() for match in any_layout(rb"\b(\w+) " + given.pattern).finditer(body))
    return others


_AS = made(BETWEEN + rb"(?<=\s)as" + BETWEEN + rb"(?<=\s)(\w+)")
_GOES_ON = made(rb"[\t\x20]*[.(\[]")
_LOOK_BACK = 100
_FEW = 12
"""To look for so many names takes about as long as to list all of a text's words."""
