"""Branches that only ask whether a mask selects anything, before they write by it, or only warn: no rule by itself."""

import ast
from typing import TypeGuard

from perflint.api import Code, HostRead, ReadKind, Tensor, is_message, path_of


def guards_writes(code: Code, read: HostRead) -> bool:
    """Whether a condition asks no more than whether a mask selects anything to write to: `if mask.any(): x[mask] = y[mask]`."""
    statement = code.flow.statement(read.node)
    mask = _asked_for_any(read.tensor) if read.kind is ReadKind.TRUTH else None
    if mask is None or isinstance(code.flow.parent.get(read.node), ast.UnaryOp) or not only_writes(statement):
        return False
    chosen = _written_items(statement.body)
    return all(
        item is not None and any(path_of(key) == mask and _is_mask(code, key) for key in ast.walk(item)) for item in chosen
    )


def only_writes(statement: ast.stmt) -> TypeGuard[ast.If]:
    """Whether a branch does nothing but write to items: `if mask.any(): x[mask] = y[mask]`."""
    return isinstance(statement, ast.If) and not statement.orelse and None not in _written_items(statement.body)


def _written_items(body: list[ast.stmt]) -> list[ast.expr | None]:
    """The index of the item that each statement writes to; None for one that does something else."""
    found: list[ast.expr | None] = []
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Subscript(slice=chosen)]) | ast.AugAssign(target=ast.Subscript(slice=chosen)):
                found.append(chosen)
            case _:
                found.append(None)
    return found


def _asked_for_any(test: ast.expr) -> str | None:
    """The mask of which a condition asks whether it selects anything: `mask.any()`, `torch.sum(mask) > 0`."""
    match test:
        case ast.Compare(left=counted, ops=[ast.Gt() | ast.NotEq()], comparators=[ast.Constant(value=0)]):
            return _asked_for_any(counted) if "sum" in ast.unparse(counted) else None
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="any" | "sum"), args=[mask], keywords=[]):
            return path_of(mask)
        case ast.Call(func=ast.Attribute(value=mask, attr="any" | "sum"), args=[], keywords=[]):
            return path_of(mask)
    return None


def _is_mask(code: Code, node: ast.AST) -> bool:
    return isinstance(node, ast.expr) and code.value(node).may(lambda a: isinstance(a, Tensor) and a.dtype == "bool")


def only_warns(statement: ast.AST) -> bool:
    """Whether a condition decides about nothing but an error or a message."""
    match statement:
        case ast.Assert():
            return True
        case ast.If(body=[*says, last], orelse=[]):
            return isinstance(last, ast.Raise) or all(map(is_message, (*says, last)))
    return False
