"""A forward pass builds the same mask again each time.

## What it does
Finds `torch.tril(torch.ones(n, n))` and `torch.triu(...)` in code that runs each step, of sizes that are attributes or
constants.

## Why it is slow
Two kernels fill a matrix that was the same the last time, and without `device=` it is copied to the GPU, too. A buffer is
built once, and moves with the module.

## Example
```python
class Attention(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.length = length

    def forward(self, scores):
        mask = torch.tril(torch.ones(self.length, self.length))
        return scores * mask.to(scores.device)
```

## Use instead
```python
class Attention(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(length, length)), persistent=False)

    def forward(self, scores):
        return scores * self.mask
```

## When it stays silent
When the size depends on the input (a shape), under a condition such as a cache, and outside of code that runs each step.

## Fix safety
There is no fix: a buffer is shared by all calls, so nobody may write to it.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Option, Severity, is_conditional, rule

_METHODS = Option("forward-methods", (), "Names of further methods that count as a forward pass")
_SHAPES = ("torch.tril", "torch.triu")
_FILLS = ("torch.ones", "torch.zeros", "torch.full")


@rule(category="memory", costs=Cost.LAUNCH, severity=Severity.INFO, calls=_SHAPES, options=[_METHODS])
def check(code: Code) -> Iterator[Finding]:
    """Report each mask of a constant size."""
    for call in code.calls_to(*_SHAPES):
        filled = call.args[0] if call.args else None
        if not isinstance(filled, ast.Call) or not code.is_external(filled.func, *_FILLS) or not filled.args:
            continue
        runs = code.is_hot(call) or code.scope.name in code.option(_METHODS)
        if runs and not is_conditional(code.scope, call) and all(_is_constant(code, size) for size in filled.args):
            yield code.finding(call, "the same mask is built in every step; register it as a buffer once")


def _is_constant(code: Code, node: ast.expr) -> bool:
    """Whether a size is a number, an attribute of `self`, or made of these."""
    match node:
        case ast.Constant() | ast.UnaryOp(operand=ast.Constant()) | ast.Call(func=ast.Name(id="float"), args=[ast.Constant()]):
            return True
        case ast.Attribute(value=ast.Name(id="self")):
            return not code.flow.reaching.get(node)
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self")), attr=name):
            return name not in ("shape", "size")
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(_is_constant(code, part) for part in parts)
        case ast.BinOp(left=left, right=right):
            return _is_constant(code, left) and _is_constant(code, right)
    return False
