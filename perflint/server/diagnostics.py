"""Findings as an editor shows them."""

from __future__ import annotations

from lsprotocol import types

from perflint.report.links import rule_url
from perflint.rule.finding import ENGINE, Finding, Severity
from perflint.rule.selection import UNUSED_SUPPRESSION
from perflint.run.outcome import Checked
from perflint.server.documents import Part
from perflint.server.positions import Positions

SOURCE = "perflint"
_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}


def findings_in(part: Part, checked: Checked) -> list[Finding]:
    """The findings of a document that are in a part of it."""
    source = checked.source
    if part.cell is None or source is None:
        return checked.findings
    return [finding for finding in checked.findings if source.position(finding.start).cell == part.cell]


def diagnostic(finding: Finding, positions: Positions, docs_url: str | None) -> types.Diagnostic:
    """A finding as a diagnostic. docs_url: where the documentation is served, if it is."""
    page = rule_url(finding.rule, docs_url) if docs_url is not None and finding.category != ENGINE else None
    return types.Diagnostic(
        range=positions.range(finding.start, finding.end),
        message=finding.message,
        severity=_SEVERITIES[finding.severity],
        code=finding.rule,
        code_description=types.CodeDescription(page) if page is not None else None,
        source=SOURCE,
        tags=_tags(finding) or None,
    )


def _tags(finding: Finding) -> list[types.DiagnosticTag]:
    if finding.rule == UNUSED_SUPPRESSION:
        return [types.DiagnosticTag.Unnecessary]
    return [types.DiagnosticTag.Deprecated] if finding.rule.startswith("deprecated-") else []
