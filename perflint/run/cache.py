"""Results that are remembered from run to run, in one sqlite file.

An outcome is kept with the facts that it rests on: questions about the project, each with its answer (`Checked.facts`).
It is used again as long as all answers are the same, so a change in one file re-checks the files whose findings used it.
Nothing else decides that: not the time, not the order of runs, not what another process wrote in between. Rules, perflint,
Python and configuration are part of the key.

Three shortcuts save asking. They are sound because each compares digests of everything that an answer can depend on:

- a file whose size and times are those of its row has the row's digest, without being read;
- with the same *tree* (all texts, links and requirement files of the project) every answer is the same;
- with the same *shape* (all files, and what each imports) so is every answer about imports, and a search through files
  that are related by imports can only end in another way through the files whose text has changed. So after a change of a few
  files only those results are looked into whose facts name one of them, or whose searches found nothing that one of them has.

A cache that cannot be read, is damaged or holds nonsense counts as empty.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import sqlite3
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from functools import cache, cached_property
from typing import Any, NamedTuple

from perflint.project.project import Project, Stat, text_digest
from perflint.project.trace import Fact, Question
from perflint.rule.finding import Applicability, Cost, Edit, Finding, Fix, Import, Rate, Severity
from perflint.rule.obligations import Kind, Obligation
from perflint.run.outcome import Budget, Checked
from perflint.source.source import Source, SourceError

FOLDER = ".perflint_cache"
FILE = "results.sqlite"
SCHEMA = 2
MAX_SESSIONS = 16
"""Rule sets and configurations whose results are kept, over all projects of a cache: the ones used last."""

MAX_CHANGED = 50
"""Above so many changed files, all facts are asked for again."""

MAX_PAGES = 131_072
"""Pages of 4 kB that the file may have; a fuller one is begun anew."""

BUSY_S = 2.0
"""How long a run waits for another one that is writing."""

SETTLED_NS = 2_000_000_000
"""A file that was changed less than this before it was read may change again without its times showing it."""

_OUT_OF_REACH = ("unable to open", "readonly", "disk I/O")
"""What SQLite says about a file that is not at fault itself."""

UNSETTLED: Stat = (-1, -1, -1)
"""What no file is like."""

_TABLES = """
CREATE TABLE projects (id INTEGER PRIMARY KEY, root BLOB UNIQUE);
CREATE TABLE files (
    project INTEGER, path BLOB, size INTEGER, mtime INTEGER, ctime INTEGER, digest TEXT, seal INTEGER,
    UNIQUE (project, path));
CREATE TABLE learned (project INTEGER, path BLOB, learned TEXT, UNIQUE (project, path));
CREATE TABLE sessions (id INTEGER PRIMARY KEY, project INTEGER, key TEXT, used INTEGER, UNIQUE (project, key));
CREATE TABLE catalogs (code TEXT UNIQUE, rules TEXT);
CREATE TABLE states (id INTEGER PRIMARY KEY, session INTEGER, stamp INTEGER, tree TEXT, shape TEXT);
CREATE TABLE results (
    session INTEGER, path BLOB, parsed INTEGER, state INTEGER, outcome TEXT, UNIQUE (session, path, parsed));
CREATE TABLE facts (
    session INTEGER, path BLOB, parsed INTEGER, facts TEXT, modules TEXT, open TEXT, UNIQUE (session, path, parsed));
