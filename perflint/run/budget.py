"""The sync budget: how often per step the CPU waits for the device, as written and after the fixes.

It is counted on the loop's code, whatever rules are selected: the arms of a branch exclude each other, a function that is
called twice waits twice, and a wait in an inner loop counts once, so that there are at least as many. What runs now and then
only, as under `step % 100 == 0`, is counted apart.

What counts is the last wait of a step, not the second to last: only a budget that reaches 0 shows in the step time.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from perflint.facts.dataflow.definitions import Block, Loop
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.dataflow.guards import is_guard, is_guarded, is_seldom
from perflint.facts.device.given_copies import copies_of_given
from perflint.facts.device.waits import HostWait
from perflint.facts.facts import Facts
from perflint.facts.operations.operations import Road
from perflint.facts.training.loops import LoopKind
from perflint.rule.finding import Applicability, Finding
from perflint.run.outcome import Budget, StepWait
from perflint.source.records import dataclass
from perflint.source.source import Source
from perflint.source.syntax import Module, Scope, SyntaxProblem
from perflint.source.words import any_layout, made

_STEP = any_layout(rb"steps? \(")
_CALLED = any_layout(rb"\b(\w+) \(")
_LOOPS = made(rb"^[ \t\f]*(?:async[\s\\]+)?(?:for|while)\b", re.M)

CALL_DEPTH = 2
"""How many calls away from the loop waits are counted."""


def may_train(text: bytes) -> bool:
    """Whether a file's text may hold a training loop: it names a backward pass or a step, and loops."""
    return (b"backward" in text or b"zero_grad" in text or _STEP.search(text) is not None) and _LOOPS.search(text) is not None


def loops_with_waits(
    facts: Facts, module: Module, shown: str, findings: Sequence[Finding], quiet: Sequence[Finding] = ()
) -> list[tuple[Budget, frozenset[StepWait]]]:
    """The budgets of a file's training loops, in the order of the file, each with all waits of its loop.

    Also those in the arms of branches that cost less than others. shown: how reports name the file. quiet: findings that are
    not shown.
    """
    result: list[tuple[Budget, frozenset[StepWait]]] = []
    reported = _Reported(module.source, findings, quiet)
    for scope in [module.top, *module.functions()]:
        if not _may_hold_steps(facts, scope):
            continue
        try:
            for loop, kind in facts.loops.kinds(scope).items():
                if kind is LoopKind.TRAIN and loop.statement is not None:
                    result.append(_budget(facts, scope, loop, shown, reported))
        except SyntaxProblem:
            continue
    return sorted(result, key=lambda pair: pair[0].row)


def _may_hold_steps(facts: Facts, scope: Scope) -> bool:
    """Whether a scope's text shows a step, or a loop and the name of a function that runs a backward pass somewhere."""
    if any(word in scope.text for word in (b"backward", b"zero_grad")) or _STEP.search(scope.text):
        return True
    if _LOOPS.search(scope.text) is None:
        return False
    return bool(facts.project.backward_helpers(name.decode() for name in _CALLED.findall(scope.text)))


class _Reported:
    """Which findings of a file report its waits, with or without a fix."""

    def __init__(self, source: Source, findings: Sequence[Finding], quiet: Sequence[Finding]) -> None:
        self.path = source.path
        self._found: dict[int, Finding] = {}
        self._quiet = {wait: (finding.rule, _kind(finding)) for finding in quiet for wait in finding.waits}
        for finding in findings:
            for wait in finding.waits:
                held = self._found.get(wait)
                if held is None or _ease(finding) < _ease(held):
                    self._found[wait] = finding

    def of(self, path: str, place: int) -> Finding | None:
        """The finding that reports a wait; of several the one with the fix that needs least."""
        return self._found.get(place) if path == self.path else None

    def quiet(self, path: str, place: int) -> tuple[str, str]:
        """The rule that would report a wait, and the kind of its fix; empty if none does."""
        return self._quiet.get(place, ("", "")) if path == self.path else ("", "")


def _kind(finding: Finding | None) -> str:
    return finding.fix.applicability.value if finding is not None and finding.fix is not None else ""


def _ease(finding: Finding) -> int:
    levels = list(Applicability)
    return levels.index(finding.fix.applicability) if finding.fix is not None else len(levels)


