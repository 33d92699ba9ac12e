"""Notebooks in an editor: each cell is a text of its own, and all of them together are checked as one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from lsprotocol import types

from perflint.server.documents import Document, Part
from perflint.server.positions import Encoding, Positions
from perflint.source.cells import CannotWriteBack, parted, restored
from perflint.source.source import Source

SYNC = types.NotebookDocumentSyncOptions(
    notebook_selector=[types.NotebookDocumentFilterWithNotebook(notebook="jupyter-notebook")], save=True
)


def as_document(
    uri: str, path: str, cells: Sequence[types.NotebookCell], texts: Mapping[str, types.TextDocumentItem], *, is_edited: bool
) -> Document:
    """A notebook with some cells as perflint sees it: cells that hold no Python have no text."""
    written: list[dict[str, object]] = []
    parts: list[Part] = []
    for number, cell in enumerate(cells, 1):
        item = texts.get(cell.document)
        if item is None or cell.kind != types.NotebookCellKind.Code or item.language_id != "python":
            written.append({"cell_type": "raw", "source": ""})
        else:
            written.append({"cell_type": "code", "source": item.text})
            parts.append(Part(item.uri, item.version, item.text, number))
    return Document(uri, path, json.dumps({"nbformat": 4, "cells": written}), tuple(parts), is_edited)


def changed(
    item: types.TextDocumentItem,
    version: int,
    changes: Sequence[types.TextDocumentContentChangeEvent],
    encoding: Encoding,
) -> types.TextDocumentItem:
    """The text of a cell after changes, each of which counts on those before it."""
    data = item.text.encode("utf-8", "replace")
    for change in changes:
        start, end = 0, len(data)
        if isinstance(change, types.TextDocumentContentChangePartial):
            positions = Positions(Source("", data), encoding)
            start, end = positions.offset(change.range.start), positions.offset(change.range.end)
        data = data[:start] + change.text.encode("utf-8", "replace") + data[end:]
    return types.TextDocumentItem(item.uri, item.language_id, version, data.decode())


def sources_of(raw: bytes) -> dict[int | None, bytes]:
    """The sources of the cells in a notebook's text, by number; none if it cannot be divided into cells any more."""
    try:
        return {number: restored(text).encode() for number, text in parted(raw)}
    except CannotWriteBack:
        return {}
