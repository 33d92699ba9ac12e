"""A run: paths in, results out. Groups files by project and configuration; reads and writes the disk."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from perflint.project.config import FILE_NAMES, Config, ConfigError, Configurations
from perflint.project.discover import Found, Roots, find_files, walk
from perflint.project.files import Stat, read_with_stat, requirement_files, text_digest
from perflint.project.folders import Folders
from perflint.project.per_file_ignores import PerFileIgnores, expanded
from perflint.project.project import Project
from perflint.project.texts import Listing, python_bytes
from perflint.rule.assumptions import declared
from perflint.rule.finding import ENGINE, Finding, Permission, Severity
from perflint.rule.options import options_of
from perflint.rule.rule import Rule
from perflint.rule.selection import ENGINE_FINDINGS, asked_for, reports_unused_suppressions, selected
from perflint.run.cache import ProjectCache, settled, stat_of
from perflint.run.catalog import Catalog
from perflint.run.digests import code_digest
from perflint.run.outcome import Checked, Item
from perflint.run.session import Session
from perflint.run.store import FOLDER, Store
from perflint.run.watch import Watched
from perflint.run.workers import ALONE, Workers
from perflint.source.cells import CannotWriteBack

if TYPE_CHECKING:
    from perflint.fix.fixer import Choose, Fixed
    from perflint.source.source import Source
    from perflint.source.texts import TextFacts
from perflint.run.result import FixedFile, Result, of_python_2_once

SMALL_RUN_BYTES = 512 * 1024
"""A run over less than this parses every file, so that each syntax error is reported. In a larger one a file that no rule
can fire in is not parsed, unless it was named on the command line."""


class Run:
    """Checks or fixes the files that paths name.

    rules: all that are installed, if none are given. near: the folder in whose project's cache these may be remembered.
    measured: whether a measurement says what findings are worth, so that those of little worth are among them.
    """

    def __init__(
        self,
        rules: Sequence[Rule] | None = None,
        fixed_config: Config | None = None,
        overrides: Mapping[str, Any] | None = None,
        *,
        cached: bool = False,
        near: str = ".",
        measured: bool = False,
    ) -> None:
        self._folders = Folders()
        self.configurations = Configurations(fixed_config, overrides or {}, self._folders)
        self._roots = Roots(self._folders)
        self._walked: dict[str, list[tuple[str, str | None]]] = {}
        self._closed: dict[str, str] = {}
        self._is_cached, self._is_measured = cached, measured
        self._stores: dict[str, Store] = {}
        self._catalog: Catalog | None = None
        if rules is None:
            self._catalog = Catalog(self._store(near) if cached else None)
            rules = self._catalog.rules()
        self.rules = rules
        names = {key: value for key, value in (overrides or {}).items() if key in ("select", "extend_select", "ignore")}
        selected(rules, Config(**names))  # so that a wrong name on the command line is not taken for a configured one
        self._sessions: dict[tuple[str, str | None], Session] = {}
        self._places: dict[int, int] = {}
        self._session_of: dict[str, Session] = {}
        self._projects: dict[str, Project] = {}
        self._texts: dict[str, TextFacts] = {}
        self._unsaved: dict[str, bytes] = {}
        self._stats: dict[str, Stat] = {}
        self._present: dict[str, Stat | None] = {}
        self._caches: dict[str, ProjectCache] = {}
        self._keys: dict[int, str] = {}
        self._tidied: set[str] = set()

    def find(self, paths: Sequence[str]) -> Found:
        """The files of a run.

        Raises:
            PathError: a path does not exist, or is a folder that cannot be listed.
            ConfigError: a configuration is unusable.

        """
        found = find_files(paths, self._walk)
        self._closed = dict(self._folders.closed)
        return found

    def _walk(self, root: str) -> Sequence[tuple[str, str | None]]:
        self._walked[root] = list(walk(root, self.configurations.of, self._folders))
        return self._walked[root]

    def check(self, found: Found, on_file: Callable[[str], None] = lambda path: None, workers: Workers = ALONE) -> Result:
        """Check files; the result is the same whatever the workers."""
        items = self._items(found)
        outcomes: dict[int, Checked] = {}
        try:
            for place, checked in self._outcomes(items, workers, found):
                on_file(items[place].path)
                outcomes[place] = checked
        finally:
            self.save()
        in_order = of_python_2_once([outcomes[place] for place in range(len(items))])
        return Result(in_order, permissions=self._permissions(items), read=self.read)

    def _outcomes(
        self, items: Sequence[Item], workers: Workers, found: Found, *, alone: bool = True
    ) -> Iterator[tuple[int, Checked]]:
        """Each file's place and outcome, in any order: what is remembered first.

        alone: whether this process checks the others where workers do not pay.
        """
        missing: list[int] = []
        for place, item in enumerate(items):
            remembered = self.remembered(item, found)
            if remembered is not None:
                yield place, remembered
            else:
                missing.append(place)
        missing.sort(key=lambda place: items[place].session)  # a project's files in one go, for memory holds one project
        sessions = list(self._sessions.values())
        left = [items[place] for place in missing]
        checked: Iterator[tuple[int, Checked]] = iter(())
        if workers.pay_for(left):
            from perflint.run.parallel import distributed

            checked = distributed(sessions, left, workers, self._unsaved)
        elif alone:
            checked = _checked_here(sessions, left)
        for at, outcome in checked:
            if not workers.executors:  # elsewhere, questions may have had other answers
                self.remember(left[at].path, left[at].always_parse, outcome, found)
            yield missing[at], outcome

    def fix(
        self,
        found: Found,
        *,
        unsafe: bool,
        write_files: bool,
        on_file: Callable[[str], None] = lambda path: None,
        choose: Choose | None = None,
        workers: Workers = ALONE,
    ) -> Result:
        """Fix files; with `write_files` the results replace the files. `choose` may leave out fixes.

        One file is fixed after the other, and each is checked against the fixed text of those before it: what workers have
        found counts up to the first file that a fix changes.
        """
        from perflint.run.engine import check_file

        result = Result(read=self.read)
        items = self._items(found)
        outcomes = dict(self._outcomes(items, workers, found, alone=False))
        for place, (path, name, always, _, _) in enumerate(items):
            on_file(path)
            session = self.session(path, found)
            checked = outcomes[place] if place in outcomes and not result.fixed else None
            if checked is None:
                checked = check_file(session, path, name, always_parse=always)
                self.remember(path, always, checked, found)
            allowed = self.permission(path, unsafe)
            if checked.source is not None and any(f.fix for f in checked.findings):
                checked = self._fix_one(session, path, checked, allowed, write_files, result, choose)
            result.checked.append(checked)
        self.save()
        result.permissions = self._permissions(items)
        return result

    def _permissions(self, items: Sequence[Item]) -> dict[str, Permission]:
        return {item.shown: self.permission(item.path) for item in items}

    def permission(self, path: str, unsafe: bool = False) -> Permission:
        """Which fixes may be applied to a file. unsafe: all, whatever its configuration says."""
        config = self.configurations.of(os.path.dirname(path))
        return Permission(unsafe or config.unsafe_fixes, declared(config.assume, config.runtime))

    def _fix_one(
        self,
        session: Session,
        path: str,
        checked: Checked,
        permission: Permission,
        write_files: bool,
        result: Result,
        choose: Choose | None,
    ) -> Checked:
        from perflint.fix.fixer import WriteError, every, fix_text, write, writer
        from perflint.run.engine import check_bytes

        assert checked.source is not None
        source = checked.source
        seen: dict[bytes, Checked] = {}

        def check(raw: bytes) -> tuple[Source | None, list[Finding]]:
            try:
                data = with_text(raw)
            except CannotWriteBack:
                return None, []
            self._unsaved[path] = data
            seen[raw] = check_bytes(session, path, checked.path, python_bytes(path, data) or b"")
            return seen[raw].source, seen[raw].findings

        try:
            with_text = writer(source, self.read(path))
            before = with_text(source.raw)  # what was checked, which need not be what the file holds by now
            fixed: Fixed = fix_text(source, checked.findings, check, permission, choose or every)
            after = with_text(fixed.raw)
        except UnicodeEncodeError as error:
            return _with_problem(checked, f"a fix does not fit the encoding {source.encoding}: {error}")
        except CannotWriteBack as error:
            return _with_problem(checked, str(error))
        finally:
            self._unsaved.pop(path, None)
            self._forget(path)
        if after == before:
            return checked
        session.project.is_settled = False
        if write_files:
            self._tidy(os.path.dirname(os.path.realpath(path)))
            try:
                write(path, before, after)
            except WriteError as error:
                return _with_problem(checked, str(error))
        else:
            self._unsaved[path] = after
        self._forget(path)
        result.fixed.append(FixedFile(checked.path, before, after, Counter(fixed.applied)))
        return seen[fixed.raw]

    def _tidy(self, directory: str) -> None:
        if directory not in self._tidied:
            from perflint.fix.fixer import remove_leftovers

            self._tidied.add(directory)
            remove_leftovers(directory)

    def text(self, path: str, data: bytes, found: Found) -> None:
        """Put unsaved text (standard input, an editor's buffer) in the place of a file's bytes; again, when it has changed."""
        self._unsaved[path] = data
        self._forget(path)
        if path not in found.files:
            found.files.append(path)
        found.explicit.add(path)

    def from_disk(self, path: str) -> None:
        """Let a file be what it is on disk again, because its text was closed, or it has changed there."""
        self._unsaved.pop(path, None)
        self._forget(path)

    def _forget(self, path: str) -> None:
        """Let no project go on with what it knows of a file whose text is another one now."""
        for project in self._projects.values():
            if project.knows(path):
                project.changed(path)

    def watched(self, found: Found) -> Watched:
        """What to watch for changes of a result: the files of the run and their projects, and what configures them."""
        files = {*found.files, *found.links.values()}
        for session in {id(session): session for session in (self.session(path, found) for path in found.files)}.values():
            files |= {*session.project.files, *session.project.links.values(), *requirement_files(session.project.root)}
        folders = {os.path.dirname(path) for path in files}
        files |= {os.path.join(folder, name) for folder in folders for name in (*FILE_NAMES, ".gitignore")}
        configured = list(map(self.configurations.of, folders))
        files |= {config.path for config in configured if config.path is not None}
        files |= {config.resolved(config.baseline) for config in configured if config.baseline is not None}
        return Watched(frozenset(files), frozenset(folders))

    def _items(self, found: Found) -> list[Item]:
        """What is to check."""
        self._present.clear()
        sizes = [self._size(path) for path in found.files]
        small = sum(size for size in sizes if size <= SMALL_RUN_BYTES) <= SMALL_RUN_BYTES
        here = os.getcwd()
        items: list[Item] = []
        for path, size in zip(found.files, sizes, strict=True):
            session = self.session(path, found)
            always = path in found.explicit or (small and size <= SMALL_RUN_BYTES)
            items.append(Item(path, shown(path, here), always, self._places[id(session)], size))
        return items

    def _size(self, path: str) -> int:
        if path in self._unsaved:
            return len(self._unsaved[path])
        stat = self.stat(path)
        return stat[0] if stat is not None else 0

    def stat(self, path: str) -> Stat | None:
        """What a file was like when it was first looked at in this check; None if it was not there."""
        if path not in self._present:
            self._present[path] = stat_of(path)
        return self._present[path]

    # -- sessions ----------------------------------------------------------------------------------------------------

    @property
    def sessions(self) -> Sequence[Session]:
        """The sessions of the files so far."""
        return list(self._sessions.values())

    def session(self, path: str, found: Found) -> Session:
        """The session for a file: its project, its configuration."""
        directory = os.path.dirname(path)
        if directory not in self._session_of:
            self._session_of[directory] = self._session(directory, found)
        return self._session_of[directory]

    def _session(self, directory: str, found: Found) -> Session:
        root, marked = self._roots.of(directory)
        config = self.configurations.of(directory)
        key = (root if marked else "", config.path)
        session = self._sessions.get(key)
        if session is None:
            chosen = selected(self.rules, config)
            session = self._sessions[key] = Session(
                self._project(root, marked, found),
                chosen,
                options_of(self.rules, config),
                dict(config.target_versions),
                reports_unused_suppressions(config),
                frozenset(rule.name for rule in self.rules) | ENGINE_FINDINGS,
                [rule for rule in self.rules if rule.severity is not Severity.INFO and rule not in chosen],
                PerFileIgnores(config.directory or os.getcwd(), expanded(config.per_file_ignores, self.rules)),
                None if self._is_measured else asked_for(self.rules, config),
            )
            self._places[id(session)] = len(self._places)
        return session

    def shows(self, path: str, finding: Finding) -> bool:
        """Whether a finding about a file is reported where no measurement says what it is worth."""
        config = self.configurations.of(os.path.dirname(os.path.abspath(path)))
        return finding.severity is not Severity.INFO or finding.rule in asked_for(self.rules, config)

    def _project(self, root: str, marked: bool, found: Found) -> Project:
        key = root if marked else ""
        if key not in self._projects:
            listing = partial(self._listing, root if marked else None, found)
            self._projects[key] = Project(root if marked else _common_root(found.files), listing, self.read, self._texts)
        return self._projects[key]

    def _listing(self, root: str | None, found: Found) -> Listing:
        """The files below the root of a project, or around files that belong to none, and those of the run."""
        files, links = set(found.files), dict(found.links)
        if root is None:
            for directory in {os.path.dirname(file) for file in found.files}:
                files.update(_python_files(directory))
            return files, links
        walked = self._walked.get(root)
        for file, link in walk(root, self._lenient_configuration, self._folders) if walked is None else walked:
            if link is not None:
                links[file] = link
            else:
                files.add(file)
        return files, links

    def _lenient_configuration(self, directory: str) -> Config:
        """The configuration of a directory whose files are not linted themselves: a broken one is not this run's business."""
        try:
            return self.configurations.of(directory)
        except ConfigError:
            return Config()

    def read(self, path: str) -> bytes | None:
        """A file's bytes: unsaved text where there is some."""
        if path in self._unsaved:
            return self._unsaved[path]
        found = read_with_stat(path)
        if found is None:
            return None
        data, stat = found
        self._stats.setdefault(path, settled(stat))
        return data

    # -- what is remembered ------------------------------------------------------------------------------------------

    @property
    def problems(self) -> list[str]:
        """What a user should know about folders that cannot be listed, rules and caches: a line each."""
        closed = [
            f"{shown(folder)}: the folder cannot be listed, so nothing in it was checked: {why}"
            for folder, why in self._closed.items()
        ]
        idle = ["no rule is selected, so nothing was looked for"] if any(not s.rules for s in self._sessions.values()) else []
        return [*closed, *idle, *(store.problem for store in self._stores.values() if store.problem is not None)]

    def remembered(self, item: Item, found: Found) -> Checked | None:
        """The outcome of a file from an earlier run, if it still holds."""
        session = self.session(item.path, found)
        cache = self._cache(item.path, session.project)
        checked = cache.get(self._key(item.path, session), item.path, item.shown, item.always_parse) if cache else None
        session.counters.remembered += checked is not None
        return checked

    def remember(self, path: str, always: bool, checked: Checked, found: Found) -> None:
        """Keep the outcome of a file, which may come from another process, for later runs; `save` writes it."""
        session = self.session(path, found)
        cache = self._cache(path, session.project)
        if cache is not None:
            cache.put(self._key(path, session), path, always, checked)

    def save(self) -> None:
        """Write what is to be remembered."""
        for cache in self._caches.values():
            cache.save()
        if self._catalog is not None and self._caches:
            self._catalog.save()
        for store in self._stores.values():
            store.close()

    def _cache(self, path: str, project: Project) -> ProjectCache | None:
        """The remembered results of a project; None where unsaved text stands for a file."""
        if not self._is_cached or self._unsaved:
            return None
        if project.root not in self._caches:
            self._caches[project.root] = ProjectCache(
                self._store(os.path.dirname(path)), project, self._stats, self._code, self.stat
            )
        return self._caches[project.root]

    def _store(self, directory: str) -> Store:
        folder = self.cache_folder(directory)
        return self._stores.setdefault(folder, Store(folder))

    def cache_folder(self, directory: str) -> str:
        """Where the results for the files of a directory are kept: as configured, else at the root of their project."""
        root, marked = self._roots.of(directory)
        root = root if marked else os.getcwd()
        config = self._lenient_configuration(root)
        if config.cache_dir is None:
            return os.path.join(root, FOLDER)
        return config.resolved(config.cache_dir)

    @cached_property
    def _code(self) -> str:
        return code_digest(rule.module.partition(".")[0] for rule in self.rules)

    def _key(self, path: str, session: Session) -> str:
        """A text that stands for all that findings depend on besides the project's texts: code and configuration."""
        key = self._keys.get(id(session))
        if key is None:
            config = self.configurations.of(os.path.dirname(path))
            ignores = (config.directory or os.getcwd(), list(config.per_file_ignores.items()))
            basis = (
                self._code,
                [rule.name for rule in self.rules],
                self._is_measured,
                (config.select, config.extend_select, config.ignore),
                (session.options.runtime, sorted(session.options.assumed), session.options.compiled),
                sorted((name, str(version)) for name, version in config.target_versions.items()),
                ignores if config.per_file_ignores else (),
                sorted((rule, sorted(values.items())) for rule, values in config.options.items()),
            )
            key = self._keys[id(session)] = text_digest(repr(basis).encode("utf-8", "surrogateescape"))
        return key


def _with_problem(checked: Checked, message: str) -> Checked:
    problem = Finding("unreadable-file", Severity.ERROR, ENGINE, message, 0, 0)
    return Checked(checked.path, checked.source, [problem, *checked.findings], checked.budgets)


def _checked_here(sessions: Sequence[Session], items: Sequence[Item]) -> Iterator[tuple[int, Checked]]:
    """The outcomes of files that this process checks; what that takes is imported for the first one."""
    for at, item in enumerate(items):
        from perflint.run import engine

        yield at, engine.check_item(sessions, item)


def shown(path: str, here: str | None = None) -> str:
    """How reports name a file: relative to the working directory, `here`, where it is below it."""
    here = os.getcwd() if here is None else here
    return path[len(here) :].lstrip(os.sep) if path.startswith(here.rstrip(os.sep) + os.sep) else path


def _python_files(directory: str) -> list[str]:
    """The Python files in a directory of files that belong to no project."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return [os.path.join(directory, name) for name in names if name.endswith(".py")][:200]


def _common_root(files: Sequence[str]) -> str:
    directories = {os.path.dirname(file) for file in files}
    return os.path.commonpath(directories) if directories else os.getcwd()
