"""What a run gives to those who report it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from perflint.project.files import read_file
from perflint.rule.finding import Finding, Permission
from perflint.run.outcome import INTERNAL_ERROR, INVALID_SYNTAX, Checked


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

    docs_url: str | None = None
    """Where the documentation is served, if that is configured."""

    read: Callable[[str], bytes | None] = field(default=read_file, repr=False, compare=False)
    """The bytes of a file that was checked, by its absolute path: a text that was not saved is one, too."""

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

    @property
    def has_failed(self) -> bool:
        """Whether a rule failed somewhere."""
        return any(finding.rule == INTERNAL_ERROR for _, finding in self.findings)

    def keep(self, wanted: Callable[[Checked, Finding], bool]) -> int:
        """Leave some of the findings only, and the budgets of the functions that they are in; how many were dropped."""
        before = len(self.findings)
        for place, checked in enumerate(self.checked):
            kept = [finding for finding in checked.findings if wanted(checked, finding)]
            named = {finding.function for finding in kept}
            budgets = [budget for budget in checked.budgets if budget.function in named]
            self.checked[place] = replace(checked, findings=kept, budgets=budgets)
        return before - len(self.findings)


_PYTHON_2 = "Missing parentheses in call to"


def of_python_2_once(checked: Sequence[Checked]) -> list[Checked]:
    """The outcomes, with one finding for all files that are written for Python 2: to read them is one decision, not many."""
    held = [place for place, one in enumerate(checked) if any(map(_is_of_python_2, one.findings))]
    if len(held) < 2:
        return list(checked)
    first, *others = held
    files = "file, which was" if len(others) == 1 else "files, which were"
    also = f" (this is Python 2, as in {len(others)} more {files} checked in part at most: leave them out with `exclude`)"
    said = list(checked)
    for place in held:
        findings = [f for f in checked[place].findings if place == first or not _is_of_python_2(f)]
        findings = [replace(f, message=f.message + also) if _is_of_python_2(f) else f for f in findings]
        said[place] = replace(checked[place], findings=findings)
    return said


def _is_of_python_2(finding: Finding) -> bool:
    return finding.rule == INVALID_SYNTAX and finding.message.startswith(_PYTHON_2)
