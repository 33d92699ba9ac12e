"""Cached GPU memory is given back after each evaluation or checkpoint, and asked for again in the next epoch.

## What it does
Finds `torch.cuda.empty_cache()` that runs once per epoch, or every so many steps: in the loop around a training loop, under a
guard in it, and in functions that a loop calls, such as an evaluation's. For what runs in each step, see `empty-cache-in-loop`.
Not on by default, and only where fixes may import the runtime (`runtime = true`).

## Why it is slow
It hands free blocks back to the driver, and the next epoch allocates them again, which waits for the device. That pays where
the card runs short of memory, which is known when the program runs: `perflint_runtime` asks the allocator, and clears if there
is something to gain.

## Example
```python
def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        losses = [model(x.cuda()).mean() for x in loader]
    torch.cuda.empty_cache()
    return torch.stack(losses).mean()


def fit(model, train_loader, loader, optimizer, epochs):
    for epoch in range(epochs):
        for x in train_loader:
            loss = model(x.cuda()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, evaluate(model, loader))
```

## Use instead
```python
def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        losses = [model(x.cuda()).mean() for x in loader]
    empty_cache_if_needed()
    return torch.stack(losses).mean()


def fit(model, train_loader, loader, optimizer, epochs):
    for epoch in range(epochs):
        for x in train_loader:
            loss = model(x.cuda()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, evaluate(model, loader))
```

## When it stays silent
In an exception handler or behind a test of free memory; before and after all loops, between two trainings; in functions that
look at memory statistics, where clearing is part of a measurement.

## Fix safety
Assumes `memory-to-spare`: other processes on the same card see less of it free. Unsafe where a clock is read or something
may need the wait. What the program computes stays the same.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Code,
    Cost,
    Edit,
    Finding,
    Import,
    Kind,
    Obligation,
    Rate,
    Severity,
    any_layout,
    flow_of,
    rate_of,
    replace,
    rule,
    untimed,
)

_SHARED_CARD = Obligation(Kind.MEMORY_TO_SPARE, "another process on the card may need what is given back")
_LOOKS = any_layout(rb"memory_allocated|memory_reserved|memory_stats|mem_get_info|peak_memory|OutOfMemory|\bdel ")


@rule(
    category="runtime",
    costs=Cost.ALLOCATION,
    severity=Severity.INFO,
    calls=["torch.cuda.empty_cache"],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each call that clears the cache between phases that come again."""
    if not code.may_use_runtime or _LOOKS.search(code.scope.text):
        return
    for call in code.calls_to("torch.cuda.empty_cache"):
        if code.is_hot(call) or _is_on_purpose(code, call) or not _comes_again(code, call):
            continue
        calls = [other for other in code.flow.calls if other is not call]
        missing = [_SHARED_CARD, untimed(calls), *code.needs_wait()]
        missing += code.replaced("torch.cuda.empty_cache")
        fix = code.fix("ask the allocator first", _asked(code, call), unless=missing)
        message = "cached memory is given back in each epoch and asked for again; let the runtime look whether memory is short"
        yield code.finding(call, message, fix, missing)


def _comes_again(code: Code, call: ast.Call) -> bool:
    """Whether a call runs again and again, but not in each step: around a step loop, or in a function that a loop calls."""
    if rate_of(code.facts, code.scope, call) in (Rate.PER_EPOCH, Rate.PER_INTERVAL):
        return True
    if code.scope.is_module or code.flow.loop(call) is not None:
        return False
    return any(flow_of(site.scope).loop(site.node) is not None for site in code.facts.inference.callers.sites(code.scope).sites)


def _is_on_purpose(code: Code, call: ast.Call) -> bool:
    """Whether an exception is handled: memory has run out."""
    return any(block.kind in ("handler", "finally") for block in code.flow.block[call].ancestry())


def _asked(code: Code, call: ast.Call) -> Iterator[Edit | Import]:
    yield Import("perflint_runtime", "empty_cache_if_needed")
    yield replace(code.source, call, "empty_cache_if_needed()")