"""

_OF_PROJECT = "WHERE project IN (SELECT id FROM projects WHERE root = ?)"
_OF_SESSION = """WHERE session IN
    (SELECT sessions.id FROM sessions JOIN projects ON project = projects.id WHERE root = ? AND key = ?)"""

_TAG = """Signature: 8a477f597d28d172789f06886806bc55
# This file is a cache directory tag created by perflint.
# For information about cache directory tags see https://bford.info/cachedir/
"""

_BY_SHAPE = ("module", "imports", "importers", "large", "members")
_WITNESSED = ("near", "program", "training")


class Store:
    """One cache folder. After a failure it is closed for the rest of the run; `problem` says what a user should know."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.problem: str | None = None
        self._closed = False

    @property
    def _path(self) -> str:
        return os.path.join(self.folder, FILE)

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a query gives; none if the cache cannot be read."""
        if self._closed or not os.path.exists(self._path):
            return []
        with self._guarded():
            if self._connection.execute("PRAGMA user_version").fetchone() == (SCHEMA,):
                return self._connection.execute(statement, values).fetchall()
        return []

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection | None]:
        """A transaction that is written when the block ends; None when nothing can be written."""
        connection: sqlite3.Connection | None = None
        with self._guarded():
            if not self._closed:
                self._prepare()
                connection = self._connection
                connection.execute("BEGIN IMMEDIATE")
                if connection.execute("PRAGMA user_version").fetchone() != (SCHEMA,):
                    self._begin_anew(connection)
        if connection is None or self._closed:
            yield None
            return
        with self._guarded():
            yield connection
            connection.execute("COMMIT")

    def _begin_anew(self, connection: sqlite3.Connection) -> None:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            connection.execute(f'DROP TABLE "{name}"')
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")  # a lost write costs time; a damaged file is noticed
        connection.execute(f"PRAGMA max_page_count = {MAX_PAGES}")
        return connection

    def _prepare(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        for name, text in ((".gitignore", "# Automatically created by perflint.\n*\n"), ("CACHEDIR.TAG", _TAG)):
            with suppress(FileExistsError), open(os.path.join(self.folder, name), "x", encoding="utf-8") as handle:
                handle.write(text)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._closed = True
        with suppress(sqlite3.Error):
            self.close()
        if isinstance(error, OSError) or any(words in str(error) for words in _OUT_OF_REACH):
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.problem = f"no results are remembered: the cache {self.folder} cannot be used ({reason})"
        elif "locked" not in str(error):
            for name in (f"{FILE}-journal", FILE):  # damaged or full: begin anew
                with suppress(OSError):
                    os.unlink(os.path.join(self.folder, name))

    def close(self) -> None:
        """Let go of the file."""
        connection = self.__dict__.pop("_connection", None)
        if connection is not None:
            connection.close()


def remove(folder: str) -> bool:
    """Remove a cache folder; whether there was one. Other things in the folder stay.

    Raises:
        OSError: something cannot be removed.

    """
    names = [
        name for name in (FILE, f"{FILE}-journal", ".gitignore", "CACHEDIR.TAG") if os.path.exists(os.path.join(folder, name))
    ]
    if FILE not in names and "CACHEDIR.TAG" not in names:
        return False
    for name in names:
        os.unlink(os.path.join(folder, name))
    with suppress(OSError):
        os.rmdir(folder)
    return True


class _Row(NamedTuple):
    """A file's size and times, and the digest of its text."""

    stat: Stat
    digest: str


class _Learned(NamedTuple):
    """What was found out about a text so far.

    names: the digest of the file names under which `imports` were worked out; these are places among the project's files.
    """

    names: str = ""
    imports: list[int] | None = None
    trains: bool | None = None
    helpers: list[str] | None = None

    def completed(self, before: _Learned) -> _Learned:
        """With what was found out earlier and is not known here."""
        names, imports = (self.names, self.imports) if self.imports is not None else (before.names, before.imports)
        trains = self.trains if self.trains is not None else before.trains
        return _Learned(names, imports, trains, self.helpers if self.helpers is not None else before.helpers)


class _State(NamedTuple):
    """The tree and the shape under which the facts of some results were last found to hold.

    stamp: another one after each change of the tree, so that who changes it again notices that somebody else did.
    """

    id: int
    stamp: int
    tree: str
    shape: str


class _Result(NamedTuple):
    """A remembered outcome, as it was written."""

    state: _State
    outcome: str


