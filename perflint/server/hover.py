"""What an editor shows at a finding, and at a rule's name in a suppression: why, whether it can be fixed, the rule's page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from perflint.report.explain import ENGINE_PAGES
from perflint.report.explain import page as rule_page
from perflint.rule.finding import Applicability, Finding
from perflint.rule.rule import Rule
from perflint.rule.suppress import find_suppressions
from perflint.source.source import Source

_NAME = re.compile(rb"[\w-]+")


def hover(source: Source, findings: Iterable[Finding], offset: int, rules: Mapping[str, Rule]) -> tuple[int, int, str] | None:
    """The bytes that a hover at an offset is about, and its text in Markdown; None where there is nothing to say."""
    here = [finding for finding in findings if finding.start <= offset <= finding.end]
    spans = [(finding.start, finding.end, finding.rule) for finding in here] + list(_named(source, offset))
    pages = [page for name in dict.fromkeys(name for *_, name in spans) if (page := _page(name, rules)) is not None]
    if not (here or pages):
        return None
    text = "\n\n---\n\n".join(["\n".join(_about(finding)) for finding in here] + pages)
    return min(start for start, *_ in spans), max(end for _, end, _ in spans), text


def _named(source: Source, offset: int) -> Iterator[tuple[int, int, str]]:
    """The word at an offset in a suppression, which may be the name of a rule."""
    for suppression in find_suppressions(source):
        for word in _NAME.finditer(source.body, suppression.start, suppression.end):
            if word.start() <= offset <= word.end():
                yield word.start(), word.end(), word.group().decode()


def _about(finding: Finding) -> Iterator[str]:
    """What is known about a finding, as lines of Markdown."""
    yield f"**{finding.rule}**: {finding.message}\n"
    if finding.costs is not None:
        yield f"- costs: {finding.costs.value}, {finding.rate.value}"
    if finding.fix is None:
        yield from (f"- no fix: {reason}" for reason in finding.missing_proofs)
    elif finding.fix.applicability is Applicability.SAFE:
        yield "- safe fix: the program computes the same with it"
    elif finding.fix.applicability is Applicability.ASSUMING:
        yield f"- fix if {', '.join(kind.value for kind in finding.fix.assumptions)}"
    else:
        yield from (f"- unsafe fix: {reason}" for reason in finding.missing_proofs or ("it may change what is computed",))


def _page(name: str, rules: Mapping[str, Rule]) -> str | None:
    if name in rules:
        return rule_page(rules[name])
    return f"# {name}\n\n{ENGINE_PAGES[name]}" if name in ENGINE_PAGES else None
