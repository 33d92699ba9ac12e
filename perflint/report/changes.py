"""Which findings are at lines that have changed since a commit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from perflint.project.git import Changes
from perflint.rule.finding import Finding
from perflint.run.outcome import Checked
from perflint.run.result import Result
from perflint.source.words import counted


def narrow(result: Result, revision: str, folder: str) -> Iterator[str]:
    """Leave the findings at changed lines in a result; what a reader should know of it. folder: one of the repository's.

    Raises:
        GitError: git cannot say what has changed.

    """
    changes = Changes(revision)
    changes.repository(folder)
    dropped = result.keep(lambda checked, finding: changes.touch(os.path.abspath(checked.path), *_rows(checked, finding)))
    if dropped:
        yield f"{counted(dropped, 'finding')} left out, at lines that have not changed since {revision}."


def _rows(checked: Checked, finding: Finding) -> tuple[int, int]:
    """The first and last row of a finding; all rows where git counts them in another way, or nobody can."""
    source = checked.source
    if source is None or source.cells is not None or source.raw != source.body:
        return 1, sys.maxsize
    return source.row_at(finding.start), source.row_at(max(finding.end - 1, finding.start))
