"""Findings as an editor shows them."""

from __future__ import annotations

from collections.abc import Callable

from lsprotocol import types

from perflint.rule.finding import Finding, Severity
from perflint.rule.selection import UNUSED_SUPPRESSION
from perflint.run.outcome import Checked
from perflint.server.positions import Positions

SOURCE = "perflint"
_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}

PageOf = Callable[[str], "str | None"]
"""The address of a rule's page, if it has one."""


def diagnostics(checked: Checked, positions: Positions, page_of: PageOf) -> list[types.Diagnostic]:
    """A diagnostic for each finding, in their order."""
    return [diagnostic(finding, positions, page_of) for finding in checked.findings]


def diagnostic(finding: Finding, positions: Positions, page_of: PageOf) -> types.Diagnostic:
    """A finding as a diagnostic."""
    page = page_of(finding.rule)
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