@dataclass(frozen=True)
class _Cost:
    """Waits of a stretch of code each time that it runs. `least`: there may be more. places: the waits with their order."""

    written: int = 0
    after_safe: int = 0
    after_all: int = 0
    in_scaler: int = 0
    least: bool = False
    places: tuple[tuple[tuple[int, ...], StepWait], ...] = ()

    def __add__(self, other: _Cost) -> _Cost:
        return _Cost(
            self.written + other.written,
            self.after_safe + other.after_safe,
            self.after_all + other.after_all,
            self.in_scaler + other.in_scaler,
            self.least or other.least,
            self.places + other.places,
        )

    def called(self, order: int, row: int, *, least: bool) -> _Cost:
        """The cost of a function where it is called."""
        places = tuple(((order, *inner), replace(wait, row=row)) for inner, wait in self.places)
        return replace(self, least=self.least or least, places=places)


_NOTHING = _Cost()
_Branch = tuple[ast.AST, Block]
"""A branch, and one of its arms."""


class _Counting:
    """Adds up the waits of a loop and of the functions that it calls."""

    def __init__(self, facts: Facts, reported: _Reported) -> None:
        self._facts, self._reported = facts, reported
        self._folder = os.path.dirname(reported.path)
        self.waits = list[StepWait]()

    def of(
        self,
        scope: Scope,
        loop: Loop | None,
        depth: int,
        given: frozenset[str] = frozenset(),
        further: Iterable[HostWait] = (),
    ) -> _Cost:
        """The waits of each iteration of `loop`, or of each call of the scope, without one.

        given: parameters for which the call passes something: what stands under `if parameter is None` does not run.
        further: waits that the call makes by what it passes.
        """
        flow = flow_of(scope)
        source = scope.module.source
        waits = [wait for wait in (*self._facts.waits.of(scope), *further) if self._each_time(scope, wait.node, loop, given)]
        outermost: dict[int, HostWait] = {}
        places = {wait: source.offset(wait.node.lineno, wait.node.col_offset) for wait in waits}
        for wait in waits:  # a finding names the start of the outermost expression that waits
            held = outermost.get(places[wait])
            if held is None or _end(wait) >= _end(held):
                outermost[places[wait]] = wait
        parts: list[tuple[list[_Branch], _Cost]] = []
        for wait in waits:
            is_told = outermost[places[wait]] is wait or wait.cause is not None
            at = _cause(wait) or (source.path, places[wait])
            found = self._reported.of(*at) if is_told else None
            fix = found.fix.applicability if found is not None and found.fix is not None else None
            row = wait.node.lineno
            shown = StepWait(
                row,
                wait.times,
                wait.road.value,
                found.rule if found is not None else "",
                _kind(found),
                row,
                os.path.relpath(source.path, self._folder) if source.path != self._reported.path else "",
                *(self._reported.quiet(*at) if is_told and found is None else ()),
            )
            self.waits.append(shown)
            cost = _Cost(
                wait.times,
                0 if fix is Applicability.SAFE else wait.times,
                0 if fix is not None else wait.times,
                wait.times if wait.road is Road.OVERFLOW else 0,
                wait.least or flow.loop(wait.node) is not loop,
                (((flow.order[wait.node],), shown),),
            )
            parts.append((_branches(flow, wait.node, loop), cost))
        if depth > 0:
            for call in flow.calls:
                if self._each_time(scope, call, loop, given):
                    cost = self._called(scope, call, depth)
                    if cost != _NOTHING:
                        inside = cost.called(flow.order[call], call.lineno, least=flow.loop(call) is not loop)
                        parts.append((_branches(flow, call, loop), inside))
        return _dearest(parts)

    def now_and_then(self, scope: Scope, loop: Loop) -> tuple[int, int]:
        """How many waits of a loop run in some of its iterations only, and in each how manieth: 0 when that is not known."""
        flow, loops = flow_of(scope), self._facts.loops
        counts: dict[int, int] = {}
        for wait in self._facts.waits.of(scope):
            seldom = is_seldom(flow, wait.node)
            if loops.around(scope, wait.node) is not loop or (loops.step_loop(scope, wait.node) is not None and not seldom):
                continue
            guards = [
                b
                for b in flow.block[wait.node].ancestry()
                if (is_guard(flow, b) or (seldom and isinstance(b.node, ast.If))) and flow.within(b.node, loop.block)
            ]
            if guards and not any(guard.kind == "handler" for guard in guards):
                period = _period(guards)
                counts[period] = counts.get(period, 0) + wait.times
        return sum(counts.values()), next(iter(counts)) if len(counts) == 1 else 0

    def _called(self, scope: Scope, call: ast.Call, depth: int) -> _Cost:
        """What the function costs that a call runs; of several, the dearest."""
        targets = [target for target in self._facts.loops.targets(scope, call) if target is not scope]
        costs = (
            self.of(target, None, depth - 1, _passed(target, call), copies_of_given(self._facts, scope, call, target))
            for target in targets
        )
        return max(costs, key=_order, default=_NOTHING)

    def _each_time(self, scope: Scope, node: ast.AST, loop: Loop | None, given: frozenset[str]) -> bool:
        if loop is not None:
            return _is_in_round(self._facts, scope, node, loop) and not is_seldom(flow_of(scope), node)
        flow = flow_of(scope)
        return not is_guarded(flow, node) and not any(_is_default(block, given) for block in flow.block[node].ancestry())


