"""GitLab's code quality report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from perflint.project.discover import project_root
from perflint.report.fingerprint import digests, relative
from perflint.report.places import Places
from perflint.report.report import Report
from perflint.report.text import message
from perflint.rule.finding import Severity

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}


def gitlab(report: Report) -> Iterator[str]:
    """An array of issues. Paths are relative to the root of the project of the working directory."""
    root = project_root(os.getcwd())[0]
    places = Places(report.result.read)
    issues = []
    for (checked, finding), digest in zip(report.result.findings, digests(report.result, root), strict=True):
        first, last = places.region(checked, finding.start, max(finding.end - 1, finding.start))
        issues.append(
            {
                "description": message(checked, finding),
                "check_name": finding.rule,
                "fingerprint": digest,
                "severity": _SEVERITIES[finding.severity],
                "location": {"path": relative(checked.path, root), "lines": {"begin": first.row, "end": last.row}},
            }
        )
    yield json.dumps(issues, indent=1)
