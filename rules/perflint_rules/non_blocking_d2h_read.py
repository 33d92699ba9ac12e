"""A tensor is copied to the host asynchronously and read before the copy is known to be done.

## What it does
Finds `t.to("cpu", non_blocking=True)` whose result is read (`.numpy()`, `.item()`, arithmetic, printing) with no
synchronisation in between.

## Why it is an error
The copy returns before the data has arrived. Whoever reads the host tensor then may see old memory: numbers that are
wrong now and then, and nothing fails.

## Example
```python
def snapshot(model, x):
    out = model(x.cuda())
    host = out.to("cpu", non_blocking=True)
    return host.numpy()
```

## Use instead
```python
def snapshot(model, x):
    out = model(x.cuda())
    host = out.to("cpu")
    return host.numpy()
```

## When it stays silent
When `torch.cuda.synchronize()`, an event's or a stream's `synchronize()`, or a blocking read stands between the copy and
the first use, and when the result is only kept or returned.

## Fix safety
Safe for the numbers: dropping `non_blocking` waits for the copy, which is what the code takes for granted.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Batch,
    Category,
    Code,
    Edit,
    Finding,
    Output,
    Place,
    Severity,
    Tensor,
    argument,
    place_of,
    remove_keyword,
    rule,
    words,
)

_SYNCHRONISES = frozenset(("synchronize", "item", "wait", "tolist", "barrier", "wait_stream", "query"))
_READS = words(
    """
    numpy item tolist mean sum max min argmax float save
    """
)


@rule(category=Category.TRANSFER, severity=Severity.ERROR, needs=[("non_blocking",), ("cpu",)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each asynchronous copy to the host that is read too early."""
    for call in code.calls("to", "cpu"):
        given = argument(call, None, "non_blocking")
        if not isinstance(given, ast.Constant) or given.value is not True or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr == "to" and (not call.args or code.value(call.args[0]).literal != "cpu"):
            continue
        source = code.value(call.func.value)
        if source.must(lambda a: isinstance(a, (Tensor, Batch, Output)) and place_of(a) is Place.HOST):
            continue
        read = _first_read(code, call)
        if read is None:
            continue
        fix = code.fix("wait for the copy", _waiting(code, call))
        yield code.finding(
            call,
            f"the copy to the host may not be done when line {read.lineno} reads it; drop `non_blocking`, or synchronize first",
            fix,
        )


def _first_read(code: Code, call: ast.Call) -> ast.expr | None:
    """The first expression that looks at the copy's numbers, unless something synchronises before it."""
    flow = code.flow
    parent = flow.parent.get(call)
    if isinstance(parent, ast.Attribute) and parent.attr in _READS:
        return parent
    for definition in flow.definitions:
        if definition.value is not call or definition.kind != "assign":
            continue
        for use in sorted(flow.uses[definition], key=flow.order.__getitem__):
            user = flow.parent.get(use)
            reads = isinstance(user, ast.Attribute) and user.attr in _READS
            if isinstance(user, (ast.BinOp, ast.Compare, ast.FormattedValue, ast.Subscript)) or reads:
                synchronised = any(
                    isinstance(c.func, ast.Attribute) and c.func.attr in _SYNCHRONISES and c.func.value is not use
                    for c in flow.calls_between(call, use)
                )
                return None if synchronised else use
    return None


def _waiting(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield remove_keyword(code.source, call, "non_blocking")
