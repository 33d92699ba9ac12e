"""A loader starts its workers anew in each epoch.

## What it does
Finds `DataLoader(...)` with workers and without `persistent_workers`.

## Why it is slow
Each `for` over the loader starts its worker processes, which copy or import the program and open the dataset, and ends them
after the last batch.

## Example
```python
loader = DataLoader(dataset, batch_size=64, num_workers=4)
for epoch in range(10):
    for x in loader:
        model(x).sum().backward()
```

## Use instead
```python
loader = DataLoader(dataset, batch_size=64, num_workers=4, persistent_workers=True)
for epoch in range(10):
    for x in loader:
        model(x).sum().backward()
```

## When it stays silent
When the argument is given, also through `**kwargs`, when all who take the batches are in sight and go over them once or not
at all, in `test_dataloader` and `predict_dataloader` of Lightning, when no number of workers above 0 is written (also as
the default of a command line, in a table of settings, or as the number of cores), and where `target-versions` names a torch
below 1.7.

## Fix safety
Unsafe: workers keep the dataset as it was when they started, so `dataset.epoch = e` and a changed transform no longer reach
them, and their random numbers go on instead of beginning anew. Where the number may be 0, which torch refuses to keep, the fix
writes `persistent_workers=workers > 0`; where it stands in a dict of options, there is no fix.
"""

import ast
from collections.abc import Iterator

from packaging.version import Version

from perflint.api import (
    DATA_LOADER,
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Finding,
    Kind,
    LoaderCall,
    Obligation,
    Severity,
    add_keyword,
    path_of,
    rule,
)
from perflint_rules.loader_workers import is_gone_over_once

_FIRST = Version("1.7")
_OF_ONE_PASS = ("test_dataloader", "predict_dataloader")
"""Hooks of Lightning whose loaders are gone over once."""
_STALE = Obligation(Kind.MUTATION, "workers that stay see no change of the dataset, and their random numbers go on")


@rule(category="data-loading", costs=Cost.LOADING, severity=Severity.INFO, calls=[DATA_LOADER], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each loader whose workers end with the epoch."""
    oldest = code.facts.versions.get("torch", _FIRST)
    if code.facts.target_versions.get("torch", _FIRST) < _FIRST:
        return
    said: set[ast.expr] = set()
    for loader in code.loaders():
        given = loader.gives("persistent_workers")
        if given is None and loader.has_own_options:
            given = b"persistent_workers" in code.scope.text
        if not loader.may_have_workers or given is not False:
            continue
        if loader.is_left or code.scope.name in _OF_ONE_PASS or is_gone_over_once(code, loader):
            continue
        place = next(iter(loader.written("num_workers")), loader.call)  # a dict's, to which the argument is to be added
        if place in said:
            continue
        said.add(place)
        message = (
            "the workers are started anew in each epoch; pass `persistent_workers=True` if it goes over the data more than once"
        )
        if oldest < _FIRST:
            yield code.finding(place, f"{message} (torch {_FIRST} has it; the project admits {oldest})")
            continue
        fix = code.fix("keep the workers", _kept(code, loader), unless=[_STALE])
        yield code.finding(place, message, fix, [_STALE])


def _kept(code: Code, loader: LoaderCall) -> Iterator[Edit]:
    """The argument; torch raises where it is true and there are no workers."""
    workers = loader.argument("num_workers")
    if not loader.workers and (workers is None or path_of(workers) is None):
        raise CannotRewrite("no expression at the call says whether there are workers")
    value = "True" if loader.workers or workers is None else f"{code.text(workers)} > 0"
    yield add_keyword(code.source, loader.call, "persistent_workers", value)
