"""Gradients in bfloat16 are scaled for a range that they already have.

## What it does
Finds `GradScaler()` in files whose every `autocast` computes in bfloat16.

## Why it is slow
A scaler keeps the small gradients of float16 from becoming zero. bfloat16 has the range of float32, so there is nothing to
keep; but in each step all gradients are divided and searched for infinities, and the CPU waits to learn whether the step is
to be skipped: the one wait that nothing else removes.

## Example
```python
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
scaler = torch.amp.GradScaler("cuda", enabled=False)
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
```
or no scaler at all.

## When it stays silent
When an `autocast` of the file may compute in another type, and when `enabled` is given. Each step's waits are counted by the
sync budget; select the rule to see them one by one.

## Fix safety
Unsafe: steps whose gradients are infinite are no longer skipped, and scaling rounds what is close to zero.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Edit, Finding, Kind, Obligation, Severity, add_keyword, argument, dtype_of, flow_of, rule

_SCALER = "torch.amp.GradScaler"
_AUTOCASTS = ("torch.amp.autocast", "torch.autocast")
_SKIPS = Obligation(Kind.NUMBERS, "steps whose gradients are infinite are no longer skipped")


@rule(
    category="precision",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    calls=[_SCALER],
    in_file=[("bfloat16",), ("autocast",)],
    fixes=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each scaler that is on beside bfloat16 alone."""
    for call in code.calls_to(_SCALER):
        if len(call.args) > 1 or any(k.arg in (None, "enabled") for k in call.keywords) or not _computes_in_bfloat16(code):
            continue
        message = "bfloat16 needs no scaling, and the CPU waits for the scaler in every step; switch it off"
        fix = code.fix("switch it off", _disabled(code, call), unless=[_SKIPS])
        yield code.finding(call, message, fix, [_SKIPS])


def _computes_in_bfloat16(code: Code) -> bool:
    """Whether every region of mixed precision in the file has this type, and there is one."""
    module = code.scope.module
    scopes = [scope for scope in (module.top, *module.functions()) if b"autocast" in scope.text]
    found = []
    for at in map(code.at, scopes):
        calls = [call for call in flow_of(at.scope).calls if _is_autocast(at, call)]
        mentioned = sum(len(flow_of(at.scope).mentions[name]) for name in ("autocast",))
        if mentioned > len(calls):
            return False  # handed on, or a decorator
        for call in calls:
            given = argument(call, None, "dtype")
            found.append(given is not None and dtype_of(at.value(given)) == "bfloat16")
    return bool(found) and all(found)


def _is_autocast(at: Code, call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name == "autocast" and at.is_external(call.func, *_AUTOCASTS)


def _disabled(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "enabled", "False")
