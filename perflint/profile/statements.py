"""From rows to statements: a measurement knows the row, a reader thinks in statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Statement:
    """Rows from 1. `first` to `last` are its own; `block_end` is the last row of what it encloses, such as a loop's body."""

    first: int
    last: int
    block_end: int


def statements(text: bytes) -> dict[int, Statement]:
    """The statement that each row of a file belongs to, the innermost one; rows without code have none.

    Raises:
        SyntaxError: the text cannot be parsed.

    """
    found: dict[int, Statement] = {}
    for statement in _in_order(ast.parse(text)):
        for row in range(statement.first, statement.last + 1):
            found.setdefault(row, statement)  # several in one row are one to a measurement
    return found


def _in_order(tree: ast.AST) -> Iterator[Statement]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            end = node.end_lineno or node.lineno
            first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
            inner = [child.lineno for name in ("body", "cases") for child in _block(node, name)]
            yield Statement(first, max(first, min(inner) - 1) if inner else end, end)


def _block(node: ast.stmt, name: str) -> list[ast.stmt]:
    block = getattr(node, name, [])
    return [case.body[0] for case in block] if name == "cases" else block
