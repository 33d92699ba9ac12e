"""The waits that the code says each step has, beside those that a run is seen to have."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import FIXTURES
from test_budget import ENGINE, STEP_ELSEWHERE
from test_programs import NAMES, NEEDS

from perflint.verify.expected import Loop, beside, expected_loops
from perflint.verify.fixes import apply_fixes
from perflint.verify.record import names_below
from perflint.verify.runs import Program, Run, run
from perflint.verify.sandbox import Sandbox
from perflint.verify.text import beside_lines

WAITS = {("train.py", 12): Counter({"number": 1}), ("net.py", 3): Counter({"upload": 1})}
LOOP = Loop("train.py", 10, 20, "train", WAITS, at_least=False, now_and_then=0, under_conditions=(), constructors=())


def counted(rounds: int, **rows: list[tuple[str, int, int]]) -> Run:
    """A run that waited at some lines; its loop got `rounds` batches. The loop calls what is in net.py in row 14."""
    named = {
        kind: [
            {
                "file": f"/run/{file}",
                "line": line,
                "what": "blocking to",
                "count": count,
                "callers": [["/run/train.py", 40], *([["/run/train.py", 14]] if file == "net.py" else [])],
            }
            for file, line, count in found
        ]
        for kind, found in rows.items()
    }
    data: dict[str, Any] = {"batches_at": [{"file": "/run/train.py", "line": 10, "count": rounds}], **named}
    return Run("original", "count", data, "", {})


BELOW = {"/run/train.py": "train.py", "/run/net.py": "net.py"}


def differing(found: Run, loop: Loop = LOOP) -> dict[tuple[str, int], tuple[int, float]]:
    """The lines where the code and a run differ."""
    (made,) = beside([loop], found, BELOW)
    return {(row["file"], row["line"]): (row["expected"], row["counted"]) for row in made["differs"]}


def test_what_is_seen_as_expected_is_no_difference() -> None:
    found = counted(8, reads=[("train.py", 12, 8)], transfers=[("net.py", 3, 8)])
    assert differing(found) == {}
    (made,) = beside([LOOP], found, BELOW)
    assert (made["rounds"], made["expected"], made["counted"]) == (8, 2, 2.0)


def test_lines_that_wait_more_or_less_often_are_named() -> None:
    found = counted(8, reads=[("train.py", 12, 24), ("train.py", 15, 8), ("train.py", 30, 8)])
    assert differing(found) == {("train.py", 12): (1, 3.0), ("train.py", 15): (0, 1.0), ("net.py", 3): (1, 0.0)}


def test_what_others_ask_for_is_not_the_loops() -> None:
    found = counted(8, reads=[("train.py", 12, 8)], transfers=[("net.py", 3, 8)])
    found.data["transfers"].append({**found.data["transfers"][0], "count": 12, "callers": [["/run/train.py", 40]]})
    assert differing(found) == {}


def test_what_the_loop_calls_is_named_if_the_code_does_not_show_it() -> None:
    found = counted(8, reads=[("train.py", 12, 8), ("net.py", 7, 16)], transfers=[("net.py", 3, 8)])
    assert differing(found) == {("net.py", 7): (0, 2.0)}
    for condition in (("train.py", 14), ("net.py", 7)):
        assert differing(found, replace(LOOP, under_conditions={condition})) == {}


def test_a_loop_that_does_not_run_is_left_out() -> None:
    assert beside([LOOP], counted(0, reads=[("train.py", 12, 8)]), BELOW) == []


def test_the_report_says_both_and_where_they_differ() -> None:
    loops = beside([LOOP], counted(8, reads=[("train.py", 12, 24)], transfers=[("net.py", 3, 8)]), BELOW)
    assert list(beside_lines({"loops": loops}, "original")) == [
        "waits per round of train.py:10 train, original: 2 by the code, 4.00 counted",
        "  train.py:12: 1 by the code, 3.00 counted",
    ]


def test_a_loop_of_a_file_without_findings_is_expected_to_wait(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(STEP_ELSEWHERE)
    (tmp_path / "engine.py").write_text(ENGINE)
    (found,) = expected_loops(tmp_path, ["main.py", "engine.py"], {})
    assert (found.file, found.row, found.waits) == ("main.py", 7, {("engine.py", 6): Counter({"number": 1})})


def test_the_rounds_are_those_of_batches_else_of_the_busiest_optimizer_else_of_backward_passes() -> None:
    def rounds(**rows: list[int]) -> int:
        data = {kind: [{"file": "/run/train.py", "line": 14, "count": n} for n in counts] for kind, counts in rows.items()}
        (made,) = beside([LOOP], Run("original", "count", data, "", {}), BELOW)
        found: int = made["rounds"]
        return found

    assert rounds(steps_at=[8, 4], backwards_at=[12]) == 8
    assert rounds(backwards_at=[12]) == 12


def test_the_last_round_of_a_run_that_was_stopped_may_be_cut_short() -> None:
    found = counted(8, reads=[("train.py", 12, 7)], transfers=[("net.py", 3, 8)])
    assert differing(found) == {("train.py", 12): (1, 7 / 8)}
    found.data["is_stopped"] = True
    assert differing(found) == {}


NOT_SEEN = {("gan", "walker.py", 39), ("gan", "walker.py", 41), ("spans", "evidence/modeling.py", 34)}
"""Waits in programs that the code does not show: `torch.distributions` looks at its arguments, and an encoder of transformers
whether its attention mask masks anything."""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_code_and_the_runs_of_the_programs_agree(name: str, tmp_path: Path) -> None:
    for module in ["torch", *NEEDS.get(name, [])]:
        pytest.importorskip(module)
    root = tmp_path / name
    shutil.copytree(FIXTURES / "programs" / name, root, ignore=shutil.ignore_patterns("__pycache__"))
    sandbox = Sandbox(root)
    program = Program(script=Path("train.py"), python=sys.executable)
    try:
        runs = [run(sandbox, "original", program, "count")]
        tree = sandbox.add("changed", sandbox.tree("original"))
        apply_fixes(tree, runs[0].modules, unsafe=True)
        runs.append(run(sandbox, "changed", program, "count"))
        loops = [
            loop
            for one in runs
            for loop in beside(expected_loops(sandbox.tree(one.version), one.modules, {}), one, names_below(one))
        ]
    finally:
        sandbox.close()
    assert loops
    different = {(name, row["file"], row["line"]) for loop in loops for row in loop["differs"]}
    assert different <= NOT_SEEN
