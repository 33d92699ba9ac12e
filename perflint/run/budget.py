"""The sync budget: how often per step the CPU waits for the device, as written and after the fixes.

What counts is the last wait of a step, not the second to last: only a budget that reaches 0 shows in the step time.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from perflint.facts.calls import argument
from perflint.facts.facts import Facts
from perflint.facts.flow import Loop, flow_of
from perflint.facts.loops import LoopKind, is_guard, is_scaler
from perflint.facts.values import Object
from perflint.rule.finding import Applicability, Finding
from perflint.run.outcome import Budget
from perflint.source.source import Source
from perflint.source.syntax import Module, Scope, SyntaxProblem
from perflint.source.words import any_layout

_STEP = any_layout(rb"step \(")

CALL_DEPTH = 2
"""How many calls away from the loop waits are counted."""


def budgets(facts: Facts, module: Module, shown: str, findings: Sequence[Finding]) -> list[Budget]:
    """The budgets of a file's training loops, in the order of the file. `shown` is how reports name the file."""
    result: list[Budget] = []
    removable = _Removable(module.source, findings)
    for scope in [module.top, *module.functions()]:
        if b"backward" not in scope.text and not _STEP.search(scope.text):
            continue
        try:
            for loop, kind in facts.loops.kinds(scope).items():
                if kind is LoopKind.TRAIN and loop.statement is not None:
                    result.append(_budget(facts, scope, loop, shown, removable))
        except SyntaxProblem:
            continue
    return sorted(result, key=lambda budget: budget.row)


class _Removable:
    """The waits that findings of a file name, as (path, byte offset)."""

    def __init__(self, source: Source, findings: Sequence[Finding]) -> None:
        self.path = source.path
        self.offsets = sorted({w for f in findings for w in f.waits})
        self.safe, self.every = self._of(findings, (Applicability.SAFE,)), self._of(findings, tuple(Applicability))

    def _of(self, findings: Iterable[Finding], levels: tuple[Applicability, ...]) -> set[tuple[str, int]]:
        return {(self.path, w) for f in findings if f.fix is not None and f.fix.applicability in levels for w in f.waits}

    def between(self, low: int, high: int) -> Iterator[tuple[str, int]]:
        """Those from one byte offset to before another."""
        for offset in self.offsets[bisect_left(self.offsets, low) : bisect_left(self.offsets, high)]:
            yield self.path, offset


def _budget(facts: Facts, scope: Scope, loop: Loop, shown: str, removable: _Removable) -> Budget:
    assert loop.statement is not None
    source = scope.module.source
    waits = set(_waits_in(facts, scope, loop, CALL_DEPTH))
    low = source.offset(loop.statement.lineno, loop.statement.col_offset)
    last = loop.statement.end_lineno or loop.statement.lineno
    high = source.starts[last] if last < len(source.starts) else len(source.body)
    waits.update(removable.between(low, high))
    scaler = _scaler_waits(facts, scope, loop)
    written = len(waits) + scaler
    left, left_all = written - len(waits & removable.safe), written - len(waits & removable.every)
    return Budget(shown, loop.statement.lineno, scope.qualname, written, left, left_all, scaler)


def _waits_in(facts: Facts, scope: Scope, loop: Loop | None, depth: int) -> Iterable[tuple[str, int]]:
    """Reads that run in each iteration of `loop` (or in each call of the scope, without one), as (path, byte offset)."""
    flow = flow_of(scope)
    source = scope.module.source
    for read in (*facts.reads(scope), *facts.truths(scope)):
        if _each_time(facts, scope, read.node, loop):
            yield source.path, source.offset(read.node.lineno, read.node.col_offset)
    if depth == 0:
        return
    for call in flow.calls:
        if _each_time(facts, scope, call, loop):
            for target in facts.loops.targets(scope, call):
                if target is not scope:
                    yield from _waits_in(facts, target, None, depth - 1)


def _each_time(facts: Facts, scope: Scope, node: ast.AST, loop: Loop | None) -> bool:
    if loop is not None:
        return facts.loops.step_loop(scope, node) is loop
    flow = flow_of(scope)
    return not any(is_guard(flow, block) for block in flow.block[node].ancestry())


def _scaler_waits(facts: Facts, scope: Scope, loop: Loop) -> int:
    """`GradScaler.step` reads whether a gradient overflowed, unless the optimizer is fused and takes care of it."""
    count = 0
    for call in flow_of(scope).calls_named["step"]:
        if not isinstance(call.func, ast.Attribute) or not call.args or facts.loops.step_loop(scope, call) is not loop:
            continue
        if facts.inference.value(scope, call.func.value).may(is_scaler):
            optimizer = facts.inference.value(scope, call.args[0]).single
            count += not (isinstance(optimizer, Object) and _is_fused(optimizer))
    return count


def _is_fused(optimizer: Object) -> bool:
    if not isinstance(optimizer.site, tuple):
        return False
    fused = argument(optimizer.site[1], None, "fused")
    return isinstance(fused, ast.Constant) and fused.value is True
