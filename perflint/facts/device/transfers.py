"""Calls of `.to(device)` and `.cuda()` that do nothing but move their receiver."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.device.uploads import holds_nothing
from perflint.facts.facts import Facts
from perflint.facts.training.training_objects import is_neural_module
from perflint.facts.values.arguments import argument, transfer_target
from perflint.facts.values.values import Alternative, Batch, Device, Literal, Number, Output, Place, Tensor, Text, device_place
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope


def moved_to(facts: Facts, scope: Scope, call: ast.Call) -> ast.expr | None:
    """The device argument (`call` itself for `.cuda()`); None when the call does not move its receiver, or does more."""
    assert isinstance(call.func, ast.Attribute)
    extra = any(k.arg not in ("device", "non_blocking") for k in call.keywords)
    if (
        extra
        or len(call.args) > 1
        or any(isinstance(a, ast.Starred) for a in call.args)
        or holds_nothing(facts.inference, scope, call.func.value)
    ):
        return None
    device = argument(call, 0, "device")
    if call.func.attr == "cuda":
        return call if device is None else device
    if device is None:
        return None
    target = transfer_target(facts.inference, call, facts.inference.frame(scope))
    nowhere = not target.open and not target.alternatives
    if nowhere or target.may_be(Tensor, Batch) or target.must_be(Output) or device_place(target) is Place.HOST:
        return None
    if isinstance(device, ast.Name) and not target.must_be(Device, Literal, Text) and _is_asked(scope, device, "shape", "size"):
        return None
    return device


def _is_asked(scope: Scope, name: ast.Name, *attributes: str) -> bool:
    """Whether what a name stands for is asked for one of some attributes somewhere: a device has neither shape nor size."""
    flow = flow_of(scope)
    return any(
        isinstance(parent := flow.parent.get(use), ast.Attribute) and parent.attr in attributes
        for definition in flow.reaching.get(name, frozenset())
        for use in flow.uses[definition]
    )


def no_device(facts: Facts, scope: Scope, device: ast.expr) -> Obligation | None:
    """Whether `.to` may get a tensor or a type: it takes these in the place of a device, a factory does not."""
    if facts.inference.value(scope, device).must(_names_device):
        return None
    if isinstance(device, ast.Attribute) and device.attr == "device":
        owner = facts.inference.value(scope, device.value)
        if owner.may(lambda a: isinstance(a, (Tensor, Batch, Output)) or is_neural_module(facts.inference, a)):
            return None
        if isinstance(device.value, ast.Name) and _is_asked(scope, device.value, "shape"):
            return None
    if isinstance(device, ast.Name):
        found = flow_of(scope).reaching.get(device, frozenset())
        sources = [d.value for d in found if d.kind == "assign" and not d.index and isinstance(d.value, ast.Attribute)]
        if sources and len(sources) == len(found) and all(no_device(facts, scope, source) is None for source in sources):
            return None
    return Obligation(Kind.VALUE, f"`{ast.unparse(device)}` may be no device but a tensor or a type")


def _names_device(alternative: Alternative) -> bool:
    """Whether a factory takes a value for the same device as `.to` and `.cuda`: for `None` it takes the host."""
    if isinstance(alternative, Literal):
        return alternative.value is not None
    return isinstance(alternative, (Device, Text, Number))
