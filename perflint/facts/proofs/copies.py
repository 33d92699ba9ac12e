"""Whether code starts a copy that only a later wait makes safe."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import islice

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.operations import operations
from perflint.facts.proofs.hidden import hidden_runs
from perflint.facts.proofs.pinned_by_hand import pinned_by_hand
from perflint.facts.proofs.reach import called_from, can_be_parsed
from perflint.facts.proofs.streams import HANDS_ON, one_stream
from perflint.facts.values.arguments import transfer_target
from perflint.facts.values.bound_arguments import given
from perflint.facts.values.values import External, Loader, Place, Tensor, device_place, place_of
from perflint.rule.obligations import Kind, Obligation
from perflint.source.nodes import walk
from perflint.source.syntax import Scope
from perflint.source.words import any_layout

MAX_FUNCTIONS = 200
"""How many functions are looked through for copies that they start."""
_DEPTH = 8
"""How many names and calls far the origin of what is copied is followed."""
_STARTS_COPIES = any_layout(
    rb"\b(?:non_blocking|async) =(?! False)|\. (?:to|cuda|copy_) \((?:[^()]|\([^()]*\))*\bTrue|\. replay \(|\bCUDAGraph \("
)


def no_copy_in_flight(facts: Facts, scope: Scope, calls: Iterable[ast.Call]) -> Obligation | None:
    """Whether none of the calls between two points starts an asynchronous copy that only a later wait makes safe.

    Such are copies to the host, and copies out of a buffer that the next step may fill again. Where a program works with
    several streams, any wait may be what keeps one from writing to memory that another still reads.
    """
    if (streams := one_stream(facts, scope)) is not None:
        return streams
    calls = list(calls)
    ran = [*islice(_run_by(facts, scope, calls), MAX_FUNCTIONS)]
    if len(ran) == MAX_FUNCTIONS:
        return Obligation(Kind.TRANSFER, "too much is called to look for copies that only this wait makes safe")
    for function in ran:
        if _STARTS_COPIES.search(function.text) and (reason := _started_in(facts, function, {scope, *ran})) is not None:
            return reason
    for call in calls:
        if getattr(call.func, "attr", "") == "replay":
            return Obligation(Kind.TRANSFER, f"`{ast.unparse(call)}` may overwrite what is read")
        if not isinstance(call.func, ast.Attribute) or not _is_asynchronous(call):
            continue
        if call.func.attr == "copy_" or (call.func.attr == "to" and _may_go_to_host(facts, scope, call, call.func.value)):
            return Obligation(Kind.TRANSFER, "an asynchronous copy to the host may be started in between")
        if call.func.attr in ("to", "cuda") and _outlives_step(flow_of(scope), call.func.value):
            return _may_be_written(call)
        if pinned_by_hand(facts, scope.module.source.path) is not None:
            if not _Origin(facts, {scope, *ran}).is_of_step(scope, call.func.value, _DEPTH):
                return _may_be_written(call)
    return None


def _may_be_written(call: ast.Call) -> Obligation:
    assert isinstance(call.func, ast.Attribute)
    moved = ast.unparse(call.func.value)
    return Obligation(Kind.TRANSFER, f"the next step may write to `{moved}` while it is still being copied")


def _started_in(facts: Facts, function: Scope, ran: set[Scope]) -> Obligation | None:
    """What stands against a function that is called in between and starts copies. ran: all functions that run there."""
    started = Obligation(Kind.TRANSFER, f"`{function.name}` may start a copy that only this wait makes safe")
    if not can_be_parsed(function):
        return started
    flow = flow_of(function)
    if any(_STARTS_COPIES.search(flow.inner_scope(inner).text) for inner in flow.inner):
        return started
    for call in flow.calls:
        name = path_of(call.func) or str(getattr(call.func, "attr", ""))
        if name.rpartition(".")[2] in ("replay", "CUDAGraph"):
            return started
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "cuda"):
            says_so = (
                any(k.arg in ("non_blocking", "async") for k in call.keywords) or getattr(call.func, "attr", "") == "copy_"
            )
            if says_so and _is_asynchronous(call) and not facts.loops.targets(function, call):
                return started  # what functions of the program start is seen there
            continue
        if not _is_asynchronous(call):
            continue
        if call.func.attr == "to" and _may_go_to_host(facts, function, call, call.func.value):
            return started
        if not _Origin(facts, ran).is_of_step(function, call.func.value, _DEPTH):
            return _may_be_written(call)
    return None


class _Origin:
    """Where what is copied comes from: a batch of this step, or a tensor that is made for it, is not filled again."""

    def __init__(self, facts: Facts, ran: set[Scope]) -> None:
        self.facts, self.inference, self.ran = facts, facts.inference, ran

    def is_of_step(self, scope: Scope, node: ast.expr, depth: int) -> bool:
        """Whether no later step writes to the tensor that an expression gives, or to the tensors that it holds."""
        if depth <= 0:
            return False
        value = self.inference.value(scope, node)
        if not value.open and value.must(lambda a: isinstance(a, Tensor) and a.fresh):
            return True
        match node:
            case ast.Name():
                found = flow_of(scope).reaching.get(node, frozenset())
                return bool(found) and all(self.is_made_for_step(scope, d, depth - 1) for d in found)
            case ast.Call(func=ast.Attribute(value=receiver, attr=name)) if not self.facts.loops.targets(scope, node):
                known = operations.method(name) is not None or name in ("items", "values", "keys", "pin_memory")
                return known and not self.is_namespace(scope, receiver) and self.is_of_step(scope, receiver, depth - 1)
            case ast.Subscript(value=inner) | ast.Attribute(value=inner) | ast.Starred(value=inner):
                return self.is_of_step(scope, inner, depth - 1)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return all(self.is_of_step(scope, part, depth - 1) for part in parts)
        return False

    def is_namespace(self, scope: Scope, node: ast.expr) -> bool:
        """Whether a call is no method, but a function of a package: `torch.as_tensor(buffer)`."""
        return self.inference.value(scope, node).may_be(External)

    def is_made_for_step(self, scope: Scope, definition: Definition, depth: int) -> bool:
        """The same of what is bound to a name."""
        match definition.kind:
            case "parameter":
                return self.is_given_in_step(scope, definition.name, depth)
            case "for" if definition.value is not None:
                return self.gives_batches(scope, definition.value) or self.is_of_step(scope, definition.value, depth)
            case "assign" | "walrus" if definition.value is not None:
                return self.is_of_step(scope, definition.value, depth)
        return False

    def gives_batches(self, scope: Scope, iterated: ast.expr) -> bool:
        """Whether a loop goes over loaders, which make new tensors for each round; a generator may fill the same again."""
        if self.inference.value(scope, iterated).must(lambda a: isinstance(a, Loader)):
            return True
        if not isinstance(iterated, ast.Call) or not iterated.args:
            return False
        callee = self.inference.value(scope, iterated.func).single
        hands_on = isinstance(callee, External) and callee.qualname in HANDS_ON
        return hands_on and all(self.gives_batches(scope, given) for given in iterated.args[: None if _is_zip(callee) else 1])

    def is_given_in_step(self, scope: Scope, name: str, depth: int) -> bool:
        """The same of what all callers give for a parameter; the object of a method outlives the step."""
        names = [p.arg for p in scope.parameters]
        is_static = any(path_of(d) == "staticmethod" for d in scope.decorators)
        is_method = scope.owner is not None and not is_static
        if name not in names or (is_method and names[0] == name):
            return False
        sites = self.inference.callers.sites(scope).sites
        passed = [(s.scope, given(scope, s.node, name)) for s in sites if self.runs(s.scope)]
        return bool(passed) and all(node is not None and self.is_of_step(where, node, depth) for where, node in passed)

    def runs(self, scope: Scope) -> bool:
        """Whether a function is one of those that run, or stands in one."""
        return scope in self.ran or (scope.parent is not None and self.runs(scope.parent))


def _is_zip(callee: object) -> bool:
    return callee == External("builtins.zip")


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
