"""Whether two versions of a program compute the same: everything that can be observed, against the original's own spread."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from perflint.verify.runs import Run

Verdict = Literal["identical", "within the original's spread", "different", "nothing to compare"]
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")
SPREAD_FACTOR = 3.0
"""A further run of the same program falls outside the range of a few earlier ones often; outside three times it, hardly."""


@dataclass(frozen=True)
class Difference:
    """Something that the changed version computes otherwise, at the first place where it does.

    root: the number of the backward pass, from 0. largest: how far both are apart where they are furthest apart, if these are
    numbers; where: that place. extent: how much differs at all.
    """

    what: str
    original: str
    changed: str
    root: int | None = None
    largest: float | None = None
    where: str = ""
    extent: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.original} in the original, {self.changed} after the fixes"


@dataclass(frozen=True)
class Comparison:
    """The verdict, what differs (the first place of each kind), and what the original itself does not reproduce."""

    verdict: Verdict
    differences: tuple[Difference, ...]
    compared: tuple[str, ...]
    not_reproducible: tuple[str, ...]
    spread: float = 0.0
    """The largest distance between the original's own losses at the same backward pass."""


def compare(
    originals: Sequence[Run], changed: Sequence[Run], apart: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
) -> Comparison:
    """Compare runs of both versions: two or more of the original, one or more of the changed one.

    apart: how far what the first run of each has trained is apart, by the names of the records, where it is not the same.
    """
    differences: list[Difference] = []
    compared: list[str] = []
    loose: list[str] = []
    spread, within_spread = _compare_roots(originals, changed, differences, compared, loose)
    aspects: list[tuple[str, Callable[[Run], Any]]] = [
        ("final parameters", lambda run: run.data.get("parameters")),
        ("optimizer state", lambda run: run.data.get("optimizer_state")),
        ("files written", lambda run: dict(run.files)),
        ("number of optimizer steps", lambda run: run.data.get("steps")),
    ]
    generators = sorted({name for run in originals for name in run.data.get("random", {})})
    aspects += [(f"random state ({name})", functools.partial(_random_state, name)) for name in generators]
    for what, of in aspects:
        _compare_exactly(what, of, originals, changed, differences, compared, loose)
    _compare_output(originals, changed, differences, compared, loose)
    differences = _with_distances(differences, apart)
    if differences:
        verdict: Verdict = "different"
    elif within_spread:
        verdict = "within the original's spread"
    elif not any(run.roots or run.output.strip() or run.files for run in originals):
        verdict = "nothing to compare"
    else:
        verdict = "identical"
    return Comparison(verdict, tuple(differences), tuple(compared), tuple(loose), spread)


_TRAINED = {"final parameters": "parameters", "optimizer state": "optimizer_state"}


def _with_distances(differences: list[Difference], apart: Callable[[], Mapping[str, Mapping[str, Any]]]) -> list[Difference]:
    """Differences of what was trained with how large they are; of these the runs have digests only."""
    if not any(difference.what in _TRAINED for difference in differences):
        return differences
    found = apart()
    return [replace(difference, **found.get(_TRAINED.get(difference.what, ""), {})) for difference in differences]


def _random_state(name: str, run: Run) -> str | None:
    state: str | None = run.data.get("random", {}).get(name)
    return state


def _compare_roots(
    originals: Sequence[Run],
    changed: Sequence[Run],
    differences: list[Difference],
    compared: list[str],
    loose: list[str],
) -> tuple[float, bool]:
    """The spread of the original's losses, and whether the changed ones were only held against it."""
    counts = {len(run.roots) for run in originals}
    if len(counts) > 1:
        loose.append("number of backward passes")
        return 0.0, True
    count = counts.pop()
    for run in changed:
        if len(run.roots) != count:
            differences.append(Difference("number of backward passes", str(count), str(len(run.roots))))
            return 0.0, False
    if count == 0:
        return 0.0, False
    what = f"losses of {count} backward passes"
    if all(run.roots == originals[0].roots for run in originals):
        compared.append(what)
        for run in changed:
            first = next((i for i in range(count) if run.roots[i] != originals[0].roots[i]), None)
            if first is not None:
                differences.append(_loss_difference(first, originals[0].roots, run.roots))
                break
        return 0.0, False
    loose.append(what)
    allowed = largest = 0.0
    for i in range(count):
        values = [_number(run.roots[i]) for run in originals]
        if any(value is None or math.isnan(value) for value in values):
            continue
        known = [value for value in values if value is not None]
        largest = max(largest, max(known) - min(known))
        allowed = max(allowed, SPREAD_FACTOR * largest)
        for run in changed:
            value = _number(run.roots[i])
            if value is None or not min(abs(value - other) for other in known) <= allowed:
                differences.append(_loss_difference(i, originals[0].roots, run.roots))
                return largest, True
    return largest, True


