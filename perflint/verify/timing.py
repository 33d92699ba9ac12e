"""How much faster: paired runs, the median of their ratios, and an interval that needs no assumption about the noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perflint.verify.runs import Run

CONFIDENT = 0.95
"""The confidence from which on a version is called faster or slower. So sure are 6 pairs of runs, not 5."""


def verdict(low: float, high: float, confidence: float) -> Literal["faster", "slower", "not shown"]:
    """What an interval for the ratio says of the changed version."""
    if confidence < CONFIDENT or low <= 1 <= high:
        return "not shown"
    return "faster" if low > 1 else "slower"


@dataclass(frozen=True)
class Speed:
    """Seconds per step of both versions and how they compare.

    ratio: original over changed, so 1.25 means that the changed version does 1.25 times the steps per second; the median
    over pairs of runs. low, high: where the true median lies with probability `confidence`, see `interval`. noise: the factor
    that separates the original's own fastest run from its slowest.
    """

    unit: str
    original_s: float
    changed_s: float
    ratio: float
    low: float
    high: float
    confidence: float
    noise: float

    @property
    def is_faster(self) -> bool:
        """Whether the interval says so."""
        return verdict(self.low, self.high, self.confidence) == "faster"

    @property
    def is_slower(self) -> bool:
        """Whether the interval says so."""
        return verdict(self.low, self.high, self.confidence) == "slower"


def speed(originals: Sequence[Run], changed: Sequence[Run]) -> Speed | None:
    """Compare timed runs, the n-th of each with the n-th of the other. None if there is nothing that repeats.

    The time of a run is from the end of its first step to the end of its last one: starting up does not count, and
    everything between steps (loading, logging, evaluation) does. Without optimizer steps, batches take their place.
    """
    a, b = [_seconds(run) for run in originals], [_seconds(run) for run in changed]
    if not all(a) or not all(b):
        return None
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    steps = len(originals[0].step_s)
    low, high, confidence = interval(ratios)
    return Speed(
        unit="step" if originals[0].data.get("step_s") else "batch",
        original_s=statistics.median(a) / steps,
        changed_s=statistics.median(b) / len(changed[0].step_s),
        ratio=statistics.median(ratios),
        low=low,
        high=high,
        confidence=confidence,
        noise=max(a) / min(a),
    )


def interval(ratios: Sequence[float], at_least: float = CONFIDENT) -> tuple[float, float, float]:
    """An interval for the median of independent pairs, whatever their distribution, and its confidence.

    The smallest and the largest pair hold the median between them with probability 1 - 2 ** (1 - n): it fails when all pairs
    lie on one side, as n fair coins show one face. From 9 pairs on, outer ones are left out while the confidence stays
    `at_least` that high.
    """
    n, ordered = len(ratios), sorted(ratios)

    def outside(k: int) -> float:
        return math.ldexp(sum(math.comb(n, heads) for heads in range(k)), 1 - n)

    k = max((k for k in range(1, n // 2 + 1) if 1 - outside(k) >= at_least), default=1)
    return ordered[k - 1], ordered[n - k], max(0.0, 1 - outside(k))


def order(repeats: int) -> list[str]:
    """The versions in the order to run them: ABBA ABBA ..., so that a drift of the machine hits both alike."""
    pairs = [("original", "changed") if i % 2 == 0 else ("changed", "original") for i in range(repeats)]
    return [version for pair in pairs for version in pair]


def _seconds(run: Run) -> float:
    return sum(run.step_s)
