"""A distributed sampler draws the same order in each epoch.

## What it does
Finds `DistributedSampler(...)` in programs that never call `set_epoch`.

## Why it is an error
The sampler seeds its permutation by the epoch that it was told; without `set_epoch` each epoch visits the samples in the same
order, each process always the same ones.

## Example
```python
sampler = torch.utils.data.distributed.DistributedSampler([1, 2])
for epoch in range(10):
    for x, y in DataLoader([1, 2], sampler=sampler):
        model(x).sum().backward()
        optimizer.step()
```

## Use instead
```python
sampler = torch.utils.data.distributed.DistributedSampler([1, 2])
for epoch in range(10):
    sampler.set_epoch(epoch)
    for x, y in DataLoader([1, 2], sampler=sampler):
        model(x).sum().backward()
        optimizer.step()
```

## When it stays silent
With `shuffle=False`, for evaluation by its name, when anything in the program calls `set_epoch`, and in programs that use
Lightning, accelerate, ignite or the trainer of transformers, which call it themselves.

## Fix safety
There is no fix: where an epoch begins is for you to say.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Finding, Severity, argument, keyword, rule

_SAMPLER = "torch.utils.data.distributed.DistributedSampler"
_SAMPLERS = (_SAMPLER, "torch.utils.data.DistributedSampler")
_CALLED_BY_OTHERS = re.compile(
    rb"\bset_epoch\b|^[ \t]*(?:from|import)\s+(?:lightning|pytorch_lightning|accelerate|ignite|deepspeed|mmengine|mmcv|ray)\b"
    rb"|\bTrainer\b",
    re.M,
)
_EVALUATION = re.compile(r"val|test|eval|dev", re.I)


@rule(
    category="distributed",
    severity=Severity.INFO,
    calls=_SAMPLERS,
    near=[(*keyword("for"), *keyword("while")), ("backward(", "step(")],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each sampler that is never told the epoch."""
    for call in code.calls_to(*_SAMPLERS):
        shuffle = argument(call, 3, "shuffle")
        if any(k.arg is None for k in call.keywords) or (shuffle is not None and code.value(shuffle).literal is not True):
            continue
        if _EVALUATION.search(ast.unparse(code.flow.statement(call))) or _told(code):
            continue
        yield code.finding(call, "each epoch visits the samples in the same order; call `set_epoch` on it as each epoch begins")


def _told(code: Code) -> bool:
    """Whether something in the program may tell a sampler its epoch."""
    return code.facts.project.program_may_hold(code.source.path, _CALLED_BY_OTHERS)
