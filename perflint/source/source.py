"""One file as bytes: decoding, line starts, positions.

The engine works on `body`: the file's text as UTF-8 without a byte order mark, of a notebook that of its code cells (see
`cells`). Python's own parser gives columns as UTF-8 byte offsets, so a node's span in `body` is exact. A carriage return alone,
which ends a line for Python, is a line feed in `body`, so that whoever looks at lines need not know of it; `raw` has the file's
own line ends at the same offsets. Edits are applied to `raw`, and the result goes through `encode`, which restores the file's
own encoding and mark.
"""

from __future__ import annotations

import codecs
import io
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from perflint.source.cells import HIDDEN, SUFFIX, Cells
from perflint.source.records import dataclass
from perflint.source.words import made

if TYPE_CHECKING:
    import tokenize

_COOKIE = made(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_LINE_END = made(rb"\r\n|\r|\n")
_ALONE = made(rb"\r(?!\n)")


class SourceError(Exception):
    """The bytes of a file are no Python source text. `row` and `column` are 1-based."""

    def __init__(self, message: str, row: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message, self.row, self.column = message, row, column


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file: 1-based row, 1-based column in characters; in a notebook, the cell that they count in."""

    row: int
    column: int
    cell: int | None = None

    @property
    def line(self) -> str:
        """The place without its column, as reports write it behind the name of the file."""
        return f"{self.row}" if self.cell is None else f"cell {self.cell}:{self.row}"


@dataclass(frozen=True)
class Source:
    """A decoded file. `path` is how the user named it; `raw` is its text in UTF-8."""

    path: str
    raw: bytes
    encoding: str = "utf-8"
    bom: bool = False
    _starts: list[int] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def decode(cls, path: str, data: bytes) -> Source:
        """Decode `data` as Python itself would; where it would need a plug-in for the declared encoding, as UTF-8.

        Raises:
            SourceError: unknown encoding, bytes that the encoding cannot decode, or a NUL byte.

        """
        bom = data.startswith(codecs.BOM_UTF8)
        body = data[3:] if bom else data
        encoding = _declared_encoding(body)
        if bom and encoding != "utf-8":
            raise SourceError(f"the file begins with a UTF-8 mark and declares the encoding {encoding}; remove one of them")
        if encoding not in ("utf-8", "ascii") or (encoding == "ascii" and not body.isascii()):
            body = _transcode(body, encoding)
        elif not body.isascii():
            _require_utf8(body)
        nul = body.find(b"\0")
        if nul >= 0:
            raise SourceError("source code cannot contain NUL bytes", body.count(b"\n", 0, nul) + 1)
        return cls(path, body, encoding, bom)

    def encode(self, raw: bytes) -> bytes:
        """A text in the file's own encoding and with its byte order mark, ready to be written."""
        data = raw if self.encoding in ("utf-8", "ascii") else raw.decode().encode(self.encoding)
        return codecs.BOM_UTF8 + data if self.bom else data

    @cached_property
    def body(self) -> bytes:
        """The text with a line feed for each carriage return that stands alone."""
        return _ALONE.sub(b"\n", self.raw) if b"\r" in self.raw else self.raw

    @cached_property
    def newline(self) -> str:
        """The line end of the first line, which new lines take: a carriage return only where there is nothing else."""
        found = _LINE_END.search(self.raw)
        newline = found.group().decode() if found else "\n"
        return "\n" if newline == "\r" and b"\n" in self.raw else newline

    @property
    def starts(self) -> list[int]:
        """Byte offset of the start of each line."""
        if not self._starts:
            self._starts.append(0)
            self._starts.extend(accumulate(map(len, self.body.splitlines(keepends=True))))
            if len(self._starts) > 1 and not self.body.endswith((b"\n", b"\r")):
                self._starts.pop()  # the last line has no end, so no line starts behind it
        return self._starts

    def offset(self, row: int, column: int) -> int:
        """Byte offset of a 1-based row and a 0-based column in UTF-8 bytes, as `ast` gives them."""
        return self.starts[row - 1] + column

    def row_at(self, offset: int) -> int:
        """1-based row of the line that holds a byte offset."""
        return bisect_right(self.starts, offset)

    @cached_property
    def cells(self) -> Cells | None:
        """Where the cells of a notebook stand; None for other files."""
        return Cells.of(self.body) if self.path.endswith(SUFFIX) else None

    @cached_property
    def printed(self) -> list[tuple[int, int]]:
        """The byte ranges of expressions whose own text the program shows."""
        from perflint.source.printed import printed

        return printed(self.body, self.starts)

    def prints(self, start: int, end: int) -> bool:
        """Whether the text between two byte offsets is one that the program shows."""
        return any(first <= start and end <= last for first, last in self.printed)

    def position(self, offset: int) -> Position:
        """Row and column, in characters, of a byte offset; in a notebook those within its cell."""
        row = self.row_at(offset)
        before = self.body[self.starts[row - 1] : offset].decode("utf-8", "replace")
        cell = self.cells.at(offset) if self.cells is not None else None
        if cell is None:
            return Position(row, len(before) + 1)
        return Position(row - cell.row, len(before.rpartition(HIDDEN)[2]) + 1, cell.number)

    def place(self, row: int) -> Position:
        """The beginning of a 1-based row; in a notebook its place within its cell."""
        return self.position(self.starts[row - 1])

    def rows_around(self, offset: int) -> tuple[int, int]:
        """The row before the first one that is shown with an offset, and the last one: of the file, or of its cell."""
        cell = self.cells.at(offset) if self.cells is not None else None
        return (cell.row, self.row_at(cell.end - 1)) if cell is not None else (0, len(self.starts))

    def line(self, row: int) -> str:
        """The text of a 1-based row without its line end."""
        end = self.starts[row] if row < len(self.starts) else len(self.body)
        return self.body[self.starts[row - 1] : end].decode("utf-8", "replace").rstrip("\r\n")

    def text(self, start: int, end: int) -> str:
        """The text between two byte offsets."""
        return self.body[start:end].decode()


def _declared_encoding(body: bytes) -> str:
    lines = body[:1000].splitlines()[:2]
    if not lines or not any(b"coding" in line for line in lines):
        return "utf-8"
    for index, line in enumerate(lines):
        found = _COOKIE.match(line)
        if found:
            import encodings
            import tokenize

            name = found.group(1).decode("ascii", "replace")
            try:
                encoding, _ = tokenize.detect_encoding(io.BytesIO(body).readline)
            except SyntaxError:
                encoding = name
            if encodings.search_function(encoding) is not None:
                return encoding
            try:
                body.decode()  # a plug-in such as `future_fstrings` takes UTF-8
            except UnicodeDecodeError:
                raise SourceError(f"unknown source encoding {name!r}", index + 1) from None
            return "utf-8"
        if line.strip() and not line.lstrip().startswith(b"#"):
            break
    return "utf-8"


def _require_utf8(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        row = body.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{body[error.start]:02x} is not UTF-8; declare the encoding or save the file as UTF-8"
        raise SourceError(message, row, error.start - (body.rfind(b"\n", 0, error.start) + 1) + 1) from None


def _transcode(body: bytes, encoding: str) -> bytes:
    try:
        text = body.decode(encoding)
        survives = text.encode(encoding) == body
    except (UnicodeError, LookupError) as error:
        raise SourceError(f"cannot decode the file as its declared encoding {encoding}: {error}") from None
    if not survives:
        raise SourceError(f"the encoding {encoding} does not survive a round trip")
    return text.encode()


def as_bytes(text: str) -> bytes:
    """The bytes of a file with a text: in the encoding that it declares, in UTF-8 if it declares none that holds it."""
    data = text.encode("utf-8", "surrogatepass")
    try:
        encoding = _declared_encoding(data.removeprefix(codecs.BOM_UTF8))
        return data if encoding == "utf-8" else text.encode(encoding)
    except (SourceError, UnicodeError, LookupError):
        return data


def split_lines(text: str) -> list[str]:
    """The lines of a text with their line ends, as Python counts them: `str.splitlines` also splits at form feeds."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def tokens(body: bytes) -> Iterator[tokenize.TokenInfo]:
    """The tokens of a text; a coding line in it does not count, because `body` is UTF-8 whatever the file is.

    Raises:
        SyntaxError, tokenize.TokenError: the text is no Python.

    """
    import tokenize

    return tokenize.generate_tokens(io.StringIO(body.decode(), newline=None).readline)
