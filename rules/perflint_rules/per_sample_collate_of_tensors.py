"""Tensors that are in memory are taken apart and put together again.

## What it does
Finds `DataLoader(TensorDataset(...), batch_size=n)` with the default `collate_fn` and no workers.

## Why it is slow
The loader asks the dataset for one sample after the other, each a small view, and then stacks them: for a batch of 256 some
thousand operations on the CPU, where one `x[indices]` gives the same.

## Example
```python
dataset = torch.utils.data.TensorDataset(torch.rand(100, 4), torch.rand(100))
batches = DataLoader(dataset, batch_size=32, shuffle=True)
```

## Use instead
```python
inputs, targets = torch.rand(100, 4), torch.rand(100)
for indices in torch.randperm(len(inputs)).split(32):
    x, y = inputs[indices], targets[indices]
```
or `perflint_runtime.BatchedTensorLoader`, which takes each batch out of the tensors in one indexing.

## When it stays silent
For other datasets, with a `collate_fn` or workers, and for batches of one.

## Fix safety
There is no fix: the default `collate_fn` gives lists, and draws its seed from the generator.
"""

import ast
from collections.abc import Iterator

from perflint.api import DATA_LOADER, Code, Cost, Finding, LoaderCall, Object, Severity, rule

_IN_MEMORY = frozenset(("torch.utils.data.TensorDataset", "torch.utils.data.dataset.TensorDataset"))


@rule(category="data-loading", costs=Cost.LOADING, severity=Severity.INFO, calls=[DATA_LOADER], near=[("TensorDataset",)])
def check(code: Code) -> Iterator[Finding]:
    """Report each loader that stacks samples which were one tensor."""
    for loader in code.loaders():
        if loader.workers == 0 and loader.gives("collate_fn") is False and not _is_batch_of_one(loader):
            if loader.dataset.must(lambda a: isinstance(a, Object) and a.qualname in _IN_MEMORY):
                yield code.finding(
                    loader.call, "each sample is a view, and they are stacked again; index the tensors by whole batches"
                )


def _is_batch_of_one(loader: LoaderCall) -> bool:
    size = loader.argument("batch_size")
    return (
        loader.gives("batch_sampler") is not False
        or size is None
        or (isinstance(size, ast.Constant) and size.value in (1, None))
    )
