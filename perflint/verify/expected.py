"""How often the code says that a step waits, beside how often a counting run saw it wait, loop by loop and line by line.

The sync budget is worked out from the code alone. Here it can be wrong in front of everybody: a line that never waited, one
that waited more or less often, and one that waited and is not in it.
"""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflint.facts.operations.operations import Road
from perflint.project.discover import Found
from perflint.rule.registry import all_rules
from perflint.run.outcome import Budget
from perflint.run.run import Run as Check
from perflint.source.cells import SUFFIX
from perflint.verify.runs import Run

_MOVES = re.compile(rb"\.\s*(?:to|cuda|type)\s*\(")

Line = tuple[str, int]
"""A file below the project, and a row."""

_TOLERANCE = 0.1
"""The last round of a loop may be left early, and the first may do more: so much per round is no difference."""
_ON_DEVICES_ONLY = frozenset((Road.OVERFLOW.value, Road.DEVICE.value))
"""How nothing waits on a machine without a GPU."""


@dataclass(frozen=True)
class Loop:
    """A training loop and its budget. waits: how often each round waits at a line, and by which roads. end: its last row.

    under_conditions: lines that not each round gets to. constructors: lines that copy by no `to` or `cuda`.
    """

    file: str
    row: int
    end: int
    function: str
    waits: Mapping[Line, Counter[str]]
    at_least: bool
    now_and_then: int
    under_conditions: Container[Line]
    constructors: Container[Line]

    def holds(self, line: Line) -> bool:
        """Whether a line stands in the loop."""
        return line[0] == self.file and self.row <= line[1] <= self.end

    def times(self, line: Line, on_gpu: bool) -> int:
        """How often each round waits at a line, as far as it does on the machine."""
        hows = self.waits.get(line, Counter())
        if on_gpu:
            return sum(hows.values())
        uncounted = {*_ON_DEVICES_ONLY, *((Road.UPLOAD.value,) if line in self.constructors else ())}
        return sum(number for how, number in hows.items() if how not in uncounted)


def expected_loops(tree: Path, files: Sequence[str], overrides: Mapping[str, Any]) -> list[Loop]:
    """The training loops in some files of a copied tree, with their budgets. Notebooks are left out.

    Raises:
        ConfigError: the project's configuration is unusable.

    """
    paths = {str(tree / file): file for file in files if not file.endswith(SUFFIX)}
    checked = Check(all_rules(), None, overrides).check(Found(files=list(paths), explicit=set(paths))).checked
    known = [(paths[one.source.path], one.source.body, one.budgets) for one in checked if one.source is not None]
    sources = {file: body for file, body, _ in known}
    budgets = [(file, budget) for file, _, found in known for budget in found]
    trees = {file: ast.parse(body) for file, body in sources.items()}
    under_conditions = {(file, row) for file, parsed in trees.items() for row in _rows_under_conditions(parsed)}
    constructors = {
        (file, number)
        for file, body in sources.items()
        for number, text in enumerate(body.split(b"\n"), 1)
        if _MOVES.search(text) is None
    }
    return [_loop(file, budget, _ends(trees[file]), under_conditions, constructors) for file, budget in budgets]


def _rows_under_conditions(parsed: ast.Module) -> Iterable[int]:
    for node in ast.walk(parsed):
        if isinstance(node, (ast.If, ast.Try, ast.Match)):
            yield from range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)


def _ends(parsed: ast.Module) -> dict[int, int]:
    """The last row of each loop, by its first."""
    loops = (node for node in ast.walk(parsed) if isinstance(node, (ast.For, ast.AsyncFor, ast.While)))
    return {node.lineno: node.end_lineno or node.lineno for node in loops}


def _loop(
    file: str, budget: Budget, ends: Mapping[int, int], under_conditions: Container[Line], constructors: Container[Line]
) -> Loop:
    waits: dict[Line, Counter[str]] = {}
    for wait in budget.timeline:
        at = os.path.normpath(os.path.join(os.path.dirname(file), wait.file)) if wait.file else file
        waits.setdefault((at, wait.line or wait.row), Counter())[wait.how] += wait.times
    end = ends.get(budget.row, budget.row)
    counts = budget.at_least, budget.now_and_then
    return Loop(file, budget.row, end, budget.function, waits, *counts, under_conditions, constructors)


def beside(loops: Sequence[Loop], counted: Run, below: Mapping[str, str]) -> list[dict[str, Any]]:
    """The loops that ran: how often a round was expected to wait and waited, and the lines where that differs.

    below: the files that the run names, by their paths in the project.
    """
    data = counted.data
    on_gpu = data.get("device") not in (None, "cpu")
    seen: Counter[Line] = Counter()
    for row in (*data.get("reads", ()), *data.get("waits", ())):
        if row["file"] in below:
            seen[below[row["file"]], row["line"]] += row["count"]
    if not on_gpu:
        for line, count in _blocking(data, below).items():
            if not any(line in loop.constructors for loop in loops):  # what torch itself does there
                seen[line] += count
    rounds = {
        kind: {(below[row["file"]], row["line"]): row["count"] for row in data.get(kind, ()) if row["file"] in below}
        for kind in ("batches_at", "steps_at")
    }
    return [made for loop in loops if (made := _beside(loop, seen, rounds, on_gpu)) is not None]


def _blocking(data: Mapping[str, Any], below: Mapping[str, str]) -> Counter[Line]:
    """Copies that would wait for a GPU: without one they are none."""
    found: Counter[Line] = Counter()
    for row in data.get("transfers", ()):
        if row["what"].startswith("blocking") and row["file"] in below:
            found[below[row["file"]], row["line"]] += row["count"]
    return found


def _beside(
    loop: Loop, seen: Mapping[Line, int], rounds: Mapping[str, Mapping[Line, int]], on_gpu: bool
) -> dict[str, Any] | None:
    number = _rounds(loop, rounds)
    if not number:
        return None  # it did not run
    expected = {line: loop.times(line, on_gpu) for line in loop.waits}
    waited = {line: count / number for line, count in seen.items() if line in loop.waits or loop.holds(line)}
    differs = [
        {"file": line[0], "line": line[1], "expected": expected.get(line, 0), "counted": waited.get(line, 0.0)}
        for line in sorted({*expected, *waited})
        if _differs(loop, line, expected.get(line, 0), waited.get(line, 0.0))
    ]
    return {
        "file": loop.file,
        "row": loop.row,
        "function": loop.function,
        "rounds": number,
        "expected": sum(expected.values()),
        "at_least": loop.at_least,
        "counted": sum(waited.values()),
        "differs": differs,
    }


def _rounds(loop: Loop, rounds: Mapping[str, Mapping[Line, int]]) -> int:
    """How often a loop went round: it was given so many batches, or stepped an optimizer so often."""
    given = rounds["batches_at"].get((loop.file, loop.row), 0)
    steps = (count for (file, row), count in rounds["steps_at"].items() if file == loop.file and loop.row < row <= loop.end)
    return given or max(steps, default=0)


def _differs(loop: Loop, line: Line, expected: int, counted: float) -> bool:
    if counted < expected - _TOLERANCE:
        return line not in loop.under_conditions
    if counted <= expected + _TOLERANCE or not loop.holds(line):
        return False  # what another function does, others may ask it for, too
    seldom = loop.now_and_then > 0 and counted < 1 and not expected
    return not seldom and not (loop.at_least and expected)
