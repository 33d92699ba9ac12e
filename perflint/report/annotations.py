"""Lines that CI services and editors turn into annotations, and reviewdog's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from perflint.report.report import Report
from perflint.report.text import message, place, printable, region
from perflint.rule.finding import Finding, Permission, Severity
from perflint.run.outcome import Checked

_AZURE = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "warning"}
_RDJSON = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.INFO: "INFO"}
_IN_AZURE = str.maketrans({"%": "%AZP25", ";": "%3B", "\r": "%0D", "\n": "%0A", "]": "%5D"})


def azure(report: Report) -> Iterator[str]:
    """Logging commands of Azure Pipelines, which knows no level below a warning."""
    for checked, finding in report.result.findings:
        start, _ = region(checked, finding.start, finding.end)
        properties = {
            "type": _AZURE[finding.severity],
            "sourcepath": checked.path,
            "linenumber": start.row,
            "columnnumber": start.column,
            "code": finding.rule,
        }
        listed = "".join(f"{key}={str(value).translate(_IN_AZURE)};" for key, value in properties.items())
        yield f"##vso[task.logissue {listed}]{printable(message(checked, finding)).replace('%', '%AZP25')}"


def pylint(report: Report) -> Iterator[str]:
    """A line for each finding in the format of pylint's parseable reports, which many editors and services read."""
    for checked, finding in report.result.findings:
        yield f"{printable(checked.path)}:{place(checked, finding).line}: [{finding.rule}] {printable(finding.message)}"


def rdjson(report: Report) -> Iterator[str]:
    """Reviewdog's diagnostic format; fixes that may be applied and are one edit are suggestions."""
    granted = report.result.permissions
    diagnostics = [_diagnostic(*found, granted.get(found[0].path, Permission())) for found in report.result.findings]
    yield json.dumps({"source": {"name": "perflint"}, "diagnostics": diagnostics}, indent=1)


def _diagnostic(checked: Checked, finding: Finding, permission: Permission) -> dict[str, Any]:
    found: dict[str, Any] = {
        "message": message(checked, finding),
        "severity": _RDJSON[finding.severity],
        "location": {"path": checked.path, "range": _range(checked, finding.start, finding.end)},
        "code": {"value": finding.rule},
    }
    fix = finding.fix
    is_file = checked.source is not None and checked.source.cells is None
    if is_file and fix is not None and permission.covers(fix) and not fix.imports and len(fix.edits) == 1:
        (edit,) = fix.edits
        found["suggestions"] = [{"range": _range(checked, edit.start, edit.end), "text": edit.content}]
    return found


def _range(checked: Checked, start: int, end: int) -> dict[str, Any]:
    """Rows and columns from 1; columns count bytes of UTF-8, the last one is behind the range."""
    source, places = checked.source, zip(("start", "end"), (start, end), region(checked, start, end), strict=True)
    if source is None or source.cells is not None:
        return {name: {"line": at.row, "column": at.column} for name, _, at in places}
    return {name: {"line": at.row, "column": offset - source.starts[at.row - 1] + 1} for name, offset, at in places}
