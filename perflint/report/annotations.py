"""Lines that CI services and editors turn into annotations, and reviewdog's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from perflint.report.places import Places
from perflint.report.report import Report
from perflint.report.text import message, place, printable
from perflint.rule.finding import Finding, Permission, Severity
from perflint.run.outcome import Checked
from perflint.source.source import Source

_AZURE = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "warning"}
_RDJSON = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.INFO: "INFO"}
_IN_AZURE = str.maketrans({"%": "%AZP25", ";": "%3B", "\r": "%0D", "\n": "%0A", "]": "%5D"})


def azure(report: Report) -> Iterator[str]:
    """Logging commands of Azure Pipelines, which knows no level below a warning."""
    places = Places(report.result.read)
    for checked, finding in report.result.findings:
        start, _ = places.region(checked, finding.start, finding.end)
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
    places, granted = Places(report.result.read), report.result.permissions
    diagnostics = [_diagnostic(places, *found, granted.get(found[0].path, Permission())) for found in report.result.findings]
    yield json.dumps({"source": {"name": "perflint"}, "diagnostics": diagnostics}, indent=1)


def _diagnostic(places: Places, checked: Checked, finding: Finding, permission: Permission) -> dict[str, Any]:
    file = places.file(checked)
    found: dict[str, Any] = {
        "message": message(checked, finding),
        "severity": _RDJSON[finding.severity],
        "location": {"path": checked.path, "range": _range(file, *places.span(checked, finding.start, finding.end))},
        "code": {"value": finding.rule},
    }
    if finding.fix is not None and permission.covers(finding.fix):
        edits = places.edits(checked, finding) or []
        if len(edits) == 1:
            found["suggestions"] = [{"range": _range(file, edits[0].start, edits[0].end), "text": edits[0].content}]
    return found


def _range(file: Source | None, start: int, end: int) -> dict[str, Any]:
    """Rows and columns from 1; columns count bytes of UTF-8, the last one is behind the range."""
    if file is None:
        return {name: {"line": 1, "column": 1} for name in ("start", "end")}
    rows = {name: (file.row_at(offset), offset) for name, offset in (("start", start), ("end", end))}
    return {name: {"line": row, "column": offset - file.starts[row - 1] + 1} for name, (row, offset) in rows.items()}
