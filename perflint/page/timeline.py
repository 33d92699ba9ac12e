"""A step of a training loop as a picture: the stretches in which the CPU queues work, and the waits between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perflint.page.document import escaped

WIDTH, LEFT, RIGHT = 760, 128, 12
LANE, GAP, TOP = 22, 12, 6
MOST_WAITS = 60
"""So many are drawn; more would be too narrow to be seen."""
WIDEST_WAIT = 20.0


@dataclass(frozen=True)
class Mark:
    """One place where a step waits. name: what stands below it. title: what a pointer on it shows. times: how often."""

    name: str
    title: str
    times: int


@dataclass(frozen=True)
class Lane:
    """One version of the loop. waits: for each mark whether the version still waits there."""

    name: str
    waits: Sequence[bool]


def timeline(marks: Sequence[Mark], lanes: Sequence[Lane], label: str) -> str:
    """One bar for each version; a place of the step is at the same place of each. Not to scale: the order of the code."""
    marks = marks[:MOST_WAITS]
    height = TOP + len(lanes) * (LANE + GAP) + 16
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(marks))
    parts = [part for at, lane in enumerate(lanes) for part in _bar(lane, marks, TOP + at * (LANE + GAP), slot)]
    for at, mark in enumerate(marks):
        if at % max(1, round(34 / slot)) == 0:
            middle = LEFT + (at + 0.5) * slot
            parts.append(f'<text x="{middle:.1f}" y="{height - 5}" text-anchor="middle">{escaped(mark.name)}</text>')
    drawing = (
        f'<svg class="step" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escaped(label)}">{"".join(parts)}</svg>'
    )
    return f'<div class="scroll">{drawing}</div>'


def _bar(lane: Lane, marks: Sequence[Mark], top: float, slot: float) -> Iterator[str]:
    yield f'<text x="{LEFT - 10}" y="{top + LANE / 2 + 4:.1f}" text-anchor="end">{escaped(lane.name)}</text>'
    width = min(WIDEST_WAIT, slot * 0.5)
    start = float(LEFT)
    waits: list[str] = []
    for at, (mark, is_left) in enumerate(zip(marks, lane.waits, strict=False)):
        left = LEFT + (at + 0.5) * slot - width / 2
        kind, title = ("wait", mark.title) if is_left else ("gone", f"{mark.title}: removed")
        waits.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{LANE}">'
            f"<title>{escaped(title)}</title></rect>"
        )
        if is_left:
            yield _work(start, left, top)
            start = left + width
            if mark.times > 1 and width > 12:
                waits.append(
                    f'<text class="times" x="{left + width / 2:.1f}" y="{top + LANE / 2 + 4:.1f}" '
                    f'text-anchor="middle">{mark.times}\N{MULTIPLICATION SIGN}</text>'
                )
    yield _work(start, float(WIDTH - RIGHT), top)
    yield from waits


def _work(start: float, end: float, top: float) -> str:
    return f'<rect class="work" x="{start:.1f}" y="{top + 4:.1f}" width="{max(0.0, end - start):.1f}" height="{LANE - 8}"/>'
