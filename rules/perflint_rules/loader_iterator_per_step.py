"""A loader starts anew for a single batch.

## What it does
Finds `next(iter(loader))` in code that runs each step.

## Why it is slow
Each `iter` draws a new order and starts the workers, which read ahead several batches; one is taken, the others are thrown
away. Without workers it still costs a new permutation of all indices.

## Example
```python
for step in range(1000):
    x, y = next(iter(loader))
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
```

## Use instead
```python
batches = iter(loader)
for step in range(1000):
    try:
        x, y = next(batches)
    except StopIteration:
        batches = iter(loader)
        x, y = next(batches)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
```

## When it stays silent
Outside of step loops (a first batch to look at), under a guard such as `step % 100 == 0`, and when the loader itself is made
in the loop, or by a function that a loop calls. It reports on request: in public code
4 of 14 readings called it worth a minute; most of the others found it in code that nobody runs.

## Fix safety
There is no fix: a new iterator each time draws with replacement, one that goes on does not.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Loader, LoaderCall, Scope, Severity, any_layout, rule
from perflint_rules.repeated_calls import is_called_again

_DEPTH = 2
"""Through how many calls a loop around what makes a loader is looked for."""


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.INFO,
    needs=[(any_layout(rb"\bnext \( iter \("), ".__iter__(")],
    in_file=[("oader", "torch")],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each iterator that is made for one batch in each step."""
    for call in code.calls("next", "__next__"):
        match call:
            case (
                ast.Call(args=[ast.Call(func=ast.Name(id="iter"), args=[loader])])
                | ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Attribute(attr="__iter__", value=loader))))
            ) if code.is_hot(call) and _is_loader(code, loader):
                name, has_workers = ast.unparse(loader), _has_workers(code, loader)
                done = "shuffled and read ahead anew" if has_workers else "shuffled anew"
                message = f"`{name}` is {done} for one batch in every step; keep its iterator"
                yield code.finding(call, message)


def _has_workers(code: Code, node: ast.expr) -> bool:
    """Whether workers are started each time, as far as is seen: without them all that is made is a new order of the samples."""
    made = [a.site for a in code.value(node).alternatives if isinstance(a, Loader)]
    return any(LoaderCall(code.facts, *site).may_have_workers for site in made if isinstance(site, tuple))


def _is_loader(code: Code, node: ast.expr) -> bool:
    """Whether an expression is a loader that is older than the step: no call, and of one that is made once."""
    loaders = [a for a in code.value(node).alternatives if isinstance(a, Loader)]
    sites = [a.site[0] for a in loaders if isinstance(a.site, tuple) and isinstance(a.site[0], Scope)]
    if not loaders or isinstance(node, ast.Call):
        return False
    if any(scope is not code.scope and is_called_again(code, scope, _DEPTH) for scope in sites):
        return False
    loop = code.step_loop(node)
    holder = node
    while isinstance(holder, ast.Attribute | ast.Subscript):
        holder = holder.value  # `solver.loaders["train"]`
    definitions = code.flow.reaching.get(holder, frozenset())
    if loop is None:
        return all(d.kind == "parameter" for d in definitions)  # one that is made here is made in each step, too
    return not any(block is loop.block for d in definitions for block in d.block.ancestry())
