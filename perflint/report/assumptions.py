"""What declaring assumptions would buy: how many fixes wait for each, and what in the source speaks against it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from perflint.project.files import read_file
from perflint.project.texts import python_bytes
from perflint.report.summary import fixes
from perflint.report.text import printable
from perflint.rule.assumptions import ASSUMPTIONS, ORDINARY, Assumption, kinds_of
from perflint.rule.finding import Applicability
from perflint.rule.obligations import Kind
from perflint.run.result import Result
from perflint.run.run import shown
from perflint.source.source import Source

FURTHER = ((ORDINARY,), (ORDINARY, Kind.RUNTIME.value), (*ASSUMPTIONS,))
"""What is assumed, too, to say what that would buy: a fix that assumes something is shown where nothing is left to declare."""

MAX_PLACES = 3
"""How many places that speak against an assumption are shown."""


@dataclass(frozen=True)
class Standing:
    """How an assumption stands in some files.

    fixes: how many findings' fixes rest on it, alone or with others. places: where the source speaks against it.
    """

    assumption: Assumption
    is_declared: bool
    fixes: int
    places: tuple[str, ...]


def standings(result: Result, files: Sequence[str], declared: Sequence[str]) -> list[Standing]:
    """How each assumption stands. result: with all of them; files: absolute paths; declared: names as they are configured."""
    fixes = [f.fix for _, f in result.findings if f.fix is not None and f.fix.applicability is Applicability.ASSUMING]
    waiting = Counter(chain.from_iterable(fix.assumptions for fix in fixes))
    places = places_against(files)
    chosen = kinds_of(declared)
    return [Standing(a, a.kind in chosen, waiting[a.kind], tuple(places[a.name])) for a in ASSUMPTIONS.values()]


def contradictions(files: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Where the source settles that an assumption does not hold; one that is only part of `ordinary` is left out there."""
    chosen = [ASSUMPTIONS[name] for name in names if name != ORDINARY and ASSUMPTIONS[name].contradicts]
    places = places_against(files, chosen) if chosen else {}
    for assumption in chosen:
        for place in places[assumption.name][:1]:
            name = assumption.name
            yield f"`assume` names `{name}`, but {place} contradicts it; `perflint explain {name}` says why"


def places_against(files: Sequence[str], assumptions: Sequence[Assumption] | None = None) -> dict[str, list[str]]:
    """The places in the source that speak against assumptions, all or some, by name, as `path:row`."""
    asked = [a for a in (ASSUMPTIONS.values() if assumptions is None else assumptions) if a.against is not None]
    found: dict[str, list[str]] = {a.name: [] for a in ASSUMPTIONS.values()}
    for path in files:
        text = python_bytes(path, read_file(path)) or b""
        for assumption in asked:
            pattern = assumption.against
            if pattern is not None and (match := pattern.search(text)):
                first = match.end() - len(match.group().lstrip())
                at = Source(path, text).place(text.count(b"\n", 0, first) + 1)
                found[assumption.name].append(f"{shown(path)}:{at.line}")
    return found


def table(results: Sequence[Result], found: Sequence[Standing]) -> Iterator[str]:
    """For a person: a line for each assumption, and what `ordinary` and the runtime would buy.

    results: as configured, and with `FURTHER`.
    """
    width = max(len(standing.assumption.name) for standing in found)
    yield f"{'assumption':<{width}}  declared  fixes  what speaks against it"
    for standing in found:
        more = len(standing.places) - MAX_PLACES
        places = ", ".join(map(printable, standing.places[:MAX_PLACES])) + (f" and {more} more files" if more > 0 else "")
        places = places or ("nothing in the source" if standing.assumption.pattern else "source cannot say")
        declared = "yes" if standing.is_declared else "no"
        yield f"{standing.assumption.name:<{width}}  {declared:<8}  {standing.fixes:>5}  {places}"
    yield ""
    configured, ordinary, guarded, _ = (sum(permission.covers(fix) for permission, fix in fixes(r)) for r in results)
    counts = f"{configured} fixable as configured; {max(ordinary - configured, 0)} more with `--assume {ORDINARY}`"
    with_runtime = f"; {guarded - ordinary} more with `--runtime`, too" if guarded > ordinary else ""
    yield f"{counts}{with_runtime}. `perflint explain NAME` explains one."


def as_json(found: Sequence[Standing]) -> str:
    """The same for programs."""
    return json.dumps(
        [
            {
                "name": standing.assumption.name,
                "declared": standing.is_declared,
                "ordinary": standing.assumption.is_ordinary,
                "fixes": standing.fixes,
                "against": list(standing.places),
                "contradicts": standing.assumption.contradicts and bool(standing.places),
            }
            for standing in found
        ],
        indent=2,
    )
