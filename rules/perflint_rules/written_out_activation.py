"""An activation is written out of several operations where torch has one.

## What it does
Finds `x * torch.sigmoid(x)`, `torch.log(torch.softmax(x, ...))`, `x * torch.tanh(F.softplus(x))`, and GELU by `torch.erf` or by
`torch.tanh`: `0.5 * x * (1 + torch.erf(x / math.sqrt(2)))`.

## Why it is slow
Each operation is a kernel that reads and writes the whole tensor, and each keeps what its backward pass needs: `x` and
`sigmoid(x)` for the product, `x` alone for `F.silu`. The logarithm of a softmax also loses digits that `F.log_softmax` keeps.

## Example
```python
class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)
```

## Use instead
```python
class Swish(nn.Module):
    def forward(self, x):
        return F.silu(x)
```

## When it stays silent
When the two sides are not the same expression, and where the softmax is used for something else, too.

## Fix safety
There is no fix: the last digits differ.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, rule

_SIGMOIDS = ("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit")
_SOFTMAXES = ("torch.softmax", "torch.nn.functional.softmax")
_ERFS = ("torch.erf", "torch.special.erf")
_TANHS = ("torch.tanh", "torch.nn.functional.tanh")


@rule(
    category="memory",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("sigmoid(", "softmax(", "softplus(", "erf(", "0.044715")],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each activation that torch has as one function."""
    for node in code.flow.order:
        match node:
            case ast.BinOp(op=ast.Mult() | ast.Div()) if (gelu := _gelu(code, node)) is not None:
                yield code.finding(node, f"this takes several kernels and keeps what each needs; `{gelu}` is one")
            case ast.BinOp(op=ast.Mult(), left=left, right=right):
                for x, factor in ((left, right), (right, left)):
                    new = _factor(code, factor, ast.unparse(x))
                    if new is not None:
                        yield code.finding(node, f"this takes several kernels and keeps what each needs; `{new}` is one")
            case ast.Call() if (inner := _operand(code, node, "log", ("torch.log",))) is not None:
                if isinstance(inner, ast.Call) and _operand(code, inner, "softmax", _SOFTMAXES) is not None:
                    yield code.finding(node, "this takes two kernels and loses digits; `F.log_softmax` is one")


def _factor(code: Code, node: ast.expr, x: str) -> str | None:
    """The function that a product with `x` is, for a factor computed from `x`."""
    if not isinstance(node, ast.Call):
        return None
    inner = _operand(code, node, "sigmoid", _SIGMOIDS)
    if inner is not None:
        return "F.silu" if ast.unparse(inner) == x else None
    inner = _operand(code, node, "tanh", _TANHS)
    if isinstance(inner, ast.Call) and code.is_external(inner.func, "torch.nn.functional.softplus"):
        return "F.mish" if len(inner.args) == 1 and not inner.keywords and ast.unparse(inner.args[0]) == x else None
    return None


def _gelu(code: Code, node: ast.BinOp) -> str | None:
    """The form of GELU that a whole product is: half of `x` times one more than `erf` or `tanh` of something with `x`."""
    parent = code.flow.parent.get(node)
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.Mult, ast.Div)):
        return None
    factors = _factors(node)
    halves = [f for f in factors if isinstance(f, ast.Constant) and f.value in (0.5, 2)]
    raised = [f for f in factors if isinstance(f, ast.BinOp) and isinstance(f.op, ast.Add)]
    if len(factors) != 3 or len(halves) != 1 or len(raised) != 1:
        return None
    (x,) = (ast.unparse(f) for f in factors if f not in (halves[0], raised[0]))
    match (raised[0].left, raised[0].right):
        case (ast.Constant(value=1), ast.Call() as call) | (ast.Call() as call, ast.Constant(value=1)):
            scaled, curved = _operand(code, call, "erf", _ERFS), _operand(code, call, "tanh", _TANHS)
            if isinstance(scaled, ast.BinOp) and x in (ast.unparse(scaled.left), ast.unparse(scaled.right)):
                return "F.gelu"
            if curved is not None and x in map(ast.unparse, ast.walk(curved)) and "0.044715" in ast.unparse(curved):
                return 'F.gelu(..., approximate="tanh")'
    return None


def _factors(node: ast.expr) -> list[ast.expr]:
    """What a product is of; a division by two is a factor, too."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return [*_factors(left), *_factors(right)]
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=2) as half):
            return [*_factors(left), half]
    return [node]


def _operand(code: Code, call: ast.Call, method: str, functions: tuple[str, ...]) -> ast.expr | None:
    """What a function, or the method of that name, is computed of."""
    if call.args and code.is_external(call.func, *functions):
        return call.args[0]
    if (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == method
        and not isinstance(call.func.value, ast.Name | ast.Call)
    ):
        return None
    if isinstance(call.func, ast.Attribute) and call.func.attr == method and not code.is_external(call.func.value, "torch"):
        return call.func.value if method == "softmax" or not call.args else None
    return None
