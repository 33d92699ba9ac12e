"""Rule pages and the list of rules."""

from __future__ import annotations

import json
from collections.abc import Iterable

from perflint.rule import Rule

NOT_MEASURED = "not measured"

ENGINE_PAGES = {
    "invalid-syntax": "The file is no valid Python for the interpreter that runs perflint, so nothing in it is checked. "
    "If its syntax is newer than that interpreter, run perflint with a newer one.",
    "unreadable-file": "The file cannot be read or written, its bytes are no text in its encoding, or its code is nested too "
    "deeply to be analysed. The message says which.",
    "unused-suppression": "A `# perflint: ignore` comment silences nothing, or names a rule that does not exist. The fix "
    "removes it, or the names in it that are not used. Rules that did not run on the file are not judged.",
}
"""What perflint reports without a rule."""


def page(rule: Rule) -> str:
    """A rule's documentation as Markdown."""
    fix = "offers a fix" if rule.fixes else "has no fix"
    head = f"# {rule.name}\n\n{rule.summary}. Category {rule.category.value}, {rule.severity.value}; {fix}.\n"
    body = "\n".join(rule.page.strip().splitlines()[1:]).strip()
    return f"{head}\n{body}\n\n## Measured effect\n{effect(rule)}"


def effect(rule: Rule) -> str:
    """What the project's own recordings say about a rule's gain."""
    return f"On a GPU: {NOT_MEASURED} yet. Numbers above are of the CPU, or reported by others, as said there."


def as_json(rule: Rule) -> str:
    """A rule with its page, for programs."""
    return json.dumps({**_entry(rule), "page": page(rule)}, indent=2)


def listing(rules: Iterable[Rule]) -> str:
    """One line per rule: name, severity, group, whether it has a fix, summary."""
    rows = [(r.name, r.severity.value, r.category.value, "fix" if r.fixes else "", r.summary) for r in rules]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    )


def listing_json(rules: Iterable[Rule]) -> str:
    """The list of rules, for programs."""
    return json.dumps([_entry(rule) for rule in rules], indent=2)


def _entry(rule: Rule) -> dict[str, object]:
    return {
        "name": rule.name,
        "category": rule.category.value,
        "severity": rule.severity.value,
        "default": rule.severity.value != "info",
        "fixes": rule.fixes,
        "summary": rule.summary,
    }
