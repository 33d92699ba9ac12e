"""Random numbers are drawn on the host and then copied to the device.

## What it does
Finds `torch.rand`, `randn`, `randint`, `randperm`, `normal` and `bernoulli` whose result goes to a device in the same
expression (`.to(device)`, `.cuda()`), in code that runs each step.

## Why it is slow
The CPU draws every number and then waits for a copy from ordinary memory, where a kernel would draw them in place.

## Example
```python
for x, y in loader:
    noise = torch.randn(x.shape).to(device)
    out = model(x.to(device) + noise)
```

## Use instead
```python
for x, y in loader:
    noise = torch.randn(x.shape, device=device)
    out = model(x.to(device) + noise)
```

## When it stays silent
When a `device` or a `generator` is given, when the numbers go to the host, and outside of code that runs each step.

## Fix safety
Unsafe: the device's generator gives other random numbers.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Finding,
    Kind,
    Obligation,
    Severity,
    any_layout,
    replace,
    rule,
)

_DRAWS = tuple(f"torch.{name}" for name in ("rand", "randn", "randint", "randperm", "normal"))
_MOVED = any_layout(rb"\) \. (?:to|cuda) \(")
_OTHER = Obligation(Kind.RANDOMNESS, "the device's generator gives other random numbers")


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.INFO,
    calls=_DRAWS,
    needs=[(_MOVED,)],
    fixes=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each factory of random numbers whose result is copied."""
    for call in code.calls_to(*_DRAWS):
        if any(k.arg in (None, "device", "generator", "out", "pin_memory") for k in call.keywords):
            continue
        move = code.flow.parent.get(code.flow.parent.get(call, call))
        if not isinstance(move, ast.Call) or not isinstance(move.func, ast.Attribute) or move.func.value is not call:
            continue
        if move.func.attr not in ("to", "cuda") or not code.is_hot(call) or not _is_device(code, move):
            continue
        fix = code.fix("draw them on the device", _drawn(code, call, move), unless=[_OTHER])
        yield code.finding(move, "random numbers are drawn on the host and copied; draw them on the device", fix, [_OTHER])


def _is_device(code: Code, move: ast.Call) -> bool:
    """Whether a call goes to a device, and changes the type at most."""
    if isinstance(move.func, ast.Attribute) and move.func.attr == "cuda":
        return not move.args and all(k.arg == "non_blocking" for k in move.keywords)
    if any(k.arg not in ("device", "dtype", "non_blocking") for k in move.keywords):
        return False
    target = _target(move)
    text = code.text(target) if target is not None else ""
    return "device" in text or "rank" in text or "cuda" in text


def _target(move: ast.Call) -> ast.expr | None:
    """The device that a call names: one argument, or the keyword."""
    targets = [*move.args, *(k.value for k in move.keywords if k.arg == "device")]
    return targets[0] if len(targets) == 1 else None


def _drawn(code: Code, call: ast.Call, move: ast.Call) -> Iterator[Edit]:
    target = _target(move)
    device = code.text(target) if target is not None else '"cuda"'
    given = [f"device={device}"]
    types = [k for k in move.keywords if k.arg == "dtype"]
    if types and any(k.arg == "dtype" for k in call.keywords):
        raise CannotRewrite("two types are named")
    given += [code.text(k) for k in types]
    text = code.text(call)
    if "#" in text or text[:-1].rstrip().endswith(",") or any("#" in g for g in given):
        raise CannotRewrite("a comment or a comma stands at the end")
    yield replace(code.source, move, f"{text[:-1]}{', ' if call.args or call.keywords else ''}{', '.join(given)})")
