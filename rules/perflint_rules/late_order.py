"""Numbers that stand before a read, and are evaluated behind its tensor once the runtime takes both: no rule by itself."""

import ast
from collections.abc import Iterable, Iterator

from perflint.api import (
    Code,
    Kind,
    Obligation,
    functions_see,
)
from perflint_rules.quiet_code import only_computes


def out_of_order(code: Code, first: Iterable[ast.expr], tensors: Iterable[ast.expr]) -> Iterator[Obligation]:
    """What stands against it that some expressions are evaluated behind tensors that stood behind them."""
    changing = [tensor for tensor in tensors if not all(only_computes(code, part) for part in ast.walk(tensor))]
    for number in first:
        for tensor in changing:
            if not _stays(code, number, tensor):
                words = f"`{ast.unparse(tensor)}` may change `{ast.unparse(number)}`, which is evaluated before it"
                yield Obligation(Kind.VALUE, words)


def _stays(code: Code, number: ast.expr, tensor: ast.expr) -> bool:
    """Whether an expression gives the same, whatever the functions do that a tensor comes from."""
    flow = code.flow
    match number:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            shared = (
                functions_see(code.scope.module, name) if code.scope.is_module else name in flow.inner_names | flow.outer_names
            )
            return not shared and not any(isinstance(part, ast.NamedExpr) for part in ast.walk(tensor))
    return False
