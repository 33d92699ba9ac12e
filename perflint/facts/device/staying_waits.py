"""Waits that no fix takes away: what another wait of the same round is worth beside them."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.definitions import Block, Loop
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.guards import is_guarded, is_seldom
from perflint.facts.device.sinks import NOW, Sink
from perflint.facts.facts import Facts, StayingWait, StepWait
from perflint.facts.operations.operations import Road
from perflint.facts.training.left_out import hot_sites
from perflint.facts.training.loop_looks import counts_epochs
from perflint.facts.training.loops import LoopKind
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout

_DEPTH = 2
"""Through how many calls a function's steps are looked for."""
_CALL_DEPTH = 3
"""Through how many calls a step's waits, and the steps that call a function, are looked for."""
_WAITS_INSIDE = any_layout(
    rb"\bmodels \. detection\b|\bdetectron2\b|\bultralytics\b|\bmmdet\b|\b(?:faster|mask|keypoint)rcnn_resnet"
)
"""Packages whose networks wait many times in a forward pass: they select boxes."""


def stays_beside(facts: Facts, scope: Scope, node: ast.expr, depth: int = _DEPTH) -> bool:
    """Whether the host waits in each round that gets to a node for something else, too, which it needs there.

    That is a number that decides how the program goes on, or a selection whose size depends on the data: in the same function,
    or around all calls of it in steps. Only the last wait of a step shows in its time.
    """
    loop = facts.loops.step_loop(scope, node)
    waits = facts.staying.get((scope, loop), lambda: _staying(facts, scope, loop))
    around: set[Block | None] = {None, *flow_of(scope).block[node].ancestry()}
    place = _begin(node)
    if any(at != place and block in around for at, block in waits):
        return True
    if loop is not None or not depth:
        return False
    sites = hot_sites(facts, scope)
    return bool(sites) and all(stays_beside(facts, site.scope, site.node, depth - 1) for site in sites)


def _staying(facts: Facts, scope: Scope, loop: Loop | None) -> list[StayingWait]:
    """The waits of each round of a loop, or of each call of a scope, that nothing takes away."""
    flow = flow_of(scope)

    def is_in_round(node: ast.expr) -> bool:
        if loop is not None:
            return facts.loops.step_loop(scope, node) is loop and not is_seldom(flow, node)
        return not is_guarded(flow, node)

    waits = [wait.node for wait in facts.waits.of(scope) if wait.road is Road.SHAPE]
    reads = [read.node for read in facts.reads(scope) if not facts.sinks.of(scope, read.node).isdisjoint(NOW)]
    return [
        *((_begin(node), None) for node in waits if is_in_round(node)),
        *((_begin(node), flow.block[node]) for node in reads if is_in_round(node)),
    ]


def _begin(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


_Round = tuple[Scope, Loop | None]
"""What runs again and again: the body of a loop, or a function of which no more is known."""


def steps_wait_anyhow(facts: Facts, scope: Scope, node: ast.expr, *, is_copy: bool) -> bool | None:
    """Whether each step that gets to a node waits in another place, too, by what no fix takes away: also in what it calls.

    Or is an epoch, of which there are not many, or runs a network that waits inside. None where no loop is in sight that gets
    there. is_copy: the wait of a `GradScaler` comes at the end of a step, a copy that waits at its beginning is another one.
    """
    if facts.project.program_holds(scope.module.source.path, _WAITS_INSIDE):
        return True
    rounds = _rounds(facts, scope, node, _CALL_DEPTH)
    here = (scope.module.source.path, _begin(node))

    def is_slow(round_: _Round) -> bool:
        loop, waits = round_[1], _waits_of(facts, round_, _CALL_DEPTH)
        others = (road for path, place, road in waits if (path, place) != here)
        return (loop is not None and counts_epochs(loop)) or any(not is_copy or road is not Road.OVERFLOW for road in others)

    return all(map(is_slow, rounds)) if rounds else None


def _rounds(facts: Facts, scope: Scope, node: ast.AST, depth: int) -> set[_Round]:
    """The step loops that get to a node."""
    loop = facts.loops.step_loop(scope, node)
    if loop is not None:
        return {(scope, loop)}
    if not depth:
        return set()
    return {found for site in hot_sites(facts, scope) for found in _rounds(facts, site.scope, site.node, depth - 1)}


def _waits_of(facts: Facts, round_: _Round, depth: int) -> frozenset[StepWait]:
    """Where each round waits by what no fix takes away."""
    return facts.step_waits.get((*round_, depth), lambda: _find_waits(facts, *round_, depth))


def _find_waits(facts: Facts, scope: Scope, loop: Loop | None, depth: int) -> frozenset[StepWait]:
    try:
        flow = flow_of(scope)
        reads = {read.node for read in (*facts.reads(scope), *facts.truths(scope))}
        own = [wait for wait in facts.waits.of(scope) if _each_time(facts, scope, wait.node, loop)]
    except SyntaxProblem:
        return frozenset()
    path = scope.module.source.path
    found = {
        (path, _begin(wait.node), wait.road)
        for wait in own
        if wait.stays
        or (wait.road in _STAYING and wait.cause is None)
        or (wait.road is Road.NUMBER and wait.node not in reads)
        or (wait.node in reads and _is_needed_now(facts, scope, wait.node, _DEPTH))
    }
    if depth:
        for call in flow.calls:
            for target in facts.loops.targets(scope, call) if _each_time(facts, scope, call, loop) else ():
                if target is not scope:
                    found |= _waits_of(facts, (target, None), depth - 1)
    return frozenset(found)


def _is_needed_now(facts: Facts, scope: Scope, node: ast.expr, depth: int) -> bool:
    """Whether the host needs a value in the step that reads it, also where that is the caller who looks at what it is given."""
    sinks = facts.sinks.of(scope, node)
    if not sinks.isdisjoint(NOW):
        return True
    sites = hot_sites(facts, scope) if depth and (Sink.RETURN in sinks or _is_in_returned_total(scope, node)) else []
    return bool(sites) and all(_is_needed_now(facts, site.scope, site.node, depth - 1) for site in sites)


def _is_in_returned_total(scope: Scope, node: ast.expr) -> bool:
    """Whether a function adds a value to a total, `total += loss.item()`, and returns that."""
    flow = flow_of(scope)
    match flow.statement(node):
        case ast.AugAssign(target=ast.Name(id=name)):
            return any(isinstance(end.value, ast.Name) and end.value.id == name for end in flow.returns)
    return False


_STAYING = frozenset((Road.SHAPE, Road.TRUTH, Road.OVERFLOW, Road.DEVICE))
"""Waits that the host needs whatever becomes of what it learns."""


def is_in_round(facts: Facts, scope: Scope, node: ast.AST, loop: Loop) -> bool:
    """Whether each round of a loop gets to a node, if only in rounds of a loop inside that trains nothing: a rollout."""
    found = facts.loops.step_loop(scope, node)
    if found is None or found is loop:
        return found is loop
    return loop in found.ancestry() and facts.loops.kinds(scope)[found] is LoopKind.EVALUATE


def _each_time(facts: Facts, scope: Scope, node: ast.AST, loop: Loop | None) -> bool:
    flow = flow_of(scope)
    if node not in flow.block:
        return False
    if loop is None:
        return not is_guarded(flow, node)
    return is_in_round(facts, scope, node, loop) and not is_seldom(flow, node)
