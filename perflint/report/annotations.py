"""Lines that CI services and editors turn into annotations, and reviewdog's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from perflint.report.report import Report
from perflint.report.text import place, printable
from perflint.rule.finding import Finding, Permission, Severity
from perflint.run.outcome import Checked
from perflint.source.source import Source

_AZURE = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "warning"}
_RDJSON = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.INFO: "INFO"}
_IN_AZURE = str.maketrans({"%": "%AZP25", ";": "%3B", "\r": "%0D", "\n": "%0A", "]": "%5D"})


def azure(report: Report) -> Iterator[str]:
    """Logging commands of Azure Pipelines, which knows no level below a warning."""
    for checked, finding in report.result.findings:
        row, column = place(checked, finding)
        properties = {
            "type": _AZURE[finding.severity],
            "sourcepath": checked.path,
            "linenumber": row,
            "columnnumber": column,
            "code": finding.rule,
        }
        listed = "".join(f"{key}={str(value).translate(_IN_AZURE)};" for key, value in properties.items())
        yield f"##vso[task.logissue {listed}]{printable(finding.message).replace('%', '%AZP25')}"


def pylint(report: Report) -> Iterator[str]:
    """A line for each finding in the format of pylint's parseable reports, which many editors and services read."""
    for checked, finding in report.result.findings:
        yield f"{printable(checked.path)}:{place(checked, finding)[0]}: [{finding.rule}] {printable(finding.message)}"


def rdjson(report: Report) -> Iterator[str]:
    """Reviewdog's diagnostic format; fixes that may be applied and are one edit are suggestions."""
    granted = report.result.permissions
    diagnostics = [_diagnostic(*found, granted.get(found[0].path, Permission())) for found in report.result.findings]
    yield json.dumps({"source": {"name": "perflint"}, "diagnostics": diagnostics}, indent=1)


def _diagnostic(checked: Checked, finding: Finding, permission: Permission) -> dict[str, Any]:
    found: dict[str, Any] = {
        "message": finding.message,
        "severity": _RDJSON[finding.severity],
        "location": {"path": checked.path, "range": _range(checked.source, finding.start, finding.end)},
        "code": {"value": finding.rule},
    }
    fix = finding.fix
    if fix is not None and permission.covers(fix) and not fix.imports and len(fix.edits) == 1:
        (edit,) = fix.edits
        found["suggestions"] = [{"range": _range(checked.source, edit.start, edit.end), "text": edit.content}]
    return found


def _range(source: Source | None, start: int, end: int) -> dict[str, Any]:
    """Rows and columns from 1; columns count bytes of UTF-8, the last one is behind the range."""
    places = {"start": start, "end": end}
    if source is None:
        return {name: {"line": 1, "column": 1} for name in places}
    rows = {name: source.row_at(offset) for name, offset in places.items()}
    return {name: {"line": rows[name], "column": offset - source.starts[rows[name] - 1] + 1} for name, offset in places.items()}
