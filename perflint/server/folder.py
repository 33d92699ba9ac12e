"""The files of a folder as an editor shows them: an open text stands for what is on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from perflint.fix.fixer import Choose, every, fix_text, where, writer
from perflint.project.config import ConfigError
from perflint.project.discover import Found, PathError, is_left_out
from perflint.project.folders import Folders
from perflint.report.baseline import Baselines
from perflint.rule.assumptions import declared
from perflint.rule.finding import Finding, Permission
from perflint.rule.obligations import Kind
from perflint.rule.rule import Rule
from perflint.run.engine import check_bytes
from perflint.run.outcome import Checked
from perflint.run.result import Result
from perflint.run.run import Run
from perflint.run.watch import Stamps, Watched, stamps
from perflint.source.cells import CannotWriteBack
from perflint.source.source import Source, as_bytes

ANY_FIX = Permission(unsafe=True, assumed=frozenset((Kind.RUNTIME,)))


@dataclass
class _Project:
    """A run over the folder's files as they were when it began. texts: the open texts that it was given."""

    run: Run
    found: Found
    left_out: frozenset[str]
    texts: dict[str, bytes]
    watched: Watched
    files: Stamps = field(default_factory=dict)
    folders: Stamps = field(default_factory=dict)

    @property
    def sources(self) -> frozenset[str]:
        """The Python files that may be asked about."""
        return frozenset().union(self.found.files, *(session.project.files for session in self.run.sessions))


