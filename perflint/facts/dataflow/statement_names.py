"""Which names statements bind and read, by the text alone: what a function made of them would take and give."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perflint.facts.dataflow.definitions import path_of
from perflint.source.nodes import walk


def bound_names(target: ast.AST) -> Iterator[str]:
    """The names in a target."""
    return (node.id for node in walk(target) if isinstance(node, ast.Name))


def assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement may bind or delete."""
    found = {n.id for n in walk(statement) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return found - _comprehended(statement)


def assigned_in_order(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """The same for several statements, as they stand there."""
    for statement in statements:
        names = assigned(statement)
        found = [n for n in walk(statement) if isinstance(n, ast.Name) and n.id in names]
        yield from (n.id for n in sorted(found, key=lambda n: (n.lineno, n.col_offset)))


def surely_assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement binds whichever way it goes."""
    match statement:
        case ast.If(body=body, orelse=orelse):
            then, otherwise = (set[str]().union(*map(surely_assigned, branch)) for branch in (body, orelse))
            return then & otherwise
        case ast.With(items=items, body=body):
            held = (name for item in items if item.optional_vars is not None for name in bound_names(item.optional_vars))
            return set(held).union(*map(surely_assigned, body))
        case ast.For() | ast.While() | ast.Try() | ast.Match() | ast.Delete():
            return set()
    return assigned(statement)


def names_read(node: ast.AST) -> set[str]:
    """The names that a node reads."""
    found = {n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return found | (assigned(node) if isinstance(node, ast.AugAssign) else set())


def read_before_bound(statements: Sequence[ast.stmt]) -> set[str]:
    """The names that statements may read before they bind them."""
    reached: set[str] = set()
    found: set[str] = set()
    for statement in statements:
        found |= _read_first(statement) - reached
        reached |= assigned(statement)
    return found


def _read_first(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.If(test=test, body=body, orelse=orelse):
            return names_read(test) | read_before_bound(body) | read_before_bound(orelse)
        case ast.With(items=items, body=body):
            return set[str]().union(*map(names_read, items)) | read_before_bound(body)
        case ast.For(target=target, iter=iterated, body=body, orelse=orelse):
            return names_read(iterated) | (read_before_bound(body) - set(bound_names(target))) | read_before_bound(orelse)
    return names_read(statement) - _comprehended(statement)


def _comprehended(statement: ast.stmt) -> set[str]:
    return {name for c in walk(statement) if isinstance(c, ast.comprehension) for name in bound_names(c.target)}


def paths_in(node: ast.AST | None) -> set[str]:
    """The names and attributes that an expression is made from: `self.model.weight` with `self.model` and `self`."""
    return set() if node is None else {path_of(n) or "" for n in walk(node)} - {""}


def shown_target(target: ast.expr, wanted: set[str]) -> str:
    """A target as text, with `_` for the names that nobody wants."""
    names = set(bound_names(target)) & wanted
    match target:
        case ast.Name(id=name):
            return name if names else "_"
        case ast.Starred(value=value):
            return f"*{shown_target(value, wanted)}"
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if names:
            return f"({', '.join(shown_target(part, wanted) for part in parts)}{',' if len(parts) == 1 else ''})"
    return "_"
