"""The language server: what an editor says and asks, and when texts are checked.

The event loop talks to the editor; one thread does all the work on texts, for their facts are no matter of two threads.
What a newer text has superseded is not begun, or its outcome is dropped.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TypeVar

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from perflint.rule.registry import all_rules
from perflint.rule.rule import Rule
from perflint.run.outcome import INVALID_SYNTAX, Checked
from perflint.server import actions
from perflint.server.diagnostics import diagnostic, findings_in
from perflint.server.documents import Document, Part, folder_of, path_of, whole
from perflint.server.folder import Folder
from perflint.server.hover import hover
from perflint.server.notebooks import SYNC, as_document, changed
from perflint.server.positions import Positions, positions_of
from perflint.source.source import Source

DEBOUNCE_S = 0.015
"""So long after a change a text is checked, if there is no other change: what an editor sends at once belongs together, and
between two keys there is time for a check."""

IDLE_S = 0.5
"""So long after a change the other open texts are checked, which may rest on the changed one."""

REST_S = 2.0
"""So long after the last check of several the memory of what they have left behind is freed, which halts everything."""

CHECKS_PER_REST = 10
MOST_CHECKS = 200
"""So many checks leave behind what takes memory, some MiB each; after the second number nobody waits for a rest."""

STACK_BYTES = 16 * 1024 * 1024
"""Of the working thread: parsers recurse on the stack, and threads get 512 KiB on some systems."""

WATCHED = ("**/*.py", "**/*.ipynb", "**/pyproject.toml", "**/perflint.toml", "**/.gitignore", "**/*requirements*.txt")

Result = TypeVar("Result")
logger = logging.getLogger(__name__)


class Server:
    """What is open in one editor, and the protocol's features."""

    def __init__(self) -> None:
        self.protocol = LanguageServer(
            "perflint",
            version("perflint-torch"),
            text_document_sync_kind=types.TextDocumentSyncKind.Full,
            notebook_document_sync=SYNC,
        )
        self._documents: dict[str, Document] = {}
        self._owners: dict[str, str] = {}
        """The documents that texts are parts of."""
        self._cells: dict[str, dict[str, types.TextDocumentItem]] = {}
        """The texts of the cells of each notebook."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._folders: dict[tuple[str, bool], Folder] = {}
        self._shown: dict[str, tuple[int | None, list[types.Diagnostic]]] = {}
        self._checks = 0
        self._rest: asyncio.Task[None] | None = None
        self._outdated: set[Folder] = set()
        """Folders of which something may have changed on disk."""
        self._said: dict[str, str | None] = {}
        self._rules: dict[str, Rule] = {}
        before = threading.stack_size(STACK_BYTES)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="perflint")
        self._worker.submit(self._load_rules).result()
        threading.stack_size(before)
        self._register()

    def serve(self) -> None:
        """Talk to the editor over standard input and output, until it says goodbye."""
        try:
            self.protocol.start_io()
        finally:
            self._worker.shutdown(wait=False, cancel_futures=True)

    def _register(self) -> None:
        """Name the methods that the editor's messages go to: the protocol's library marks functions, so methods are wrapped."""
        options = types.CodeActionOptions(code_action_kinds=actions.KINDS, resolve_provider=True)
        feature = self.protocol.feature
        feature(types.INITIALIZED)(partial(Server._initialized, self))
        feature(types.TEXT_DOCUMENT_DID_OPEN)(partial(Server._opened, self))
        feature(types.TEXT_DOCUMENT_DID_CHANGE)(partial(Server._changed, self))
        feature(types.TEXT_DOCUMENT_DID_SAVE)(partial(Server._saved, self))
        feature(types.TEXT_DOCUMENT_DID_CLOSE)(partial(Server._closed, self))
        feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)(partial(Server._notebook_opened, self))
        feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)(partial(Server._notebook_changed, self))
        feature(types.NOTEBOOK_DOCUMENT_DID_SAVE)(partial(Server._notebook_saved, self))
        feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)(partial(Server._notebook_closed, self))
        feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)(partial(Server._changed_on_disk, self))
        feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)(partial(Server._changed_on_disk, self))
        feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)(partial(Server._changed_folders, self))
        feature(types.TEXT_DOCUMENT_CODE_ACTION, options)(partial(Server._code_actions, self))
        feature(types.CODE_ACTION_RESOLVE)(partial(Server._resolved, self))
        feature(types.TEXT_DOCUMENT_HOVER)(partial(Server._hover, self))

    def _load_rules(self) -> None:
        self._rules = {rule.name: rule for rule in all_rules()}

    # -- what the editor says ----------------------------------------------------------------------------------------

    async def _initialized(self, params: types.InitializedParams) -> None:
        workspace = self.protocol.client_capabilities.workspace
        watching = workspace.did_change_watched_files if workspace is not None else None
        if watching is None or not watching.dynamic_registration:
            return
        watchers = [types.FileSystemWatcher(glob_pattern=pattern) for pattern in WATCHED]
        options = types.DidChangeWatchedFilesRegistrationOptions(watchers=watchers)
        wanted = types.Registration("perflint-watch", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        await self.protocol.client_register_capability_async(types.RegistrationParams([wanted]))

    def _opened(self, params: types.DidOpenTextDocumentParams) -> None:
        item = params.text_document
        path = path_of(item)
        if path is not None:
            self._open(whole(item.uri, path, item.version, item.text))

    def _changed(self, params: types.DidChangeTextDocumentParams) -> None:
        uri, version = params.text_document.uri, params.text_document.version
        document = self._documents.get(uri)
        if document is not None:
            text = self.protocol.workspace.get_text_document(uri).source
            self._change(whole(uri, document.path, version, text, is_edited=True))

    def _saved(self, params: types.DidSaveTextDocumentParams) -> None:
        self._save(params.text_document.uri)

    def _closed(self, params: types.DidCloseTextDocumentParams) -> None:
        self._close(params.text_document.uri)

    def _notebook_opened(self, params: types.DidOpenNotebookDocumentParams) -> None:
        uri = params.notebook_document.uri
        path = to_fs_path(uri)
        if path is not None:
            self._cells[uri] = {item.uri: item for item in params.cell_text_documents}
            cells = params.notebook_document.cells
            self._open(as_document(uri, os.path.abspath(path), cells, self._cells[uri], is_edited=False))

    def _notebook_changed(self, params: types.DidChangeNotebookDocumentParams) -> None:
        uri = params.notebook_document.uri
        document, notebook = self._documents.get(uri), self.protocol.workspace.get_notebook_document(notebook_uri=uri)
        if document is None or notebook is None:
            return
        texts, change = self._cells[uri], params.change.cells
        if change is not None and change.structure is not None:
            texts |= {item.uri: item for item in change.structure.did_open or ()}
        for content in change.text_content or () if change is not None else ():
            about = content.document
            if about.uri in texts:
                encoding = self.protocol.workspace.position_encoding
                texts[about.uri] = changed(texts[about.uri], about.version, content.changes, encoding)
        self._change(as_document(uri, document.path, notebook.cells, texts, is_edited=True))

    def _notebook_saved(self, params: types.DidSaveNotebookDocumentParams) -> None:
        self._save(params.notebook_document.uri)

    def _notebook_closed(self, params: types.DidCloseNotebookDocumentParams) -> None:
        self._cells.pop(params.notebook_document.uri, None)
        self._close(params.notebook_document.uri)

    def _open(self, document: Document) -> None:
        self._documents[document.uri] = document
        self._owners |= {part.uri: document.uri for part in document.parts}
        self._look_at_disk()
        self._schedule(document.uri, 0)

    def _change(self, document: Document) -> None:
        before = self._documents[document.uri]
        self._documents[document.uri] = document
        self._clear({part.uri for part in before.parts} - {part.uri for part in document.parts})
        self._owners |= {part.uri: document.uri for part in document.parts}
        self._schedule(document.uri, DEBOUNCE_S)
        self._schedule_others(document.uri)

    def _save(self, uri: str) -> None:
        if uri in self._documents:
            self._documents[uri] = replace(self._documents[uri], is_edited=False)
            self._look_at_disk()
            self._schedule(uri, 0)

    def _close(self, uri: str) -> None:
        document = self._documents.pop(uri, None)
        if document is None:
            return
        task = self._tasks.pop(uri, None)
        if task is not None:
            task.cancel()
        folder = self._folder(document)
        if folder is not None:
            self._worker.submit(folder.close, document.path)
        self._clear({part.uri for part in document.parts})
        self._schedule_others(uri)

    def _clear(self, parts: Iterable[str]) -> None:
        for uri in parts:
            self._shown.pop(uri, None)
            self._owners.pop(uri, None)
            self._publish(uri, [], None)

    def _changed_on_disk(self, params: object) -> None:
        self._look_at_disk()
        for uri in self._documents:
            self._schedule(uri, DEBOUNCE_S)

    def _look_at_disk(self) -> None:
        self._outdated |= {*self._folders.values()}

    def _changed_folders(self, params: types.DidChangeWorkspaceFoldersParams) -> None:
        self._folders.clear()
        for uri in self._documents:
            self._schedule(uri, 0)

    # -- checking ----------------------------------------------------------------------------------------------------

    def _schedule(self, uri: str, delay_s: float) -> None:
        """Check a document after a delay, instead of what was planned for it."""
        before = self._tasks.get(uri)
        if before is not None:
            before.cancel()
        self._tasks[uri] = asyncio.ensure_future(self._check_and_show(uri, delay_s))

    def _schedule_others(self, uri: str) -> None:
        for other in self._documents:
            if other != uri:
                self._schedule(other, IDLE_S)

    async def _check_and_show(self, uri: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        document = self._documents[uri]

        def check(folder: Folder) -> tuple[Checked, str | None] | None:
            checked = folder.check(document.path)
            return (checked, folder.docs_url(document.path)) if checked is not None else None

        outcome = await self._with_folder(document, check)
        if self._documents.get(uri) is not document:
            return
        self._rest_later()
        self._say_problem(document)
        found: dict[str, list[types.Diagnostic]] = {}
        if outcome is not None:
            checked, docs_url = outcome
            if document.is_edited and any(finding.rule == INVALID_SYNTAX for finding in checked.findings):
                return  # somebody is typing: what was shown before moves along with the text
            source = checked.source if checked.source is not None else Source(checked.path, b"")
            for part in document.parts:
                found[part.uri] = [
                    diagnostic(finding, positions_of(part, source, self.protocol.workspace.position_encoding), docs_url)
                    for finding in findings_in(part, checked)
                ]
        for part in document.parts:
            shown = part.version, found.get(part.uri, [])
            if self._shown.get(part.uri) != shown:
                self._shown[part.uri] = shown
                self._publish(part.uri, shown[1], part.version)

    def _rest_later(self) -> None:
        self._checks += 1
        if self._rest is not None:
            self._rest.cancel()
        if self._checks >= CHECKS_PER_REST:
            self._rest = asyncio.ensure_future(self._collect(0 if self._checks >= MOST_CHECKS else REST_S))

    async def _collect(self, delay_s: float) -> None:
        """Free what old facts have left behind; Python would wait for a million new objects, and then not free all of it."""
        await asyncio.sleep(delay_s)
        self._checks = 0
        await asyncio.get_running_loop().run_in_executor(self._worker, gc.collect)

    def _publish(self, uri: str, found: list[types.Diagnostic], version: int | None) -> None:
        self.protocol.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))

    async def _with_folder(self, document: Document, job: Callable[[Folder], Result]) -> Result | None:
        """What a job of the working thread gives that sees all open texts as they are now.

        None if the document is in no folder, and if the job fails: that is logged, and said once.
        """
        folder = self._folder(document)
        if folder is None:
            return None
        texts = [(other.path, other.text) for other in self._documents.values() if self._folder(other) is folder]

        is_outdated = folder in self._outdated
        self._outdated.discard(folder)

        def work() -> Result:
            if is_outdated:
                folder.refresh()
            for path, text in texts:
                folder.put(path, text)
            return job(folder)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, work)
        except Exception as error:
            logger.exception("a check failed")
            self._say("failure", f"{error} (a bug in perflint or in a rule pack: the server's log says more)")
            return None

    def _folder(self, document: Document) -> Folder | None:
        place = folder_of(document.path, self._workspace_folders())
        if place is None:
            return None
        if place not in self._folders:
            root, is_workspace = place
            self._folders[place] = Folder(list(self._rules.values()), root, is_workspace=is_workspace)
        return self._folders[place]

    def _workspace_folders(self) -> list[str]:
        workspace = self.protocol.workspace
        uris = [folder.uri for folder in workspace.folders.values()] or [workspace.root_uri]
        return [path for uri in uris if uri is not None and (path := to_fs_path(uri)) is not None]

    # -- what the editor is told -------------------------------------------------------------------------------------

    def _say_problem(self, document: Document) -> None:
        folder = self._folder(document)
        if folder is not None:
            self._say(folder.root, folder.problem)

    def _say(self, about: str, problem: str | None) -> None:
        """Show a message once, until there is no problem or another one."""
        if self._said.get(about) != problem and problem is not None:
            shown = types.ShowMessageParams(types.MessageType.Error, f"perflint: {problem}")
            self.protocol.window_show_message(shown)
        self._said[about] = problem

    # -- what the editor asks ----------------------------------------------------------------------------------------

    async def _code_actions(self, params: types.CodeActionParams) -> list[types.CodeAction] | None:
        document = self._document(params.text_document)
        if document is None:
            return None
        only = params.context.only
        found: list[types.CodeAction] = []
        if actions.wants(only, types.CodeActionKind.QuickFix.value):
            found += await self._with_folder(document, lambda folder: self._quick_fixes(document, folder, params)) or []
        if actions.wants(only, actions.FIX_ALL):
            action = actions.fix_all(document.uri)
            if self._resolves_edits:
                found.append(action)
            elif only is not None:
                found.append(await self._resolved(action))
        return found

    def _quick_fixes(self, document: Document, folder: Folder, params: types.CodeActionParams) -> list[types.CodeAction]:
        checked, text = folder.check(document.path), self._text(document, folder)
        if checked is None or text is None:
            return []
        part, positions = _asked(text, params.text_document)
        concerned = actions.concerned(findings_in(part, checked), positions, params)
        assumed = folder.assumed(document.path)
        return list(actions.quick_fixes(concerned, text, positions, assumed, partial(folder.fixed, document.path)))

    async def _resolved(self, action: types.CodeAction) -> types.CodeAction:
        document = self._documents.get(str(action.data))
        if document is None:
            return action

        def edit(folder: Folder) -> types.WorkspaceEdit | None:
            text, after = self._text(document, folder), folder.fixed_all(document.path)
            return text.edit(after) if text is not None and after is not None else None

        action.edit = await self._with_folder(document, edit)
        return action

    async def _hover(self, params: types.HoverParams) -> types.Hover | None:
        document = self._document(params.text_document)
        if document is None:
            return None

        def find(folder: Folder) -> types.Hover | None:
            checked, text = folder.check(document.path), self._text(document, folder)
            if checked is None or text is None:
                return None
            part, positions = _asked(text, params.text_document)
            found = hover(text.source, findings_in(part, checked), positions.offset(params.position), self._rules)
            if found is None:
                return None
            start, end, page = found
            return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, page), positions.range(start, end))

        return await self._with_folder(document, find)

    def _document(self, named: types.TextDocumentIdentifier) -> Document | None:
        """The document that a text is, or is a part of."""
        return self._documents.get(self._owners.get(named.uri, named.uri))

    def _text(self, document: Document, folder: Folder) -> actions.Text | None:
        """The text of a document with its parts; None where nothing can be said of it."""
        checked = folder.check(document.path)
        if checked is None or checked.source is None:
            return None
        encoding = self.protocol.workspace.position_encoding
        places = {part: positions_of(part, checked.source, encoding) for part in document.parts}
        is_versioned = bool(get_capability(self.protocol.client_capabilities, "workspace.workspace_edit.document_changes"))
        return actions.Text(checked.source, places, folder.docs_url(document.path), is_versioned)

    @property
    def _resolves_edits(self) -> bool:
        """Whether the editor asks for the edit of an action when somebody chooses it."""
        support = get_capability(self.protocol.client_capabilities, "text_document.code_action.resolve_support")
        return support is not None and "edit" in support.properties


def _asked(text: actions.Text, named: types.TextDocumentIdentifier) -> tuple[Part, Positions]:
    """The part of a text that an editor asks about."""
    return next((part, positions) for part, positions in text.places.items() if part.uri == named.uri)


def serve() -> None:
    """Run the language server on standard input and output."""
    Server().serve()
