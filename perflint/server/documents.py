"""The documents that an editor has open, and in which folder each is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from lsprotocol import types
from pygls.uris import to_fs_path, urlparse

from perflint.project.discover import project_root

INSTALLED = {"site-packages", "dist-packages"}
"""Folders of installed packages: whoever looks at a file there, outside of any workspace, did not write it."""

UNTITLED = os.path.join(os.sep, "untitled")
"""A folder that is not there, for texts that were never saved."""


@dataclass(frozen=True)
class Part:
    """What an editor shows as one text: a file, or a cell of a notebook, whose number is its place among all cells, from 1."""

    uri: str
    version: int | None
    text: str
    cell: int | None = None


@dataclass(frozen=True)
class Document:
    """A version of an open file.

    text: of a notebook, what its file would hold. is_edited: whether it differs from what was opened or saved.
    """

    uri: str
    path: str
    text: str
    parts: tuple[Part, ...]
    is_edited: bool = False


def whole(uri: str, path: str, version: int | None, text: str, *, is_edited: bool = False) -> Document:
    """A file that is shown as one text."""
    return Document(uri, path, text, (Part(uri, version, text),), is_edited)


def path_of(item: types.TextDocumentItem) -> str | None:
    """The absolute path of a document with Python source, which need not be there; None for all others."""
    scheme, _, name, *_ = urlparse(item.uri)
    if scheme == "untitled" and item.language_id == "python":
        return os.path.join(UNTITLED, f"{os.path.basename(name)}.py")
    path = to_fs_path(item.uri) if scheme == "file" else None
    if path is None or path.endswith(".pyi"):
        return None
    is_python = item.language_id == "python" or path.endswith((".py", ".pyw"))
    return os.path.abspath(path) if is_python else None


def folder_of(path: str, workspace: Iterable[str]) -> tuple[str, bool] | None:
    """The folder that a file is checked in, and whether it is one of the workspace; None for files of installed packages."""
    within = [folder for folder in workspace if path.startswith(folder.rstrip(os.sep) + os.sep)]
    if within:
        return max(within, key=len), True
    return (project_root(path)[0], False) if INSTALLED.isdisjoint(path.split(os.sep)) else None