class ProjectCache:
    """The remembered results of one project.

    stats: the size and times of each file that was read in this run. code: what stands for the code that found them out.
    look: gives the size and times that a file has at present.
    """

    def __init__(
        self, store: Store, project: Project, stats: dict[str, Stat], code: str, look: Callable[[str], Stat | None]
    ) -> None:
        self._store, self._project, self._stats, self._code, self._look = store, project, stats, code, look
        self._started_ns = time.time_ns()
        self._results: dict[str, dict[tuple[str, bool], _Result]] = {}
        self._found: dict[tuple[str, str, bool], Checked] = {}
        self._held: set[tuple[str, str, bool]] = set()
        self._texts: dict[str, dict[tuple[str, bool], tuple[object, ...]]] = {}
        self._is_primed = self._needs_shape = False
        self._matching: dict[tuple[str, ...], bool] = {}
        self._mattering: dict[str, bool] = {}

    # -- looking up --------------------------------------------------------------------------------------------------

    def get(self, key: str, path: str, shown: str, parsed: bool) -> Checked | None:
        """The outcome of a file under the session `key`, if all facts that it rests on still hold.

        shown: how reports name the file. parsed: whether it would be parsed in any case.
        """
        if not self._project.is_settled:
            return None
        result = self._results_of(key).get((path, parsed))
        checked = None
        if result is not None and (self._is_same(result) or self._facts_hold(key, path, parsed, result)):
            checked = self._checked(result, path, shown, parsed)
        if checked is None:
            self._prime()
        return checked

    def _results_of(self, key: str) -> dict[tuple[str, bool], _Result]:
        if key not in self._results:
            of_session = _OF_SESSION, *self._session(key)
            found = self._rows_of("id, stamp, tree, shape FROM states", *of_session)
            states = {state[0]: _State(*state) for state in found}
            rows = self._rows_of("path, parsed, state, outcome FROM results", *of_session)
            self._results[key] = {
                (_path(path), bool(parsed)): _Result(states[state], outcome)
                for path, parsed, state, outcome in rows
                if state in states
            }
        return self._results[key]

    def _rows_of(self, columns: str, where: str, *values: object) -> list[tuple[Any, ...]]:
        return self._store.rows(f"SELECT {columns} {where}", *values)

    def _is_same(self, result: _Result) -> bool:
        return bool(result.state.tree) and result.state.tree == self._tree

    def _facts_hold(self, key: str, path: str, parsed: bool, result: _Result) -> bool:
        state = result.state
        same_shape = bool(state.shape) and state.shape == self._shape
        if not (same_shape and self._is_untouched(key, path, parsed, state)):
            facts = self._facts(key, path, parsed)
            if facts is None or not all(self._digest(about[0]) == answer for (kind, *about), answer in facts if kind == "text"):
                return False
            others = (fact for fact in facts if fact[0][0] != "text")
            if not all(self._holds(question, answer, state, same_shape) for question, answer in others):
                return False
        self._held.add((key, path, parsed))
        self._needs_shape |= bool(state.shape)
        return True

    def _is_untouched(self, key: str, path: str, parsed: bool, state: _State) -> bool:
        """Whether facts that held before the last changes cannot depend on these, the shape being the same."""
        if not state.tree or state.tree != self._tree_before or len(self._changed) > MAX_CHANGED:
            return False
        texts = self._texts_of_session(key).get((path, parsed), (None, None, None))
        facts, opened = (unsealed(texts[at], path, parsed, column) for at, column in ((0, "facts"), (2, "open")))
        if facts is None or opened is None or any(name in facts for name in self._changed_names):
            return False
        if opened not in self._mattering:
            self._mattering[opened] = any(self._may_end_otherwise(*about) for about in json.loads(opened))
        return not self._mattering[opened]

    def _may_end_otherwise(self, kind: str, *about: str) -> bool:
        """Whether a search that found nothing may find something in a changed file."""
        if kind == "helpers":
            return any(self._learned.get(p, _Learned()).helpers != sorted(self._project.helpers_of(p)) for p in self._changed)
        return self._changed_match((kind, "", *about))

    def _facts(self, key: str, path: str, parsed: bool) -> list[Fact] | None:
        """The facts of a result; None if damaged."""
        texts = self._texts_of_session(key).get((path, parsed), (None, None, None))
        facts, modules = (unsealed(texts[at], path, parsed, column) for at, column in ((0, "facts"), (1, "modules")))
        if facts is None or modules is None:
            return None
        return [(tuple(question), answer) for question, answer in (*json.loads(facts), *json.loads(modules))]

    def _texts_of_session(self, key: str) -> dict[tuple[str, bool], tuple[object, ...]]:
        if key not in self._texts:
            columns = "path, parsed, facts, modules, open FROM facts"
            rows = self._rows_of(columns, _OF_SESSION, *self._session(key))
            self._texts[key] = {(_path(path), bool(parsed)): (*texts,) for path, parsed, *texts in rows}
        return self._texts[key]

    def _session(self, key: str) -> tuple[bytes, str]:
        return os.fsencode(self._project.root), key

    def _holds(self, question: Question, answer: str, state: _State, same_shape: bool) -> bool:
        """Whether a question still has its answer."""
        kind = question[0]
        if same_shape and kind in _BY_SHAPE:
            return True
        if kind not in _WITNESSED:
            self._prime()
            return self._project.answer(question) == answer
        if same_shape and state.tree and state.tree == self._tree_before:
            # only the changed files can have made a difference: a witness that is one no more, or a new one
            if answer and (answer not in self._changed or self._project.is_witness(question, answer)):
                return True
            if not answer and not self._changed_match(question):
                return True
        self._prime()
        return bool(self._project.answer(question)) == bool(answer)

    def _changed_match(self, question: Question) -> bool:
        """Whether any file whose text has changed could be a witness."""
        about = (question[0], *question[2:])
        if about not in self._matching:
            self._matching[about] = any(self._project.is_witness(question, path) for path in self._changed)
        return self._matching[about]

    def _checked(self, result: _Result, path: str, shown: str, parsed: bool) -> Checked | None:
        outcome = unsealed(result.outcome, path, parsed, "outcome")
        if outcome is None:
            return None
        if not outcome:
            return Checked(shown, None)
        findings, budgets = _decoded(outcome, shown)
        if not findings:
            return Checked(shown, None, findings, budgets)
        # reports show the lines of findings
        data = self._project.read(path)
        if data is None or text_digest(data) != self._digest(path):
            return None
        try:
            return Checked(shown, Source.decode(path, data), findings, budgets)
        except SourceError:
            return None

    # -- the state of the project ------------------------------------------------------------------------------------

    @cached_property
    def _rows(self) -> dict[str, _Row]:
        found: dict[str, _Row] = {}
        columns = "path, size, mtime, ctime, digest, seal FROM files"
        for name, size, mtime, ctime, digest, seal in self._rows_of(columns, _OF_PROJECT, os.fsencode(self._project.root)):
            path, row = _path(name), _Row((size, mtime, ctime), digest)
            if seal == _seal(path, *row):
                found[path] = row
        return found

    @cached_property
    def _learned(self) -> dict[str, _Learned]:
        """What is known of the texts that the rows describe, as far as it holds for the files that there are now."""
        found: dict[str, _Learned] = {}
        for name, text in self._rows_of("path, learned FROM learned", _OF_PROJECT, os.fsencode(self._project.root)):
            path = _path(name)
            if path in self._rows and (opened := unsealed(text, path, self._rows[path].digest, self._code)) is not None:
                learned = _Learned(*json.loads(opened))
                found[path] = learned if learned.names == self._names else learned._replace(names="", imports=None)
        return found

    def _digest(self, path: str) -> str:
        """The digest of a file's text, from its row if its size and times are those of the row."""
        known = self._project.digest(path)
        if known is not None:
            return known
        row = self._rows.get(path)
        if row is not None and row.stat == self._look(path):
            self._project.learn(path, row.digest)
            return row.digest
        return self._project.answer(("text", path))

    @cached_property
    def _paths(self) -> list[str]:
        """All files whose text any answer can depend on."""
        return sorted({*self._project.files, *self._project.links.values()})

    @cached_property
    def _place(self) -> dict[str, int]:
        return {path: place for place, path in enumerate(self._paths)}

    @cached_property
    def _names(self) -> str:
        files = self._project.files
        return _digest_of(
            [
                *(path for path in self._paths if path in files),
                "",
                *(f"{a}\0{b}" for a, b in sorted(self._project.links.items())),
            ]
        )

    def _tree_of(self, texts: Iterable[tuple[str, str]]) -> str:
        return _digest_of([self._names, self._project.answer(("requirements",)), *(part for text in texts for part in text)])

    @cached_property
    def _tree(self) -> str:
        return self._tree_of((path, self._digest(path)) for path in self._paths)

    @cached_property
    def _tree_before(self) -> str:
        """The tree that the rows describe, with the names and requirements of now."""
        return self._tree_of(sorted((path, row.digest) for path, row in self._rows.items()))

    @cached_property
    def _changed(self) -> list[str]:
        """The files whose text is not that of their row."""
        return [p for p in self._paths if (row := self._rows.get(p)) is None or row.digest != self._digest(p)]

    @cached_property
    def _changed_names(self) -> list[str]:
        return [json.dumps(path) for path in self._changed]

    @cached_property
    def _shape(self) -> str:
        states = {result.state for results in self._results.values() for result in results.values()}
        before = next((state.shape for state in states if state.shape and state.tree == self._tree_before), "")
        if before and len(self._changed) <= MAX_CHANGED and all(map(self._imports_the_same, self._changed)):
            return before
        return _digest_of([self._names, *(part for path in self._paths for part in (path, *map(str, self._imports(path)), ""))])

    def _imports_the_same(self, path: str) -> bool:
        before = self._learned.get(path, _Learned()).imports
        return before is not None and before == self._imports(path)

    def _imports(self, path: str) -> list[int]:
        """The places of the files that a file imports."""
        learned = self._known(path)
        if learned.imports is not None:
            return learned.imports
        self._project.answer(("imports", path))
        return self._places(self._project.learned(path)[0] or [])

    def _places(self, paths: Iterable[str]) -> list[int]:
        return sorted(self._place[path] for path in paths)

    def _known(self, path: str) -> _Learned:
        """What was found out in earlier runs about the text that a file has now."""
        row = self._rows.get(path)
        return self._learned.get(path, _Learned()) if row is not None and row.digest == self._digest(path) else _Learned()

    def _prime(self) -> None:
        """Tell the project what is known about files, so that it need not read them."""
        if self._is_primed:
            return
        self._is_primed = True
        for path, known in self._learned.items():
            if path in self._project.files and self._digest(path) == self._rows[path].digest:
                imports = [self._paths[place] for place in known.imports] if known.imports is not None else None
                self._project.learn(path, self._rows[path].digest, imports, known.trains, known.helpers)

    # -- remembering -------------------------------------------------------------------------------------------------

    def put(self, key: str, path: str, parsed: bool, checked: Checked) -> None:
        """Remember an outcome, if it says what it rests on. It may come from another process that read the files."""
        for (kind, *about), digest in checked.facts or ():
            if kind == "text":
                self._read_elsewhere(about[0], digest)
        if checked.facts is not None and self._project.is_settled:
            self._found[key, path, parsed] = Checked(checked.path, None, checked.findings, checked.budgets, checked.facts)

    def _read_elsewhere(self, path: str, digest: str) -> None:
        known = self._project.digest(path)
        if known is None:
            stat = stat_of(path)
            if stat is not None:  # what has not changed since before the run was the same when it was read
                self._stats[path] = stat if max(stat[1:]) < self._started_ns - SETTLED_NS else UNSETTLED
            self._project.learn(path, digest)
        elif known != digest:
            self._project.is_settled = False

    def save(self) -> None:
        """Write what this run found out."""
        rows = list(self._new_rows())
        if not (rows or self._found or self._held):
            return
        tree, shape = self._state_to_save() if self._project.is_settled else ("", "")
        new = [(key, path, parsed, *self._texts_of(found, path, parsed)) for (key, path, parsed), found in self._found.items()]
        gone = [os.fsencode(path) for path in self._rows if path not in self._place]
        keys = {key for key, *_ in (*self._found, *self._held)}
        with self._store.writing() as connection:
            if connection is None:
                return
            root = os.fsencode(self._project.root)
            connection.execute("INSERT OR IGNORE INTO projects (root) VALUES (?)", (root,))
            (project,) = connection.execute("SELECT id FROM projects WHERE root = ?", (root,)).fetchone()
            for table in ("files", "learned"):
                connection.executemany(f"DELETE FROM {table} WHERE project = ? AND path = ?", [(project, p) for p in gone])
            connection.executemany(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(project, os.fsencode(path), *row.stat, row.digest, _seal(path, *row)) for path, row, _ in rows],
            )
            connection.executemany(
                "INSERT OR REPLACE INTO learned VALUES (?, ?, ?)",
                [
                    (project, os.fsencode(path), sealed(json.dumps(learned), path, row.digest, self._code))
                    for path, row, learned in rows
                ],
            )
            for key in keys:
                session = _session(connection, project, key)
                for table in ("results", "facts"):
                    connection.executemany(f"DELETE FROM {table} WHERE session = ? AND path = ?", [(session, p) for p in gone])
                state = self._state(connection, key, session, tree, shape)
                found = [(os.fsencode(path), parsed, texts) for of, path, parsed, *texts in new if of == key]
                connection.executemany(
                    "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?)",
                    [(session, path, parsed, state, texts[0]) for path, parsed, texts in found],
                )
                connection.executemany(
                    "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?)",
                    [(session, path, parsed, *texts[1:]) for path, parsed, texts in found],
                )
            _prune(connection)
        self._found.clear()
        self._held.clear()

    def _state_to_save(self) -> tuple[str, str]:
        """The tree and the shape under which the results were found; empty where this would take reading more files."""
        facts = (question[0] for found in self._found.values() for question, _ in found.facts or ())
        shape = self._shape if self._needs_shape or any(kind in ("importers", "members", *_WITNESSED) for kind in facts) else ""
        return self._tree if all(self._project.digest(path) is not None for path in self._paths) else "", shape

    def _state(self, connection: sqlite3.Connection, key: str, session: int, tree: str, shape: str) -> int:
        """The state of the results that are written now and of those that held, which need not be written each.

        Where all results of the state that most were in held or are replaced, that state gets the new tree. Otherwise, and
        where another process has been there since, a new state is begun.
        """
        held = {(path, parsed) for of, path, parsed in self._held if of == key}
        replaced = {(path, parsed) for of, path, parsed in self._found if of == key}
        results = {at: result.state for at, result in self._results_of(key).items() if at[0] in self._place}
        main = Counter(results[at] for at in held).most_common(1)
        if main and all(at in held or at in replaced for at, state in results.items() if state == main[0][0]):
            state = main[0][0]
            moved = connection.execute(
                "UPDATE states SET stamp = ?, tree = ?, shape = ? WHERE id = ? AND stamp = ?",
                (_token(), tree, shape, state.id, state.stamp),
            )
            if moved.rowcount:
                new, held = state.id, {at for at in held if results[at] != state}
            else:
                new, held = self._new_state(connection, session, tree, shape), set()
        else:
            new = self._new_state(connection, session, tree, shape)
        connection.executemany(
            """UPDATE results SET state = ? WHERE session = ? AND path = ? AND parsed = ?
                AND ? = (SELECT stamp FROM states WHERE id = state)""",
            [(new, session, os.fsencode(path), parsed, results[path, parsed].stamp) for path, parsed in held],
        )
        return new

    def _new_state(self, connection: sqlite3.Connection, session: int, tree: str, shape: str) -> int:
        new = _token()
        connection.execute("INSERT INTO states VALUES (?, ?, ?, ?, ?)", (new, session, _token(), tree, shape))
        return new

    def _texts_of(self, found: Checked, path: str, parsed: bool) -> tuple[str, str, str, str]:
        """An outcome, its facts, those about modules, and its searches that found nothing, as they are written."""
        facts = [fact for fact in found.facts or () if fact[0][0] != "module"]
        modules = [fact for fact in found.facts or () if fact[0][0] == "module"]
        opened = {(kind, *about[1:]) for (kind, *about), answer in facts if kind in _WITNESSED and not answer}
        opened |= {("helpers",) for (kind, *_), _ in facts if kind == "helpers"}
        return (
            sealed(_encoded(found), path, parsed, "outcome"),
            sealed(json.dumps(facts), path, parsed, "facts"),
            sealed(json.dumps(modules), path, parsed, "modules"),
            sealed(json.dumps(sorted(opened)), path, parsed, "open"),
        )

    def _new_rows(self) -> Iterator[tuple[str, _Row, _Learned]]:
        """What is now known of files and differs from their rows."""
        for path in (*self._stats, *sorted(self._project.found_out - self._stats.keys())):
            digest, before = self._project.digest(path), self._rows.get(path)
            stat = self._stats.get(path) or (before.stat if before is not None and before.digest == digest else None)
            if digest is None or stat is None:
                continue
            row = _Row(stat, digest)
            if before == row and path not in self._project.found_out:
                continue
            imports, trains, helpers = self._project.learned(path)
            known = self._known(path)
            names, places = (self._names, self._places(imports)) if imports is not None else ("", None)
            learned = _Learned(names, places, trains, helpers).completed(known)
            if before != row or learned != known:
                yield path, row, learned


