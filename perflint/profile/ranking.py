"""`perflint check --profile`: findings by what they cost, without those that cost next to nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from perflint.profile.costs import Costs
from perflint.rule.finding import Finding
from perflint.run.outcome import Checked
from perflint.run.result import Result
from perflint.source.words import counted


@dataclass
class Ranking:
    """What ranking did to a result. outdated: files that have changed since they were profiled, as reports name them."""

    costs: Costs
    hidden: int = 0
    outdated: list[str] = field(default_factory=list)

    def rank(self, result: Result, shows: Callable[[str, Finding], bool] = lambda path, finding: True) -> None:
        """Put the costs into a result's findings, and take out those that do not matter.

        shows: whether a finding about a file is shown where nothing is known of its cost.
        """
        result.is_ranked = True
        for checked in result.checked:
            self._rank_file(checked)
            checked.findings = [f for f in checked.findings if _is_measured(f) or shows(checked.path, f)]

    def _rank_file(self, checked: Checked) -> None:
        file = self.costs.file(os.path.abspath(checked.path))
        if file is None or checked.source is None or not checked.findings:
            return
        if not self.costs.is_current(file, checked.source.encode(checked.source.raw)):
            self.outdated.append(checked.path)
            return
        kept = []
        for finding in checked.findings:
            cost = self.costs.of(file, checked.source.row_at(finding.start))
            if self.costs.matters(finding, cost):
                kept.append(finding if cost is None else replace(finding, measured_ms_per_step=cost.ms))
        self.hidden += len(checked.findings) - len(kept)
        checked.findings = kept

    def notes(self) -> Iterator[str]:
        """What a reader has to know."""
        if self.hidden:
            part = f"less than {self.costs.threshold:.2%} of a {self.costs.unit} in the profile"
            yield f"{counted(self.hidden, 'finding')} not shown: {part} (--profile-threshold 0 shows all)."
            if self.costs.device in (None, "cpu"):
                yield "The profile was made without a GPU, where waiting for one and copying to it cost nothing."
        for path in self.outdated:
            yield f"{path} has changed since it was profiled: its findings are not ranked."


def _is_measured(finding: Finding) -> bool:
    """Whether it is known what a finding costs: its time is lost where it is, and was measured there."""
    return finding.measured_ms_per_step is not None and (finding.costs is None or finding.costs.is_at_its_line)
