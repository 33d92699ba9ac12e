"""An editor: a real client of the language server over stdio, in a test."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from conftest import HANG_S
from lsprotocol import types
from pygls.lsp.client import LanguageClient

Outcome = TypeVar("Outcome")


class Editor:
    """An editor with some folders open.

    shown: the diagnostics that it shows for each document, with the version that they are for; messages: what it was told to
    show a person; watched: the patterns that it was asked to watch.
    """

    def __init__(self) -> None:
        self.client = LanguageClient("editor", "1")
        self.shown: dict[str, types.PublishDiagnosticsParams] = {}
        self.published = 0
        self.messages: list[str] = []
        self.watched: list[str] = []
        self.encoding: types.PositionEncodingKind | str | None = None
        self._news = asyncio.Event()

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(params: types.PublishDiagnosticsParams) -> None:
            self.shown[params.uri] = params
            self.published += 1
            self._news.set()

        @self.client.feature(types.WINDOW_SHOW_MESSAGE)
        def show(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)
            self._news.set()

        @self.client.feature(types.CLIENT_REGISTER_CAPABILITY)
        def register(params: types.RegistrationParams) -> None:
            for registration in params.registrations:
                options = registration.register_options
                assert isinstance(options, types.DidChangeWatchedFilesRegistrationOptions | dict)
                watchers = options["watchers"] if isinstance(options, dict) else options.watchers
                self.watched += [str(w["globPattern"] if isinstance(w, dict) else w.glob_pattern) for w in watchers]
            self._news.set()

    async def until(self, holds: Callable[[], Outcome | None]) -> Outcome:
        """Wait for something that the server's messages bring about."""
        while not (found := holds()):
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), HANG_S)
        return found

    def open(self, path: Path, text: str | None = None, *, uri: str | None = None, version: int = 1) -> str:
        """Open a file, or a text in its place; its address."""
        uri = uri or path.as_uri()
        text = path.read_bytes().decode() if text is None else text
        self.client.text_document_did_open(
            types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, types.LanguageKind.Python, version, text))
        )
        return uri

    def change(self, uri: str, text: str, version: int) -> None:
        """Replace the text of a document."""
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(uri=uri, version=version),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    def save(self, uri: str) -> None:
        """Say that a document was saved."""
        self.client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri)))

    def close(self, uri: str) -> None:
        """Close a document."""
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))

    def changed_on_disk(self, *paths: Path) -> None:
        """Say that files have changed that were to be watched."""
        events = [types.FileEvent(path.as_uri(), types.FileChangeType.Changed) for path in paths]
        self.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams(events))

    async def findings(self, uri: str, version: int = 1) -> list[types.Diagnostic]:
        """What is shown for a version of a document, once it is."""
        shown = await self.until(lambda: found if (found := self.shown.get(uri)) and found.version == version else None)
        return list(shown.diagnostics)

    async def rules(self, uri: str, version: int = 1) -> list[str]:
        """The rules of what is shown."""
        return [str(diagnostic.code) for diagnostic in await self.findings(uri, version)]

    async def actions(self, uri: str, where: types.Range, only: Sequence[str] | None = None) -> list[types.CodeAction]:
        """What the server offers at a place."""
        context = types.CodeActionContext([], only=list(only) if only is not None else None)
        params = types.CodeActionParams(types.TextDocumentIdentifier(uri), where, context)
        found = await self.client.text_document_code_action_async(params)
        return [action for action in found or () if isinstance(action, types.CodeAction)]

    async def hover(self, uri: str, at: types.Position) -> str | None:
        """The text of a hover."""
        found = await self.client.text_document_hover_async(types.HoverParams(types.TextDocumentIdentifier(uri), at))
        assert found is None or isinstance(found.contents, types.MarkupContent)
        return found.contents.value if found is not None else None


def applied(text: str, edit: types.WorkspaceEdit, *, unit: str = "utf-16-le") -> str:
    """A text after the edits that an action makes to one document, positions counted in UTF-16 units."""
    if edit.document_changes is not None:
        (change,) = edit.document_changes
        assert isinstance(change, types.TextDocumentEdit)
        edits = change.edits
    else:
        assert edit.changes is not None
        (edits,) = edit.changes.values()
    lines = _lines(text)
    for one in sorted(edits, key=lambda e: (e.range.start.line, e.range.start.character), reverse=True):
        assert isinstance(one, types.TextEdit)
        start, end = (_index(lines, at, unit) for at in (one.range.start, one.range.end))
        text = text[:start] + one.new_text + text[end:]
    return text


def _lines(text: str) -> list[str]:
    return [line.decode() for line in text.encode().splitlines(keepends=True)]  # bytes know the protocol's line ends only


def _index(lines: list[str], at: types.Position, unit: str) -> int:
    before = sum(len(line) for line in lines[: at.line])
    if at.line >= len(lines):
        return before
    size = len("a".encode(unit))
    return before + len(lines[at.line].encode(unit)[: at.character * size].decode(unit))


@asynccontextmanager
async def editing(
    *folders: Path,
    resolves: bool = True,
    watches: bool = True,
    versions: bool = True,
    encodings: Sequence[types.PositionEncodingKind] | None = None,
    here: Path | None = None,
    packs: Path | None = None,
) -> AsyncIterator[Editor]:
    """An editor that has started `perflint server`.

    resolves: whether it asks for edits only when somebody chooses an action; watches: whether it watches files; versions:
    whether it takes edits of a version of a document. packs: a folder with rule packs.
    """
    editor = Editor()
    environment = dict(os.environ) if packs is None else {**os.environ, "PYTHONPATH": str(packs)}
    await editor.client.start_io(sys.executable, "-m", "perflint", "server", cwd=here or folders[0], env=environment)
    resolve = types.ClientCodeActionResolveOptions(properties=["edit"]) if resolves else None
    capabilities = types.ClientCapabilities(
        workspace=types.WorkspaceClientCapabilities(
            workspace_folders=True,
            workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=versions),
            did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(dynamic_registration=watches),
        ),
        text_document=types.TextDocumentClientCapabilities(
            code_action=types.CodeActionClientCapabilities(resolve_support=resolve)
        ),
        general=types.GeneralClientCapabilities(position_encodings=list(encodings) if encodings else None),
    )
    opened = [types.WorkspaceFolder(folder.as_uri(), folder.name) for folder in folders]
    parameters = types.InitializeParams(capabilities=capabilities, process_id=os.getpid(), workspace_folders=opened)
    answer = await asyncio.wait_for(editor.client.initialize_async(parameters), HANG_S)
    editor.encoding = answer.capabilities.position_encoding
    editor.client.initialized(types.InitializedParams())
    try:
        yield editor
        await asyncio.wait_for(editor.client.shutdown_async(None), HANG_S)
    finally:
        editor.client.exit(None)
        await editor.client.stop()


def act(scenario: Callable[[], Awaitable[Outcome]]) -> Outcome:
    """Run what a test does in an editor."""

    async def limited() -> Outcome:
        return await asyncio.wait_for(scenario(), HANG_S)

    return asyncio.run(limited())
