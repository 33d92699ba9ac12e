"""Where the outermost functions of a file stand, found by its indentation: nothing is parsed."""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections import Counter
from functools import cache

from perflint.source.records import dataclass
from perflint.source.source import Source
from perflint.source.words import made

STRING_OR_COMMENT = made(
    rb"#[^\r\n]*"
    rb"|\"\"\"[^\\\"]*(?:(?:\\.|\"(?!\"\"))[^\\\"]*)*(?:\"\"\"|\Z)"
    rb"|'''[^\\']*(?:(?:\\.|'(?!''))[^\\']*)*(?:'''|\Z)"
    rb"|\"[^\\\"\r\n]*(?:\\(?:\r\n|.)[^\\\"\r\n]*)*\"?"
    rb"|'[^\\'\r\n]*(?:\\(?:\r\n|.)[^\\'\r\n]*)*'?",
    re.S,
)

_TRIPLE_QUOTE = made(rb"\"\"\"|'''")
_QUOTE_OR_COMMENT = made(rb"[#\"']")
_CONTINUED_STRING = made(rb"[\"'][^\r\n]*\\\r?\n")
_DEFINITION = made(rb"\n([ \t\f]*)(?:(@)|(?:async[ \t]+)?def[ \t]+([^\s(\[:\\]+))")
_PLAIN_HEADER = made(rb"[ \t]*\([^()\[\]{}#\"'\\]*\)[ \t]*(?:->[ \t]*[\w.]+[ \t]*)?:")

_HEADER_TOKEN = made(rb"[()\[\]{}:]|" + STRING_OR_COMMENT.pattern, re.S)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The text of one outermost function, decorators included: rows are 1-based and inclusive, offsets are bytes.

    header_end: behind the colon before the function's own code.
    """

    name: str
    first_row: int
    last_row: int
    start: int
    end: int
    indent: bytes
    header_end: int


def split(source: Source) -> list[Chunk]:
    """Cut out the outermost functions by indentation; text inside strings and brackets is skipped."""
    body = source.body
    if b"def " not in body and b"def\t" not in body:
        return []
    chunks = _cut(_Lines(body))
    ends = [0, *(chunk.end for chunk in chunks)]
    outside = b"".join(body[a:b] for a, b in zip(ends, [*(chunk.start for chunk in chunks), len(body)], strict=True))
    if _is_unbalanced(outside, 0, len(outside)) and _depth(outside, 0, len(outside)) < 0:
        return _cut(_Lines(body, exact=True))  # a bracket in a comment or a string was taken for one of the code
    return chunks


def _cut(lines: _Lines) -> list[Chunk]:
    body = lines.body
    chunks: list[Chunk] = []
    decorator: tuple[int, int] | None = None
    at = counted = 0
    row = 1
    while (line := lines.search(_DEFINITION, at)) is not None:
        start = line.start()
        indent = line.group(1).rpartition(b"\f")[2]  # a form feed begins the line anew
        width = len(indent)
        if decorator is not None:
            own = lines.search(_line_of_code(width, rb"#)\]}@"), decorator[0] + 1, start) is None
            decorator = decorator if own and decorator[1] == width else None
        if line.group(2):
            decorator = decorator or (start, width)
            at = line.end()
            continue
        first = decorator[0] if decorator is not None else start
        header_end = _header_end(body, line.end() - 1)
        at = lines.end_of_function(first, header_end, width)
        row, counted = row + body.count(b"\n", counted, first), first
        last_row = row + body.count(b"\n", first, at - 1)
        chunks.append(Chunk(line.group(3).decode(), row, last_row, first, at, indent, header_end))
        decorator = None
    return chunks


class _Lines:
    """The lines of a text, searched by patterns that begin with the line end before the line.

    So a search jumps from line end to line end, and what it finds begins, in `body`, where the match does.

    exact: know brackets in comments and strings from others also where both kinds together are balanced.
    """

    def __init__(self, body: bytes, *, exact: bool = False) -> None:
        self.body, self._exact = body, exact
        self._text = b"\n" + body
        self._strings = _multiline_strings(body)

    def search(self, pattern: re.Pattern[bytes], at: int, end: int = sys.maxsize) -> re.Match[bytes] | None:
        """The first line behind `at` that begins a line of code and matches."""
        while (line := pattern.search(self._text, at, end)) is not None:
            if not self._continues(line.start()):
                return line
            at = line.start() + 1
        return None

    def end_of_function(self, first: int, at: int, width: int) -> int:
        """Where a function ends that begins at `first` and whose header ends at `at`: at the first line of code that is
        indented by no more than `width` and stands in no brackets.
        """
        scanned, depth = first, 0
        while (line := self.search(_line_of_code(width, b"#"), at + 1)) is not None:
            at = line.start()
            if _DEFINITION.match(self._text, at) or not (self._exact or _is_unbalanced(self.body, first, at)):
                return at
            depth, scanned = depth + _depth(self.body, scanned, at), at
            if depth <= 0:
                return at
        return len(self.body)

    def _continues(self, at: int) -> bool:
        """Whether the line at an offset goes on with a string or with the line before it."""
        nearest = bisect_left(self._strings, (at, 0)) - 1
        if nearest >= 0 and at < self._strings[nearest][1]:
            return True
        body = self.body
        return body.endswith((b"\\\n", b"\\\r\n"), 0, at) and b"#" not in body[body.rfind(b"\n", 0, at - 1) : at]


@cache
def _line_of_code(width: int, unless: bytes) -> re.Pattern[bytes]:
    """A line that is indented by at most `width` and begins with none of some characters."""
    return re.compile(rb"\n(?:[ \t]*\f)?[ \t]{0,%d}[^\s%b]" % (width, unless))


def _multiline_strings(body: bytes) -> list[tuple[int, int]]:
    """Where the strings stand that go over a line's end."""
    if (b"\\\n" in body or b"\\\r\n" in body) and _CONTINUED_STRING.search(body):
        return [m.span() for m in STRING_OR_COMMENT.finditer(body) if b"\n" in m.group()]
    found: list[tuple[int, int]] = []
    at = 0
    while (quote := _TRIPLE_QUOTE.search(body, at)) is not None:
        line = max(at, body.rfind(b"\n", 0, quote.start()) + 1)
        before = _QUOTE_OR_COMMENT.search(body, line, quote.start())
        token = STRING_OR_COMMENT.match(body, before.start() if before is not None else quote.start())
        assert token is not None
        if b"\n" in token.group():
            found.append(token.span())
        at = token.end()
    return found


