"""What is done with an object that takes reads, where somebody looks at it: no rule by itself."""

import ast
from collections.abc import Iterable

from perflint.api import CannotRewrite, Code, Definition, External, Flow, path_of
from perflint_rules.late_takes import Take


def only_computes(code: Code, use: ast.expr) -> bool:
    """Whether a list, or a part of it, goes into a function that keeps nothing of it."""
    node: ast.AST = use
    while isinstance(parent := code.flow.parent.get(node), ast.Subscript) and parent.value is node:
        node = parent
    call = code.flow.parent.get(node)
    if not isinstance(call, ast.Call) or node not in call.args:
        return False
    name = path_of(call.func) or ""
    if name in _LOOKING:
        return code.means_builtin(name)
    return code.value(call.func).must(lambda a: isinstance(a, External) and a.qualname in _COMPUTING)


def is_set(flow: Flow, use: ast.expr) -> bool:
    """`values["step"] = step`, `values["seen"] += n`"""
    parent = flow.parent.get(use)
    is_target = isinstance(parent, ast.Subscript) and parent.value is use and isinstance(parent.ctx, ast.Store)
    return is_target and isinstance(flow.statement(use), (ast.Assign, ast.AugAssign))


def require_own_lists(code: Code, takes: Iterable[Take], starts: Iterable[Definition], uses: Iterable[ast.expr]) -> None:
    """That nobody else holds the lists of a dict to which reads are appended.

    Raises:
        CannotRewrite: one may have another name.

    """
    if all(take.method != "append_item" for take in takes):
        return
    sets = [code.flow.statement(use) for use in uses if is_set(code.flow, use)]
    held = [value for start in starts if isinstance(start.value, ast.Dict) for value in start.value.values]
    held += [statement.value for statement in sets if isinstance(statement, (ast.Assign, ast.AugAssign))]
    if not all(isinstance(value, (ast.List, ast.Constant)) for value in held):
        raise CannotRewrite("somebody else may hold a list of the dict")


def gives_number(code: Code, use: ast.expr, takes: Iterable[Take]) -> bool:
    """Whether one value is taken out of a dict, or put into it, and can be no list that still grows."""
    parent = code.flow.parent.get(use)
    if not isinstance(parent, ast.Subscript) or parent.value is not use:
        return False
    return isinstance(parent.ctx, ast.Store) or all(take.method != "append_item" for take in takes)


_LOOKING = frozenset(("len", "sum", "min", "max", "any", "all"))
_COMPUTING = frozenset(
    f"{module}.{name}"
    for module in ("numpy", "statistics", "math")
    for name in ("mean", "average", "sum", "std", "var", "median", "min", "max", "fsum", "nanmean", "concatenate")
)
