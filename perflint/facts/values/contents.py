"""What a list holds that a function fills: its display, its comprehension and all that is appended to it."""

from __future__ import annotations

import ast
from collections.abc import Callable

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.dataflow.uses import Way, steps
from perflint.source.syntax import Scope
from perflint.source.words import words

_READING = words("index count copy sort reverse clear pop")
_FILLING = words("append insert")


def added_by(
    flow: Flow, use: ast.expr, *, filling: frozenset[str] = _FILLING, keeps: Callable[[ast.Call], bool] = lambda call: True
) -> list[ast.expr] | None:
    """What a use of a list or a dict puts into it; None if others may put something into it, or it is not seen what.

    filling: the methods whose last argument goes into it. keeps: whether a call that gets it leaves it as it is.
    """
    added: list[ast.expr] = []
    for step in steps(flow, use):
        assign = flow.parent.get(step.node)
        match step.way, step.node:
            case (Way.UNPACKED | Way.RETURNED | Way.ITEM | Way.COMPARED | Way.ITERATED | Way.DROPPED | Way.OPERAND, _):
                continue
            case Way.ARGUMENT, ast.Call() as call if step.name != "**" and keeps(call):
                continue
            case Way.METHOD, ast.Call(args=[*_, given], keywords=[]) if step.name in filling:
                added.append(given)
            case Way.METHOD, _ if step.name in _READING:
                continue
            case Way.CHANGED, ast.Subscript() if isinstance(assign, ast.Assign):
                added.append(assign.value)
            case Way.CHANGED, ast.AugAssign():
                continue  # what `+=` adds is the value of a definition of its own
            case _:
                return None
    return added


def items_of(scope: Scope, node: ast.expr) -> list[ast.expr]:
    """The expressions whose values a list holds, each once in the source; empty when somebody else may put in others.

    node: a display, a comprehension, or the name of a local list that only this function fills, by `append` and `insert`.
    What a call does with the list that it is given is not looked at.
    """
    match node:
        case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item):
            return [item]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [] if any(isinstance(i, ast.Starred) for i in items) else items
        case ast.Name():
            parts = [_filled(scope, definition) for definition in flow_of(scope).reaching.get(node, frozenset())]
            return [item for part in parts for item in part] if all(parts) else []
    return []


def _filled(scope: Scope, definition: Definition) -> list[ast.expr]:
    """What is put into a list between its making and its end, as far as its function shows."""
    flow = flow_of(scope)
    if definition.name in flow.inner_names or definition.name in flow.outer_names or definition.index:
        return []
    if definition.kind != "assign" or not flow.binds_alone(definition.node):
        return []
    match definition.value:
        case ast.List(elts=[]) | ast.Call(func=ast.Name(id="list"), args=[], keywords=[]):
            found: list[ast.expr] = []
        case ast.List() | ast.ListComp() as made:
            found = items_of(scope, made)
            if not found:
                return []
        case _:
            return []
    for use in flow.uses[definition]:
        added = added_by(flow, use)
        if added is None:
            return []
        found += added
    return found
