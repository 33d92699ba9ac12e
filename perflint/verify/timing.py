"""How much faster: paired runs, the median of their ratios, and an interval that needs no assumption about the noise."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perflint.verify.runs import Run


@dataclass(frozen=True)
class Speed:
    """Seconds per step of both versions and how they compare.

    ratio: original over changed, so 1.25 means that the changed version does 1.25 times the steps per second; the median
    over pairs of runs. low, high: the smallest and largest pair. For n independent pairs the true median lies between them with
    probability 1 - 2 ** (1 - n), whatever the distribution. noise: the same spread between runs of the original itself,
    as the factor that separates its fastest run from its slowest.
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
        """Whether every pair was faster."""
        return self.low > 1

    @property
    def is_slower(self) -> bool:
        """Whether every pair was slower."""
        return self.high < 1


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
    return Speed(
        unit="step" if originals[0].data.get("step_s") else "batch",
        original_s=statistics.median(a) / steps,
        changed_s=statistics.median(b) / len(changed[0].step_s),
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        confidence=1 - 2 ** (1 - len(ratios)),
        noise=max(a) / min(a),
    )


def order(repeats: int) -> list[str]:
    """The versions in the order to run them: ABBA ABBA ..., so that a drift of the machine hits both alike."""
    pairs = [("original", "changed") if i % 2 == 0 else ("changed", "original") for i in range(repeats)]
    return [version for pair in pairs for version in pair]


def _seconds(run: Run) -> float:
    return sum(run.step_s)
