"""How many findings each rule has, and how many of them a fix takes away."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from perflint.rule.finding import Applicability, Finding
from perflint.run.result import Result


@dataclass(frozen=True)
class Count:
    """The findings of one rule: all, those with a safe fix, those with one under assumptions, an unsafe one, none."""

    code: str
    rule: str
    count: int
    safe: int
    assuming: int
    unsafe: int
    without_fix: int


def counts(result: Result) -> list[Count]:
    """A count for each rule that found something, the most first."""
    found: Counter[str] = Counter()
    levels: Counter[tuple[str, Applicability | None]] = Counter()
    order = (Applicability.SAFE, Applicability.ASSUMING, Applicability.UNSAFE, None)
    for _, finding in result.findings:
        found[finding.rule] += 1
        levels[finding.rule, _level(finding)] += 1
    return [
        Count(rule, rule, count, *(levels[rule, level] for level in order))
        for rule, count in sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    ]


def _level(finding: Finding) -> Applicability | None:
    return finding.fix.applicability if finding.fix is not None else None


def table(result: Result) -> Iterator[str]:
    """A line for each rule, below a line of titles."""
    rows = [(str(c.count), str(c.safe), str(c.assuming), str(c.unsafe), str(c.without_fix), c.rule) for c in counts(result)]
    if not rows:
        return
    rows.insert(0, ("all", "safe", "assuming", "unsafe", "no fix", "rule"))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        yield "  ".join([*(f"{cell:>{width}}" for cell, width in zip(row[:5], widths, strict=True)), row[5]])


def as_json(result: Result) -> Iterator[str]:
    """An array of counts."""
    yield json.dumps([asdict(count) for count in counts(result)], indent=2)


def as_json_lines(result: Result) -> Iterator[str]:
    """A count per line."""
    for count in counts(result):
        yield json.dumps(asdict(count))
