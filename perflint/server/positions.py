"""Places in a text as editors count them, which is in UTF-16 units unless they offer something else."""

from __future__ import annotations

from functools import partial

from lsprotocol import types

from perflint.fix.differences import differences
from perflint.server.documents import Part
from perflint.source.cells import HIDDEN
from perflint.source.source import Source

_ENCODINGS = {
    types.PositionEncodingKind.Utf8: ("utf-8", 1),
    types.PositionEncodingKind.Utf16: ("utf-16-le", 2),
    types.PositionEncodingKind.Utf32: ("utf-32-le", 4),
}

Encoding = types.PositionEncodingKind | str | None


class Positions:
    """Positions of byte offsets in `Source.body`, and back.

    Only line feeds and carriage returns end a line, for the protocol as for Python. A byte order mark that an editor shows as
    part of the text counts as a character of the first line.
    """

    def __init__(self, source: Source, encoding: Encoding) -> None:
        self._source = source
        kind = types.PositionEncodingKind(encoding) if encoding is not None else types.PositionEncodingKind.Utf16
        self._codec, self._unit = _ENCODINGS[kind]
        self._mark = self._length("\ufeff") if source.bom else 0

    def position(self, offset: int) -> types.Position:
        """The position of a byte offset."""
        source = self._source
        row = source.row_at(offset)
        before = source.body[source.starts[row - 1] : offset].decode("utf-8", "replace")
        return types.Position(row - 1, self._length(before) + (self._mark if row == 1 else 0))

    def range(self, start: int, end: int) -> types.Range:
        """The range between two byte offsets."""
        return types.Range(self.position(start), self.position(end))

    def offset(self, position: types.Position) -> int:
        """The byte offset of a position; what is behind the end of a line, or of the text, is that end."""
        source = self._source
        if position.line >= len(source.starts):
            return len(source.body)
        row = position.line + 1
        units = max(position.character - (self._mark if row == 1 else 0), 0)
        before = source.line(row).encode(self._codec)[: units * self._unit].decode(self._codec, "ignore")
        return source.starts[row - 1] + len(before.encode())

    def edits(self, after: bytes) -> list[types.TextEdit]:
        """The edits that make another text of it."""
        found = differences(self._source.raw, after)
        return [types.TextEdit(self.range(edit.start, edit.end), edit.content) for edit in found]

    def _length(self, text: str) -> int:
        return len(text) if text.isascii() else len(text.encode(self._codec)) // self._unit


class CellPositions(Positions):
    """Positions in a cell of byte offsets in the text of its notebook, and back. edits: of the cell."""

    def __init__(self, notebook: Source, part: Part, encoding: Encoding) -> None:
        super().__init__(Source("", part.text.encode("utf-8", "replace")), encoding)
        assert notebook.cells is not None
        self._notebook = notebook
        self._cell = part.cell
        self._head = next(head for head in notebook.cells.heads if head.number == part.cell)

    def position(self, offset: int) -> types.Position:
        """The position of a byte offset; what is not in the cell is at its end."""
        at, own = self._notebook.position(offset), self._source
        if at.cell != self._cell or at.row > len(own.starts):
            return super().position(len(own.body))
        return super().position(own.starts[at.row - 1] + len(own.line(at.row)[: at.column - 1].encode()))

    def offset(self, position: types.Position) -> int:
        """The byte offset of a position; in a line that is no Python, where its words stand."""
        own = super().offset(position)
        row = self._source.row_at(own)
        in_notebook = min(self._head.row + row, len(self._notebook.starts))
        before, hidden, _ = self._notebook.line(in_notebook).partition(HIDDEN)
        start = self._notebook.starts[in_notebook - 1] + (len(f"{before}{hidden}".encode()) if hidden else 0)
        return min(start + own - self._source.starts[row - 1], self._head.end)

    def edits(self, after: bytes) -> list[types.TextEdit]:
        """The edits that make another text of the cell."""
        inside = partial(Positions.position, self)
        found = differences(self._source.raw, after)
        return [types.TextEdit(types.Range(inside(edit.start), inside(edit.end)), edit.content) for edit in found]


def positions_of(part: Part, source: Source, encoding: Encoding) -> Positions:
    """The positions in a part of a document whose text, of a notebook that of all its cells, is `source`."""
    return Positions(source, encoding) if part.cell is None else CellPositions(source, part, encoding)
