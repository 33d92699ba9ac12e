"""Numbers that stand before a read, and are evaluated behind its tensor once the runtime takes both: no rule by itself."""

import ast
from collections.abc import Iterable, Iterator

from perflint.api import (
    Alternative,
    Code,
    External,
    Kind,
    Object,
    Obligation,
    Tensor,
    functions_see,
    is_known_function,
    operations,
)

_COMPUTING = (ast.Name, ast.Constant, ast.Tuple, ast.List, ast.keyword, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop)


def out_of_order(code: Code, first: Iterable[ast.expr], tensors: Iterable[ast.expr]) -> Iterator[Obligation]:
    """What stands against it that some expressions are evaluated behind tensors that stood behind them."""
    changing = [tensor for tensor in tensors if not all(_only_computes(code, part) for part in ast.walk(tensor))]
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


def _only_computes(code: Code, part: ast.AST) -> bool:
    """Whether a part of an expression computes tensors, and changes nothing but perhaps their numbers."""
    match part:
        case ast.Call(func=ast.Attribute(value=receiver, attr=name)) if code.value(receiver).must_be(Tensor):
            row = operations.method(name)
            return row is not None and not row.writes
        case ast.Call(func=func):
            return code.value(func).must(_is_of_torch)
        case ast.BinOp() | ast.UnaryOp() | ast.Compare():
            return code.value(part).must_be(Tensor)
        case ast.Attribute():
            called = code.flow.parent.get(part)
            return (isinstance(called, ast.Call) and called.func is part) or code.value(part).must_be(External)
    return isinstance(part, _COMPUTING)


def _is_of_torch(alternative: Alternative) -> bool:
    return isinstance(alternative, (External, Object)) and is_known_function(alternative.qualname)
