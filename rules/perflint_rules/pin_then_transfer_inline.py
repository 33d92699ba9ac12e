"""A batch is pinned in the line that copies it.

## What it does
Finds `x.pin_memory().to(device, non_blocking=True)` for a batch of a loader, in code that runs each step.

## Why it is slow
Pinning allocates page-locked memory and copies the batch into it, on the CPU, in the step. A loader with `pin_memory=True`
does that in a thread of its own while the step before runs. torch's tutorial on `pin_memory` measures pinning right before
the copy as slower than a copy from pageable memory; where much work is queued on the GPU it may still pay, because such a
copy waits for it.

## Example
```python
for x, y in DataLoader([]):
    out = model(x.pin_memory().to(device, non_blocking=True))
```

## Use instead
```python
for x, y in DataLoader([], pin_memory=True):
    out = model(x.to(device, non_blocking=True))
```

## When it stays silent
Outside of code that runs each step, for what comes from no loader, and where pinning and copying are apart.

## Fix safety
There is no fix: the loader is made elsewhere.
"""

import ast
from collections.abc import Iterator

from perflint.api import Batch, Code, Cost, Finding, Severity, any_layout, rule


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.INFO,
    needs=[(any_layout(rb"\. pin_memory \( \) \. (?:to|cuda) \("),)],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each copy of a batch that is pinned for it."""
    for call in code.calls("to", "cuda"):
        match call.func:
            case ast.Attribute(value=ast.Call(func=ast.Attribute(value=inner, attr="pin_memory"), args=[], keywords=[])):
                if code.is_hot(call) and code.value(inner).may_be(Batch):
                    message = (
                        "the CPU copies the batch into pinned memory in every step; let the loader pin it (`pin_memory=True`)"
                    )
                    yield code.finding(call, message)