def _session(connection: sqlite3.Connection, project: int, key: str) -> int:
    connection.execute("INSERT OR IGNORE INTO sessions (project, key) VALUES (?, ?)", (project, key))
    connection.execute("UPDATE sessions SET used = ? WHERE project = ? AND key = ?", (time.time_ns(), project, key))
    found: int = connection.execute("SELECT id FROM sessions WHERE project = ? AND key = ?", (project, key)).fetchone()[0]
    return found


def _prune(connection: sqlite3.Connection) -> None:
    """Drop the sessions that were not used for longest, and the projects without one."""
    old = "SELECT id FROM sessions ORDER BY used DESC LIMIT -1 OFFSET ?"
    for table in ("results", "facts", "states"):
        connection.execute(f"DELETE FROM {table} WHERE session IN ({old})", (MAX_SESSIONS,))
    connection.execute("DELETE FROM states WHERE id NOT IN (SELECT state FROM results)")
    connection.execute(f"DELETE FROM sessions WHERE id IN ({old})", (MAX_SESSIONS,))
    for table in ("files", "learned"):
        connection.execute(f"DELETE FROM {table} WHERE project NOT IN (SELECT project FROM sessions)")
    connection.execute("DELETE FROM projects WHERE id NOT IN (SELECT project FROM sessions)")