def _header_end(body: bytes, at: int) -> int:
    """Offset behind the colon that ends the `def` header whose name ends at `at`."""
    plain = _PLAIN_HEADER.match(body, at)
    if plain is not None:
        return plain.end()
    depth = 0
    for token in _HEADER_TOKEN.finditer(body, at):
        match token.group():
            case b"(" | b"[" | b"{":
                depth += 1
            case b")" | b"]" | b"}":
                depth -= 1
            case b":" if depth <= 0:
                return token.end()
    return at


def _is_unbalanced(body: bytes, start: int, end: int) -> bool:
    """Whether the brackets of a text may be open at its end: those in strings and comments are counted, too."""
    pairs = ((b"(", b")"), (b"[", b"]"), (b"{", b"}"))
    return any(body.count(opening, start, end) != body.count(closing, start, end) for opening, closing in pairs)


def _depth(body: bytes, start: int, end: int) -> int:
    """How many brackets more a text opens than it closes."""
    found = Counter(token.group() for token in _HEADER_TOKEN.finditer(body, start, end))
    return found[b"("] + found[b"["] + found[b"{"] - found[b")"] - found[b"]"] - found[b"}"]


def skeleton_of(source: Source, chunks: list[Chunk]) -> bytes:
    """The text of a file with each outermost function replaced by `pass`."""
    pieces: list[bytes] = []
    last = 0
    for chunk in chunks:
        pieces += [source.body[last : chunk.start], chunk.indent, b"pass"]
        pieces.append(b"\n" * (chunk.last_row - chunk.first_row + 1))
        last = chunk.end
    pieces.append(source.body[last:])
    return b"".join(pieces)
