"""Which findings about waits are worth a minute: only the last wait of a step shows in its time.

In a step that waits at another place, too, what is taken away here is waited for there, and the step takes as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perflint.rule.finding import Applicability, Cost, Finding, Rate, Severity
from perflint.run.outcome import Budget, StepWait
from perflint.source.source import Source

_OFTENER = frozenset((Rate.PER_PARAMETER, Rate.PER_SAMPLE))
"""Many waits of one step, which take time each, whatever else the step waits for."""

_Place = tuple[str, int]
"""A rule, and the row of what it reports as a wait."""


def by_last_wait(
    source: Source, loops: Sequence[tuple[Budget, frozenset[StepWait]]], findings: Sequence[Finding]
) -> list[Finding]:
    """The findings of a file, those as of little worth that leave each training loop which gets to them with another wait.

    loops: those of the file with the findings that are worth something.
    """
    vain, last = set[_Place](), set[_Place]()
    for budget, waits in loops:
        places = {(wait.rule, wait.line) for wait in waits if wait.rule and not wait.file}
        (last if all(map(_is_dealt_with, budget.timeline)) else vain).update(places)
    vain -= last

    def is_vain(finding: Finding) -> bool:
        return may_be_vain(finding) and all((finding.rule, source.row_at(wait)) in vain for wait in finding.waits)

    return [replace(finding, severity=Severity.INFO) if is_vain(finding) else finding for finding in findings]


def _is_dealt_with(wait: StepWait) -> bool:
    """Whether a finding tells how to take a wait away that needs no look at a fix."""
    return bool(wait.rule) and wait.fix != Applicability.UNSAFE.value


def may_be_vain(finding: Finding) -> bool:
    """Whether a finding is about waits of which a step makes one or some."""
    if finding.severity is not Severity.WARNING or not finding.waits:
        return False
    return finding.costs is Cost.COPY or (finding.costs is Cost.WAIT and finding.rate not in _OFTENER)


def is_worth(finding: Finding) -> bool:
    """Whether a finding is worth a minute as far as its rule can tell."""
    return finding.severity is not Severity.INFO
