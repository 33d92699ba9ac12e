"""Gradients are changed one parameter at a time.

## What it does
Finds loops over the parameters of a model that clamp, scale or clear each gradient (`p.grad.data.clamp_(-1, 1)`,
`p.grad.zero_()`) in code that runs each step.

## Why it is slow
A model of 200 parameters takes 200 small kernels and 200 rounds of Python, where `clip_grad_value_`, `clip_grad_norm_`,
`torch._foreach_mul_` and `optimizer.zero_grad()` take a handful of kernels for all of them.

## Example
```python
for x, y in loader:
    criterion(model(x), y).backward()
    for p in model.parameters():
        p.grad.data.clamp_(-1, 1)
    optimizer.step()
```

## Use instead
```python
for x, y in loader:
    criterion(model(x), y).backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 1)
    optimizer.step()
```

## When it stays silent
Outside of code that runs each step, under a guard, and for loops that do something else, too.

## Fix safety
There is no fix: `clip_grad_value_` has one bound for both sides, and `zero_grad` clears the optimizer's parameters, which may
be others.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Rate, Severity, any_layout, rate_of, rule, words

_CHANGES = words("clamp_ clip_ mul_ div_ zero_ nan_to_num_ copy_ detach_")


@rule(
    category="optimizer",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("param",), (any_layout(rb"\. grad\b"),), ("for",)],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loop that changes gradients and does nothing else."""
    for loop in code.flow.loops:
        statement = loop.statement
        if not isinstance(statement, ast.For) or not code.is_hot(statement.target):
            continue
        if all(map(_changes_gradient, statement.body)) and not all(map(_drops_gradient, statement.body)):
            if rate_of(code.facts, code.scope, statement.body[0]) is Rate.PER_PARAMETER:
                yield code.finding(
                    statement.iter,
                    "each gradient takes a kernel of its own; use `clip_grad_*`, `zero_grad` or `torch._foreach_*`",
                )


def _drops_gradient(statement: ast.stmt) -> bool:
    """`p.grad = None`: no kernel runs."""
    inner = statement.body[0] if isinstance(statement, ast.If) and len(statement.body) == 1 else statement
    return isinstance(inner, ast.Assign)


def _changes_gradient(statement: ast.stmt) -> bool:
    """`p.grad.data.clamp_(-1, 1)`, `p.grad = None`, also under a condition."""
    match statement:
        case ast.If(body=body, orelse=[]):
            return all(map(_changes_gradient, body))
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=value, attr=name))):
            return name in _CHANGES and ".grad" in ast.unparse(value)
        case ast.Assign(targets=[ast.Attribute(attr="grad")], value=ast.Constant(value=None)):
            return True
        case ast.AugAssign(target=target, op=ast.Mult() | ast.Div()):
            return ".grad" in ast.unparse(target)
    return False
