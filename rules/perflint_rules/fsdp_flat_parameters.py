"""FullyShardedDataParallel hides the parameters behind flat ones.

## What it does
Finds `FullyShardedDataParallel(...)` without `use_orig_params`.

## Why it is slow
By default the parameters of a wrapped module become one flat tensor: the optimizer cannot treat some of them differently, and
`torch.compile` breaks its graph at each wrapped module. torch asks for `use_orig_params=True` with `torch.compile`.

## Example
```python
from torch.distributed.fsdp import FullyShardedDataParallel

model = FullyShardedDataParallel(model)
```

## Use instead
```python
from torch.distributed.fsdp import FullyShardedDataParallel

model = FullyShardedDataParallel(model, use_orig_params=True)
```
New code takes `fully_shard`, which has no flat parameters.

## When it stays silent
When the argument is given, also through `**kwargs`.

## Fix safety
There is no fix: optimizers then see other parameters, and their saved states have other names.
"""

from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, rule

_FSDP = (
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
)


@rule(category="distributed", costs=Cost.LAUNCH, severity=Severity.INFO, calls=_FSDP)
def check(code: Code) -> Iterator[Finding]:
    """Report each wrapper that flattens parameters."""
    for call in code.calls_to(*_FSDP):
        if not any(k.arg in (None, "use_orig_params") for k in call.keywords):
            yield code.finding(
                call,
                "parameters become one flat tensor, at which `torch.compile` breaks its graph; pass `use_orig_params=True`",
            )