def _compare_exactly(
    what: str,
    of: Callable[[Run], Any],
    originals: Sequence[Run],
    changed: Sequence[Run],
    differences: list[Difference],
    compared: list[str],
    loose: list[str],
) -> None:
    first = of(originals[0])
    if any(of(run) != first for run in originals):
        loose.append(what)
        return
    compared.append(what)
    for run in changed:
        if of(run) != first:
            differences.append(_exact_difference(what, first, of(run)))
            return


def _compare_output(
    originals: Sequence[Run], changed: Sequence[Run], differences: list[Difference], compared: list[str], loose: list[str]
) -> None:
    lines = [run.output.splitlines() for run in originals]
    if len({len(text) for text in lines}) > 1:
        loose.append("number of printed lines")
        return
    stable = [i for i in range(len(lines[0])) if all(text[i] == lines[0][i] for text in lines)]
    if len(stable) < len(lines[0]):
        loose.append(f"{len(lines[0]) - len(stable)} of {len(lines[0])} printed lines")
    compared.append(f"{len(stable)} printed lines")
    for run in changed:
        text = run.output.splitlines()
        if len(text) != len(lines[0]):
            differences.append(Difference("number of printed lines", str(len(lines[0])), str(len(text))))
            return
        first = next((i for i in stable if text[i] != lines[0][i]), None)
        if first is not None:
            differences.append(_line_difference(first, lines[0], text, stable))
            return


def _loss_difference(first: int, original: Sequence[str], changed: Sequence[str]) -> Difference:
    differing = [i for i, (a, b) in enumerate(zip(original, changed, strict=True)) if a != b]
    apart = [
        (abs(a - b), i) for i in differing if (a := _finite(original[i])) is not None and (b := _finite(changed[i])) is not None
    ]
    largest, at = max(apart, key=lambda pair: (pair[0], -pair[1]), default=(None, 0))
    return Difference(
        f"loss of backward pass {first + 1}",
        _shown(original[first]),
        _shown(changed[first]),
        first,
        largest,
        f"backward pass {at + 1}" if largest is not None else "",
        f"{len(differing)} of {len(original)} losses differ",
    )


def _line_difference(first: int, original: Sequence[str], changed: Sequence[str], stable: Sequence[int]) -> Difference:
    differing = [i for i in stable if original[i] != changed[i]]
    apart = [(distance, i) for i in differing if (distance := _apart(original[i], changed[i])) is not None]
    largest, at = max(apart, key=lambda pair: (pair[0], -pair[1]), default=(None, 0))
    return Difference(
        f"printed line {first + 1}",
        repr(original[first]),
        repr(changed[first]),
        None,
        largest,
        f"printed line {at + 1}" if largest is not None else "",
        f"{len(differing)} of {len(stable)} printed lines differ",
    )


def _apart(original: str, changed: str) -> float | None:
    """How far the numbers of two lines are apart; None if more than numbers differ."""
    if _NUMBER.sub("#", original) != _NUMBER.sub("#", changed):
        return None
    pairs = zip(_NUMBER.findall(original), _NUMBER.findall(changed), strict=True)
    return max((abs(float(a) - float(b)) for a, b in pairs), default=None)


def _exact_difference(what: str, original: Any, changed: Any) -> Difference:
    if isinstance(original, dict) and isinstance(changed, dict):
        return _file_difference(what, original, changed)
    return Difference(what, _short(original), _short(changed))


def _file_difference(what: str, original: Mapping[str, str], changed: Mapping[str, str]) -> Difference:
    differing = sorted(name for name in {*original, *changed} if original.get(name) != changed.get(name))
    named = ", ".join(differing[:5]) + (f" and {len(differing) - 5} more" if len(differing) > 5 else "")
    return Difference(what, _short(original), _short(changed), extent=f"different: {named}")


def _finite(root: str) -> float | None:
    value = _number(root)
    return value if value is not None and math.isfinite(value) else None


def _number(root: str) -> float | None:
    try:
        return float.fromhex(root)
    except ValueError:
        return None


def _shown(root: str) -> str:
    value = _number(root) if len(root) < 40 else None
    return f"{root[:12]}..." if value is None else f"{value!r}"


def _short(value: Any) -> str:
    text = ", ".join(sorted(value)) or "none" if isinstance(value, dict) else str(value)
    return text if len(text) <= 40 else f"{text[:12]}..."
