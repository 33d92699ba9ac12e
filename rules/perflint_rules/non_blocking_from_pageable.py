"""A copy is asked not to wait, and waits.

## What it does
Finds `torch.from_numpy(a).to(device, non_blocking=True)`, also of `torch.tensor(...)`, `torch.zeros(...)` and the like, and
of what `torch.cat` or `torch.stack` joins on the host, be it pinned or not, in code that runs each step.

## Why it is slow
Only copies from pinned memory run beside the CPU. From pageable memory the driver first copies to a staging buffer of its
own, for which it may wait until the work that is queued is done; the call returns when all is staged. `non_blocking=True`
spares torch's own wait for the end of the copy, and no more ([CUDA on synchronization][1], [PyTorch's tutorial][2]).

[1]: https://docs.nvidia.com/cuda/cuda-driver-api/api-sync-behavior.html
[2]: https://pytorch.org/tutorials/intermediate/pinmem_nonblock.html

## Example
```python
for x, y in loader:
    noise = torch.from_numpy(np.random.rand(8)).to(device, non_blocking=True)
    out = model(noise)
```

## Use instead
```python
for x, y in loader:
    noise = torch.rand(8, device=device)
    out = model(noise)
```
or build it in the loader, which pins what it collates. `pin_memory()` on the spot gains nothing: it copies, too.

## When it stays silent
For batches of a loader, which may be pinned, with `pin_memory`, and outside of code that runs each step.

## Fix safety
There is no fix: the numbers would have to come from elsewhere. Leaving the argument out only adds a wait.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, any_layout, argument, rule
from perflint_rules.pageable import is_pageable, made_in_step


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.INFO,
    needs=[
        ("non_blocking=True",),
        (any_layout(rb"\b(?:from_numpy|tensor|zeros|ones|full|rand|randn|arange|cat|concat|\w*stack) \("),),
    ],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each copy that cannot run beside the CPU."""
    for call in code.calls("to", "cuda"):
        asked = argument(call, None, "non_blocking")
        if not isinstance(call.func, ast.Attribute) or not isinstance(asked, ast.Constant) or asked.value is not True:
            continue
        if code.is_hot(call) and is_pageable(code, made_in_step(code, call.func.value), call.func.value):
            yield code.finding(
                call,
                "this memory is not pinned, so the copy may wait all the same; make it on the device, or in the loader",
            )
