"""A loader starts its workers anew in each epoch.

## What it does
Finds `DataLoader(...)` with workers and without `persistent_workers`.

## Why it is slow
Each `for` over the loader starts its worker processes, which copy or import the program and open the dataset, and ends them
after the last batch.

## Example
```python
loader = DataLoader(dataset, batch_size=64, num_workers=4)
```

## Use instead
```python
loader = DataLoader(dataset, batch_size=64, num_workers=4, persistent_workers=True)
```

## When it stays silent
When the argument is given, also through `**kwargs`, when the number of workers is 0 or no literal, and for torch below 1.7.

## Fix safety
Unsafe: workers keep the dataset as it was when they started, so `dataset.epoch = e` and a changed transform no longer reach
them, and their random numbers go on instead of beginning anew.
"""

import ast
from collections.abc import Iterator

from packaging.version import Version

from perflint.api import DATA_LOADER, Code, Cost, Edit, Finding, Kind, Obligation, Severity, add_keyword, rule

_STALE = Obligation(Kind.MUTATION, "workers that stay see no change of the dataset, and their random numbers go on")


@rule(category="data-loading", costs=Cost.LOADING, severity=Severity.INFO, calls=[DATA_LOADER], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each loader whose workers end with the epoch."""
    if code.facts.versions.get("torch", Version("1.7")) < Version("1.7"):
        return
    for loader in code.loaders():
        if not loader.workers or loader.gives("persistent_workers") is not False:
            continue
        message = (
            "the workers are started anew in each epoch; pass `persistent_workers=True` if it goes over the data more than once"
        )
        yield code.finding(
            loader.call, message, code.fix("keep the workers", _kept(code, loader.call), unless=[_STALE]), [_STALE]
        )


def _kept(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "persistent_workers", "True")
