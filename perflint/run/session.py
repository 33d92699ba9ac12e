"""What the files of a run share: a project and a configuration."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perflint.project.config import Options
from perflint.project.project import Project
from perflint.rule.finding import Finding, Severity
from perflint.rule.rule import Rule
from perflint.rule.selection import UNUSED_SUPPRESSION
from perflint.run.outcome import Counters

if TYPE_CHECKING:
    from packaging.version import Version

    from perflint.facts.facts import Facts
    from perflint.rule.suppress import Ran
    from perflint.source.source import Source
    from perflint.source.syntax import Module


@dataclass
class Session:
    """One run over one project with one configuration.

    unused_suppressions: whether suppressions that silence nothing are reported; known: the names that they may use;
    left_out: the rules that run by default, but not here; None if that is not known. ignores: names to leave out for a file,
    by absolute path. asked_for: the rules that report what is true but worth little (findings of severity info), too; None
    for all.
    """

    project: Project
    rules: Sequence[Rule]
    options: Options = field(default_factory=Options)
    target_versions: dict[str, Version] = field(default_factory=dict)
    unused_suppressions: bool = False
    known: frozenset[str] = frozenset()
    left_out: Sequence[Rule] | None = None
    ignores: Callable[[str], frozenset[str]] = lambda path: frozenset()
    asked_for: frozenset[str] | None = None
    counters: Counters = field(default_factory=Counters)

    _facts: Facts | None = None
    _generation: int = 0

    @property
    def facts(self) -> Facts:
        """What is known about the project; facts about files that were forgotten are."""
        from perflint.facts.facts import Facts

        if self._facts is None or self._generation != self.project.generation:
            self._release_facts()
            self._facts = Facts(self.project, self.target_versions, self.options.compiled)
            self._generation = self.project.generation
        return self._facts

    def _release_facts(self) -> None:
        if self._facts is not None:
            self._facts.release()
            self._facts = None
            gc.collect(0)  # now, when little of what is young is left to look at

    def rest(self) -> None:
        """Let go of all that takes memory, because another project's files come next. Answers stay the same."""
        if self.project.holds_texts:
            self.project.forget_texts()
            self._release_facts()

    def __reduce__(self) -> tuple[object, ...]:
        """What another process makes the same session of: its files may lie elsewhere, so it is told the versions."""
        options = replace(self.options, runtime=self.facts.has_runtime or self.options.runtime)
        chosen = (self.project, tuple(self.rules), options, self.facts.versions)
        return Session, (*chosen, self.unused_suppressions, self.known, self.left_out, self.ignores, self.asked_for)

    def make_room(self) -> None:
        """Forget parsed files and the facts about them once they take too much memory. Answers stay the same."""
        if self.project.should_forget():
            self._release_facts()
            self.project.forget()

    def module(self, path: str, source: Source, data: bytes) -> Module:
        """The file with these bytes: the one that facts speak of if it is held. Facts about another text are dropped."""
        self.make_room()
        held = self.project.held(path)
        if held is not None:
            if held.source.body == source.body:
                return held
            self.project.end_generation()
        if not self.project.has_read(path, data):
            self.project.changed(path)
        return self.project.cut(source)

    def start_anew(self, module: Module) -> None:
        """Drop all facts, because a question about a file was left in its middle."""
        self.project.forget(keep=module)
        self.project.hold(module.source.path, module)

    def shows(self, finding: Finding) -> bool:
        """Whether a finding is reported: one that is worth little is only if somebody asked for its rule."""
        return finding.severity is not Severity.INFO or self.shows_info(finding.rule)

    def shows_info(self, rule: str) -> bool:
        """Whether what a rule reports is shown if it is worth little."""
        return self.asked_for is None or rule in self.asked_for

    def ran(self, ignored: frozenset[str]) -> Ran | None:
        """What the suppressions of a file can be judged by, or None when they are not to be."""
        if not self.unused_suppressions or UNUSED_SUPPRESSION in ignored:
            return None
        from perflint.rule.suppress import Ran

        active = {rule.name for rule in self.rules} - ignored
        return Ran(self.known, active, self.left_out is not None and not self.left_out and not ignored)
