"""A loader with workers is made anew in each epoch.

## What it does
Finds `DataLoader(...)` with workers in a loop around the loop over its batches, made of what does not change in that loop.

## Why it is slow
A new loader starts new workers, which copy or import the program and open the dataset; `persistent_workers=True` cannot help
it.

## Example
```python
dataset = torch.utils.data.TensorDataset(torch.rand(8, 4))
for epoch in range(10):
    batches = DataLoader(dataset, batch_size=4, num_workers=2)
    for (x,) in batches:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
```

## Use instead
```python
dataset = torch.utils.data.TensorDataset(torch.rand(8, 4))
batches = DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True)
for epoch in range(10):
    for (x,) in batches:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
```

## When it stays silent
Without workers (making a loader takes microseconds), when an argument is bound in the loop or computed by a call, and when the
batches are not gone over in the same loop. Select it to see it: most epochs take far longer than the start of a few workers.

## Fix safety
There is no fix: workers that stay see no change of the dataset, and random numbers go on instead of beginning anew.
"""

import ast
from collections.abc import Iterator

from perflint.api import DATA_LOADER, Code, Cost, Finding, Loop, Severity, keyword, rule


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.WARNING,
    calls=[DATA_LOADER],
    needs=[(*keyword("for"), *keyword("while"))],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loader that every epoch makes anew."""
    for loader in code.loaders():
        around = code.flow.loop(loader.call)
        if around is None or around.statement is None or not loader.workers:
            continue
        if any(around in inner.ancestry() for inner in loader.loops_in(code.scope)) and _is_invariant(
            code, loader.call, around
        ):
            message = (
                "the workers of a new loader are started in each epoch; make it before the loop, with `persistent_workers=True`"
            )
            yield code.finding(loader.call, message, severity=Severity.INFO)  # forks take tenths of a second, epochs minutes


def _is_invariant(code: Code, call: ast.Call, loop: Loop) -> bool:
    """Whether all arguments are names and constants that the loop does not bind."""
    for given in (*call.args, *(k.value for k in call.keywords)):
        for part in ast.walk(given):
            if isinstance(part, (ast.Call, ast.Await, ast.Subscript, ast.Starred, ast.NamedExpr)):
                return False
            if isinstance(part, (ast.Name, ast.Attribute)):
                found = code.flow.reaching.get(part, frozenset())
                if any(block is loop.block for d in found for block in d.block.ancestry()) or any(
                    d.kind == "for" and d.block is loop.block for d in found
                ):
                    return False
    return True
