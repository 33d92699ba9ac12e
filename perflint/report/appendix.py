"""The rules that a page in HTML names, at its end: what they find, what was measured, their own pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from perflint.page.document import anchor, escaped, prose
from perflint.page.markdown import rendered
from perflint.report.explain import ENGINE_PAGES, NOT_MEASURED, measured, page
from perflint.rule.rule import Rule


def link(rule: str) -> str:
    """A rule's name, with a link to its place in the appendix."""
    return f'<a href="#{anchor("rule", rule)}">{escaped(rule)}</a>'


def appendix(names: Iterable[str], rules: Mapping[str, Rule]) -> Iterator[str]:
    """A section for each rule. What is named and is no rule is reported by perflint itself."""
    listed = sorted(names)
    if not listed:
        return
    yield '<section id="rules"><h2>Rules</h2>'
    for name in listed:
        yield f'<article class="rule" id="{anchor("rule", name)}"><h3>{escaped(name)}</h3>'
        if name in rules:
            yield from _rule(rules[name])
        else:
            yield f"<p>{prose(ENGINE_PAGES.get(name, ''))}</p>"
        yield "</article>"
    yield "</section>"


def _rule(rule: Rule) -> Iterator[str]:
    yield f"<p>{prose(rule.summary)}.</p>"
    found = measured(rule)
    if found:
        yield "<p>Measured effect of the fix on the rule's own script, which is made to show it:</p><ul>"
        yield from (f"<li>{prose(measurement.sentence)}</li>" for measurement in found)
        yield "</ul>"
    else:
        yield f'<p class="soft">Measured effect: {NOT_MEASURED}.</p>'
    body = re.sub(r"\A# .*\n", "", page(rule)).partition("\n## Measured effect")[0]
    yield "<details><summary>What it finds, why that is slow, when the fix is safe</summary>"
    yield f'<div class="text">{rendered(body)}</div></details>'
