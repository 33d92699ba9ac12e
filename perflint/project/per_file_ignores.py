"""Which rules a configuration leaves out for some files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property

from perflint.project.ignores import Ignores
from perflint.rule.finding import ENGINE
from perflint.rule.rule import Rule
from perflint.rule.selection import UNUSED_SUPPRESSION
from perflint.source.records import dataclass


@dataclass(frozen=True)
class PerFileIgnores:
    """The rules that a configuration leaves out for a file, by patterns relative to a directory."""

    directory: str
    patterns: Mapping[str, frozenset[str]]

    def __call__(self, path: str) -> frozenset[str]:
        """The names to leave out for the file at an absolute path."""
        if not self.patterns:
            return frozenset()
        relative = os.path.relpath(path, self.directory).replace(os.sep, "/")
        return frozenset(name for ignores, names in self._ignores for name in names if ignores.verdict(relative))

    @cached_property
    def _ignores(self) -> list[tuple[Ignores, frozenset[str]]]:
        return [(Ignores([pattern]), names) for pattern, names in self.patterns.items()]

    def __reduce__(self) -> tuple[object, ...]:
        """Without the compiled patterns."""
        return PerFileIgnores, (self.directory, self.patterns)


def expanded(ignores: Mapping[str, Sequence[str]], rules: Sequence[Rule]) -> dict[str, frozenset[str]]:
    """Per-file ignores with groups replaced by their rules."""
    groups = {rule.name: rule.category for rule in rules} | {UNUSED_SUPPRESSION: ENGINE}
    return {
        pattern: frozenset(name for name, group in groups.items() if any(n in (name, group, "all") for n in names))
        for pattern, names in ignores.items()
    }
