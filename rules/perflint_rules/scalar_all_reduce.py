"""Each number of a step is reduced by a collective of its own.

## What it does
Finds several `torch.distributed.all_reduce(...)` or `reduce(...)` of single numbers in a row, in code that runs each step.

## Why it is slow
Each collective makes all processes meet, and its latency does not depend on whether it carries one number or a thousand. One
of a stacked tensor costs as much as the first.

## Example
```python
import torch.distributed as dist

def step(model, loader, criterion):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        total = loss.detach().sum()
        count = torch.tensor(1.0, device=device)
        dist.all_reduce(total)
        dist.all_reduce(count)
```

## Use instead
```python
import torch.distributed as dist

def step(model, loader, criterion):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        both = torch.stack([loss.detach().sum(), torch.tensor(1.0, device=device)])
        dist.all_reduce(both)
```

## When it stays silent
For a single one, for tensors of unknown size, and under a guard.

## Fix safety
There is no fix: the numbers have to be of one type, and reduced in the same way.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, Tensor, rule

_REDUCES = ("torch.distributed.all_reduce", "torch.distributed.reduce")


@rule(category="distributed", costs=Cost.WAIT, severity=Severity.INFO, calls=_REDUCES, steps=True)
def check(code: Code) -> Iterator[Finding]:
    """Report the second of several reductions of single numbers in one step."""
    seen: dict[ast.AST, ast.Call] = {}
    for call in code.calls_to(*_REDUCES):
        if (
            not call.args
            or not code.is_hot(call)
            or not code.value(call.args[0]).may(lambda a: isinstance(a, Tensor) and a.ndim == 0)
        ):
            continue
        block = code.flow.block[call].node
        if block in seen:
            line = seen[block].lineno
            yield code.finding(
                call, f"all processes meet once more for a single number, as in line {line}; stack them, and reduce once"
            )
        seen.setdefault(block, call)
