"""Whether a program starts a copy, or anything else on the device, that only a later wait makes safe."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import partial
from typing import Final

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.fears import (
    CAPTURED,
    EVENTS,
    OTHER_DEVICES,
    OTHER_KERNELS,
    QUOTED_NON_BLOCKING,
    SHARED_MEMORY,
    SIDE_STREAM,
    feared,
)
from perflint.facts.proofs.pinned_by_hand import pinned_by_hand
from perflint.facts.proofs.reach import called_from
from perflint.facts.proofs.streams import one_stream
from perflint.facts.values.arguments import transfer_target
from perflint.facts.values.values import Batch, Place, device_place, place_of
from perflint.rule.obligations import Kind, Obligation
from perflint.source.scopes import in_any_scope
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout

_WITHIN: Final = rb"(?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*"
_ASYNCHRONOUS: Final = any_layout(rb"\b(?:non_blocking|async) =(?! False)|\. (?:to|copy_) \(%b\bTrue" % _WITHIN)
_ELSEWHERE: Final = (CAPTURED, EVENTS, SHARED_MEMORY, OTHER_DEVICES, OTHER_KERNELS, QUOTED_NON_BLOCKING)
_SPEAKS: Final = ("non_blocking", "async")
_CALL_DEPTH: Final = 3


def no_copy_in_flight(facts: Facts, scope: Scope) -> Obligation | None:
    """What stands against it that a wait in a function's steps is needed for nothing but what it gives there.

    It may be what keeps streams, processes or graphs of CUDA apart; what lets a copy to the host arrive before it is read; or
    what keeps the next step from filling a buffer that is still being copied. Who waits for what is not followed: the program
    has nothing of the kind.
    """
    path = scope.module.source.path
    if (streams := one_stream(facts, scope)) is not None:
        return streams
    if (found := next(feared(facts.project, path, *_ELSEWHERE), None)) is not None:
        return found
    if (pinned := pinned_by_hand(facts, path)) is not None:
        return Obligation(Kind.TRANSFER, pinned.words)
    for file in facts.project.members(path) or ():
        if facts.project.holds(file, _ASYNCHRONOUS) and facts.copies.get(file, partial(_copies_to_host, facts, file)):
            words = "the program copies to the host, or somewhere unknown, without a wait, and may read before that has arrived"
            return Obligation(Kind.TRANSFER, words, file)
    if any(_writes_to_batches(facts, function) for function in called_from(facts, scope, depth=_CALL_DEPTH)):
        return Obligation(Kind.TRANSFER, "a batch is written to, which may still be on its way to the device")
    return None


def relies_on_waits(facts: Facts, scope: Scope, calls: Iterable[ast.Call]) -> bool:
    """Whether something in sight needs a wait: streams, graphs, pinned memory; calls that start copies which may be read."""
    path = scope.module.source.path
    if any(feared(facts.project, path, SIDE_STREAM, CAPTURED, SHARED_MEMORY)) or pinned_by_hand(facts, path) is not None:
        return True
    return any(_may_go_to_host(facts, scope, call) for call in calls)


def _copies_to_host(facts: Facts, file: str) -> bool:
    return in_any_scope(facts.project.module(file), partial(_in_scope, facts))


def _in_scope(facts: Facts, scope: Scope) -> bool:
    """Whether a function, or one within it, starts a copy that is not known to lead from the host to a device."""
    if _ASYNCHRONOUS.search(scope.text) is None:
        return False
    flow = flow_of(scope)
    return any(_may_go_to_host(facts, scope, call) for call in flow.calls) or any(
        _in_scope(facts, inner) for inner in flow.parts()
    )


def _may_go_to_host(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    name = getattr(call.func, "attr", "")
    given = [k.value for k in call.keywords if k.arg in _SPEAKS]
    if name in ("to", "copy_"):
        given += [a for a in call.args if isinstance(a, ast.Constant) and a.value is True]
    if all(isinstance(value, ast.Constant) and not value.value for value in given):
        return False
    inference = facts.inference
    if name not in ("to", "cuda", "copy_") or not isinstance(call.func, ast.Attribute):
        return not facts.loops.targets(scope, call)  # what functions of the program start is seen there
    receiver = inference.value(scope, call.func.value)
    if name == "copy_":
        return not receiver.must(lambda a: place_of(a) is Place.CUDA)
    if name == "cuda" or receiver.must(lambda a: place_of(a) is Place.HOST):
        return False
    target = transfer_target(inference, call, inference.frame(scope))
    return device_place(target) not in (Place.CUDA, Place.CUDA_OR_HOST)


def _writes_to_batches(facts: Facts, scope: Scope) -> bool:
    """Whether a function writes to what a loader has given it; a loader pins that, and nobody waits for its copy then."""
    try:
        flow = flow_of(scope)
    except SyntaxProblem:
        return True
    for node in flow.order:
        match node:
            case ast.Subscript(value=written, ctx=ast.Store()) | ast.AugAssign(target=ast.Name() as written):
                pass
            case ast.Call(func=ast.Attribute(value=written, attr=name)) if name.endswith("_") and not name.startswith("_"):
                pass
            case _:
                continue
        if facts.inference.value(scope, written).may(_may_be_pinned):
            return True
    return False


def _may_be_pinned(alternative: object) -> bool:
    return isinstance(alternative, Batch) and alternative.pinned is not False
