"""The outcome of a verification as data: what `--json` writes, and what the page and the table are made from."""

from __future__ import annotations

import datetime
import platform
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from perflint.fix.diff import patch
from perflint.page.document import without_folders
from perflint.project.git import commit_of, has_changes
from perflint.project.machine import cpu_name
from perflint.run.result import FixedFile
from perflint.verify.assumed import assumptions
from perflint.verify.comparison import Comparison
from perflint.verify.expected import Loop, beside
from perflint.verify.runs import Run
from perflint.verify.verification import Outcome, Plan

FORMAT = 1


def record(plan: Plan, outcome: Outcome, command: str) -> dict[str, Any]:
    """The whole outcome, fit for JSON. `assumptions` are what the original's counting run showed.

    Times are in seconds, memory is in MiB; `per_step` counts divide by what `rounds` counts.
    """
    runs = [*outcome.originals, *outcome.changed]
    data = runs[0].data if runs else outcome.counted_original.data if outcome.counted_original else {}
    return {
        "format": FORMAT,
        "perflint": version("perflint-torch"),
        "commit": commit_of(str(plan.root)),
        "is_modified": has_changes(str(plan.root)),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": without_folders(command),
        "script": str(plan.program.script),
        "arguments": [without_folders(argument) for argument in plan.program.arguments],
        "left_out": outcome.counted_original.left_out if outcome.counted_original is not None else [],
        "max_steps": outcome.max_steps,
        "machine": {
            "device": data.get("device"),
            "cpu": cpu_name(),
            "system": platform.platform(terse=True),
            "python": data.get("python"),
            "torch": data.get("torch"),
            "cuda": data.get("cuda"),
        },
        "other_version": plan.against.name if plan.against is not None else plan.before or "fixes",
        "fixes": [
            {
                "file": fixable.place.file,
                "function": fixable.place.function,
                "rule": fixable.place.rule,
                "row": fixable.row,
                "applicability": fixable.applicability,
                "message": fixable.message,
            }
            for fixable in (outcome.applied.fixable if outcome.applied else ())
        ],
        "fixed_by_rule": dict(outcome.applied.fixed_by_rule) if outcome.applied else {},
        "diffs": {
            file: b"".join(patch(FixedFile(file, before, after))).decode(errors="replace")
            for file, (before, after) in (outcome.applied.changed if outcome.applied else {}).items()
        },
        "assumptions": (
            assumptions(plan.root, plan.program, plan.overrides, outcome.counted_original, _rested_on(plan, outcome))
            if outcome.counted_original
            else []
        ),
        "equality": None if outcome.comparison is None else _equality(outcome.comparison),
        "speed": None if outcome.speed is None else asdict(outcome.speed),
        "original": _version(outcome.originals, outcome.counted_original, outcome.loops_original),
        "changed": _version(outcome.changed, outcome.counted_changed, outcome.loops_changed),
    }


def _rested_on(plan: Plan, outcome: Outcome) -> frozenset[str] | None:
    """What the fixes of this run rest on, if it declares that itself: what a configuration declares, earlier fixes may need."""
    return outcome.applied.rests_on if outcome.applied is not None and "assume" in plan.overrides else None


def rounds(version: Mapping[str, Any]) -> tuple[int, str]:
    """How many rounds a version made, and of what: optimizer steps, else batches, else backward passes, else one run."""
    for key, name in (("steps", "step"), ("batches", "batch"), ("backwards", "backward pass")):
        if version.get(key):
            return version[key], name
    return 1, "run"


def _version(timed: Sequence[Run], counted: Run | None, loops: Sequence[Loop]) -> dict[str, Any] | None:
    if counted is None:
        return None
    data = counted.data
    backwards = len(data.get("roots", []))
    steps, _ = rounds({**data, "backwards": backwards})
    waits = [*data.get("reads", []), *data.get("waits", [])]
    return {
        "steps": data.get("steps", 0),
        "batches": data.get("batches", 0),
        "backwards": backwards,
        "waits_per_step": sum(row["count"] for row in waits) / steps,
        "waits": _below_place(waits, counted),
        "loops": beside(loops, counted, names_below(counted)),
        "waits_by_step": data.get("waits_by_step", []),
        "blocking_transfers_per_step": sum(
            row["count"] for row in data.get("transfers", []) if row["what"].startswith("blocking")
        )
        / steps,
        "copies_per_step": {kind: count / steps for kind, count in data.get("copies", {}).items()},
        "copied_bytes_per_step": {kind: count / steps for kind, count in data.get("copied_bytes", {}).items()},
        "allocations_per_step": data.get("allocations", 0) / steps,
        "memory_mib": data.get("memory_mib", []),
        "peak_memory_mib": _median([run.data.get("peak_memory_mib") for run in timed]),
        "peak_memory_mib_by_run": _known([run.data.get("peak_memory_mib") for run in timed]),
        "loader_s": _median([run.data.get("loader_s") for run in timed]),
        "loader_s_by_run": _known([run.data.get("loader_s") for run in timed]),
        "run_s": [run.data["run_s"] for run in timed],
        "step_s": [run.step_s for run in timed],
        "losses": [run.roots for run in timed[:2]],
        "output": timed[0].output if timed else "",
    }


def names_below(run: Run) -> dict[str, str]:
    """The project's files by the names that the run has for them."""
    kinds = ("reads", "waits", "transfers", "steps_at", "backwards_at", "batches_at")
    rows = [row for kind in kinds for row in run.data.get(kind, ())]
    files = {row["file"] for row in rows} | {file for row in rows for file, _ in row.get("callers", ())}
    return {file: found for file in files if (found := _below(file, run)) is not None}


def _below(file: str, run: Run) -> str | None:
    """A file's path in the project, if it is of it."""
    parts = Path(file).parts
    tails = [module for module in run.modules if parts[-len(Path(module).parts) :] == Path(module).parts]
    return max(tails, key=len, default=None)


def _below_place(rows: list[dict[str, Any]], run: Run) -> list[dict[str, Any]]:
    """Rows by line, with file names relative to the project, where they are in it."""
    counts: Counter[tuple[str, int, str]] = Counter()
    for row in rows:
        file, line = _below(row["file"], run) or without_folders(row["file"]), row["line"]
        if run.notebook is not None and file == run.notebook.path:
            at = run.notebook.place(line)
            file, line = f"{file}:cell {at.cell}", at.row
        counts[file, line, row["what"]] += row["count"]
    return [{"file": file, "line": line, "what": what, "count": count} for (file, line, what), count in counts.most_common()]


def _equality(comparison: Comparison) -> dict[str, Any]:
    """A comparison without folders of this machine, which what a script says may name."""
    found = asdict(comparison)
    for difference in found["differences"]:
        difference |= {key: without_folders(difference[key]) for key in ("original", "changed")}
    return found


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _median(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return statistics.median(known) if known else None
