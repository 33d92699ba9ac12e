"""Which expressions a container of layers is filled with, and which container a layer is taken from."""

from __future__ import annotations

import ast

from perflint.facts.autograd.without_graph import CONTAINERS
from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.values.contents import added_by
from perflint.facts.values.inference import Inference
from perflint.facts.values.values import Alternative, External, Object
from perflint.source.syntax import Scope
from perflint.source.words import words


def collected(inference: Inference, scope: Scope, node: ast.Name) -> list[tuple[Scope, ast.expr]] | None:
    """What a local list or dict is built from and gets; None if that cannot be seen."""
    flow = flow_of(scope)
    definitions = flow.reaching.get(node, frozenset())
    if node.id in flow.inner_names | flow.outer_names or not definitions:
        return None
    if scope.is_module and any(node.id.encode() in function.text for function in scope.module.functions()):
        return None
    found: list[tuple[Scope, ast.expr]] = []
    for definition in flow.definitions_of(node.id):
        if definition.kind not in ("assign", "augmented") or definition.value is None or definition.index:
            return None
        if definition.kind == "assign" and not flow.binds_alone(definition.node):
            return None  # others may fill it under its other name
        if not isinstance(definition.value, _DISPLAYS) and not (
            isinstance(definition.value, ast.Call) and is_list_of(inference, scope, definition.value.func)
        ):
            return None
        found.append((scope, definition.value))
        for use in flow.uses[definition]:
            added = added_by(flow, use, filling=_FILLING, keeps=lambda call: _only_reads(inference, scope, call))
            if added is None:
                return None
            found += [(scope, part) for part in added]
    return found


_DISPLAYS = (ast.List, ast.Dict, ast.ListComp, ast.DictComp, ast.Tuple)
_FILLING = words("append extend insert update")


def is_list_of(inference: Inference, scope: Scope, func: ast.expr) -> bool:
    """Whether a call gives a list or a dict of what it is given."""
    return inference.value(scope, func).must(
        lambda a: (
            isinstance(a, External)
            and a.qualname
            in ("builtins.list", "builtins.tuple", "builtins.dict", "builtins.reversed", "collections.OrderedDict")
        )
    )


def _only_reads(inference: Inference, scope: Scope, call: ast.Call) -> bool:
    """Whether a call builds a container of a list, or reads it."""
    return inference.value(scope, call.func).must(
        lambda a: (
            isinstance(a, External)
            and (
                a.qualname in ("builtins.len", "builtins.list", "builtins.tuple", "builtins.print", "collections.OrderedDict")
                or a.qualname.removeprefix("torch.nn.") in CONTAINERS
            )
        )
    )


def origin(inference: Inference, scope: Scope, flow: Flow, func: ast.expr) -> tuple[Scope, ast.expr] | None:
    """The container that a layer is taken from: `for layer in self.layers`, `self.layers[i]`."""
    match func:
        case ast.Subscript(value=base) if inference.value(scope, base).must(is_container):
            return scope, base
        case ast.Name():
            definitions = flow.reaching.get(func, frozenset())
            if len(definitions) == 1:
                (definition,) = definitions
                return _taken_from(inference, scope, flow, definition)
    return None


def _taken_from(inference: Inference, scope: Scope, flow: Flow, definition: Definition) -> tuple[Scope, ast.expr] | None:
    """The container that a definition takes a layer from."""
    node = definition.value
    if node is None:
        return None
    if definition.kind in ("assign", "walrus") and not definition.index:
        return origin(inference, scope, flow, node)
    if definition.kind != "for":
        return None
    index = definition.index
    while isinstance(node, ast.Call):
        name = path_of(node.func)
        if name in ("enumerate", "zip", "reversed") and _is_builtin(inference, scope, node.func):
            if name == "enumerate":
                place = 0 if index[:1] == (1,) else None
                index = index[1:]
            elif name == "zip":
                place, index = (index[0], index[1:]) if index else (None, index)
            else:
                place = 0
            if place is None or place >= len(node.args):
                return None
            node = node.args[place]
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("values", "items", "children", "named_children"):
            paired = node.func.attr in ("items", "named_children")
            if paired and index[:1] != (1,):
                return None
            index = index[1:] if paired else index
            node = node.func.value
        else:
            return None
    if not index and inference.value(scope, node).must(is_container):
        return scope, node
    return None


def _is_builtin(inference: Inference, scope: Scope, func: ast.expr) -> bool:
    """Whether a name is Python's own."""
    return inference.value(scope, func).must(lambda a: isinstance(a, External) and a.qualname.startswith("builtins."))


def is_container(alternative: Alternative) -> bool:
    """Whether a value is one of torch's modules that hold others."""
    return isinstance(alternative, Object) and alternative.qualname.removeprefix("torch.nn.") in CONTAINERS
