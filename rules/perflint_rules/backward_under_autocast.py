"""The backward pass runs under autocast.

## What it does
Finds `backward()` within `with autocast(...)`.

## Why it is slow
Each operation of the backward pass has the type that its forward operation had, whether `autocast` is on or not; what it
changes is what runs beside it: hooks, custom functions and the loss scale. torch's documentation advises against it.

## Example
```python
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(x), y)
        loss.backward()
    optimizer.step()
```

## Use instead
```python
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
```

## When it stays silent
When the backward pass stands outside, under `enabled=False`, and for a nested function.

## Fix safety
There is no fix: lines behind it in the block may need `autocast`.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, argument, rule

_AUTOCASTS = ("torch.amp.autocast", "torch.autocast")


@rule(category="precision", costs=Cost.LAUNCH, severity=Severity.INFO, calls=_AUTOCASTS, needs=[(".backward(",)])
def check(code: Code) -> Iterator[Finding]:
    """Report each backward pass in a region of mixed precision."""
    for call in code.calls("backward"):
        if isinstance(call.func, ast.Attribute) and any(
            _is_autocast(code, block.node) for block in code.flow.block[call].ancestry()
        ):
            yield code.finding(call, "the backward pass runs under `autocast`, against torch's advice; dedent it")


def _is_autocast(code: Code, node: ast.AST) -> bool:
    if not isinstance(node, (ast.With, ast.AsyncWith)):
        return False
    calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
    return any(code.is_external(call.func, *_AUTOCASTS) and not _is_off(call) for call in calls)


def _is_off(call: ast.Call) -> bool:
    enabled = argument(call, None, "enabled")
    return isinstance(enabled, ast.Constant) and enabled.value is False
