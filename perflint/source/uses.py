"""Where texts use what modules define, found without parsing: calls, references, and names in quotes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache

from perflint.source.chunks import STRING_OR_COMMENT
from perflint.source.identifiers import occurrences
from perflint.source.records import dataclass
from perflint.source.texts import IMPORT
from perflint.source.words import any_layout, made

_RENAMES = made(rb"\bas[ \t]+\Z")
_RENAMED = made(rb"[ \t]+as\b")
_OWNER = made(rb"(\w*)[)\]]*[ \t]*\.[ \t]*\Z")
_ATTRIBUTE = made(rb"[ \t]*[.\w]|[ \t]*=(?!=)")
_KEYWORD = made(rb"[ \t]*=(?!=)")
_LOOKS_UP = any_layout(rb"\b(?:getattr|globals|locals|vars|eval|exec|import_module|instantiate|get_class) \(|__dict__|__all__")
"""What may find by a name in quotes what a text imports."""
_FORMATTED = made(rb"(?:\A|\W)(?:[rR]?[fFtT]|[fFtT][rR])\Z")
_OUTERMOST = made(rb"^(?:(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)|(if[ \t]+__name__\b)|[^\s#)\]}\"'])", re.M)

_WORD = made(rb"[\w-]+")
_INDENTED = made(rb":[ \t]*(?:#[^\r\n]*)?\r?\n(?:[ \t]*\r?\n)*([ \t]+)\S")
_ENDS_ALL = made(rb"\n([ \t]+)(?:(?:sys|os)\.)?(?:_?exit|quit)\([^\r\n]*\)[ \t]*\r?(?=\n)")
MAX_QUOTED = 200
"""Longer strings are prose."""

RUN_ALONE = b"__name__"
"""Stands for the code that runs only if a file is run itself."""


def places_in_code(word: bytes, text: bytes) -> list[int]:
    """Where an identifier stands in a text outside of comments and prose: alone in quotes and in an f-string it counts."""
    places = list(occurrences(word, text))
    for token in STRING_OR_COMMENT.finditer(text) if places else ():
        start, end = token.span()
        if start > places[-1]:
            break
        formatted = text[start : start + 1] != b"#" and _FORMATTED.search(text, max(start - 3, 0), start)
        if formatted or text[start:end].strip(b"'\"") == word:
            continue
        places = [place for place in places if not start <= place < end]
        if not places:
            break
    return places


def uses_here(word: bytes, text: bytes) -> Iterator[int]:
    """Where a text may use what it defines under a name: as a name or in quotes, not as an attribute or a keyword."""
    for at in places_in_code(word, text):
        if _OWNER.search(text, max(at - 80, 0), at) or _KEYWORD.match(text, at + len(word)):
            continue
        yield at


def uses_of(word: bytes, stem: str, text: bytes, *, handed_on: bool = False) -> Iterator[int]:
    """Where a text may use what a module holds under a name: it imports the name and has it elsewhere, or asks the module.

    stem: the module's last name. handed_on: a package hands the name on, so that any attribute of that name may be meant. An
    import alone is no use, and neither is an attribute of anything else.
    """
    text = b"\n" + text
    statements = list(IMPORT.finditer(text))
    places = places_in_code(word, text)
    inside = {at for at in places for statement in statements if statement.start() <= at < statement.end()}
    own = [at for at in inside if not _RENAMES.search(text, max(at - 8, 0), at)]
    yield from (at - 1 for at in own if _RENAMED.match(text, at + len(word)))
    is_bound = bool(own) or any(b"*" in (s[3] or b"") or s.group().rstrip().endswith(b"\\") for s in statements)
    looks_up = _LOOKS_UP.search(text) is not None
    modules = {stem.encode(), *re.findall(rb"\b%b[ \t]+as[ \t]+(\w+)" % re.escape(stem.encode()), text)}
    handed_on |= any(_is_handed_on(name, text, statements) for name in modules)
    for at in places:
        if at in inside:
            continue
        behind = _OWNER.search(text, max(at - 80, 0), at)
        if text[at - 1 : at] in (b"'", b'"'):
            may_be_meant = looks_up
        elif behind is not None:
            may_be_meant = handed_on or behind[1] in modules
        else:
            may_be_meant = is_bound
        if may_be_meant:
            yield at - 1


def _is_handed_on(module: bytes, text: bytes, statements: list[re.Match[bytes]]) -> bool:
    """Whether a text has a module as an object: `models = {"unet": unet}`, after which any attribute may be one of it."""
    if not any(module in (s[3] or b"") or module in (s[4] or b"") for s in statements):
        return False
    places = (at for at in places_in_code(module, text) if text[at - 1 : at] not in (b"'", b'"', b"."))
    outside = (at for at in places if not any(s.start() <= at < s.end() for s in statements))
    return any(not _ATTRIBUTE.match(text, at + len(module)) for at in outside)


def words_in_quotes(text: bytes) -> set[bytes]:
    """The words of a text's short strings, in lower case: they may be names that the code looks for."""
    strings = (token[0].strip(b"'\"") for token in STRING_OR_COMMENT.finditer(text) if token[0][:1] != b"#")
    return words_of(b"\n".join(string for string in strings if len(string) <= MAX_QUOTED))


def words_of(text: bytes) -> set[bytes]:
    """The words of a text, in lower case and as Python spells them: `u-net` is `u_net`."""
    found = set(_WORD.findall(text.lower()))
    return {part for word in found for part in (word, word.replace(b"-", b"_"), *word.split(b"-"))} if b"-" in text else found


@lru_cache(maxsize=64)
def without_comments(text: bytes) -> bytes:
    """A text without its comments."""
    return STRING_OR_COMMENT.sub(lambda token: b"" if token[0].startswith(b"#") else token[0], text)


@dataclass(frozen=True, slots=True)
class Part:
    """An outermost function or class of a text, from where its header begins, by its name; or other code, without one."""

    start: int
    name: bytes
    is_decorated: bool


@lru_cache(maxsize=256)
def parts(text: bytes) -> tuple[Part, ...]:
    """What a text consists of. The part that runs only if a file is run itself is called `RUN_ALONE`."""
    found: list[Part] = []
    decorated = False
    for match in _OUTERMOST.finditer(text):
        found.append(Part(match.start(), RUN_ALONE if match[2] else match[1] or b"", decorated))
        decorated = text[match.start() : match.start() + 1] == b"@"
    return tuple(found)


def part_around(place: int, text: bytes) -> bytes:
    """The name of the part of a text in which a place is."""
    found = parts(text)
    at = bisect_right(found, place, key=lambda part: part.start) - 1
    return found[at].name if at >= 0 else b""


def is_behind_exit(place: int, text: bytes) -> bool:
    """Whether a place in a function, or in what runs only by itself, stands behind a statement that always ends the program."""
    found = parts(text)
    at = bisect_right(found, place, key=lambda part: part.start) - 1
    if at < 0 or text.startswith(b"class", found[at].start) or not found[at].name:
        return False
    part = text[found[at].start : place]
    if b"exit(" not in part and b"quit(" not in part:
        return False
    first = _INDENTED.search(part)
    return first is not None and any(match[1] == first[1] for match in _ENDS_ALL.finditer(without_comments(part)))
