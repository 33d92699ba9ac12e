"""What programs read: JSON in ruff's shape, and GitHub's workflow commands."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from perflint.fix.fixer import complete
from perflint.report.links import rule_url
from perflint.report.places import Places
from perflint.report.text import place
from perflint.rule.finding import Edit, Finding, Fix, Severity
from perflint.run.outcome import Checked
from perflint.run.result import Result
from perflint.source.source import Source


def records(result: Result) -> Iterator[dict[str, Any]]:
    """One record per finding. The keys and their meaning are a contract."""
    for checked, finding in result.findings:
        found = record(checked, finding, result.docs_url)
        if result.is_ranked:
            found["measured_ms_per_step"] = finding.measured_ms_per_step
        yield found


def record(checked: Checked, finding: Finding, docs_url: str | None = None) -> dict[str, Any]:
    """A finding as JSON: rows and columns are 1-based, columns count characters. docs_url: see `rule_url`."""
    fix = None
    if finding.fix is not None:
        fix = {
            "applicability": finding.fix.applicability.value,
            "assumptions": [kind.value for kind in finding.fix.assumptions],
            "message": finding.fix.message,
            "edits": [
                {
                    "content": edit.content,
                    "location": _location(checked.source, edit.start),
                    "end_location": _location(checked.source, edit.end),
                    "cell": _cell(checked.source, edit.start),
                }
                for edit in _edits(checked.source, finding.fix)
            ],
        }
    return {
        "rule": finding.rule,
        "code": finding.rule,
        "category": finding.category,
        "severity": finding.severity.value,
        "costs": finding.costs.value if finding.costs is not None else None,
        "rate": finding.rate.value,
        "message": finding.message,
        "filename": checked.path,
        "location": _location(checked.source, finding.start),
        "end_location": _location(checked.source, finding.end),
        "cell": _cell(checked.source, finding.start),
        "fix": fix,
        "missing_proofs": list(finding.missing_proofs),
        "obligations": [{"kind": o.kind.value, "message": o.words} for o in finding.obligations],
        "help": f"perflint explain {finding.rule}",
        "url": rule_url(finding.rule, docs_url),
    }


def _edits(source: Source | None, fix: Fix) -> Iterable[Edit]:
    """The edits of a fix, imports included, with the line ends of the file."""
    if source is not None:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            return sorted(complete(source, fix), key=lambda edit: edit.start)
    return fix.edits


def _location(source: Source | None, offset: int) -> dict[str, int]:
    if source is None:
        return {"row": 1, "column": 1}
    position = source.position(offset)
    return {"row": position.row, "column": position.column}


def _cell(source: Source | None, offset: int) -> int | None:
    return source.position(offset).cell if source is not None else None


def as_json(result: Result) -> Iterator[str]:
    """An array of records."""
    found = list(records(result))
    if not found:
        yield "[]"
        return
    yield json.dumps(found, indent=2, ensure_ascii=True)


def as_json_lines(result: Result) -> Iterator[str]:
    """A record per line."""
    for found in records(result):
        yield json.dumps(found, ensure_ascii=True)


_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def github(result: Result) -> Iterator[str]:
    """GitHub workflow commands, which become annotations on a pull request."""
    places = Places(result.read)
    for checked, finding in result.findings:
        at = place(checked, finding)
        start, end = places.region(checked, finding.start, finding.end)
        properties = {
            "title": f"perflint ({finding.rule})",
            "file": checked.path,
            "line": start.row,
            "col": start.column,
            "endLine": end.row,
            "endColumn": end.column,
        }
        listed = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
        text = f"{checked.path}:{at.line}:{at.column}: {finding.rule}: {finding.message}"
        yield f"::{_LEVELS[finding.severity]} {listed}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
