"""A graph break in a loop, a `try` or a `with` makes torch give up the whole function.

## What it does
Finds what `graph-break` finds where it stands in the body of a `for` or `while`, in a `try`, or in a `with` whose context torch
cannot leave and enter again: a lock, a file, a context manager of one's own.

## Why it is slower
torch cannot go on in the middle of a loop: it runs the whole function without a graph, operation by operation. Of the functions
that were measured (torch 2.13) not one graph remained; functions that they call are compiled on their own.

## Example
```python
@torch.compile
def refine(x, weight):
    for _ in range(10):
        new = torch.tanh(x @ weight)
        if (new - x).abs().max() < 1e-3:
            break
        x = new
    return x
```

## Use instead
```python
@torch.compile
def refine(x, weight):
    for _ in range(10):
        x = torch.tanh(x @ weight)
    return x
```
Or compile the body of the loop as a function of its own, and keep the loop and the test outside.

## When it stays silent
As `graph-break`; in comprehensions and in `torch.no_grad`, `autocast`, `inference_mode`, `record_function` and `nullcontext`,
from which torch goes on; for what a loop iterates over.

## Fix safety
There is no fix: each cure changes what is computed, or where.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, rule

_NAMES = {ast.For: "loop", ast.AsyncFor: "loop", ast.While: "loop", ast.Try: "`try`", ast.With: "`with`"}


@rule(category="compilation", costs=Cost.LAUNCH, severity=Severity.INFO, compiled=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each break that costs the function its graphs."""
    for found in code.graph_breaks():
        if found.costly is not None:
            place = _NAMES.get(type(found.costly), "`with`")
            what, _, cure = found.cure.partition("; ")
            message = f"the graph breaks in a {place}, so that all of `{code.scope.name}` runs uncompiled: {what}; {cure}"
            yield code.finding(found.node, message)