def stat_of(path: str) -> Stat | None:
    """A file's size and times, or None when it is not there."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def settled(stat: Stat) -> Stat:
    """What a file was like when it was read just now; `UNSETTLED` if it may change without this showing it."""
    return stat if max(stat[1:]) < time.time_ns() - SETTLED_NS else UNSETTLED


def code_digest(packages: Iterable[str]) -> str:
    """A text that stands for all code that findings depend on: perflint, rule packs by package, LibCST and Python.

    Of LibCST it is the version that counts.
    """
    return _digest_of([sys.version, sys.platform, _digest_of_sources(frozenset(packages))])


@cache
def _digest_of_sources(packages: frozenset[str]) -> str:
    """Worked out once: a process runs the code that it found at its start."""
    parts: list[str] = []
    for name in ("perflint", *sorted(packages)):
        for folder in _folders(name):
            for path in _sources(folder):
                with open(path, "rb") as handle:
                    parts += [os.path.relpath(path, folder), text_digest(handle.read())]
    for folder in _folders("libcst"):
        with suppress(OSError), open(os.path.join(folder, "_version.py"), "rb") as handle:
            parts.append(text_digest(handle.read()))
    return _digest_of(parts)


def _folders(package: str) -> Sequence[str]:
    spec = importlib.util.find_spec(package)
    return (spec.submodule_search_locations or [os.path.dirname(spec.origin or "")]) if spec is not None else ()


def _sources(folder: str) -> Iterator[str]:
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (os.path.join(directory, name) for name in sorted(names) if name.endswith(".py"))


def _digest_of(parts: Iterable[str]) -> str:
    return text_digest("\0".join(parts).encode("utf-8", "surrogateescape"))


# -- rows ----------------------------------------------------------------------------------------------------------------


def _path(name: object) -> str:
    """A path as it was written; a damaged one is that of no file."""
    return os.fsdecode(name) if isinstance(name, bytes) else ""


def _token() -> int:
    """A number that nobody else has, so that none that is damaged is taken for another one."""
    return secrets.randbits(62)


def _seal(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())


def sealed(text: str, *about: object) -> str:
    """A text with a checksum of it and of what it is about."""
    return f"{_seal(text, *about):08x}{text}"


def unsealed(text: object, *about: object) -> str | None:
    """What `sealed` sealed; None for anything else."""
    if isinstance(text, str) and text[:8] == f"{_seal(text[8:], *about):08x}":
        return text[8:]
    return None


def _encoded(checked: Checked) -> str:
    if not (checked.findings or checked.budgets):
        return ""
    findings = [_encoded_finding(finding) for finding in checked.findings]
    budgets = [astuple(budget)[1:] for budget in checked.budgets]
    return json.dumps([findings, budgets])


def _encoded_finding(found: Finding) -> list[object]:
    fix = found.fix
    return [
        found.rule,
        found.severity.value,
        found.category,
        found.message,
        found.start,
        found.end,
        fix
        and [
            fix.applicability.value,
            fix.message,
            [(e.start, e.end, e.content) for e in fix.edits],
            [(i.module, i.name) for i in fix.imports],
            fix.leads_to,
            [kind.value for kind in fix.assumptions],
        ],
        [(o.kind.value, o.words, o.path) for o in found.obligations],
        found.waits,
        found.costs and found.costs.value,
        found.rate.value,
        found.function,
    ]


def _decoded(text: str, shown: str) -> tuple[list[Finding], list[Budget]]:
    findings, budgets = json.loads(text)
    return [_decoded_finding(*parts) for parts in findings], [Budget(shown, *parts) for parts in budgets]


def _decoded_finding(
    rule: str,
    severity: str,
    category: str,
    message: str,
    start: int,
    end: int,
    fix: list[Any] | None,
    obligations: list[list[Any]],
    waits: list[int],
    costs: str | None,
    rate: str,
    function: str,
) -> Finding:
    remedy = None
    if fix is not None:
        applicability, text, edits, imports, leads_to, assumptions = fix
        remedy = Fix(
            Applicability(applicability),
            text,
            tuple(Edit(*edit) for edit in edits),
            tuple(Import(*wanted) for wanted in imports),
            tuple(leads_to),
            tuple(map(Kind, assumptions)),
        )
    open_ = tuple(Obligation(Kind(kind), words, path) for kind, words, path in obligations)
    cost = Cost(costs) if costs is not None else None
    kinds = Severity(severity), category
    return Finding(rule, *kinds, message, start, end, remedy, open_, tuple(waits), cost, Rate(rate), function)
