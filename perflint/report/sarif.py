"""SARIF 2.1.0, which code scanning services and editors read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from perflint.project.discover import project_root
from perflint.report.data import record
from perflint.report.explain import ENGINE_PAGES, page
from perflint.report.fingerprint import digests, relative
from perflint.report.links import rule_url
from perflint.report.places import Places
from perflint.report.report import Report
from perflint.report.text import fix_words, message
from perflint.rule.finding import ENGINE, Applicability, Finding, Fix, Severity
from perflint.rule.rule import Rule
from perflint.run.outcome import Checked
from perflint.source.source import Position

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
SRCROOT = "SRCROOT"
FINGERPRINT = "perflint/v1"

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_LINK = re.compile(r"\[(?=[^\[\]]*\]\()")
_PROPERTIES = ("category", "costs", "rate", "obligations")


def sarif(report: Report) -> Iterator[str]:
    """One run with a result for each finding. Paths are relative to the root of the project of the working directory."""
    from importlib.metadata import version

    root = project_root(os.getcwd())[0]
    rules = {rule.name: rule for rule in report.rules}
    used = sorted({finding.rule for _, finding in report.result.findings})
    indices = {name: index for index, name in enumerate(used)}
    places = Places(report.result.read)
    found = zip(report.result.findings, digests(report.result, root), strict=True)
    driver = {
        "name": "perflint",
        "semanticVersion": version("perflint-torch"),
        "rules": [_rule(rules[name], report.result.docs_url) if name in rules else _engine_rule(name) for name in used],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {SRCROOT: {"description": {"text": "The root of the project that was checked."}}},
        "results": [_result(checked, finding, places, indices, digest, root) for (checked, finding), digest in found],
    }
    yield json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _rule(rule: Rule, docs_url: str | None) -> dict[str, Any]:
    found = _descriptor(rule.name, rule.summary, page(rule), rule.severity, rule.category)
    return found | ({"helpUri": rule_url(rule.name, docs_url)} if docs_url is not None else {})


def _engine_rule(name: str) -> dict[str, Any]:
    text = ENGINE_PAGES[name]
    return _descriptor(name, f"{text.partition('. ')[0]}.", f"# {name}\n\n{text}", Severity.ERROR, ENGINE)


def _descriptor(name: str, summary: str, text: str, severity: Severity, category: str) -> dict[str, Any]:
    return {
        "id": name,
        "shortDescription": {"text": summary},
        "fullDescription": {"text": summary},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"level": _LEVELS[severity]},
        "properties": {"tags": ["performance", category]},
    }


def _result(
    checked: Checked, finding: Finding, places: Places, indices: Mapping[str, int], digest: str, root: str
) -> dict[str, Any]:
    known = record(checked, finding)
    artifact = _artifact(checked.path, root)
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": artifact,
            "region": _region(*places.region(checked, finding.start, finding.end)),
        }
    }
    if finding.function:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.function, "kind": "function"}]
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": indices[finding.rule],
        "level": _LEVELS[finding.severity],
        "message": {"text": _LINK.sub(r"\\[", f"{message(checked, finding)}. {fix_words(finding)}".strip())},
        "locations": [location],
        "partialFingerprints": {FINGERPRINT: digest},
        "properties": {name: known[name] for name in _PROPERTIES},
    }
    if finding.measured_ms_per_step is not None:
        result["properties"]["measuredMsPerStep"] = finding.measured_ms_per_step
    if finding.fix is not None:
        result["properties"]["applicability"] = finding.fix.applicability.value
        result["properties"]["assumptions"] = [kind.value for kind in finding.fix.assumptions]
        fixes = list(_fixes(checked, finding, finding.fix, places, artifact))
        result |= {"fixes": fixes} if fixes else {}
    return result


def _fixes(
    checked: Checked, finding: Finding, fix: Fix, places: Places, artifact: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    file, edits = places.file(checked), places.edits(checked, finding)
    if file is None or edits is None:
        return
    level = {Applicability.ASSUMING: f"under assumptions ({', '.join(kind.value for kind in fix.assumptions)})"}
    words = level.get(fix.applicability, fix.applicability.value)
    replacements = [
        {
            "deletedRegion": _region(file.position(edit.start), file.position(edit.end)),
            "insertedContent": {"text": edit.content},
        }
        for edit in edits
    ]
    change = {"artifactLocation": artifact, "replacements": replacements}
    yield {"description": {"text": f"{fix.message} ({words})"}, "artifactChanges": [change]}


def _artifact(path: str, root: str) -> dict[str, str]:
    """Where a file is: below the root, or by its address."""
    inside = relative(path, root)
    if inside.startswith("../") or os.path.isabs(inside):
        return {"uri": Path(os.path.abspath(path)).as_uri()}
    return {"uri": quote(os.fsencode(inside)), "uriBaseId": SRCROOT}


def _region(first: Position, last: Position) -> dict[str, int]:
    """Columns count characters, as `columnKind` says; the last one is behind the region."""
    return {"startLine": first.row, "startColumn": first.column, "endLine": last.row, "endColumn": last.column}
