"""A run: paths in, results out. Groups files by project and configuration; reads and writes the disk."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathspec import GitIgnoreSpec

from perflint.code import Options
from perflint.config import (
    ENGINE_FINDINGS,
    UNUSED_SUPPRESSION,
    Config,
    ConfigError,
    Configurations,
    reports_unused_suppressions,
    selected,
)
from perflint.discover import Found, find_files, ignore_spec, project_root, walk
from perflint.engine import Checked, Session, check_bytes, check_file
from perflint.fixer import Accept, Fixed, WriteError, fix_text, remove_leftovers, write
from perflint.project import Project, read_file
from perflint.rule import Category, Finding, Rule, Severity
from perflint.source import Source

SMALL_RUN_BYTES = 512 * 1024
"""A run over less than this parses every file, so that each syntax error is reported. In a larger one a file that no rule
can fire in is not parsed, unless it was named on the command line."""


@dataclass
class FixedFile:
    """A file that `fix` changed, or would change: its bytes before and after."""

    path: str
    before: bytes
    after: bytes


@dataclass
class Result:
    """Everything that a report needs."""

    checked: list[Checked] = field(default_factory=list)
    fixed: list[FixedFile] = field(default_factory=list)
    applied: Counter[str] = field(default_factory=Counter)
    is_ranked: bool = False
    """Whether the findings were joined with a profile: the costliest come first then."""

    @property
    def findings(self) -> list[tuple[Checked, Finding]]:
        found = [(checked, finding) for checked in self.checked for finding in checked.findings]
        if self.is_ranked:
            found.sort(key=lambda pair: -(pair[1].measured_ms_per_step or 0.0))
        return found


class Run:
    """Checks or fixes the files that paths name."""

    def __init__(
        self, rules: Sequence[Rule], fixed_config: Config | None = None, overrides: Mapping[str, Any] | None = None
    ) -> None:
        self.rules = rules
        names = {key: value for key, value in (overrides or {}).items() if key in ("select", "extend_select", "ignore")}
        selected(rules, Config(**names))  # so that a wrong name on the command line is not taken for a configured one
        self.configurations = Configurations(fixed_config, overrides or {})
        self._sessions: dict[tuple[str, str | None], Session] = {}
        self._roots: dict[str, tuple[str, bool]] = {}
        self._projects: dict[str, Project] = {}
        self._ignore_specs: dict[str, list[tuple[GitIgnoreSpec, frozenset[str]]]] = {}
        self._unsaved: dict[str, bytes] = {}
        self._tidied: set[str] = set()

    def find(self, paths: Sequence[str]) -> Found:
        """The files of a run.

        Raises:
            PathError: a path does not exist.
            ConfigError: a configuration is unusable.

        """
        return find_files(paths, self.configurations.of)

    def check(self, found: Found, on_file: Callable[[str], None] = lambda path: None) -> Result:
        """Check files."""
        result = Result()
        for path, always in self._files(found):
            on_file(path)
            session = self.session(path, found)
            checked = check_file(session, path, shown(path), always_parse=always)
            if not checked.findings:
                checked.source = None  # only reports of findings need the text
            result.checked.append(checked)
        return result

    def fix(
        self,
        found: Found,
        *,
        unsafe: bool,
        write_files: bool,
        on_file: Callable[[str], None] = lambda path: None,
        accept: Accept = lambda source, finding: True,
    ) -> Result:
        """Fix files; with `write_files` the results replace the files. `accept` may leave out fixes."""
        result = Result()
        for path, always in self._files(found):
            on_file(path)
            session = self.session(path, found)
            checked = check_file(session, path, shown(path), always_parse=always)
            allowed = unsafe or self.configurations.of(os.path.dirname(path)).unsafe_fixes
            if checked.source is not None and any(f.fix for f in checked.findings):
                checked = self._fix_one(session, path, checked, allowed, write_files, result, accept)
            result.checked.append(checked)
        return result

    def _fix_one(
        self,
        session: Session,
        path: str,
        checked: Checked,
        unsafe: bool,
        write_files: bool,
        result: Result,
        accept: Accept,
    ) -> Checked:
        assert checked.source is not None
        source = checked.source
        before = source.encode(source.body)  # what was checked, which need not be what the file holds by now
        latest = checked

        def check(body: bytes) -> tuple[Source | None, list[Finding]]:
            nonlocal latest
            data = source.encode(body)
            self._unsaved[path] = data
            latest = check_bytes(session, path, checked.path, data)
            return latest.source, latest.findings

        try:
            fixed: Fixed = fix_text(source, checked.findings, check, unsafe, accept)
            after = source.encode(fixed.body)
        except UnicodeEncodeError as error:
            problem = Finding(
                "unreadable-file",
                Severity.ERROR,
                Category.ENGINE,
                f"a fix does not fit the encoding {source.encoding}: {error}",
                0,
                0,
            )
            return Checked(checked.path, source, [problem, *checked.findings], checked.budgets)
        finally:
            self._unsaved.pop(path, None)
            session.project.changed(path)
        if after == before:
            return checked
        if write_files:
            self._tidy(os.path.dirname(os.path.realpath(path)))
            try:
                write(path, before, after)
            except WriteError as error:
                problem = Finding("unreadable-file", Severity.ERROR, Category.ENGINE, str(error), 0, 0)
                return Checked(checked.path, source, [problem, *checked.findings], checked.budgets)
        else:
            self._unsaved[path] = after
        result.fixed.append(FixedFile(checked.path, before, after))
        result.applied += fixed.applied
        again = check_bytes(session, path, checked.path, after)
        return Checked(checked.path, again.source, again.findings, again.budgets)

    def _tidy(self, directory: str) -> None:
        if directory not in self._tidied:
            self._tidied.add(directory)
            remove_leftovers(directory)

    def text(self, path: str, data: bytes, found: Found) -> None:
        """Put unsaved text (standard input, an editor's buffer) in the place of a file's bytes."""
        self._unsaved[path] = data
        if path not in found.files:
            found.files.append(path)
        found.explicit.add(path)

    def _files(self, found: Found) -> Iterator[tuple[str, bool]]:
        """Files to check, and whether each is parsed in any case."""
        total = 0
        sizes: dict[str, int] = {}
        for path in found.files:
            try:
                sizes[path] = os.path.getsize(path)
            except OSError:
                sizes[path] = 0
            total += sizes[path] if sizes[path] <= SMALL_RUN_BYTES else 0
        small = total <= SMALL_RUN_BYTES
        for path in found.files:
            yield path, path in found.explicit or (small and sizes[path] <= SMALL_RUN_BYTES)

    # -- sessions ----------------------------------------------------------------------------------------------------

    def session(self, path: str, found: Found) -> Session:
        """The session for a file: its project, its configuration."""
        directory = os.path.dirname(path)
        if directory not in self._roots:
            self._roots[directory] = project_root(path)
        root, marked = self._roots[directory]
        config = self.configurations.of(directory)
        key = (root if marked else "", config.path)
        session = self._sessions.get(key)
        if session is None:
            chosen = selected(self.rules, config)
            session = self._sessions[key] = Session(
                self._project(root, marked, found),
                chosen,
                Options(runtime=config.runtime),
                dict(config.target_versions),
                reports_unused_suppressions(config),
                frozenset(rule.name for rule in self.rules) | ENGINE_FINDINGS,
                all(rule in chosen for rule in self.rules if rule.severity is not Severity.INFO),
                lambda file: self._ignored(file, config),
            )
        return session

    def _project(self, root: str, marked: bool, found: Found) -> Project:
        key = root if marked else ""
        if key not in self._projects:
            files, links = set(found.files), dict(found.links)
            if marked:
                for file, link in walk(root, self._lenient_configuration):
                    if link is not None:
                        links[file] = link
                    else:
                        files.add(file)
            else:
                for file in list(found.files):
                    files.update(_siblings(file))
                root = _common_root(found.files)
            self._projects[key] = Project(root, files, links, self.read)
        return self._projects[key]

    def _lenient_configuration(self, directory: str) -> Config:
        """The configuration of a directory whose files are not linted themselves: a broken one is not this run's business."""
        try:
            return self.configurations.of(directory)
        except ConfigError:
            return Config()

    def read(self, path: str) -> bytes | None:
        """A file's bytes: unsaved text where there is some."""
        return self._unsaved[path] if path in self._unsaved else read_file(path)

    def _ignored(self, path: str, config: Config) -> frozenset[str]:
        if not config.per_file_ignores:
            return frozenset()
        base = config.directory or os.getcwd()
        if base not in self._ignore_specs:
            self._ignore_specs[base] = [
                (ignore_spec([pattern]), _expanded(names, self.rules)) for pattern, names in config.per_file_ignores.items()
            ]
        relative = os.path.relpath(path, base).replace(os.sep, "/")
        return frozenset(name for spec, names in self._ignore_specs[base] if spec.match_file(relative) for name in names)


def shown(path: str) -> str:
    """How reports name a file: relative to the working directory where it is below it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _siblings(path: str) -> list[str]:
    """The Python files beside a file that belongs to no project."""
    directory = os.path.dirname(path)
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return [os.path.join(directory, name) for name in names if name.endswith(".py")][:200]


def _common_root(files: Sequence[str]) -> str:
    directories = {os.path.dirname(file) for file in files}
    return os.path.commonpath(directories) if directories else os.getcwd()


def _expanded(names: Sequence[str], rules: Sequence[Rule]) -> frozenset[str]:
    groups = {rule.name: rule.category.value for rule in rules} | {UNUSED_SUPPRESSION: Category.ENGINE.value}
    return frozenset(name for name, group in groups.items() if any(n in (name, group, "all") for n in names))
