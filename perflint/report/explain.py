"""Rule pages and the list of rules."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from perflint.rule.assumptions import ASSUMPTIONS, ORDINARY
from perflint.rule.rule import Rule

NOT_MEASURED = "not measured"
MEASURED = "measured.json"
"""A rule pack may hold this file: for each rule's name a list of objects with the fields of `Measured`."""

REGIMES = {
    "launch": "many small kernels",
    "gpu": "few large kernels",
    "data": "bound by loading data",
    "memory": "large activations",
}

ENGINE_PAGES = {
    "internal-error": "A rule failed in a function of the file: a bug in perflint or in a rule pack. What the rule finds there "
    "is missing; all else was checked. Please report it with the lines that were printed on standard error.",
    "invalid-syntax": "The file is no valid Python for the interpreter that runs perflint, so nothing in it is fixed. "
    "If its syntax is newer than that interpreter, run perflint with a newer one.",
    "unreadable-file": "The file cannot be read or written, its bytes are no text in its encoding, it is larger than 8 MiB or "
    "no regular file, or its code is nested too deeply or costs too much to be analysed. The message says which.",
    "unused-suppression": "A `# perflint: ignore` comment silences nothing, or names a rule that does not exist. The fix "
    "removes it, or the names in it that are not used. Rules that did not run on the file are not judged.",
}
"""What perflint reports without a rule."""

_MEMBERS = "\n".join(f"- `{a.name}`: {a.says}" for a in ASSUMPTIONS.values() if a.is_ordinary)
ASSUMPTION_PAGES = {
    **{name: assumption.page for name, assumption in ASSUMPTIONS.items()},
    ORDINARY: "# ordinary\n\nWhat holds for an ordinary training program. Where the source contradicts one of these, no fix "
    f"rests on it:\n\n{_MEMBERS}",
}
"""The pages of the assumptions that a project may declare."""


def other_pages(rules: Iterable[Rule]) -> dict[str, str]:
    """The pages of what is no rule: of groups of rules, of assumptions, and of what perflint reports without a rule."""
    members: dict[str, list[str]] = {}
    for rule in rules:
        members.setdefault(rule.category, []).append(f"- `{rule.name}`: {rule.summary}")
    groups = {group: f"# {group}\n\nThe rules of this group:\n\n" + "\n".join(lines) for group, lines in members.items()}
    return {**groups, **{name: f"# {name}\n\n{text}" for name, text in ENGINE_PAGES.items()}, **ASSUMPTION_PAGES}


def page(rule: Rule) -> str:
    """A rule's documentation as Markdown."""
    fix = "offers a fix" if rule.fixes else "has no fix"
    when = "" if rule.is_default else ", on request"
    head = f"# {rule.name}\n\n{rule.summary}. Category {rule.category}, {rule.severity.value}{when}; {fix}.\n"
    body = "\n".join(rule.page.strip().splitlines()[1:]).strip()
    options = f"\n\n## Options\n{_options(rule)}" if rule.options else ""
    return f"{head}\n{body}{options}\n\n## Measured effect\n{effect(rule)}"


def _options(rule: Rule) -> str:
    """A rule's options, and how they are set."""
    rows = [f"- `{o.name}`: {o.says}. {o.takes.capitalize()}, by default {shown(o.default)}." for o in rule.options]
    first = rule.options[0]
    example = f"[tool.perflint.options.{rule.name}]\n{first.name} = {shown(first.default or ('NAME',))}"
    return "\n".join([*rows, "", "```toml", example, "```"])


def shown(value: int | tuple[str, ...]) -> str:
    """A value as a configuration file has it."""
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def listed_options(rules: Iterable[Rule]) -> str:
    """One line for each option of each rule."""
    return "\n".join(f"{rule.name}.{o.name} = {shown(o.default)}  {o.says}" for rule in rules for o in rule.options)


