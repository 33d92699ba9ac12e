"""What a report is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perflint.report.terminal import PLAIN, Terminal
from perflint.rule.rule import Rule
from perflint.run.result import Result


@dataclass(frozen=True)
class Report:
    """What a writer is given.

    rules: all that are installed. fixing: whether the findings are those that `fix` left. paths: what was checked, as the user
    named it. notes: what a reader should know besides, findings that a baseline knows, say.
    """

    result: Result
    rules: Sequence[Rule] = ()
    terminal: Terminal = PLAIN
    fixing: bool = False
    paths: Sequence[str] = ()
    notes: Sequence[str] = ()
