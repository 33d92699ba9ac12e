"""A large layer has a size that tensor cores handle badly.

## What it does
Finds `Linear` and `Embedding` layers with a written-out size of 512 or more that is no multiple of 8.

## Why it is slow
Kernels for half precision compute tiles of 8 and more numbers. NVIDIA's guide on mixed precision asks for multiples of 8,
PyTorch's tuning guide for multiples of 8 (64 on newer GPUs); nanoGPT pads its vocabulary from 50257 to 50304 for that.

## Example
```python
head = nn.Linear(768, 50257)
```

## Use instead
```python
head = nn.Linear(768, 50304)
```

## When it stays silent
For sizes below 512, and for sizes that are not written out.

## Fix safety
There is no fix: the model is another one then, and checkpoints no longer fit.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Option, Severity, argument, rule

_LAYERS = {
    "torch.nn.Linear": ("in_features", "out_features"),
    "torch.nn.Embedding": ("num_embeddings", "embedding_dim"),
}
_MULTIPLE = Option("multiple", 8, "Sizes should be multiples of this")
_LARGE = 512


@rule(category="memory", costs=Cost.LAUNCH, severity=Severity.INFO, calls=_LAYERS, options=[_MULTIPLE])
def check(code: Code) -> Iterator[Finding]:
    """Report each large layer of an uneven size."""
    multiple = max(code.option(_MULTIPLE), 1)
    for call in code.calls_to(*_LAYERS):
        names = next(names for layer, names in _LAYERS.items() if code.is_external(call.func, layer))
        for position, name in enumerate(names):
            match argument(call, position, name):
                case ast.Constant(value=int(size)) if size >= _LARGE and size % multiple:
                    fitting = -(-size // multiple) * multiple
                    yield code.finding(call, f"{size} is no multiple of {multiple}; {fitting} suits the tensor cores")
                    break
