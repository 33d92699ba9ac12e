"""Each batch is copied to the device when the loop needs it, though it could have been copied before.

## What it does
Finds loops over batches whose body begins with copies of the batch to one device, in training and in evaluation. The fix lets
`perflint_runtime.DevicePrefetcher` yield the batches on the device. Textbook training loops, where the trainer does that, are
`canonical-train-loop`'s. Not on by default, and only where fixes may import the runtime (`runtime = true`).

## Why it is slow
The CPU waits for each copy, and the device computes nothing while it runs. The prefetcher copies the next batches on a stream
of its own while the device computes; without pinned memory (`pin_memory=True`) the copies still wait for the CPU's own copying.

## Example
```python
def evaluate(model, loader, criterion, device):
    losses = []
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            losses.append(criterion(model(x), y))
    return torch.stack(losses).mean()
```

## Use instead
```python
def evaluate(model, loader, criterion, device):
    losses = []
    with torch.no_grad():
        for x, y in DevicePrefetcher(loader, device):
            losses.append(criterion(model(x), y))
    return torch.stack(losses).mean()
```

## When it stays silent
When a part of the batch is used before it is copied, or never copied; when the parts go to different devices; in a branch for
machines without CUDA; when what the loop goes over is no loader.

## Fix safety
Unsafe: two batches are loaded ahead. Without workers, random numbers that loading draws come before those that the step draws;
a loop that is left early has loaded batches that nobody sees. All tensors of a batch are copied, also those that nobody uses.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    SIDE_STREAM,
    BatchMoves,
    Code,
    Cost,
    Edit,
    External,
    Finding,
    Import,
    Kind,
    Loop,
    Obligation,
    Place,
    Severity,
    comes_from_host,
    delete_statement,
    keyword,
    leading_moves,
    replace,
    rule,
    target_of,
    training_loop,
    without_cuda,
)

_AHEAD = Obligation(
    Kind.RANDOMNESS, "batches are loaded ahead: without workers, their random numbers come before those of the step"
)
_LEFT = Obligation(Kind.CONTROL_FLOW, "the loop may be left early, and two batches more have been loaded by then")


@rule(
    category="runtime",
    costs=Cost.COPY,
    severity=Severity.INFO,
    needs=[keyword("for"), (".to(", ".cuda(", "moved")],
    fixes=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loop whose body begins with copies of its batch."""
    if not code.may_use_runtime:
        return
    for loop in code.step_loops():
        found = leading_moves(code.facts.inference, code.scope, loop)
        if found is None or not _copies(code, found[1]) or training_loop(code.facts, code.scope, loop) is not None:
            continue
        leaves = any(isinstance(n, (ast.Break, ast.Return, ast.Raise)) for n in ast.walk(loop.node))
        missing = [_AHEAD, _LEFT if leaves else None, *code.feared(SIDE_STREAM)]
        fix = code.fix("let the runtime copy ahead", _prefetched(code, loop, *found), unless=missing)
        message = "the CPU waits for each batch's copy; `DevicePrefetcher` copies the next ones while the device computes"
        yield code.finding(loop.node, message, fix, missing, waits=found[1].calls)


def _copies(code: Code, moves: BatchMoves) -> bool:
    """Whether the batch comes from the host, and the copies may go elsewhere."""
    inference, loops, scope = code.facts.inference, code.facts.loops, code.scope
    for call in moves.calls:
        if isinstance(call.func, ast.Attribute) and not without_cuda(scope, call):
            if target_of(inference, scope, call) is not Place.HOST and comes_from_host(
                inference, loops, scope, call.func.value
            ):
                return True
    return False


def _prefetched(code: Code, loop: Loop, loader: ast.expr, moves: BatchMoves) -> Iterator[Edit | Import]:
    known = code.facts.inference.module_name(code.scope.module, "DevicePrefetcher", 1)
    is_ours = known.must(lambda a: a == External("perflint_runtime.DevicePrefetcher"))
    taken = (known.alternatives and not is_ours) or code.flow.definitions_of("DevicePrefetcher")
    prefix = "perflint_runtime." if taken and not is_ours else ""
    yield Import("perflint_runtime", None if prefix else "DevicePrefetcher")
    yield replace(code.source, loader, f"{prefix}DevicePrefetcher({code.text(loader)}, {moves.target})")
    assert isinstance(loop.node, ast.For)
    left = [*loop.node.body]
    for statement in moves.statements:
        yield delete_statement(code.source, statement, left)
        left.remove(statement)
