"""Where findings stand in the bytes of files, for formats that know rows of files only: of a notebook in its JSON."""

from __future__ import annotations

import os
from collections.abc import Callable

from perflint.fix.differences import differences
from perflint.fix.fixer import complete, fixed_raw
from perflint.rule.finding import Edit, Finding
from perflint.run.outcome import Checked
from perflint.source.cells import CannotWriteBack
from perflint.source.notebook import Notebook, NotebookError
from perflint.source.source import Position, Source, SourceError


class Places:
    """The places of a result in its files. Of a notebook that has changed since the check, no row but the first is known.

    read: gives the bytes of a file that was checked, by its absolute path.
    """

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        self._read = read
        self._notebooks: dict[str, tuple[Notebook, Source] | None] = {}

    def region(self, checked: Checked, start: int, end: int) -> tuple[Position, Position]:
        """Where a stretch of a file's text begins, and where it has ended: rows of the file, columns in characters."""
        file = self.file(checked)
        if file is None:
            return Position(1, 1), Position(1, 1)
        first, last = self.span(checked, start, end)
        return file.position(first), file.position(last)

    def file(self, checked: Checked) -> Source | None:
        """The text of the file itself; None where there is none, or another by now."""
        if checked.source is None or checked.source.cells is None:
            return checked.source
        found = self._notebook(checked, checked.source)
        return found[1] if found is not None else None

    def span(self, checked: Checked, start: int, end: int) -> tuple[int, int]:
        """The byte offsets in `file` of a stretch of a file's text."""
        source = checked.source
        if source is None or source.cells is None:
            return start, end
        found = self._notebook(checked, source)
        if found is None:
            return 0, 0
        first = _in_notebook(found[0], source, start)
        return first, max(first, _in_notebook(found[0], source, end))

    def edits(self, checked: Checked, finding: Finding) -> list[Edit] | None:
        """What a finding's fix changes in `file`, imports included; None if it cannot be applied."""
        source, fix = checked.source, finding.fix
        if source is None or fix is None:
            return None
        try:
            if source.cells is None:
                return complete(source, fix)
            found, after = self._notebook(checked, source), fixed_raw(source, [finding])
            if found is None or after is None:
                return None
            return differences(found[1].raw, Source.decode("", found[0].with_text(after)).raw)
        except (SyntaxError, ValueError, RecursionError, CannotWriteBack):
            return None

    def _notebook(self, checked: Checked, source: Source) -> tuple[Notebook, Source] | None:
        if checked.path not in self._notebooks:
            self._notebooks[checked.path] = self._parsed(checked.path, source)
        return self._notebooks[checked.path]

    def _parsed(self, path: str, source: Source) -> tuple[Notebook, Source] | None:
        data = self._read(os.path.abspath(path)) or b""
        try:
            notebook = Notebook.parse(data)
            return (notebook, Source.decode("", data)) if notebook.text == source.raw else None
        except (NotebookError, SourceError):
            return None


def _in_notebook(notebook: Notebook, source: Source, offset: int) -> int:
    at = source.position(offset)
    bom = len(notebook.data) - len(notebook.data.removeprefix(b"\xef\xbb\xbf"))
    return notebook.offset(at.cell, at.row, at.column) - bom if at.cell is not None else 0
