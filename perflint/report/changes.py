"""Which findings are at lines that have changed since a commit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from perflint.project.git import Changes
from perflint.report.places import Places
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
    places = Places(result.read)
    dropped = result.keep(lambda checked, found: changes.touch(os.path.abspath(checked.path), *_rows(places, checked, found)))
    if dropped:
        yield f"{counted(dropped, 'finding')} left out, at lines that have not changed since {revision}."


def _rows(places: Places, checked: Checked, finding: Finding) -> tuple[int, int]:
    """The first and last row of a finding; all rows where git counts them in another way, or nobody can."""
    file = places.file(checked)
    if file is None or file.raw != file.body:
        return 1, sys.maxsize
    first, last = places.region(checked, finding.start, max(finding.end - 1, finding.start))
    return first.row, last.row
