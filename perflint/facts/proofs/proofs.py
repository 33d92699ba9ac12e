"""Proofs about clocks, copies in flight and names, as functions over the facts.

Each returns None when the proof holds, and else what stands against it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.hidden import hidden_runs
from perflint.facts.proofs.reach import called_from
from perflint.facts.values.arguments import transfer_target
from perflint.facts.values.values import (
    Place,
    device_place,
    place_of,
)
from perflint.rule.obligations import Kind, Obligation
from perflint.source.nodes import walk
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, words

MAX_FUNCTIONS = 60
"""How many functions are looked through for copies that they start."""

_TIMING = words(
    """
    time perf_counter monotonic process_time perf_counter_ns monotonic_ns process_time_ns time_ns thread_time now
    utcnow synchronize elapsed_time record default_timer tic toc
    """
)
_LOCALS = frozenset(("locals", "vars", "eval", "exec", "globals", "dir"))


def untimed(calls: Iterable[ast.Call]) -> Obligation | None:
    """Whether none of the calls between two points reads a clock (D15)."""
    for call in calls:
        name = (path_of(call.func) or "").rpartition(".")[2]
        if name in _TIMING:
            return Obligation(Kind.NO_CLOCK, f"`{ast.unparse(call)}` measures time in between")
    return None


def no_copy_in_flight(facts: Facts, scope: Scope, calls: Iterable[ast.Call]) -> Obligation | None:
    """Whether none of the calls between two points starts an asynchronous copy that only a later wait makes safe.

    Such are copies to the host, and copies out of a buffer that the next step may fill again.
    """
    calls = list(calls)
    for count, function in enumerate(_run_by(facts, scope, calls)):
        if _STARTS_COPIES.search(function.text) or count >= MAX_FUNCTIONS:
            return Obligation(Kind.TRANSFER, f"`{function.name}` may start a copy that only this wait makes safe")
    for call in calls:
        if getattr(call.func, "attr", "") == "replay":
            return Obligation(Kind.TRANSFER, f"`{ast.unparse(call)}` may overwrite what is read")
        if not isinstance(call.func, ast.Attribute) or not _is_asynchronous(call):
            continue
        if call.func.attr == "copy_" or (call.func.attr == "to" and _may_go_to_host(facts, scope, call, call.func.value)):
            return Obligation(Kind.TRANSFER, "an asynchronous copy to the host may be started in between")
        if call.func.attr in ("to", "cuda") and _outlives_step(flow_of(scope), call.func.value):
            return Obligation(
                Kind.TRANSFER, f"the next step may write to `{ast.unparse(call.func.value)}` while it is still being copied"
            )
    return None


_STARTS_COPIES = any_layout(rb"\b(?:non_blocking|async) =(?! False)|\. replay \(|CUDAGraph|pin_memory \(")


def _run_by(facts: Facts, scope: Scope, calls: list[ast.Call]) -> Iterator[Scope]:
    """The functions of the project that calls run, those that give a loop its elements included."""
    flow = flow_of(scope)
    iterated = [loop.iterated for loop in flow.loops if loop.iterated is not None]
    parts: dict[ast.AST, None] = {}  # calls stand in calls
    for root in (*calls, *iterated):
        if root not in parts:
            parts.update(dict.fromkeys(part for part in walk(root) if part in flow.order))
    called = (target for call in calls for target in facts.loops.targets(scope, call))
    return called_from(facts, *called, *hidden_runs(facts, scope, parts), depth=None)


def _is_asynchronous(call: ast.Call) -> bool:
    given = [k.value for k in call.keywords if k.arg in ("non_blocking", "async", None)]
    given += [a for a in call.args if isinstance(a, ast.Constant) and a.value is True]
    return any(not isinstance(value, ast.Constant) or bool(value.value) for value in given)


def _may_go_to_host(facts: Facts, scope: Scope, call: ast.Call, moved: ast.expr) -> bool:
    """Whether a copy may lead from a device to the host; what is on the host already is not copied there."""
    if facts.inference.value(scope, moved).must(lambda a: place_of(a) is Place.HOST):
        return False
    target = transfer_target(facts.inference, call, facts.inference.frame(scope))
    return device_place(target) not in (Place.CUDA, Place.CUDA_OR_HOST)


def _outlives_step(flow: Flow, node: ast.expr) -> bool:
    """Whether an expression starts at an attribute of `self`, or at a variable that the loop around it does not bind."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if not isinstance(node, ast.Name) or node.id == "self":
        return isinstance(node, ast.Name)
    loop = flow.loop(node)
    return loop is not None and not any(flow.within(d.node, loop.block) for d in flow.reaching.get(node, ()))


def free_name(scope: Scope, wanted: str) -> str | None:
    """A name like `wanted` that the scope can bind (D11): not used anywhere in the module; None if it inspects itself."""
    if scope.is_module:
        return None  # a new global is visible to whoever imports the module
    text = scope.module.source.body.decode()
    if inspects_itself(flow_of(scope)):
        return None
    candidates = (wanted, *(f"{wanted}_{n}" for n in range(2, 9)))
    return next((name for name in candidates if name not in text), None)


def inspects_itself(flow: Flow) -> bool:
    """Whether the function may look at its variables by name, as `locals()` does, and `vars()`, but not `vars(args)`."""
    return any(
        isinstance(call.func, ast.Name) and not (call.args and name in ("vars", "dir"))
        for name in _LOCALS
        for call in flow.calls_named[name]
    )


def suspends(flow: Flow) -> bool:
    """Whether the function yields or awaits, so that others run in the middle of it."""
    return bool(flow.yields)
