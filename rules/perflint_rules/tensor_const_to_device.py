"""A Python constant is copied to the device in every step.

## What it does
Finds `torch.tensor(0.0, device=device)` with a literal number in code that runs each step.

## Why it is slow
`torch.tensor` builds its result on the host and copies it: a transfer from pageable memory, and a wait. `torch.full` with
an empty shape fills the number in on the device.

## Example
```python
for x, y in loader:
    total = torch.tensor(0.0, device="cuda")
```

## Use instead
```python
for x, y in loader:
    total = torch.full((), 0.0, device="cuda")
```

## When it stays silent
Outside of code that runs each step, for the device "cpu", and for anything but a literal number: numpy scalars, lists
and tensors give other types or shapes.

## Fix safety
Safe: shape and type are the same for literals, also for a changed default type. `torch.tensor(value)` with a variable is
not reported.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Category, Code, Edit, Finding, Import, Place, Severity, argument, device_place, replace, rule

_KEYWORDS = frozenset(("device", "dtype", "requires_grad"))


_LITERAL = re.compile(rb"tensor\(\s*-?\s*(?:\d|\.\d|True|False)[^()]*,[^()]*\bdevice\b", re.S)


@rule(category=Category.TRANSFER, severity=Severity.WARNING, needs=[("device",), (_LITERAL,)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each literal that `torch.tensor` copies to a device."""
    for call in code.calls("tensor"):
        device = argument(call, None, "device")
        if device is None or len(call.args) != 1 or not _is_literal_number(call.args[0]):
            continue
        if not code.is_external(call.func, "torch.tensor") or not code.is_hot(call):
            continue
        if not {k.arg for k in call.keywords} <= _KEYWORDS or device_place(code.value(device)) is Place.HOST:
            continue
        fix = code.fix("fill the number in on the device", _filled(code, call))
        message = "the number is built on the host and copied to the device in every step; use `torch.full((), ...)`"
        yield code.finding(call, message, fix, waits=[call])


def _is_literal_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) in (int, float, bool)


def _filled(code: Code, call: ast.Call) -> Iterator[Edit | Import]:
    yield replace(code.source, call.func, code.text(call.func).removesuffix("tensor") + "full")
    yield replace(code.source, call.args[0], f"(), {code.text(call.args[0])}")
