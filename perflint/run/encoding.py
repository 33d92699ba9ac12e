"""Outcomes as text, for a cache."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from typing import Any

from perflint.rule.finding import Applicability, Cost, Edit, Finding, Fix, Import, Rate, Severity
from perflint.rule.obligations import Kind, Obligation
from perflint.run.outcome import Budget, Checked, StepWait


def encoded(checked: Checked) -> str:
    """The findings and budgets of an outcome, nothing if there are none."""
    if not (checked.findings or checked.budgets):
        return ""
    findings = [_encoded_finding(finding) for finding in checked.findings]
    budgets = [astuple(budget)[1:] for budget in checked.budgets]
    return json.dumps([findings, budgets])


def _encoded_finding(found: Finding) -> list[object]:
    fix = found.fix
    return [
        found.rule,
        found.severity.value,
        found.category,
        found.message,
        found.start,
        found.end,
        fix
        and [
            fix.applicability.value,
            fix.message,
            [(e.start, e.end, e.content) for e in fix.edits],
            [(i.module, i.name) for i in fix.imports],
            fix.leads_to,
            [kind.value for kind in fix.assumptions],
        ],
        [(o.kind.value, o.words, o.path) for o in found.obligations],
        found.waits,
        found.costs and found.costs.value,
        found.rate.value,
        found.function,
    ]


def decoded(text: str, shown: str) -> tuple[list[Finding], list[Budget]]:
    """What `encoded` gave. `shown` is how reports name the file."""
    findings, budgets = json.loads(text)
    return [_decoded_finding(*parts) for parts in findings], [_decoded_budget(shown, *parts) for parts in budgets]


def _decoded_budget(shown: str, *parts: Any) -> Budget:
    return replace(Budget(shown, *parts), timeline=tuple(StepWait(*wait) for wait in parts[-1]))


def _decoded_finding(
    rule: str,
    severity: str,
    category: str,
    message: str,
    start: int,
    end: int,
    fix: list[Any] | None,
    obligations: list[list[Any]],
    waits: list[int],
    costs: str | None,
    rate: str,
    function: str,
) -> Finding:
    remedy = None
    if fix is not None:
        applicability, text, edits, imports, leads_to, assumptions = fix
        remedy = Fix(
            Applicability(applicability),
            text,
            tuple(Edit(*edit) for edit in edits),
            tuple(Import(*wanted) for wanted in imports),
            tuple(leads_to),
            tuple(map(Kind, assumptions)),
        )
    open_ = tuple(Obligation(Kind(kind), words, path) for kind, words, path in obligations)
    cost = Cost(costs) if costs is not None else None
    kinds = Severity(severity), category
    return Finding(rule, *kinds, message, start, end, remedy, open_, tuple(waits), cost, Rate(rate), function)
