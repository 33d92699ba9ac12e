"""Places in a text as editors count them, which is in UTF-16 units unless they offer something else."""

from __future__ import annotations

from lsprotocol import types

from perflint.source.source import Source

_ENCODINGS = {
    types.PositionEncodingKind.Utf8: ("utf-8", 1),
    types.PositionEncodingKind.Utf16: ("utf-16-le", 2),
    types.PositionEncodingKind.Utf32: ("utf-32-le", 4),
}


class Positions:
    """Positions of byte offsets in `Source.body`, and back.

    Only line feeds and carriage returns end a line, for the protocol as for Python. A byte order mark that an editor shows as
    part of the text counts as a character of the first line.
    """

    def __init__(self, source: Source, encoding: types.PositionEncodingKind | str | None) -> None:
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

    def _length(self, text: str) -> int:
        return len(text) if text.isascii() else len(text.encode(self._codec)) // self._unit
