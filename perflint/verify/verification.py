"""The whole of a verification: copy, fix, run both versions in turn, compare, measure; find the fix that is to blame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perflint.verify.comparison import Comparison, Difference, compare
from perflint.verify.expected import Loop, expected_loops
from perflint.verify.fixes import Applied, Place, apply_fixes
from perflint.verify.runs import Program, Run, ScriptFailed, run, trained_apart
from perflint.verify.sandbox import Sandbox
from perflint.verify.timing import Speed, order, speed

OnRun = Callable[[str], None]
"""Told what is about to run."""


@dataclass(frozen=True)
class Plan:
    """What to verify. `against` and `before` name the other version where it is not what the fixes make of the project."""

    root: Path
    program: Program
    repeats: int = 6
    unsafe: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
    against: Path | None = None
    before: str | None = None


@dataclass(frozen=True)
class Outcome:
    """The result: what was changed, the comparison, the speed, and all runs.

    `comparison` is None if nothing was changed; there are no timed runs if the changed version failed.
    """

    applied: Applied | None
    comparison: Comparison | None
    speed: Speed | None
    originals: Sequence[Run]
    changed: Sequence[Run]
    counted_original: Run | None = None
    counted_changed: Run | None = None
    loops_original: Sequence[Loop] = ()
    loops_changed: Sequence[Loop] = ()

    @property
    def max_steps(self) -> int | None:
        """After how many optimizer steps each run was stopped; None if each went on to its end."""
        counted = self.counted_original
        return counted.data["steps"] if counted is not None and counted.data.get("is_stopped") else None


def verify(sandbox: Sandbox, plan: Plan, on_run: OnRun = lambda what: None) -> Outcome:
    """Run the original and the changed version alternately, and compare them.

    Raises:
        ScriptFailed: the original fails by itself, or the changed version does where the original does not.
        SandboxError: the other version cannot be had.

    """
    program = plan.program

    def once(version: str, mode: str, what: str, keep: Path | None = None) -> Run:
        on_run(what)
        options = ("--keep", str(keep)) if keep is not None else ()
        return run(sandbox, version, program, "count" if mode == "count" else "time", options)

    # the other version may be the older one: its changes are what is verified then
    first = "original"
    if plan.before is not None:
        sandbox.add_revision("before", plan.before)
        first, second = "before", "original"
    elif plan.against is not None:
        sandbox.add("against", plan.against)
        second = "against"
    else:
        second = "changed"
    counted_original = once(first, "count", "the original, counting")
    program = program.stopped_like(counted_original)
    loops = expected_loops(sandbox.tree(first), counted_original.modules, plan.overrides)
    applied = None
    if second == "changed":
        tree = sandbox.add("changed", sandbox.tree("original"))
        applied = apply_fixes(tree, counted_original.modules, unsafe=plan.unsafe, overrides=plan.overrides)
        if not applied.changed:
            return Outcome(applied, None, None, [], [], counted_original, loops_original=loops)
    try:
        counted_changed = once(second, "count", "the changed version, counting")
    except ScriptFailed as error:
        failure = Difference("how the run ends", "without an error", str(error))
        return Outcome(applied, Comparison("different", (failure,), (), ()), None, [], [], counted_original)
    originals: list[Run] = []
    changed: list[Run] = []
    kept = sandbox.scratch / "original.tensors", sandbox.scratch / "changed.tensors"
    for version in order(plan.repeats):
        number = len(originals if version == "original" else changed) + 1
        keep = kept[version == "changed"] if number == 1 else None
        if version == "original":
            originals.append(once(first, "time", f"the original, {number} of {plan.repeats}", keep))
        else:
            changed.append(once(second, "time", f"the changed version, {number} of {plan.repeats}", keep))
    comparison = compare(originals, changed, lambda: trained_apart(program, *kept))
    timed = speed(originals, changed)
    after = expected_loops(sandbox.tree(second), counted_changed.modules, plan.overrides)
    return Outcome(applied, comparison, timed, originals, changed, counted_original, counted_changed, loops, after)


def blame(sandbox: Sandbox, plan: Plan, outcome: Outcome, on_run: OnRun = lambda what: None) -> list[Place]:
    """The places whose fixes make the program compute something else: a smallest set that does, by bisection.

    Delta debugging (Zeller, Hildebrandt, 2002) over the places that were fixed; each question is one run of the program.
    """
    assert outcome.applied is not None

    def differs(places: Sequence[Place]) -> bool:
        on_run(f"with the fixes of {len(places)} places")
        try:
            tree = _tree_with(sandbox, plan, outcome, places, "blamed")
            return compare(originals, [run(sandbox, tree, program, "time")]).verdict == "different"
        except ScriptFailed:
            return True

    program = _program(plan, outcome)
    # the changed version may have failed before anything was timed
    originals = outcome.originals or [run(sandbox, "original", program, "time") for _ in range(2)]

    suspects = outcome.applied.places
    parts = 2
    while len(suspects) > 1:
        size = -(-len(suspects) // parts)
        chunks = [suspects[i : i + size] for i in range(0, len(suspects), size)]
        guilty = next((chunk for chunk in chunks if differs(chunk)), None)
        if guilty is not None:
            suspects, parts = guilty, 2
            continue
        rests = [[place for place in suspects if place not in chunk] for chunk in chunks] if len(chunks) > 2 else []
        guilty = next((rest for rest in rests if differs(rest)), None)
        if guilty is not None:
            suspects, parts = guilty, max(parts - 1, 2)
        elif parts >= len(suspects):
            break
        else:
            parts = min(parts * 2, len(suspects))
    return suspects


def faster_places(sandbox: Sandbox, plan: Plan, outcome: Outcome, on_run: OnRun = lambda what: None) -> list[Place]:
    """The places whose fix, alone, makes every timed pair faster, and that all together leave the results as they are."""
    assert outcome.applied is not None
    program = _program(plan, outcome)
    kept: list[Place] = []
    for place in outcome.applied.places:
        tree = _tree_with(sandbox, plan, outcome, [place], "one")
        originals: list[Run] = []
        changed: list[Run] = []
        try:
            for version in order(plan.repeats):
                on_run(f"{place}: {version}")
                if version == "original":
                    originals.append(run(sandbox, "original", program, "time"))
                else:
                    changed.append(run(sandbox, tree, program, "time"))
            if kept:
                on_run(f"{place}: together with the others")
                changed.append(run(sandbox, _tree_with(sandbox, plan, outcome, [*kept, place], "all"), program, "time"))
        except ScriptFailed:
            continue
        measured = speed(originals, changed[: plan.repeats])
        equal = compare(originals, changed).verdict in ("identical", "within the original's spread")
        if equal and measured is not None and measured.is_faster:
            kept.append(place)
    return kept


def _program(plan: Plan, outcome: Outcome) -> Program:
    assert outcome.counted_original is not None
    return plan.program.stopped_like(outcome.counted_original)


def _tree_with(sandbox: Sandbox, plan: Plan, outcome: Outcome, places: Sequence[Place], name: str) -> str:
    assert outcome.counted_original is not None
    sandbox.remove(name)
    tree = sandbox.add(name, sandbox.tree("original"))
    apply_fixes(tree, outcome.counted_original.modules, unsafe=plan.unsafe, overrides=plan.overrides, only=places)
    return name
