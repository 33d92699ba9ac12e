"""Whether two versions of a program compute the same: everything that can be observed, against the original's own spread."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perflint.verify.runs import Run

Verdict = Literal["identical", "within the original's spread", "different", "nothing to compare"]
SPREAD_FACTOR = 3.0
"""A further run of the same program falls outside the range of a few earlier ones often; outside three times it, hardly."""


@dataclass(frozen=True)
class Difference:
    """Something that the changed version computes otherwise. `root` is the number of the backward pass, from 0."""

    what: str
    original: str
    changed: str
    root: int | None = None

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


def compare(originals: Sequence[Run], changed: Sequence[Run]) -> Comparison:
    """Compare runs of both versions: two or more of the original, one or more of the changed one."""
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
    if differences:
        verdict: Verdict = "different"
    elif within_spread:
        verdict = "within the original's spread"
    elif not any(run.roots or run.output.strip() or run.files for run in originals):
        verdict = "nothing to compare"
    else:
        verdict = "identical"
    return Comparison(verdict, tuple(differences), tuple(compared), tuple(loose), spread)


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
                differences.append(_loss_difference(first, originals[0].roots[first], run.roots[first]))
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
                differences.append(_loss_difference(i, originals[0].roots[i], run.roots[i]))
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
            differences.append(Difference(what, _short(first), _short(of(run))))
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
        for i in stable:
            if text[i] != lines[0][i]:
                differences.append(Difference(f"printed line {i + 1}", repr(lines[0][i]), repr(text[i])))
                return


def _loss_difference(number: int, original: str, changed: str) -> Difference:
    return Difference(f"loss of backward pass {number + 1}", _shown(original), _shown(changed), number)


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
