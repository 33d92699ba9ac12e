"""An operation has to look at its data for a size that could have been given.

## What it does
Finds `torch.repeat_interleave(x, repeats)` without `output_size` and `F.one_hot(x)` without `num_classes` in code that runs
each step.

## Why it is slow
The CPU waits for the device to learn the sum of the repeats, or the largest class; `one_hot` waits twice, for the smallest,
too.

## Example
```python
for x, y in loader:
    target = F.one_hot(y.cuda())
    criterion(model(x.cuda()), target).backward()
```

## Use instead
```python
for x, y in loader:
    target = F.one_hot(y.cuda(), num_classes=10)
    criterion(model(x.cuda()), target).backward()
```

## When it stays silent
When the size is given, for repeats that are Python numbers, for tensors on the host, and in code that does not run each
step.

## Fix safety
There is no fix: only you know the number of classes; data that lacks the highest one would have another shape.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Road, Severity, rule

_SIZES = {"one_hot": "num_classes", "repeat_interleave": "output_size"}


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[tuple(_SIZES)],
    steps=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each size that is read from the device."""
    for wait in code.waits(Road.NUMBER, Road.SHAPE, at=lambda node: _called(node) in _SIZES):
        yield code.finding(
            wait.node, f"the CPU waits to learn the size; pass `{_SIZES[_called(wait.node)]}=`", waits=[wait.node]
        )


def _called(node: ast.expr) -> str:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name
    return ""
