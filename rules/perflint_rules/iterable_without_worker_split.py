"""Each worker of a loader yields all samples.

## What it does
Finds `DataLoader(...)` with workers over an iterable dataset of the project that never asks which worker it runs in.

## Why it is an error
Each worker gets a copy of the dataset and goes through all of it, so with 4 workers each sample is trained on four times in an
epoch, and nothing is faster.

## Example
```python
class Lines(torch.utils.data.IterableDataset):
    def __iter__(self):
        with open("lines.txt") as lines:
            yield from lines

loader = DataLoader(Lines(), num_workers=4)
```

## Use instead
```python
import itertools

class Lines(torch.utils.data.IterableDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        with open("lines.txt") as lines:
            yield from itertools.islice(lines, first, None, step)

loader = DataLoader(Lines(), num_workers=4)
```

## When it stays silent
When the dataset, or what it calls, names workers, ranks, shards or random numbers, with a `worker_init_fn`, when there is one
worker, or it is not known how many there are, and for datasets that are not the project's own, which mostly split themselves:
so do the streams of `datasets` and `webdataset`, also where a dataset of the project goes over one.

## Fix safety
There is no fix: who gets which sample is for you to say.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import DATA_LOADER, Code, Finding, LoaderCall, Scope, Severity, called_from, flow_of, last_name, path_of, rule

_SPLITS = re.compile(rb"(?i)worker|rank|shard|world_size|split|rand|shuffle|sample|queue|socket|recv|while True")

_STREAMS = re.compile(rb"^[ \t]*(?:import|from)[ \t]+(?:datasets|webdataset|litdata|streaming)\b", re.MULTILINE)
"""What makes a stream that gives each worker its share of its files, also inside of another dataset."""
_GO_OVER = frozenset(("iter", "enumerate", "zip", "tqdm", "islice", "map", "filter"))


@rule(category="data-loading", severity=Severity.WARNING, calls=[DATA_LOADER], near=[("IterableDataset",), ("__iter__",)])
def check(code: Code) -> Iterator[Finding]:
    """Report each loader whose workers repeat each other."""
    for loader in code.loaders():
        if loader.workers in (None, 0, 1) or loader.gives("worker_init_fn") is not False or not loader.knows_all_datasets:
            continue
        if loader.datasets and all(d.is_iterable for d in loader.datasets) and not _may_split(code, loader):
            message = f"each of the {loader.workers} workers yields all samples; give each its share by `get_worker_info()`"
            yield code.finding(loader.call, message)


def _may_split(code: Code, loader: LoaderCall) -> bool:
    """Whether something that a dataset runs or is made of may tell workers apart, or yield what differs between them."""
    scopes = [scope for dataset in loader.datasets for scope in dataset.cls.methods.values()]
    if not scopes or any(_SPLITS.search(called.text) for scope in scopes for called in called_from(code.facts, scope)):
        return True
    streams = any(_goes_over_attribute(scope) for scope in scopes if scope.name == "__iter__")
    return streams and code.facts.project.program_may_hold(code.source.path, _STREAMS)


def _goes_over_attribute(scope: Scope) -> bool:
    """Whether a function goes over what its object holds, which may be such a stream: `for sample in self.source`."""
    for node in flow_of(scope).order:
        match node:
            case ast.For(iter=source) | ast.comprehension(iter=source) | ast.YieldFrom(value=source):
                taken = [source]
            case ast.Call(func=ast.Name(id="iter"), args=taken):
                pass
            case _:
                continue
        wrapped = (call for call in taken if isinstance(call, ast.Call) and last_name(call.func) in _GO_OVER)
        taken = [*taken, *(argument for call in wrapped for argument in call.args)]
        if any((path_of(part) or "").startswith("self.") for part in taken):
            return True
    return False
