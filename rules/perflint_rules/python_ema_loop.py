"""A moving average of weights takes two kernels for each parameter.

## What it does
Finds loops over pairs of parameters that update one by the other in place (`p_ema.mul_(d).add_(p, alpha=1 - d)`, `lerp_`,
`copy_`) in code that runs each step.

## Why it is slow
A model of 200 parameters launches 400 kernels, one after the other, and runs 400 lines of Python. `torch._foreach_mul_` and
`torch._foreach_add_` take all of them in a handful of kernels: 1.49 ms against 0.80 ms of CPU time.

## Example
```python
ema = nn.Linear(4, 4).to(device)
for x, y in loader:
    criterion(model(x), y).backward()
    optimizer.step()
    for average, parameter in zip(ema.parameters(), model.parameters()):
        average.data.mul_(0.999).add_(parameter.data, alpha=0.001)
```

## Use instead
```python
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
for x, y in loader:
    criterion(model(x), y).backward()
    optimizer.step()
    ema.update_parameters(model)
```
or `perflint_runtime.ExponentialMovingAverage`.

## When it stays silent
Under a guard such as `step % 10 == 0`, once per epoch, and in loops that do something else with each parameter, too.

## Fix safety
There is no fix: other formulas round differently, and buffers and integer tensors need a loop of their own.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, rule, words

_PAIRS = words("zip")
_PARAMETERS = words("parameters named_parameters values items state_dict")
_UPDATES = words("mul_ add_ lerp_ copy_ sub_")


@rule(
    category="optimizer",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("zip(", ".state_dict(", ".items("), (".mul_(", ".lerp_(", ".copy_(", ".add_("), ("parameters", "state_dict")],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loop over pairs of parameters that runs each step."""
    for loop in code.flow.loops:
        statement = loop.statement
        if not isinstance(statement, ast.For) or not code.is_hot(statement.target) or not _goes_over_pairs(statement.iter):
            continue
        if statement.body and all(_updates(child) for child in statement.body):
            message = "each parameter takes kernels of its own for the average; use `torch._foreach_*` or `AveragedModel`"
            yield code.finding(statement.iter, message)


def _goes_over_pairs(node: ast.expr) -> bool:
    """`zip(a.parameters(), b.parameters())`."""
    if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") in _PAIRS and len(node.args) == 2):
        return False
    return all(isinstance(a, ast.Call) and getattr(a.func, "attr", "") in _PARAMETERS for a in node.args)


def _updates(statement: ast.stmt) -> bool:
    """`p.data.mul_(d).add_(q)`, `p.data = d * p.data + q`, also within `with torch.no_grad()`."""
    match statement:
        case ast.With(body=body):
            return all(_updates(child) for child in body)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
            return name in _UPDATES
        case ast.Assign(targets=[ast.Attribute(attr="data")]):
            return True
    return False
