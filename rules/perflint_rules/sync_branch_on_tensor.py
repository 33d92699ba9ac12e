"""A branch in the training loop depends on a device value.

## What it does
Finds `if torch.isnan(loss):`, `while err > tol:`, `assert mask.any()`, `if torch.equal(a, b):`, `max(mask.sum(), 1)` and the
like in code that runs each step, where the condition is a tensor on the device, or a comparison of such tensors.

## Why it is slow
The truth value of a tensor is a read: the CPU waits for all queued work before it knows which way to go. While it stays
in the step, removing other reads gains next to nothing.

## Example
```python
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    if torch.isnan(loss):
        continue
    loss.backward()
    optimizer.step()
```

## Use instead
```python
for step, (x, y) in enumerate(loader):
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    if step % 100 == 0 and torch.isnan(loss):
        raise FloatingPointError("the loss is not finite")
```
A `GradScaler` skips steps with infinite or NaN gradients without a branch. In a forward pass, a weight of 0 does what a branch
around an empty selection does.

## When it stays silent
On host tensors and Python numbers, and under a guard such as `step % 100 == 0`. Whether a step can go on without the answer is
for you to say. Each step's waits are counted by the sync budget; select the rule to see them one by one.

## Fix safety
No fix: a check that comes later, or not in every step, lets further steps run with the bad value.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    IDLE_SINKS,
    Code,
    Cost,
    Finding,
    Heat,
    HostRead,
    Rate,
    ReadKind,
    Road,
    Severity,
    Sink,
    any_layout,
    brief,
    keyword,
    path_of,
    rate_of,
    rule,
)
from perflint_rules.bounds import bounds_a_number
from perflint_rules.masked_writes import guards_writes, only_warns

_LOOKS_FOR_BAD_NUMBERS = re.compile(r"isnan|isinf|isfinite|inf\b")
_NUMBERS = (ReadKind.ITEM, ReadKind.CONVERSION)
_REDUCTIONS = tuple(
    f"{owner}{name}("
    for owner in ("torch.", ".")
    for name in ("min", "max", "any", "all", "sum", "mean", "norm", "equal", "allclose")
)
_ELEMENT = any_layout(rb"\b(?:if|while)\b[^:]*\w \[[^\]:]*\] [<>]")
_BOUNDS = any_layout(rb"(?<![.\w])m(?:ax|in) \(")


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[
        (*keyword("if"), *keyword("while"), *keyword("assert"), _BOUNDS),
        (".item(", "backward(", "oader", "zero_grad", "isnan", "isfinite", "isinf", "forward(", ".to(", _ELEMENT, *_REDUCTIONS),
    ],
    steps=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each branch on a device value."""
    yield from _branches(code)
    for wait in code.waits(Road.TRUTH, at=bounds_a_number):
        assert isinstance(wait.node, ast.Call)
        bound = "clamp(min=...)" if path_of(wait.node.func) == "max" else "clamp(max=...)"
        message = f"the CPU waits in every step to learn what `{brief(wait.node)}` gives; `{bound}` stays on the device"
        yield code.finding(wait.node, message, waits=[wait.node])


def _branches(code: Code) -> Iterator[Finding]:
    flow = code.flow
    if not code.shows_info:
        return
    found = (*code.reads(formatted=False), *code.truths())
    for read in sorted(found, key=lambda read: flow.order[read.node]):
        if not code.is_hot(read.node):
            continue
        checked = _is_check(code, read)
        counts = read.kind in _NUMBERS or (checked and read.kind is ReadKind.COPY)  # `np.isnan(loss.cpu().numpy())`
        if read.kind is ReadKind.TRUTH or (counts and Sink.CONTROL in code.sinks(read.node)):
            learnt = "to learn whether `{}` holds" if read.kind is ReadKind.TRUTH else "for `{}` to decide"
            if rate_of(code.facts, code.scope, read.node) is Rate.PER_PARAMETER:
                continue  # per-parameter-read reports it
            waited = f"the CPU waits in every step {learnt.format(ast.unparse(read.tensor))}"
            cure = _cure(code, read)
            if guards_writes(code, read):
                cure = "leave the test out: a mask that selects nothing writes nothing"
            yield code.finding(read.node, f"{waited}; {cure}", waits=[read.node])


def _is_check(code: Code, read: HostRead) -> bool:
    """Whether a number decides about nothing but an error or a message: the step could go on without knowing it."""
    flow, statement = code.flow, code.flow.statement(read.node)
    if not isinstance(statement, ast.Assign):
        return only_warns(statement)
    uses = [use for definition in flow.definitions_from(read.node) for use in flow.uses[definition]]
    warns = [any(map(only_warns, (flow.statement(use), *flow.ancestors(use)))) for use in uses]
    return any(warns) and (
        all(warns) or _is_else_idle(code, read, [use for use, in_warning in zip(uses, warns, strict=True) if not in_warning])
    )


def _is_else_idle(code: Code, read: HostRead, uses: list[ast.expr]) -> bool:
    """Whether other uses of a number than to look for a bad one can wait: it is added up, collected or logged."""
    decides = any(isinstance(code.flow.statement(use), (ast.If, ast.While, ast.Assert)) for use in uses)
    return not decides and code.sinks(read.node) <= IDLE_SINKS | {Sink.CONTROL}


def _ends_loop(code: Code, read: HostRead) -> bool:
    """Whether a number decides when a loop has gone far enough, such as that of a solver."""
    statement = code.flow.statement(read.node)
    return isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Break)


def _cure(code: Code, read: HostRead) -> str:
    statement = code.flow.statement(read.node)
    if isinstance(statement, ast.Assert):
        return "check it on the host, where the batch is made, or every N steps"
    if _ends_loop(code, read):
        return "take a fixed number of rounds, or look every few rounds"
    if code.heat is Heat.FORWARD or any(isinstance(around, ast.IfExp) for around in code.flow.ancestors(read.node)):
        return "compute both ways and choose with `where` or weights, or decide on the host"
    asked = statement.test if isinstance(statement, ast.If) else read.tensor
    if _LOOKS_FOR_BAD_NUMBERS.search(ast.unparse(asked)):
        return "check every N steps, or let GradScaler skip bad steps"
    return "decide on the host, or check every N steps"
