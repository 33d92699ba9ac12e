"""Plots as inline SVG, drawn from plain lists. Colours come from the page's style sheet, so that they suit light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from perflint.page.document import escaped

WIDTH, HEIGHT = 440, 240
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 10, 38
MOST_POINTS = 800
"""A longer curve is drawn by the smallest and the largest value of each stretch, so that no peak is lost."""
MOST_BINS = 40


@dataclass(frozen=True)
class Series:
    """One version's values. `name` is also its class in the style sheet."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True)
class Axis:
    """A range of values on one side of a plot. A logarithmic one holds values above 0 only."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Where a value lies, in the units of the picture."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        return self.start + (self._scaled(value) - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values inside of the range."""
        if self.logarithmic:
            return _logarithmic_ticks(self.low, self.high)
        return _ticks(self.low, self.high)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.logarithmic else value


def curves(series: Sequence[Series], x_label: str, y_label: str, *, from_zero: bool = False, mark: int | None = None) -> str:
    """Curves on top of each other, over the number of the value from 1. `mark` is the index of a value to point at."""
    finite = [value for one in series for value in one.values if math.isfinite(value)]
    low, high = _widened(min(finite, default=0.0), max(finite, default=1.0), from_zero)
    longest = max((len(one.values) for one in series), default=0)
    x = Axis(1.0, float(max(longest, 2)), LEFT, WIDTH - RIGHT)
    y = Axis(low, high, HEIGHT - BOTTOM, TOP)
    parts = [*_frame(x, y, x_label, y_label)]
    if mark is not None:
        at = x(mark + 1)
        parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    for one in series:
        for stretch in thinned(one.values):
            points = " ".join(f"{x(i + 1):.1f},{y(value):.1f}" for i, value in stretch)
            if len(stretch) == 1:
                at, value = x(stretch[0][0] + 1), y(stretch[0][1])
                parts.append(f'<circle class="dot {one.name}" cx="{at:.1f}" cy="{value:.1f}" r="2.5"/>')
            else:
                parts.append(f'<polyline class="curve {one.name}" points="{points}"/>')
    return _svg(parts, f"{y_label} over {x_label}")


def thinned(values: Sequence[float], most: int = MOST_POINTS) -> list[list[tuple[int, float]]]:
    """At most about `most` points (index, value) that keep each stretch's extremes, cut where values are not finite."""
    size = max(1, math.ceil(len(values) / (most / 2)))
    kept: list[tuple[int, float]] = []
    for start in range(0, len(values), size):
        stretch = range(start, min(start + size, len(values)))
        finite = [i for i in stretch if math.isfinite(values[i])]
        picked = {i for i in stretch if i in (0, len(values) - 1)}
        if len(finite) < len(stretch):
            picked.add(next(i for i in stretch if not math.isfinite(values[i])))
        if finite:
            picked |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
        kept += [(i, values[i]) for i in sorted(picked)]
    return [list(points) for is_finite, points in groupby(kept, key=lambda point: math.isfinite(point[1])) if is_finite]


