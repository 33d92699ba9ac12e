"""Gradients are reduced over all processes for batches that only add to them.

## What it does
Finds training loops that step every k batches in files that wrap the model in `DistributedDataParallel` and never use
`no_sync`.

## Why it is slow
Each backward pass reduces all gradients over the network, also those whose step comes later: k times the traffic, of which the
last pass alone is needed. About 5 % of a step's time in one report (composer#9), more on slow networks.

## Example
```python
from torch.nn.parallel import DistributedDataParallel

ddp = DistributedDataParallel(model)
for i, (x, y) in enumerate(loader):
    criterion(ddp(x), y).backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead
```python
import contextlib

from torch.nn.parallel import DistributedDataParallel

ddp = DistributedDataParallel(model)
for i, (x, y) in enumerate(loader):
    steps = (i + 1) % 4 == 0
    with contextlib.nullcontext() if steps else ddp.no_sync():
        criterion(ddp(x), y).backward()
    if steps:
        optimizer.step()
        optimizer.zero_grad()
```

## When it stays silent
When the program names `no_sync` or `require_backward_grad_sync`, and when each batch is a step.

## Fix safety
There is no fix: the forward pass has to run within `no_sync`, too.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, is_guard, is_optimizer, is_scaler, rule

_TOLD = re.compile(rb"no_sync|require_backward_grad_sync|set_requires_gradient_sync|\baccelerat")


@rule(
    category="distributed",
    costs=Cost.COPY,
    severity=Severity.INFO,
    needs=[(".backward(",), (".step(",), ("%",)],
    in_file=[("DistributedDataParallel",)],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each backward pass of a loop whose step is guarded."""
    for step in code.calls("step"):
        loop = code.flow.loop(step)
        if loop is None or not isinstance(step.func, ast.Attribute) or not is_guard(code.flow, code.flow.block[step]):
            continue
        if "%" not in ast.unparse(getattr(code.flow.block[step].node, "test", ast.Constant(value=0))):
            continue
        if not code.value(step.func.value).may(lambda a: is_optimizer(a) or is_scaler(a)):
            continue
        always = [c for c in code.calls("backward") if code.flow.block[c] is loop.block]
        if always and not code.facts.project.program_may_hold(code.source.path, _TOLD):
            yield code.finding(
                always[0], "gradients are reduced over all processes for each batch; use `no_sync()` where no step follows"
            )
            return
