"""DistributedDataParallel looks for unused parameters in every step.

## What it does
Finds `DistributedDataParallel(..., find_unused_parameters=True)`.

## Why it is slow
Before each backward pass the whole graph is walked on the CPU to find parameters without a gradient, and the first buckets
cannot be reduced while it is walked. torch warns when it has found none.

## Example
```python
from torch.nn.parallel import DistributedDataParallel

model = DistributedDataParallel(model, find_unused_parameters=True)
```

## Use instead
```python
from torch.nn.parallel import DistributedDataParallel

model = DistributedDataParallel(model)
```
or `static_graph=True`, where the same parameters are used in each step.

## When it stays silent
When the value is no literal, and with `static_graph=True`.

## Fix safety
There is no fix: a model that does leave parameters out then waits for their gradients for ever, or raises.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, rule

_DDP = "torch.nn.parallel.DistributedDataParallel"


@rule(category="distributed", costs=Cost.LAUNCH, severity=Severity.INFO, calls=[_DDP], needs=[("find_unused_parameters=True",)])
def check(code: Code) -> Iterator[Finding]:
    """Report each wrapper that walks the graph in each step."""
    for call in code.calls_to(_DDP):
        given = {k.arg: k.value for k in call.keywords}
        match given.get("find_unused_parameters"):
            case ast.Constant(value=True) if "static_graph" not in given:
                yield code.finding(
                    call,
                    "the whole graph is walked in every step; leave it out if all parameters are used",
                )
