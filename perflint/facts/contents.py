"""What a list holds that a function fills: its display, its comprehension and all that is appended to it."""

from __future__ import annotations

import ast

from perflint.facts.definitions import Definition
from perflint.facts.flow import flow_of
from perflint.source.syntax import Scope

_READING = frozenset(("index", "count", "copy", "sort", "reverse", "clear", "pop"))
_LOOKS = (
    *(ast.Expr, ast.Return, ast.Call, ast.keyword, ast.For),
    *(ast.comprehension, ast.Compare, ast.BinOp, ast.Starred),
)
"""What does with a list nothing but look at it."""

_FILLING = frozenset(("append", "insert"))


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
        parent = flow.parent.get(use)
        call = flow.parent.get(parent) if isinstance(parent, ast.Attribute) else None
        if not (isinstance(parent, ast.Attribute) and isinstance(call, ast.Call) and call.func is parent):
            if isinstance(parent, _LOOKS):
                continue
            return []
        if parent.attr in _FILLING and call.args:
            found.append(call.args[-1])
        elif parent.attr not in _READING:
            return []
    return found
