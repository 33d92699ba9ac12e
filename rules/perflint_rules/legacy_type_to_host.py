"""A device tensor becomes a host tensor by the name of an old type.

## What it does
Finds `x.type(torch.LongTensor)`, `x.type(torch.FloatTensor)` and the like for a tensor on the device, in code that runs each
step.

## Why it is slow
`torch.LongTensor` is the type of a tensor on the host, so this is a copy to the host that the CPU waits for, and mostly
another one back. `x.long()` converts where the data is.

## Example
```python
for x, y in loader:
    scores = model(x.to(device))
    picked = scores.argmax(1).type(torch.LongTensor)
    optimizer.step()
```

## Use instead
```python
for x, y in loader:
    scores = model(x.to(device))
    picked = scores.argmax(1).long()
    optimizer.step()
```

## When it stays silent
On host tensors, for types of the device (`torch.cuda.LongTensor`) and types without a place (`torch.long`), and under a guard.
Select it to see what it finds: its fix must be looked at.

## Fix safety
Unsafe: the result is on the device then, and whoever relied on the host has to be changed, too.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Edit, External, Finding, Kind, Obligation, Severity, any_layout, replace, rule

_METHODS = {
    "LongTensor": "long",
    "FloatTensor": "float",
    "DoubleTensor": "double",
    "IntTensor": "int",
    "ByteTensor": "byte",
    "BoolTensor": "bool",
    "HalfTensor": "half",
}
_STAYS = Obligation(Kind.VALUE, "the result stays on the device, where somebody may want it on the host")


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[(any_layout(rb"\. type \( ['\"]?[\w.\s\\]*Tensor"),)],
    fixes=True,
    steps=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each conversion to a host type."""
    for call in code.calls("type"):
        if not isinstance(call.func, ast.Attribute) or len(call.args) != 1 or call.keywords:
            continue
        name = _host_type(code, call.args[0])
        if name is None or not code.is_hot(call) or not code.may_be_on_device(call.func.value):
            continue
        message = f"`torch.{name}` is a type of the host: the CPU waits for the copy in every step; use `.{_METHODS[name]}()`"
        fix = code.fix(f"use `.{_METHODS[name]}()`", _converted(code, call, _METHODS[name]), unless=[_STAYS])
        yield code.finding(call, message, fix, [_STAYS], waits=[call])


def _host_type(code: Code, node: ast.expr) -> str | None:
    """The name of a type of host tensors."""
    known = code.value(node).single
    qualname = known.qualname if isinstance(known, External) else getattr(known, "value", None)
    if not isinstance(qualname, str):
        return None
    package, _, name = qualname.rpartition(".")
    return name if package == "torch" and name in _METHODS else None


def _converted(code: Code, call: ast.Call, method: str) -> Iterator[Edit]:
    assert isinstance(call.func, ast.Attribute)
    yield replace(code.source, call, f"{code.text(call.func).removesuffix('type')}{method}()")