class Folder:
    """A folder of a workspace, or the surroundings of files that are in none. For the use of one thread.

    is_workspace: whether it is all of the folder that is checked together, as by `perflint check FOLDER`; if not, files are
    checked as by `perflint check FILE`.
    """

    def __init__(self, rules: Sequence[Rule], root: str, *, is_workspace: bool) -> None:
        self.root, self.is_workspace = root, is_workspace
        self.problem: str | None = None
        """Why the configuration cannot be used; what was configured before counts until it can."""
        self._rules = rules
        self._texts: dict[str, bytes] = {}
        self._project: _Project | None = None
        self._is_stale = True
        self._all: dict[str, Checked | None] = {}
        self._outcomes: dict[str, Checked | None] = {}
        self._fixed: dict[tuple[str, Finding], bytes | None] = {}

    def put(self, path: str, text: str) -> None:
        """Open a text, or change one that is open."""
        data = as_bytes(text)
        if self._texts.get(path) != data:
            self._texts[path] = data
            self._forget_outcomes()

    def close(self, path: str) -> None:
        """Let what is on disk count again."""
        if self._texts.pop(path, None) is not None:
            self._forget_outcomes()
            if self._project is not None and self._project.texts.pop(path, None) is not None:
                self._project.run.from_disk(path)
                self._is_stale |= not os.path.exists(path)

    def refresh(self) -> None:
        """Take notice of what has changed on disk: sources, which there are, configuration."""
        before = self._project
        if before is None or self.problem is not None:
            self._is_stale = True
            self._forget_outcomes()
            return
        files, folders = stamps(before.watched.files), stamps(before.watched.folders)
        changed = {path for path, stamp in files.items() if stamp != before.files[path]} - self._texts.keys()
        others = changed - before.sources
        if not (changed or folders != before.folders):
            return
        self._forget_outcomes()
        before.files, before.folders = files, folders
        if others:
            self._is_stale = True
        elif folders != before.folders or any(files[path] is None for path in changed):
            after = self._loaded()
            if after is not None and after.watched != before.watched:
                self._project = after
                return
        for path in changed:
            before.run.from_disk(path)

    def check(self, path: str) -> Checked | None:
        """What is found in an open text and stands in no baseline.

        None where the file is left out, and where the configuration cannot be used.
        """
        if path not in self._outcomes:
            try:
                self._outcomes[path] = self._new(path)
            except ConfigError as error:  # of a folder in which nothing was open before
                self.problem = str(error)
                return None
        return self._outcomes[path]

    def fixed(self, path: str, finding: Finding) -> bytes | None:
        """The text after the fix of one finding of `check`, as `Source.raw`; None if the fix does not hold."""
        key = (path, finding)
        if key not in self._fixed:
            self._fixed[key] = self._fix(path, ANY_FIX, where(lambda _, candidate: candidate is finding))
        return self._fixed[key]

    def fixed_all(self, path: str) -> bytes | None:
        """The text after all safe fixes and those that rest on declared assumptions; None if there are none."""
        return self._fix(path, Permission(assumed=self.assumed(path).assumed), every)

    def assumed(self, path: str) -> Permission:
        """What the configuration permits for a file, but for unsafe fixes: these are asked for one by one."""
        project = self._project
        if project is None:
            return Permission()
        config = project.run.configurations.of(os.path.dirname(path))
        return Permission(assumed=declared(config.assume, config.runtime))

    def docs_url(self, path: str) -> str | None:
        """Where the documentation is served, if that is configured for a file."""
        project = self._project
        return project.run.configurations.of(os.path.dirname(path)).docs_url if project is not None else None

    def _new(self, path: str) -> Checked | None:
        checked = self._all[path] = self._check(path)
        project = self._project
        if checked is None or project is None or project.run.configurations.of(os.path.dirname(path)).baseline is None:
            return checked
        new = Result([replace(checked)])
        Baselines(project.run, [path]).narrow(new)
        return new.checked[0]

    def _check(self, path: str) -> Checked | None:
        project = self._ready(path)
        if project is None or path in project.left_out:
            return None
        for other, data in self._texts.items():
            if other not in project.left_out and project.texts.get(other) != data:
                project.texts[other] = data
                project.run.text(other, data, project.found)
        return self._checked(project, path)

    def _checked(self, project: _Project, path: str) -> Checked:
        session = project.run.session(path, project.found)
        text = session.project.read(path)
        return check_bytes(session, path, path, text or b"", always_parse=True, counts_waits=False)

    def _fix(self, path: str, permission: Permission, choose: Choose) -> bytes | None:
        self.check(path)
        checked, project = self._all.get(path), self._project
        if project is None or checked is None or checked.source is None:
            return None
        source = checked.source

        def check(raw: bytes) -> tuple[Source | None, list[Finding]]:
            try:
                project.run.text(path, with_text(raw), project.found)
            except CannotWriteBack:
                return None, []
            found = self._checked(project, path)
            return found.source, found.findings

        try:
            with_text = writer(source, self._texts[path])
            fixed = fix_text(source, checked.findings, check, permission, choose)
            return fixed.raw if fixed.applied else None
        except (CannotWriteBack, UnicodeEncodeError):
            return None
        finally:
            project.run.text(path, self._texts[path], project.found)

    # -- loading -----------------------------------------------------------------------------------------------------

    def _ready(self, path: str) -> _Project | None:
        """The project, with a file that may have been opened since it was loaded."""
        project = self._project
        if project is not None and path not in project.texts and path not in project.left_out:
            self._is_stale |= path not in project.sources
        if self._is_stale:
            self._is_stale = False
            self._project = self._loaded() or project
        return self._project

    def _loaded(self) -> _Project | None:
        """The project as it is now; None if the configuration cannot be used."""
        folders = Folders()
        run = Run(self._rules)
        try:
            found = self._found(run)
            left_out = frozenset(path for path in self._texts if is_left_out(path, self.root, run.configurations.of, folders))
            texts = {path: data for path, data in self._texts.items() if path not in left_out}
            for path, data in texts.items():
                run.text(path, data, found)
            watched = run.watched(found)
        except (ConfigError, ValueError) as error:
            self.problem = str(error)
            return None
        self.problem = None
        return _Project(run, found, left_out, texts, watched, stamps(watched.files), stamps(watched.folders))

    def _found(self, run: Run) -> Found:
        if not self.is_workspace:
            return Found()
        try:
            return run.find([self.root])
        except PathError:  # the folder is gone
            return Found()

    def _forget_outcomes(self) -> None:
        self._all.clear()
        self._outcomes.clear()
        self._fixed.clear()
