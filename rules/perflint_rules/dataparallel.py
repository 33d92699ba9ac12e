"""Several GPUs are fed by one process.

## What it does
Finds `torch.nn.DataParallel(...)`.

## Why it is slow
In each step one process copies the model to every GPU, scatters the batch, runs one thread per GPU under Python's lock, and
gathers outputs and gradients on the first one. torch's own documentation recommends `DistributedDataParallel`, one process
per GPU, even on a single machine.

## Example
```python
model = nn.DataParallel(model)
```

## Use instead
```python
from torch.nn.parallel import DistributedDataParallel

model = DistributedDataParallel(model, device_ids=[device])
```
in a program that `torchrun --nproc-per-node gpu train.py` starts; each process reads its share through a
`DistributedSampler`.

## When it stays silent
For wrappers of other libraries, for `isinstance(model, nn.DataParallel)`, and where the file lets the program see one device
only: `DataParallel` calls the model itself there.

## Fix safety
There is no fix: the program has to be started in another way.
"""

from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, any_layout, rule

_ONE_DEVICE = any_layout(rb"CUDA_VISIBLE_DEVICES['\"] \] = ['\"]\d+['\"]")
"""With one device, `DataParallel` calls the model itself."""


@rule(category="distributed", costs=Cost.COPY, severity=Severity.INFO, calls=["torch.nn.DataParallel"])
def check(code: Code) -> Iterator[Finding]:
    """Report each model that one process runs on several GPUs."""
    if code.facts.project.holds(code.source.path, _ONE_DEVICE):
        return
    for call in code.calls_to("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
        message = (
            "one process copies the model to each GPU in every step; use `DistributedDataParallel`, a process for each GPU"
        )
        yield code.finding(call, message)
