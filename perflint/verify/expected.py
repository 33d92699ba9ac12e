"""How often the code says that a step waits, beside how often a counting run saw it wait, loop by loop and line by line.

The sync budget is worked out from the code alone. Here it can be wrong in front of everybody: a line that never waited, one
that waited more or less often, and one that waited and is not in it.
"""

from __future__ import annotations

import ast
import contextlib
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perflint.facts.operations.operations import Road
from perflint.project.discover import Found
from perflint.rule.registry import all_rules
from perflint.run.outcome import Budget
from perflint.run.run import Run as Check
from perflint.run.run import shown
from perflint.source.cells import SUFFIX
from perflint.verify.runs import Run

_MOVES = re.compile(rb"\.\s*(?:to|cuda|type)\s*\(|\b(?:as_)?(?:tensor|array)\s*\(")

Line = tuple[str, int]
"""A file below the project, and a row."""

_TOLERANCE = 0.1
"""The last round of a loop may be left early, and the first may do more: so much per round is no difference."""
_ON_DEVICES_ONLY = frozenset((Road.OVERFLOW.value, Road.DEVICE.value))
"""How nothing waits on a machine without a GPU."""


@dataclass(frozen=True)
class Loop:
    """A training loop and its budget. waits: how often each round waits at a line, and by which roads. end: its last row.

    entries: for such a line, the rows of the loop that lead to it. under_conditions: lines that not each round gets to.
    constructors: lines where something is copied in a way that no run on a CPU shows.
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
    entries: Mapping[Line, Collection[int]] = field(default_factory=dict)

    def holds(self, line: Line) -> bool:
        """Whether a line stands in the loop."""
        return line[0] == self.file and self.row <= line[1] <= self.end

    def inside(self, path: Sequence[Line]) -> Sequence[Line]:
        """Of lines that led to each other, from the outside in, the last one in the loop, and those behind it."""
        last = max((i for i, line in enumerate(path) if self.holds(line)), default=len(path))
        return path[last:]

    def is_sure(self, line: Line) -> bool:
        """Whether each round gets to a line where it is said to wait, as far as conditions in the loop go."""
        rows = self.entries.get(line, ())
        return line not in self.under_conditions and not any((self.file, row) in self.under_conditions for row in rows)

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
    named = {shown(path): file for path, file in paths.items()}
    checked = Check(all_rules(), None, overrides).check(Found(files=list(paths), explicit=set(paths))).checked
    budgets = [(named[one.path], budget) for one in checked for budget in one.budgets]
    sources = {file: (tree / file).read_bytes() for file in paths.values()}
    trees: dict[str, ast.Module] = {}
    for file, body in sources.items():
        with contextlib.suppress(SyntaxError):  # a newer Python may have run it
            trees[file] = ast.parse(body)
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
    entries: dict[Line, set[int]] = {}
    for wait in budget.timeline:
        at = os.path.normpath(os.path.join(os.path.dirname(file), wait.file)) if wait.file else file
        line = at, wait.line or wait.row
        waits.setdefault(line, Counter())[wait.how] += wait.times
        entries.setdefault(line, set()).add(wait.row)
    end = ends.get(budget.row, budget.row)
    counts = budget.at_least, budget.now_and_then
    return Loop(file, budget.row, end, budget.function, waits, *counts, under_conditions, constructors, entries)


def beside(loops: Sequence[Loop], counted: Run, below: Mapping[str, str]) -> list[dict[str, Any]]:
    """The loops that ran: how often a round was expected to wait and waited, and the lines where that differs.

    below: the files that the run names, by their paths in the project.
    """
    data = counted.data
    on_gpu = data.get("device") not in (None, "cpu")
    waited = [*data.get("reads", ()), *data.get("waits", ())]
    if not on_gpu:  # there are no copies that wait: those that would
        waited += [row for row in data.get("transfers", ()) if row["what"].startswith("blocking")]
    seen = [(_path(row, below), row["count"]) for row in waited if row["file"] in below]
    rounds: dict[str, Counter[Line]] = {}
    for kind in ("batches_at", "steps_at", "backwards_at"):
        rounds[kind] = Counter()
        for row in data.get(kind, ()):
            if row["file"] in below:  # the same line for each optimizer: the busiest
                line = below[row["file"]], row["line"]
                rounds[kind][line] = max(rounds[kind][line], row["count"])
    is_cut = bool(data.get("is_stopped"))
    return [made for loop in loops if (made := _beside(loop, seen, rounds, on_gpu, is_cut)) is not None]


def _path(row: Mapping[str, Any], below: Mapping[str, str]) -> list[Line]:
    """The lines of the project that led to a wait, and its own."""
    called = ((file, line) for file, line in row.get("callers", ()))
    return [(below[file], line) for file, line in (*called, (row["file"], row["line"])) if file in below]


def _beside(
    loop: Loop, seen: Sequence[tuple[Sequence[Line], int]], rounds: Mapping[str, Counter[Line]], on_gpu: bool, is_cut: bool
) -> dict[str, Any] | None:
    number = _rounds(loop, rounds)
    if not number:
        return None  # it did not run
    whole = number - is_cut  # of the last round, nobody knows how much ran
    expected = {line: loop.times(line, on_gpu) for line in loop.waits}
    waited: Counter[Line] = Counter()
    regularly: Counter[Line] = Counter()
    for path, count in seen:
        inside = loop.inside(path)
        if inside:
            waited[path[-1]] += count
            is_called_now_and_then = len(inside) > 1 and any(line in loop.under_conditions for line in inside)
            regularly[path[-1]] += 0 if is_called_now_and_then else count
    differs = [
        {"file": line[0], "line": line[1], "expected": expected.get(line, 0), "counted": waited[line] / number}
        for line in sorted({*expected, *waited})
        if _differs(
            loop,
            line,
            expected.get(line, 0),
            (waited[line] / number, waited[line] / whole if whole else math.inf),
            regularly[line] / number,
        )
    ]
    return {
        "file": loop.file,
        "row": loop.row,
        "function": loop.function,
        "rounds": number,
        "expected": sum(expected.values()),
        "at_least": loop.at_least,
        "counted": waited.total() / number,
        "differs": differs,
    }


def _rounds(loop: Loop, rounds: Mapping[str, Counter[Line]]) -> int:
    """How often a loop went round: how many batches it was given, else steps of an optimizer, else backward passes."""
    given = rounds["batches_at"][loop.file, loop.row]
    if given:
        return given
    for kind in ("steps_at", "backwards_at"):
        counts = (count for (file, row), count in rounds[kind].items() if file == loop.file and loop.row < row <= loop.end)
        if found := max(counts, default=0):
            return found
    return 0


def _differs(loop: Loop, line: Line, expected: int, counted: tuple[float, float], regularly: float) -> bool:
    """Whether the code is wrong about a line.

    counted: how often each round waited there, at least and at most. regularly: so often without a condition on the way.
    """
    least, most = counted
    if most < expected - _TOLERANCE:
        return loop.is_sure(line)
    if regularly <= expected + _TOLERANCE:
        return False
    seldom = not expected and line in loop.under_conditions and (least < 1 or least <= loop.now_and_then)
    return not seldom and not (loop.at_least and expected)
