"""Results that are remembered from run to run, in one sqlite file.

An outcome is kept with the facts that it rests on: questions about the project, each with its answer (`Checked.facts`).
It is used again as long as all answers are the same, so a change in one file re-checks the files whose findings used it.
Nothing else decides that: not the time, not the order of runs, not what another process wrote in between. Rules, perflint,
Python and configuration are part of the key.

Three shortcuts save asking. They are sound because each compares digests of everything that an answer can depend on:

- a file whose size and times are those of its row has the row's digest, without being read;
- with the same *tree* (all texts, links, requirement and other files that tell of the project) every answer is the same;
- with the same *shape* (all files, and what each imports) so is every answer about imports, and a search through files
  that are related by imports can only end in another way through the files whose text has changed. So after a change of a few
  files only those results are looked into whose facts name one of them, or whose searches found nothing that one of them has.

A cache that cannot be read, is damaged or holds nonsense counts as empty.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from perflint.project.files import SETTLED_NS, Stat, text_digest
from perflint.project.project import Project
from perflint.project.trace import Fact, Question
from perflint.run.digests import digest_of
from perflint.run.encoding import decoded, encoded
from perflint.run.outcome import Checked
from perflint.run.rows import Learned, Row, State, StoredResult
from perflint.run.store import Store, checksum, prune, sealed, session_row, unsealed
from perflint.source.source import Source, SourceError

MAX_CHANGED = 50
"""Above so many changed files, all facts are asked for again."""


UNSETTLED: Stat = (-1, -1, -1)
"""What no file is like."""


_OF_PROJECT = "WHERE project IN (SELECT id FROM projects WHERE root = ?)"
_OF_SESSION = """WHERE session IN
    (SELECT sessions.id FROM sessions JOIN projects ON project = projects.id WHERE root = ? AND key = ?)"""


_BY_SHAPE = ("module", "imports", "beside", "importers", "holders", "large", "members")
_WITNESSED = ("anywhere", "near", "program", "scripts", "training")
_OF_NEIGHBOURS = ("importers", "holders", "members", *_WITNESSED)


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
        self._results: dict[str, dict[tuple[str, bool], StoredResult]] = {}
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

    def _results_of(self, key: str) -> dict[tuple[str, bool], StoredResult]:
        if key not in self._results:
            of_session = _OF_SESSION, *self._session(key)
            found = self._rows_of("id, stamp, tree, shape FROM states", *of_session)
            states = {state[0]: State(*state) for state in found}
            rows = self._rows_of("path, parsed, state, outcome FROM results", *of_session)
            self._results[key] = {
                (_path(path), bool(parsed)): StoredResult(states[state], outcome)
                for path, parsed, state, outcome in rows
                if state in states
            }
        return self._results[key]

    def _rows_of(self, columns: str, where: str, *values: object) -> list[tuple[Any, ...]]:
        return self._store.rows(f"SELECT {columns} {where}", *values)

    def _is_same(self, result: StoredResult) -> bool:
        return bool(result.state.tree) and result.state.tree == self._tree

    def _facts_hold(self, key: str, path: str, parsed: bool, result: StoredResult) -> bool:
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

    def _is_untouched(self, key: str, path: str, parsed: bool, state: State) -> bool:
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
            return any(self._learned.get(p, Learned()).helpers != sorted(self._project.helpers_of(p)) for p in self._changed)
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

    def _holds(self, question: Question, answer: str, state: State, same_shape: bool) -> bool:
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

    def _checked(self, result: StoredResult, path: str, shown: str, parsed: bool) -> Checked | None:
        outcome = unsealed(result.outcome, path, parsed, "outcome")
        if outcome is None:
            return None
        if not outcome:
            return Checked(shown, None)
        findings, budgets = decoded(outcome, shown)
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
    def _rows(self) -> dict[str, Row]:
        found: dict[str, Row] = {}
        columns = "path, size, mtime, ctime, digest, seal FROM files"
        for name, size, mtime, ctime, digest, seal in self._rows_of(columns, _OF_PROJECT, os.fsencode(self._project.root)):
            path, row = _path(name), Row((size, mtime, ctime), digest)
            if seal == checksum(path, *row):
                found[path] = row
        return found

    @cached_property
    def _learned(self) -> dict[str, Learned]:
        """What is known of the texts that the rows describe, as far as it holds for the files that there are now."""
        found: dict[str, Learned] = {}
        for name, text in self._rows_of("path, learned FROM learned", _OF_PROJECT, os.fsencode(self._project.root)):
            path = _path(name)
            if path in self._rows and (opened := unsealed(text, path, self._rows[path].digest, self._code)) is not None:
                learned = Learned(*json.loads(opened))
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
        return digest_of(
            [
                *(path for path in self._paths if path in files),
                "",
                *(f"{a}\0{b}" for a, b in sorted(self._project.links.items())),
            ]
        )

    def _tree_of(self, texts: Iterable[tuple[str, str]]) -> str:
        others = (self._project.answer(("requirements",)), self._project.answer(("surroundings",)))
        return digest_of([self._names, *others, *(part for text in texts for part in text)])

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
        return digest_of([self._names, *(part for path in self._paths for part in (path, *map(str, self._imports(path)), ""))])

    def _imports_the_same(self, path: str) -> bool:
        before = self._learned.get(path, Learned()).imports
        return before is not None and before == self._imports(path)

    def _imports(self, path: str) -> list[list[int | str]]:
        """The places of the files that a file imports, each with what it takes from there."""
        learned = self._known(path)
        if learned.imports is not None:
            return learned.imports
        self._project.answer(("imports", path))
        return self._placed(self._project.learned(path)[0] or {})

    def _placed(self, imports: Mapping[str, Iterable[str]]) -> list[list[int | str]]:
        return [[place, *sorted(names)] for place, names in sorted((self._place[path], n) for path, n in imports.items())]

    def _known(self, path: str) -> Learned:
        """What was found out in earlier runs about the text that a file has now."""
        row = self._rows.get(path)
        return self._learned.get(path, Learned()) if row is not None and row.digest == self._digest(path) else Learned()

    def _prime(self) -> None:
        """Tell the project what is known about files, so that it need not read them."""
        if self._is_primed:
            return
        self._is_primed = True
        for path, known in self._learned.items():
            if path in self._project.files and self._digest(path) == self._rows[path].digest:
                imports = None
                if known.imports is not None:
                    imports = {self._paths[int(place)]: frozenset(map(str, names)) for place, *names in known.imports}
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
                [(project, os.fsencode(path), *row.stat, row.digest, checksum(path, *row)) for path, row, _ in rows],
            )
            connection.executemany(
                "INSERT OR REPLACE INTO learned VALUES (?, ?, ?)",
                [
                    (project, os.fsencode(path), sealed(json.dumps(learned), path, row.digest, self._code))
                    for path, row, learned in rows
                ],
            )
            for key in keys:
                session = session_row(connection, project, key)
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
            prune(connection)
        self._found.clear()
        self._held.clear()

    def _state_to_save(self) -> tuple[str, str]:
        """The tree and the shape under which the results were found; empty where this would take reading more files."""
        facts = (question[0] for found in self._found.values() for question, _ in found.facts or ())
        shape = self._shape if self._needs_shape or any(kind in _OF_NEIGHBOURS for kind in facts) else ""
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
            sealed(encoded(found), path, parsed, "outcome"),
            sealed(json.dumps(facts), path, parsed, "facts"),
            sealed(json.dumps(modules), path, parsed, "modules"),
            sealed(json.dumps(sorted(opened)), path, parsed, "open"),
        )

    def _new_rows(self) -> Iterator[tuple[str, Row, Learned]]:
        """What is now known of files and differs from their rows."""
        for path in (*self._stats, *sorted(self._project.found_out - self._stats.keys())):
            digest, before = self._project.digest(path), self._rows.get(path)
            stat = self._stats.get(path) or (before.stat if before is not None and before.digest == digest else None)
            if digest is None or stat is None:
                continue
            row = Row(stat, digest)
            if before == row and path not in self._project.found_out:
                continue
            imports, trains, helpers = self._project.learned(path)
            known = self._known(path)
            names, places = (self._names, self._placed(imports)) if imports is not None else ("", None)
            learned = Learned(names, places, trains, helpers).completed(known)
            if before != row or learned != known:
                yield path, row, learned


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


# -- rows ----------------------------------------------------------------------------------------------------------------


def _path(name: object) -> str:
    """A path as it was written; a damaged one is that of no file."""
    return os.fsdecode(name) if isinstance(name, bytes) else ""


def _token() -> int:
    """A number that nobody else has, so that none that is damaged is taken for another one."""
    return int.from_bytes(os.urandom(8), "big") >> 2
