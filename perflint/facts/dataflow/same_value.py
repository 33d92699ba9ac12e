"""Which definitions several uses see in one iteration: whether they are uses of the same value, and what that comes from."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import Flow


def single_definition(flow: Flow, *uses: ast.expr) -> Definition | None:
    """The one definition that reaches all uses in one iteration (D1); None when there is none."""
    found = {flow.reaching.get(use, frozenset()) for use in uses}
    if len(found) != 1:
        return None
    (definitions,) = found
    if len(definitions) != 1:
        return None
    (definition,) = definitions
    first = min(flow.order[use] for use in uses)
    if definition.kind == "parameter":
        return definition
    if definition.order >= first:
        return None
    if not all(any(b is definition.block for b in flow.block[use].ancestry()) for use in uses):
        return None
    return definition


def step_definitions(flow: Flow, *uses: ast.expr) -> list[Definition]:
    """The definitions that reach all uses in one iteration (D1): one, or one for each branch; empty when that is not certain.

    Each path through the iteration comes through one of them before the first use, so no older value reaches the uses.
    """
    single = single_definition(flow, *uses)
    if single is not None:
        return [single]
    found = {flow.reaching.get(use, frozenset()) for use in uses}
    if len(found) != 1:
        return []
    (definitions,) = found
    first = min(uses, key=flow.order.__getitem__)
    low = flow.order[first]
    if not definitions or not all(d.kind in ("assign", "augmented") and d.order < low for d in definitions):
        return []
    targets = {id(d.node) for d in definitions}
    for block in flow.block[first].ancestry():
        if not all(flow.within(use, block) for use in uses):
            continue
        top = flow.top(first, block)
        before = [s for s in flow.siblings(top) if flow.order[s] < flow.order[top]] if top is not None else []
        if _binds(flow, before, targets):
            return sorted(definitions, key=lambda d: d.order)
        if block.kind in ("loop", "loop-else"):
            return []  # what is bound further out is older than the iteration
    return []


def first_definitions(flow: Flow, *definitions: Definition) -> list[Definition]:
    """Some definitions, and those whose objects they may bind again: `a += b` leaves `a` the object that it was."""
    found = [*definitions]
    for definition in found:
        if definition.kind == "augmented":
            assert isinstance(definition.node, ast.expr)
            earlier = flow.reaching.get(definition.node, frozenset())
            found += sorted((d for d in earlier if d not in found), key=lambda d: d.order)
    return found


def names_behind(flow: Flow, *names: str, but_for: ast.expr | None = None) -> set[str]:
    """Some variables, and those from which they are computed anywhere in the scope.

    but_for: an expression; what the values that hold it are computed from does not count.
    """
    found: set[str] = set()
    pending = [*names]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            for value in (d.value for d in flow.definitions_of(name) if d.value is not None):
                inside = list(ast.walk(value))
                if all(node is not but_for for node in inside):
                    pending += [node.id for node in inside if isinstance(node, ast.Name)]
    return found


def _binds(flow: Flow, statements: list[ast.stmt], targets: set[int]) -> bool:
    """Whether whoever comes through the statements comes through one of the targets."""
    for statement in statements:
        match statement:
            case ast.Assign(targets=assigned):
                if any(id(part) in targets for target in assigned for part in ast.walk(target)):
                    return True
            case ast.AugAssign(target=target):
                if id(target) in targets:
                    return True
            case ast.With(body=body) if Flow.always(flow.block[body[0]]) is Flow.always(flow.block[statement]):
                if _binds(flow, body, targets):
                    return True
            case ast.If(body=body, orelse=orelse):
                if all(_binds(flow, arm, targets) for arm in (body, orelse)):
                    return True
            case ast.Try(body=body, handlers=handlers, finalbody=final):
                if all(_binds(flow, part, targets) for part in (body, *(h.body for h in handlers))):
                    return True
                if _binds(flow, final, targets):
                    return True
            case ast.Continue() | ast.Break() | ast.Return() | ast.Raise():
                return True
    return False
