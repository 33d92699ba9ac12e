"""Waits that no fix takes away: what another wait of the same round is worth beside them."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.definitions import Block, Loop
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.guards import is_guard, is_seldom
from perflint.facts.device.sinks import NOW
from perflint.facts.facts import Facts, StayingWait
from perflint.facts.operations.operations import Road
from perflint.facts.training.left_out import hot_sites
from perflint.source.syntax import Scope

_DEPTH = 2
"""Through how many calls a function's steps are looked for."""


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
        return not any(is_guard(flow, block) for block in flow.block[node].ancestry())

    waits = [wait.node for wait in facts.waits.of(scope) if wait.road is Road.SHAPE]
    reads = [read.node for read in facts.reads(scope) if not facts.sinks.of(scope, read.node).isdisjoint(NOW)]
    return [
        *((_begin(node), None) for node in waits if is_in_round(node)),
        *((_begin(node), flow.block[node]) for node in reads if is_in_round(node)),
    ]


def _begin(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset
