"""What a run showed of the assumptions about a project, held against what its owner declares."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from perflint.report.assumptions import places_against
from perflint.report.text import printable
from perflint.rule.assumptions import ASSUMPTIONS, kinds_of
from perflint.rule.registry import all_rules
from perflint.run.run import Run as Check
from perflint.source.words import counted
from perflint.verify.runs import Program, Run

HELD, VIOLATED = "held", "violated"


def assumptions(
    root: Path, program: Program, overrides: Mapping[str, Any], run: Run, rested_on: frozenset[str] | None = None
) -> list[dict[str, Any]]:
    """What a counting run of a program in the project `root` showed of each assumption, fit for JSON; nothing without torch.

    status: `held`, `violated`, `not exercised` (the run did nothing that could have violated it) or `open` (no run can tell).
    place: where it was violated, why: in which way, or why the status is no better. declared: whether a fix may rest on it,
    which is not so where the program's source contradicts it. contradicted: the first place in the project that does. needed:
    whether a fix rests on it, which is one of `rested_on`; None where nobody knows.

    Raises:
        ConfigError: the project's configuration is unusable.

    """
    rows = run.data.get("assumptions", [])
    if not rows:
        return []
    check = Check(all_rules(), None, overrides)
    declared = kinds_of(check.configurations.of(str((root / program.script).parent)).assume)
    decided = [assumption for assumption in ASSUMPTIONS.values() if assumption.contradicts]
    in_program = places_against([str(root / module) for module in run.modules], decided)
    in_project = places_against(check.find([str(root)]).files, decided)
    found = []
    for row in rows:
        assumption = ASSUMPTIONS[row["name"]]
        place = None if row["file"] is None else f"{row['file']}:{row['line']}"
        found.append(
            {
                "name": assumption.name,
                "status": row["status"],
                "place": place,
                "why": row["why"],
                "declared": assumption.kind in declared and not in_program[assumption.name],
                "needed": None if rested_on is None else assumption.name in rested_on,
                "contradicted": next(iter(in_project[assumption.name]), None),
            }
        )
    order = list(ASSUMPTIONS)
    return sorted(found, key=lambda row: order.index(row["name"]))


def broken(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that are declared and were violated, unless no fix rests on them."""
    return [row for row in rows if row["declared"] and row["status"] == VIOLATED and row["needed"] is not False]


def summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What a run showed, in a few lines: what held, what did not and where, and what is declared without being shown."""
    held = [row["name"] for row in rows if row["status"] == HELD]
    if held:
        yield f"Assumptions that held in this run: {', '.join(held)}"
    for row in rows:
        if row["status"] == VIOLATED:
            though = "violated, though declared" if row["declared"] else "violated"
            harmless = "; no fix here rests on it" if row["declared"] and row["needed"] is False else ""
            yield printable(f"  {though}: {_said(row)}{harmless}")
        elif row["status"] != HELD and row["declared"]:
            yield printable(f"  declared, not shown: {_said(row)}")


def confirmation(rows: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """All that a run showed, and the line for the configuration.

    Only what was looked at and held, and what the source does not contradict, is in the line.
    """
    width = max(len(row["name"]) for row in rows)
    yield "assumptions, as this run shows them (`perflint explain NAME` says what one means):"
    for row in rows:
        said = f"{row['status']}{_reason(row)}"
        if row["status"] == HELD and row["contradicted"]:
            said += f", but {row['contradicted']} contradicts it"
        yield printable(f"  {row['name']:<{width}}  {said}")
    confirmed = [row["name"] for row in rows if row["status"] == HELD and not row["contradicted"]]
    waiting = [set(finding["assumptions"]) for finding in findings if finding["assumptions"]]
    yield ""
    if not confirmed:
        yield "There is nothing to declare: no assumption was exercised and held."
        return
    bought = sum(names <= set(confirmed) for names in waiting)
    yield f"the line for `[tool.perflint]`, with which {counted(bought, 'more fix')} would be applied:"
    yield f"assume = {json.dumps(confirmed)}"
    yield ""
    missing = Counter(chain.from_iterable(names - set(confirmed) for names in waiting))
    for name, count in sorted(missing.items(), key=lambda item: (-item[1], item[0])):
        yield f"{counted(count, 'fix')} would need {name}, too, which this run does not confirm."
    yield "One run shows one machine, one set of arguments and these data. What others would show, only you can say."


def _said(row: Mapping[str, Any]) -> str:
    return f"{row['name']}{_reason(row)}"


def _reason(row: Mapping[str, Any]) -> str:
    at = f" at {row['place']}" if row["place"] else ""
    return f"{at}: {row['why']}" if row["why"] else at
