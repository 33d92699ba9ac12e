"""What a run gives to those who report it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from perflint.rule.finding import Finding, Permission
from perflint.run.outcome import Checked


@dataclass
class FixedFile:
    """A file that `fix` changed, or would change: its bytes before and after, and how many findings of each rule were fixed."""

    path: str
    before: bytes
    after: bytes
    applied: Counter[str] = field(default_factory=Counter)


@dataclass
class Result:
    """Everything that a report needs."""

    checked: list[Checked] = field(default_factory=list)
    fixed: list[FixedFile] = field(default_factory=list)
    permissions: dict[str, Permission] = field(default_factory=dict)
    """Which fixes may be applied to a file, by the name that reports have for it."""
    is_ranked: bool = False
    """Whether the findings were joined with a profile: the costliest come first then."""

    @property
    def applied(self) -> Counter[str]:
        """How many findings of each rule were fixed."""
        return sum((fixed.applied for fixed in self.fixed), Counter[str]())

    @property
    def findings(self) -> list[tuple[Checked, Finding]]:
        found = [(checked, finding) for checked in self.checked for finding in checked.findings]
        if self.is_ranked:
            found.sort(key=lambda pair: -(pair[1].measured_ms_per_step or 0.0))
        return found