@dataclass(frozen=True)
class Measured:
    """A rule's fixture script against the fixed one, in pairs of runs, on one machine.

    ratio: steps per second of the fixed script over the original's, the median over the pairs; low, high: the interval that
    holds the true median with probability `confidence`. noise: the factor between the slowest and the fastest run of the
    original. waits: times per step that the CPU waits for the GPU, before and after; peak_mib: the most memory that
    tensors took on the GPU. Both None on a CPU.
    """

    device: str
    torch: str
    date: str
    regime: str
    ratio: float
    low: float
    high: float
    confidence: float
    noise: float
    pairs: int
    original_ms: float
    changed_ms: float
    waits: tuple[float, float] | None = None
    peak_mib: tuple[float, float] | None = None

    @property
    def is_measurable(self) -> bool:
        """Whether the interval leaves 1.00 out, as it is shown, with enough pairs to mean it."""
        return self.confidence >= 0.95 and not round(self.low, 2) <= 1.0 <= round(self.high, 2)

    @property
    def sentence(self) -> str:
        """All of it, for the rule's page."""
        times = f"{self.original_ms:.3g} against {self.changed_ms:.3g} ms per step"
        interval = f"{self.low:.2f} to {self.high:.2f} with {self.confidence:.0%} confidence, {self.pairs} pairs of runs"
        speed = f"{self.ratio:.2f} times the steps per second" if self.is_measurable else "no measurable effect on the time"
        found = [f"{speed} ({interval}; {times}; slowest against fastest run of the original: {self.noise:.2f})"]
        if self.waits is not None:
            found.append(f"waits per step: {self.waits[0]:.3g} before, {self.waits[1]:.3g} after")
        if self.peak_mib is not None:
            found.append(f"peak memory: {self.peak_mib[0]:.0f} MiB before, {self.peak_mib[1]:.0f} MiB after")
        where = f"{self.device}, torch {self.torch}, {self.date}; {self.regime}: {REGIMES.get(self.regime, self.regime)}"
        return f"{where}. {'; '.join(found)}."

    @property
    def phrase(self) -> str:
        """The figure, for a table."""
        where = f"({self.device}, {self.regime}, torch {self.torch})"
        if not self.is_measurable:
            return f"no measurable effect here {where}"
        return f"{self.ratio:.2f}x, {self.low:.2f} to {self.high:.2f} {where}"


def measured(rule: Rule) -> list[Measured]:
    """What the rule's pack says was measured."""
    package = rule.module.rpartition(".")[0]
    return [Measured(**entry) for entry in _measured_by(package).get(rule.name, [])]


@cache
def _measured_by(package: str) -> dict[str, list[dict[str, Any]]]:
    found = files(package).joinpath(MEASURED)
    loaded: dict[str, list[dict[str, Any]]] = json.loads(found.read_text(encoding="utf-8")) if found.is_file() else {}
    return loaded


def effect(rule: Rule) -> str:
    """What the project's own recordings say about a rule's gain."""
    found = measured(rule)
    lines = [f"- {measurement.sentence}" for measurement in found]
    if not any(not measurement.device.startswith("CPU") for measurement in found):
        lines.append(f"- On a GPU: {NOT_MEASURED} yet.")
    if found:
        other = "`train.fixed.py`, which the fix makes of it" if rule.fixes else "`train.better.py`, where its advice is taken"
        lines.append(f"\nMeasured with `fixtures/{rule.name}/train.py` and {other}.")
    return "\n".join(lines)


def as_json(rule: Rule) -> str:
    """A rule with its page and what was measured, for programs."""
    return json.dumps({**_entry(rule), "measured": [asdict(found) for found in measured(rule)], "page": page(rule)}, indent=2)


def listing(rules: Iterable[Rule]) -> str:
    """One line per rule: name, severity, group, what it costs, whether it has a fix, what was measured, summary."""
    rows = [
        (
            *(
                rule.name,
                f"{rule.severity.value}{'' if rule.is_default else '*'}",
                rule.category,
                rule.costs.value if rule.costs is not None else "",
            ),
            *("fix" if rule.fixes else "", _most_measured(rule), rule.summary),
        )
        for rule in rules
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    return "\n".join(
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    )


def _most_measured(rule: Rule) -> str:
    """The measured effect that is furthest from none, of all recordings; `-` without one."""
    found = measured(rule)
    ratios = [measurement.ratio for measurement in found if measurement.is_measurable]
    return f"{max(ratios, key=lambda ratio: abs(math.log(ratio))):.2f}x" if ratios else "none" if found else "-"


def listing_json(rules: Iterable[Rule]) -> str:
    """The list of rules, for programs."""
    return json.dumps([_entry(rule) for rule in rules], indent=2)


def _entry(rule: Rule) -> dict[str, object]:
    return {
        "name": rule.name,
        "category": rule.category,
        "severity": rule.severity.value,
        "default": rule.is_default,
        "costs": rule.costs.value if rule.costs is not None else None,
        "fixes": rule.fixes,
        "effect": _most_measured(rule),
        "summary": rule.summary,
        "options": [{"name": o.name, "default": o.default, "takes": o.takes, "says": o.says} for o in rule.options],
    }
