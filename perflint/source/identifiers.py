"""Where identifiers stand in a text, and which may be assigned there; found without parsing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from perflint.source.chunks import STRING_OR_COMMENT
from perflint.source.words import any_layout, made

_ATTRIBUTE = any_layout(rb"\. (\w+)")
_RIGHT_BEHIND = made(rb"\.([\w\x80-\xff]+)")

_OPENS = any_layout(rb" \(")

_FORMATTED = made(rb"[fFtT]")

_WORD_BYTES = frozenset(bytes((byte,)) for byte in range(256) if re.match(rb"\w", bytes((byte,))))
_TARGETS = made(
    rb"(?:^|(?<=[;:=]))[ \t\f]*([(\[*.]*\w(?:[^=\n;:(]|(?<=\\)\n|(?<=\\\r)\n|(?<=[,\[( ])\()*)"
    rb"(?:(?<![=!<>])|(?<=<<)|(?<=>>))=(?!=)"
    rb"|^[ \t\f]*[(\[*]*(\w[\w., \t]*,)[ \t]*\\?\r?$"
    rb"|(?:^|(?<=[;:]))[ \t\f]*(\w+[ \t]*\.[ \t]*\w+)[ \t]*:|\b(?:as|for)\b([^\n]*?)(?:\bin\b|:)",
    re.M,
)
"""What may be assigned: `a.x = a.y, a.z =`, `a.x +=`; `(a.x,` at the end of a line; `a.x:`; `for a.x in`, `as a.x`.

Finds too much rather than too little.
"""


def is_renamed(name: str, text: bytes, places: Iterable[int] | None = None) -> bool:
    """Whether what goes by a name in a text may get a second one by `as`.

    places: where the name stands in the text, if that is known.
    """
    word = name.encode()
    return any(_AS.match(text, at + len(word)) for at in (occurrences(word, text) if places is None else places))


_AS = made(rb"(?:[\s\\]|#[^\n]*\n)+as\b")


def stands_in_code(name: str, text: bytes) -> bool:
    """Whether an identifier stands in a text outside of comments and strings; what an f-string holds counts."""
    places = list(occurrences(name.encode(), text))
    for token in STRING_OR_COMMENT.finditer(text) if places else ():
        start, end = token.span()
        if places[0] < start:
            return True
        if text[start : start + 1] == b"#" or not _FORMATTED.search(text, max(start - 2, 0), start):
            places = [place for place in places if place >= end]
            if not places:
                return False
    return bool(places)


def is_named(name: str, text: bytes) -> bool:
    """Whether a text uses an identifier, or has it as a text of its own: `getattr(engine, "run")`."""
    word = name.encode()
    ends = (slice(at + len(word), at + len(word) + 1) for at in occurrences(word, text) if text[at - 1 : at] in (b"'", b'"'))
    return any(text[end] in (b"'", b'"') for end in ends) or stands_in_code(name, text)


def stands_in(word: bytes, text: bytes) -> bool:
    """Whether an identifier stands in a text."""
    return next(occurrences(word, text), None) is not None


def occurrences(word: bytes, text: bytes) -> Iterator[int]:
    """Where an identifier stands in a text."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if text[at - 1 : at] not in _WORD_BYTES and text[end : end + 1] not in _WORD_BYTES:
            yield at
        at = text.find(word, end)


def calls_of(name: str, text: bytes) -> Iterator[int]:
    """Where a text calls a function or method by a name, whatever stands before the parenthesis.

    As `call_pattern` finds them, without a pattern for each name.
    """
    word = name.encode()
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if text[at - 1 : at] not in _WORD_BYTES and _OPENS.match(text, end):
            yield at
        at = text.find(word, end)


def is_called(name: str, text: bytes) -> bool:
    """Whether a text calls a function or method by a name."""
    return next(calls_of(name, text), None) is not None


def attributes_in(text: bytes) -> frozenset[bytes]:
    """The attributes that stand in a text right behind a dot."""
    return frozenset(_RIGHT_BEHIND.findall(text))


@lru_cache
def _registered(name: bytes) -> re.Pattern[bytes]:
    return any_layout(rb"register_(?:buffer|parameter) \( [\"']" + re.escape(name) + rb"\b")


def may_assign(text: bytes, name: bytes, held: frozenset[bytes] | None = None) -> bool:
    """Whether an attribute stands in a text where something may be assigned to it, or is registered by its name.

    held: the attributes that stand in the text, if they are known.
    """
    if b"register_" in text and _registered(name).search(text):
        return True
    if held is not None and name not in held:
        return False
    attribute = b"." + name
    at = text.find(attribute)
    while at >= 0:
        end = at + len(attribute)
        if text[end : end + 1] not in _WORD_BYTES and text[end : end + 1] not in b"(.[":
            first, last = _line_around(text, at)
            if _is_read(text[first:at], text[end:last]):
                at = text.find(attribute, end)
                continue
            found = (targets[targets.lastindex or 0] for targets in _TARGETS.finditer(text[first:last]))
            if any(name in _ATTRIBUTE.findall(targets) for targets in found):
                return True
            end = last
        at = text.find(attribute, end)
    return False


def _is_read(before: bytes, behind: bytes) -> bool:
    """Whether an attribute is none of a line's targets, by a look at what stands around it in the line."""
    bound = b"=" in behind or behind.lstrip().startswith(b":") or behind.rstrip().endswith((b",", b"\\"))
    return not bound and b"for" not in before and b"as" not in before


def _line_around(text: bytes, at: int) -> tuple[int, int]:
    """Where the line with an offset begins and ends, with the lines that backslashes join to it."""
    first, last = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
    while text.endswith((b"\\\n", b"\\\r\n"), 0, first):
        first = text.rfind(b"\n", 0, first - 1) + 1
    while last >= 0 and text.endswith((b"\\", b"\\\r"), 0, last):
        last = text.find(b"\n", last + 1)
    return first, last if last >= 0 else len(text)
