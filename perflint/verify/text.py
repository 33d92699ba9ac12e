"""The outcome of a verification on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perflint.report.text import printable
from perflint.source.words import counted, plural
from perflint.verify.assumed import summary
from perflint.verify.record import rounds
from perflint.verify.timing import CONFIDENT, verdict

MOST_LEFT_OUT = 8
"""So many lines of a notebook that did not run are named."""


def lines(record: dict[str, Any]) -> Iterator[str]:
    """The report of a record that `perflint.verify.record` made, line by line."""
    yield from not_run(record.get("left_out", []))
    if record["equality"] is None:
        yield (
            "Nothing was changed: no fix applies to the files that the script loads. `--assume ordinary` and `--unsafe-fixes` "
            "admit more; `--before HEAD` compares with what git has."
        )
        yield from summary(record["assumptions"])
        yield from beside_lines(record["original"], "original")
        return
    if record["fixes"]:
        yield f"{len(record['fixes'])} findings with a fix: " + ", ".join(
            f"{rule} ({count})" for rule, count in sorted(record["fixed_by_rule"].items())
        )
    if record["max_steps"] is not None:
        yield f"Each run was stopped after {counted(record['max_steps'], 'optimizer step')}."
    yield from _equality(record["equality"])
    yield from summary(record["assumptions"])
    if record["changed"] is None:
        return
    yield from _speed(record["speed"], record["machine"])
    yield ""
    yield from _table(record["original"], record["changed"])


def not_run(left_out: Sequence[str]) -> Iterator[str]:
    """What of a notebook did not run."""
    if left_out:
        yield "Left out, for only IPython can run it:"
    for line in left_out[:MOST_LEFT_OUT]:
        yield printable(f"  {line}")
    if len(left_out) > MOST_LEFT_OUT:
        yield f"  ... and {counted(len(left_out) - MOST_LEFT_OUT, 'line')} more"


def _equality(equality: dict[str, Any]) -> Iterator[str]:
    yield f"Results: {equality['verdict']}"
    for difference in equality["differences"]:
        yield f"  {difference['what']}: {difference['original']} in the original, {difference['changed']} after the changes"
        if largest := largest_difference(difference):
            yield f"    largest difference: {largest}"
    if equality["compared"]:
        yield (
            f"  equal to the bit in all runs: {', '.join(equality['compared'])}"
            if not equality["differences"]
            else (f"  compared to the bit: {', '.join(equality['compared'])}")
        )
    if equality["not_reproducible"]:
        yield f"  the original itself does not reproduce: {', '.join(equality['not_reproducible'])}"
    if equality["spread"]:
        yield f"  its losses differ by up to {equality['spread']:.3g} from run to run"


def largest_difference(difference: dict[str, Any]) -> str:
    """How far both versions are apart where they are furthest apart, where that is, and how much differs at all."""
    if difference.get("largest") is None:
        return difference.get("extent") or ""
    parts = [f"{difference['largest']:.3g}", f"at {difference['where']}", difference.get("extent") or ""]
    return ", ".join(part for part in parts if part)


def _speed(speed: dict[str, Any] | None, machine: dict[str, Any]) -> Iterator[str]:
    if speed is None:
        yield "Speed: not measured, the program has neither two optimizer steps nor two batches"
        return
    said: str = verdict(speed["low"], speed["high"], speed["confidence"])
    if speed["confidence"] < CONFIDENT:
        said = f"too few runs to say so with {CONFIDENT:.0%} confidence (--repeats 6 are enough)"
    elif said == "not shown":
        said = "no difference that these runs could show"
    yield (
        f"Speed: {speed['ratio']:.2f} times the {plural(speed['unit'])} per second ({speed['low']:.2f} to {speed['high']:.2f}, "
        f"{speed['confidence']:.0%} confidence): {said}"
    )
    yield (
        f"  {_time(speed['original_s'])} -> {_time(speed['changed_s'])} per {speed['unit']} on {machine['device']}, torch "
        f"{machine['torch']}; runs of the original alone differ by {speed['noise'] - 1:.0%}"
    )


def _table(original: dict[str, Any], changed: dict[str, Any]) -> Iterator[str]:
    _, unit = rounds(original)
    rows = [
        (f"waits for the device per {unit}", "waits_per_step", "{:.2f}"),
        (f"blocking copies asked for per {unit}", "blocking_transfers_per_step", "{:.2f}"),
        (f"constant tensors made per {unit}", "allocations_per_step", "{:.2f}"),
        ("seconds blocked on the loader", "loader_s", "{:.3f}"),
        ("peak memory, MiB", "peak_memory_mib", "{:.0f}"),
    ]
    width = max(36, *(len(title) + 1 for title, _, _ in rows))
    yield f"{'':{width}}{'original':>12}{'changed':>12}"
    for title, key, form in rows:
        before, after = original[key], changed[key]
        if before is not None and after is not None:
            yield f"{title:{width}}{form.format(before):>12}{form.format(after):>12}"
    for kind in sorted({*original["copies_per_step"], *changed["copies_per_step"]}):
        before, after = original["copies_per_step"].get(kind, 0), changed["copies_per_step"].get(kind, 0)
        yield f"{f'copies per {unit}: {kind}'[:width]:{width}}{before:>12.2f}{after:>12.2f}"
    yield from _left(changed["waits"], changed)
    yield from beside_lines(original, "original")
    yield from beside_lines(changed, "changed")


def beside_lines(version: dict[str, Any], name: str) -> Iterator[str]:
    """For each loop that ran, the waits per round by the code and as counted, and the lines where these differ."""
    for loop in version["loops"]:
        said = f"{'at least ' if loop['at_least'] else ''}{loop['expected']} by the code, {loop['counted']:.2f} counted"
        where = f"{loop['file']}:{loop['row']} {loop['function']}".rstrip()
        yield f"waits per round of {where}, {name}: {said}"
        for row in loop["differs"]:
            yield f"  {row['file']}:{row['line']}: {row['expected']} by the code, {row['counted']:.2f} counted"


def _left(waits: list[dict[str, Any]], changed: dict[str, Any]) -> Iterator[str]:
    steps, unit = rounds(changed)
    if waits:
        yield "waits that are left:"
    for row in sorted(waits, key=lambda row: -row["count"])[:8]:
        yield f"  {row['file']}:{row['line']}: {row['count'] / steps:.2f} per {unit} ({row['what']})"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