def _period(guards: list[Block]) -> int:
    """The number in `step % 100 == 0`, if the innermost guard is such a condition."""
    test = getattr(guards[0].node, "test", None)
    found = [n.right for n in ast.walk(test) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)] if test else []
    match found:
        case [ast.Constant(value=int(number))]:
            return number
    return 0


def _passed(target: Scope, call: ast.Call) -> frozenset[str]:
    """The parameters of a function for which a call passes something else than None."""
    node = target.node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return frozenset()
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    if target.owner is not None and names[:1] in (["self"], ["cls"]):
        names = names[1:]
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        names = []
    pairs = [*zip(names, call.args, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg is not None)]
    return frozenset(name for name, value in pairs if not (isinstance(value, ast.Constant) and value.value is None))


def _is_default(block: Block, given: frozenset[str]) -> bool:
    """Whether a block runs only when one of some parameters is None."""
    if not isinstance(block.node, (ast.If, ast.IfExp)):
        return False
    match block.node.test:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]):
            arm = "then" if isinstance(op, ast.Is) else "else"
            return name in given and block.kind == arm and isinstance(block.node, ast.If)
    return False


def _end(wait: HostWait) -> tuple[int, int]:
    return wait.node.end_lineno or 0, wait.node.end_col_offset or 0


def _cause(wait: HostWait) -> tuple[str, int] | None:
    """The file and the place of the call that decides whether there is a wait, if that is another one."""
    if wait.cause is None:
        return None
    source, call = wait.cause[0].module.source, wait.cause[1]
    return source.path, source.offset(call.lineno, call.col_offset)


def _order(cost: _Cost) -> int:
    return cost.written


def _branches(flow: Flow, node: ast.AST, loop: Loop | None) -> list[_Branch]:
    """The arms of branches around a node, from the outside in."""
    found: list[_Branch] = []
    for block in flow.block[node].ancestry():
        if loop is not None and block is loop.block:
            break
        if block.kind in ("then", "else", "case") or isinstance(block.node, ast.IfExp):
            found.append((block.node, block))
    return found[::-1]


def _dearest(parts: list[tuple[list[_Branch], _Cost]]) -> _Cost:
    """What one run costs at most: of a branch, one arm runs."""
    total = _NOTHING
    arms: dict[ast.AST, dict[Block, list[tuple[list[_Branch], _Cost]]]] = {}
    for branches, cost in parts:
        if branches:
            node, arm = branches[0]
            arms.setdefault(node, {}).setdefault(arm, []).append((branches[1:], cost))
        else:
            total += cost
    for held in arms.values():
        total += max(map(_dearest, held.values()), key=_order)
    return total


def _budget(facts: Facts, scope: Scope, loop: Loop, shown: str, reported: _Reported) -> tuple[Budget, frozenset[StepWait]]:
    assert loop.statement is not None
    counting = _Counting(facts, reported)
    cost = counting.of(scope, loop, CALL_DEPTH)
    counts = (cost.written, cost.after_safe, cost.after_all, cost.in_scaler)
    timeline = tuple(wait for _, wait in sorted(cost.places, key=lambda place: place[0]))
    at = scope.module.source.place(loop.statement.lineno)
    now_and_then = counting.now_and_then(scope, loop)
    budget = Budget(shown, at.row, scope.qualname, *counts, cost.least, *now_and_then, at.cell, timeline)
    return budget, frozenset(counting.waits)


def _is_in_round(facts: Facts, scope: Scope, node: ast.AST, loop: Loop) -> bool:
    """Whether each round of a loop gets to a node, if only in rounds of a loop inside that trains nothing: a rollout."""
    found = facts.loops.step_loop(scope, node)
    if found is None or found is loop:
        return found is loop
    return loop in found.ancestry() and facts.loops.kinds(scope)[found] is LoopKind.EVALUATE
