"""Where a clock is read before and behind a forward pass on a GPU, and nothing in between waits for the GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from perflint.facts.autograd.evaluations import computes_with_network
from perflint.facts.dataflow.definitions import Definition, Loop
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.device.queueing import Queueing
from perflint.facts.facts import Facts
from perflint.facts.training.network_places import Hint, Networks, hints_in
from perflint.facts.training.on_accelerator import Whereabouts, whereabouts
from perflint.facts.values.values import Batch, External, Output, Place, Tensor, place_of
from perflint.source.records import dataclass
from perflint.source.syntax import Scope
from perflint.source.words import words

CLOCKS: Final = words("time perf_counter perf_counter_ns monotonic monotonic_ns time_ns default_timer now utcnow")
_CLOCKS: Final = words(
    """
    time.time time.perf_counter time.perf_counter_ns time.monotonic time.monotonic_ns time.time_ns timeit.default_timer
    datetime.datetime.now datetime.datetime.utcnow
    """
)
_STAYS: Final = (Place.CUDA, Place.CUDA_OR_HOST)


@dataclass(frozen=True, eq=False)
class Timed:
    """A forward pass between two readings of a clock."""

    begin: ast.Call
    end: ast.Call
    network: ast.Call


def timed_without_wait(facts: Facts, scope: Scope) -> Iterator[Timed]:
    """The forward passes on a GPU whose time is taken, and used, before they are done: each once, where it is taken first."""
    flow = flow_of(scope)
    told = set[ast.Call]()
    for begin, end in _intervals(facts, scope, flow):
        between = [node for node, order in flow.order.items() if flow.order[begin] < order < flow.order[end]]
        passes = [call for call in between if isinstance(call, ast.Call) and computes_with_network(facts, scope, call)]
        if not passes or passes[-1] in told or not _runs_once(flow, begin, end, between, passes):
            continue
        if any(flow.order[call] > flow.order[end] for call in flow.calls_named["synchronize"]):
            continue  # it tells apart what is queued and what is done
        network = passes[-1]
        if not _is_on_gpu(facts, scope, network) or not _only_queues(facts, scope, flow, between, passes):
            continue
        told.add(network)
        yield Timed(begin, end, network)


def _intervals(facts: Facts, scope: Scope, flow: Flow) -> Iterator[tuple[ast.Call, ast.Call]]:
    """The pairs of readings whose difference is used, in the order of the second one."""
    found: dict[tuple[ast.Call, ast.Call], None] = {}
    for node in flow.order:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            begin, end = (_reading(facts, scope, flow, side) for side in (node.right, node.left))
            if begin is not None and end is not None and flow.dominates(begin, end) and _is_used(flow, node):
                found[begin, end] = None
    yield from sorted(found, key=lambda pair: flow.order[pair[1]])


def _reading(facts: Facts, scope: Scope, flow: Flow, node: ast.expr) -> ast.Call | None:
    """The one call that reads the clock of which an expression is the result."""
    if isinstance(node, ast.Call):
        return node if _reads_clock(facts, scope, node) else None
    bound = flow.reaching.get(node, frozenset())
    only = next(iter(bound)) if len(bound) == 1 else None
    if only is None or only.kind != "assign" or only.index or not isinstance(only.value, ast.Call):
        return None
    return only.value if _reads_clock(facts, scope, only.value) else None


def _reads_clock(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    if call.args or call.keywords:
        return False
    return facts.inference.value(scope, call.func).must(lambda a: isinstance(a, External) and a.qualname in _CLOCKS)


def _is_used(flow: Flow, difference: ast.BinOp) -> bool:
    """Whether somebody gets to know a difference: a name that it is bound to is read, or it stands in anything else."""
    statement = flow.statement(difference)
    if not isinstance(statement, ast.Assign) or not all(isinstance(target, ast.Name) for target in statement.targets):
        return not isinstance(statement, ast.Expr) or statement.value is not difference
    bound: list[Definition] = [
        d for target in statement.targets if isinstance(target, ast.Name) for d in flow.definitions_of(target.id)
    ]
    here = [d for d in bound if flow.statement(d.node) is statement]
    return any(flow.uses[d] or d.name in flow.inner_names | flow.outer_names for d in here)


def _runs_once(flow: Flow, begin: ast.Call, end: ast.Call, between: list[ast.AST], passes: list[ast.Call]) -> bool:
    """Whether an interval holds no loop, so that the last pass is a part of it that counts, and is always reached."""
    loop: Loop | None = flow.loop(begin)
    if any(isinstance(node, (ast.For, ast.While, ast.AsyncFor)) for node in between):
        return False
    return flow.loop(end) is loop and all(flow.loop(p) is loop for p in passes) and flow.dominates(passes[-1], end)


def _only_queues(facts: Facts, scope: Scope, flow: Flow, between: list[ast.AST], passes: list[ast.Call]) -> bool:
    """Whether nothing between the readings waits, but for copies to the GPU before a network runs there."""
    queueing = Queueing(facts, ast.unparse(passes[-1].func))
    first = flow.order[passes[0]]
    before = [node for node in between if flow.order[node] < first]
    rest = [node for node in between if flow.order[node] >= first]
    return not any(queueing.code(scope, rest)) and not any(queueing.code(scope, before, uploads=True))


def _is_on_gpu(facts: Facts, scope: Scope, network: ast.Call) -> bool:
    """Whether a network surely computes on a GPU, if there is one."""
    given = (*network.args, *(k.value for k in network.keywords))
    values = [a for part in given for a in facts.inference.value(scope, part).alternatives]
    places = {place_of(a) for a in values if isinstance(a, (Tensor, Batch, Output))}
    if places and all(place in _STAYS for place in places):
        return True
    if whereabouts(facts, scope, network) is not Whereabouts.ACCELERATOR:
        return False
    hints = {*Networks(facts).of(scope, network.func), *hints_in(facts, scope)}
    return Hint.DEVICE in hints and Hint.HOST not in hints
