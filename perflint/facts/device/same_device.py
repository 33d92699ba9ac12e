"""Which tensors are on the device of a parameter, whichever that is."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.training.recurrent import is_rnn
from perflint.facts.training.training_objects import is_neural_module
from perflint.facts.values.values import Alternative, External, Object
from perflint.source.syntax import Scope
from perflint.source.words import words


def is_where(facts: Facts, scope: Scope, node: ast.expr, parameter: str | None, depth: int = 8) -> bool:
    """Whether a tensor is, without doubt, on the device of a parameter: a part of it, or what torch's layers make of it."""
    if depth == 0:
        return False
    match node:
        case ast.Name():
            found = flow_of(scope).reaching.get(node, frozenset())
            return bool(found) and all(
                (d.kind == "parameter" and d.name == parameter)
                or (d.value is not None and is_where(facts, scope, d.value, parameter, depth - 1))
                for d in found
            )
        case ast.Subscript(value=base):
            return is_where(facts, scope, base, parameter, depth - 1)
        case ast.Call(func=ast.Attribute(attr=attr, value=base)) if attr in _SAME_DEVICE:
            return is_where(facts, scope, base, parameter, depth - 1)
        case ast.Call(args=[given, *_]) if facts.inference.value(scope, node.func).must(_is_enumerate):
            return is_where(facts, scope, given, parameter, depth - 1)
        case ast.Call(args=[given, _]) if facts.inference.value(scope, node.func).must(is_rnn):
            return is_where(facts, scope, given, parameter, depth - 1)
        case ast.Call(args=[given]) if facts.inference.value(scope, node.func).must(
            lambda a: is_neural_module(facts.inference, a)
        ):
            torch_layer = facts.inference.value(scope, node.func).must(
                lambda a: isinstance(a, Object) and a.qualname != "torch.nn.Module"
            )
            return torch_layer and is_where(facts, scope, given, parameter, depth - 1)
    return False


_SAME_DEVICE = words(
    """
    chunk split unbind view reshape transpose permute squeeze unsqueeze flatten contiguous float long select narrow
    """
)


def _is_enumerate(alternative: Alternative) -> bool:
    return alternative == External("builtins.enumerate")


def is_used_as_tensor(flow: Flow, name: str) -> bool:
    """Whether a function asks a variable for what only tensors have."""
    for definition in flow.definitions_of(name):
        for use in flow.uses[definition]:
            parent = flow.parent.get(use)
            if isinstance(parent, ast.Attribute) and parent.attr in ("size", "shape", "split", "unsqueeze", "dim", "device"):
                return True
    return False
