"""Which statement binds a variable of a module, read off its own statements without following what they do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from perflint.source.nodes import walk
from perflint.source.source import Source
from perflint.source.words import made

_BINDS = made(rb"\bfor\b|:=")
"""What an expression that binds a name has in its text."""


_KINDS = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
_MAY_BIND = frozenset((ast.Name, ast.Pass, *(kind for kind in _KINDS if not {"name", "rest"}.isdisjoint(kind._fields))))
"""The kinds of nodes that may bind a name."""


class Binding(NamedTuple):
    """A plain statement of a module that binds a name: an import, a class, a function, a constant.

    node: what binds it, which is an alias in an import, and for a function of the skeleton its `pass`.
    """

    node: ast.stmt | ast.alias
    statement: ast.stmt


def bindings(tree: ast.Module, source: Source, functions: dict[int, str]) -> dict[str, Binding | None]:
    """The names that a module's own statements may bind: the statement if it is the only one and plain, else None.

    functions: the names of those that a `pass` stands for, by row.
    """
    found: dict[str, Binding | None] = {}
    for statement in tree.body:
        for name, node in _bound(statement, source, functions):
            found[name] = Binding(node, statement) if node is not None and name not in found else None
    return found


def _bound(statement: ast.stmt, source: Source, functions: dict[int, str]) -> Iterator[tuple[str, ast.stmt | ast.alias | None]]:
    """The names that a statement may bind, each with what binds it, or None where that is not plain to see."""
    parts: list[ast.AST] = []
    match statement:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            for alias in names:
                yield alias.asname or alias.name.partition(".")[0], alias
        case ast.ClassDef(name=name):
            yield name, statement
            parts = [*statement.decorator_list, *statement.bases, *statement.keywords]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name, statement
            parts = [*statement.decorator_list, statement.args]
        case ast.Pass():
            if statement.lineno in functions:
                yield functions[statement.lineno], statement
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant()):
            yield name, statement
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant()):
            yield name, statement
        case ast.Assign(targets=targets):
            parts = [statement] if _may_bind_inside(statement, source) else [*targets]
        case ast.Expr():
            parts = [statement] if _may_bind_inside(statement, source) else []
        case _:
            parts = [statement]
    for part in parts:
        for node in walk(part):
            if type(node) in _MAY_BIND:
                for name in _names(node, functions):
                    yield name, None


def _may_bind_inside(statement: ast.stmt, source: Source) -> bool:
    """Whether an expression of a statement may bind a name, as far as its text tells: some tables are very long."""
    starts = source.starts
    last = statement.end_lineno or statement.lineno
    end = starts[last] if last < len(starts) else len(source.body)
    return _BINDS.search(source.body, starts[statement.lineno - 1], end) is not None


def _names(node: ast.AST, functions: dict[int, str]) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.Pass():
            if node.lineno in functions:
                yield functions[node.lineno]
        case ast.alias(name=name, asname=asname):
            yield asname or name.partition(".")[0]
        case _:  # what is left are functions, classes, `except` and the patterns of `match`
            for field in ("name", "rest"):
                bound = getattr(node, field, None)
                if isinstance(bound, str):
                    yield bound