def histogram(series: Sequence[Series], x_label: str, lines: Mapping[str, float] | None = None) -> str:
    """Distributions on top of each other: the share of values in each bin of a logarithmic axis.

    lines: a figure of each series, by its name, that is drawn as a line across.
    """
    series = [Series(one.name, [value for value in one.values if value > 0]) for one in series]
    every = [value for one in series for value in one.values]
    lines = lines or {}
    low, high = min([*every, *lines.values()]), max([*every, *lines.values()])
    low, high = (low * 0.95, high * 1.05) if high / low > 1.02 else (low * 0.9, high * 1.1)
    bins = round(min(MOST_BINS, max(8.0, 1.5 * math.sqrt(max(len(one.values) for one in series)))))
    x = Axis(low, high, LEFT, WIDTH - RIGHT, logarithmic=True)
    shares = {one.name: _shares(one.values, x, bins) for one in series}
    y = Axis(0.0, 110 * max(max(share) for share in shares.values()), HEIGHT - BOTTOM, TOP)
    parts = [*_frame(x, y, x_label, "steps, %")]
    width = (WIDTH - RIGHT - LEFT) / bins
    for one in series:
        corners = [f"{LEFT:.1f},{y(0):.1f}"]
        for i, share in enumerate(shares[one.name]):
            corners += [f"{LEFT + i * width:.1f},{y(100 * share):.1f}", f"{LEFT + (i + 1) * width:.1f},{y(100 * share):.1f}"]
        corners.append(f"{WIDTH - RIGHT:.1f},{y(0):.1f}")
        parts.append(f'<polygon class="area {one.name}" points="{" ".join(corners)}"/>')
    for name, value in lines.items():
        at = x(value)
        parts.append(f'<line class="median {name}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    return _svg(parts, f"distribution of {x_label}")


def pairs(series: Sequence[Series], y_label: str) -> str:
    """One value per run, the n-th runs of both versions side by side and joined."""
    every = [value for one in series for value in one.values]
    y = Axis(*_widened(min(every), max(every), True), HEIGHT - BOTTOM, TOP)
    count = max(len(one.values) for one in series)
    x = Axis(0.5, count + 0.5, LEFT, WIDTH - RIGHT)
    parts = [*_frame(x, y, "pair of runs", y_label, x_ticks=[float(i + 1) for i in range(count)] if count <= 20 else None)]
    shifts = {one.name: (-0.12, 0.12)[i % 2] for i, one in enumerate(series)}
    for i in range(count):
        ends = [(x(i + 1 + shifts[one.name]), y(one.values[i])) for one in series if i < len(one.values)]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in ends)
        parts.append(f'<polyline class="join" points="{points}"/>')
        parts += [
            f'<circle class="dot {one.name}" cx="{a:.1f}" cy="{b:.1f}" r="5"/>'
            for one, (a, b) in zip(series, ends, strict=False)
        ]
    return _svg(parts, f"{y_label} of each run")


def number(value: float) -> str:
    """A number for a tick or a table, short."""
    if value == 0:
        return "0"
    if abs(value) >= 1e9 or abs(value) < 1e-3:
        return f"{value:.2g}"
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:g}k"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _svg(parts: Sequence[str], label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(label)}">{"".join(parts)}</svg>'


def _frame(x: Axis, y: Axis, x_label: str, y_label: str, x_ticks: Sequence[float] | None = None) -> Iterator[str]:
    for tick in y.ticks():
        at = y(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="tick" x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{number(tick)}</text>'
    for tick in x.ticks() if x_ticks is None else x_ticks:
        at = x(tick)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM + 4}"/>'
        anchor = "middle" if at < WIDTH - RIGHT - 10 else "end"
        yield f'<text class="tick" x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{anchor}">{number(tick)}</text>'
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text class="label" x="{middle:.1f}" y="{HEIGHT - 5}" text-anchor="middle">{escaped(x_label)}</text>'
    height = (TOP + HEIGHT - BOTTOM) / 2
    turned = f'x="12" y="{height:.1f}" transform="rotate(-90 12 {height:.1f})"'
    yield f'<text class="label" {turned} text-anchor="middle">{escaped(y_label)}</text>'


def _shares(values: Sequence[float], x: Axis, bins: int) -> list[float]:
    counts = [0] * bins
    for value in values:
        place = (x(value) - x.start) / (x.end - x.start)
        counts[min(bins - 1, max(0, int(place * bins)))] += 1
    return [count / max(1, len(values)) for count in counts]


def _widened(low: float, high: float, from_zero: bool) -> tuple[float, float]:
    if from_zero:
        low = min(low, 0.0)
    room = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
    return (low if from_zero and low == 0 else low - room), high + room


def _ticks(low: float, high: float) -> list[float]:
    step = _round_step((high - low) / 4)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def _round_step(about: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(about))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= about)


def _logarithmic_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 3), (1, 2, 5)):
        found = [factor * 10.0**decade for decade in decades for factor in factors if low <= factor * 10.0**decade <= high]
        if len(found) >= 3:
            return found[:: math.ceil(len(found) / 7)]
    return _ticks(low, high)
