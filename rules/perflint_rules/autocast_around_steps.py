"""Mixed precision goes on while the optimizer changes the weights.

## What it does
Finds a loop of training steps inside of one `with autocast(...)`.

## Why it is an error
While `autocast` is entered it remembers the weights that it has converted, and uses them again. The optimizer changes the
originals, so all later steps compute with the weights of the first one: the loss stays where it is.

## Example
```python
with torch.autocast("cuda", dtype=torch.bfloat16):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
```

## Use instead
```python
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
```

## When it stays silent
With `cache_enabled=False` or `enabled=False`, when `clear_autocast_cache` is called, and when nothing in the loop steps an
optimizer.

## Fix safety
There is no fix: which lines belong under `autocast` is for you to say.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Finding, Severity, any_layout, argument, is_optimizer, is_scaler, rule

_AUTOCASTS = ("torch.amp.autocast", "torch.autocast")


@rule(
    category="precision",
    severity=Severity.ERROR,
    calls=_AUTOCASTS,
    needs=[(any_layout(rb"\bwith\b"),), (".step(",), ("for", "while")],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each region of mixed precision that several steps run in."""
    if b"clear_autocast_cache" in code.source.body:
        return
    for call in code.calls_to(*_AUTOCASTS):
        item = code.flow.parent.get(call)
        statement = code.flow.parent.get(item) if isinstance(item, ast.withitem) else None
        if not isinstance(statement, ast.With) or _may_be_off(code, call):
            continue
        steps = [c for c in code.calls("step") if _is_step(code, c) and _loops_inside(code, c, statement)]
        if steps:
            message = "all steps compute with the weights that were converted in the first one; enter `autocast` for each step"
            yield code.finding(call, message)


def _may_be_off(code: Code, call: ast.Call) -> bool:
    """Whether nothing may be converted, or nothing remembered."""
    given = [argument(call, None, name) for name in ("enabled", "cache_enabled")]
    return any(k.arg is None for k in call.keywords) or any(g is not None and code.value(g).literal is not True for g in given)


def _is_step(code: Code, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    return code.value(call.func.value).may(lambda a: is_optimizer(a) or (is_scaler(a) and bool(call.args)))


def _loops_inside(code: Code, step: ast.Call, statement: ast.With) -> bool:
    """Whether a training loop within a `with` takes a step each time."""
    loop = code.training_loop_of(step)
    if loop is None or loop.statement is None:
        return False
    return any(node is statement for node in code.flow.ancestors(loop.statement))
