"""Random numbers are drawn on the host and then copied to the device.

## What it does
Finds `torch.rand`, `randn`, `randint`, `randperm`, `normal` and `bernoulli` whose result goes to a device in the same
expression (`.to(device)`, `.cuda()`), or by their name before anything else looks at them, in code that runs each step.

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
Each step's waits are counted by the sync budget; select the rule to see them one by one.

## Fix safety
Unsafe: the device's generator gives other random numbers, and the host's draws fewer. Where fixes may import the runtime, the
same ones are still drawn on the host, and copied by `moved_copy(torch.randn(n), device)`, which waits for nothing. Without it
there is no fix where a name stands in between.
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
    moved_to,
    replace,
    rule,
)
from perflint_rules.guarded_copies import copied, folded, stays_on_host, takes_device
from perflint_rules.host_factories import DRAWN_INTO, RANDOM, draws_behind, is_factory

_DRAWS = tuple(f"torch.{name}" for name in sorted(RANDOM))
_FILLS = tuple(f"torch.Tensor.{name}" for name in sorted(DRAWN_INTO))
_OTHER = Obligation(Kind.RANDOMNESS, "the device's generator gives other random numbers")


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.WARNING,
    calls=[*_DRAWS, *_FILLS],
    needs=[(".to(", ".cuda(")],
    fixes=True,
    in_budget=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each factory of random numbers whose result is copied."""
    for move in code.calls("to", "cuda"):
        held = move.func.value if isinstance(move.func, ast.Attribute) else move
        for call in draws_behind(code, held):
            if not code.is_hot(move):
                continue
            device = moved_to(code.facts, code.scope, move)
            if stays_on_host(code, device) or not (device is not None or _is_device(code, move)):
                continue
            fix, missing, cure = None, list[Obligation](), "draw them on the device"
            if call is held and is_factory(code, call, RANDOM):
                missing = [_OTHER]
                plain = device is not None and takes_device(call)
                edits = folded(code, move, call, device) if plain and device is not None else _drawn(code, call, move)
                fix = code.fix(cure, edits, unless=missing)
            if copy := copied(code, move):
                fix, missing, cure = copy, list(code.needs_wait()), copy.message
            message = f"random numbers are drawn on the host and copied to the device in every step; {cure}"
            yield code.finding(move, message, fix, missing, waits=[move])


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
