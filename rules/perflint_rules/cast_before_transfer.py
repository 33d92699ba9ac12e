"""A tensor becomes larger before it is copied to the device.

## What it does
Finds `x.float().to(device)`, `x.long().cuda()` and the like in code that runs each step, where `x` is known to be of a smaller
type.

## Why it is slow
The conversion runs on the CPU, and up to eight times the bytes go over the bus: a byte becomes four in float32 and eight in
int64. On the device the conversion is one kernel.

## Example
```python
for x, y in loader:
    mask = torch.randint(0, 2, (64, 64), dtype=torch.uint8)
    out = model(mask.float().to(device))
```

## Use instead
```python
for x, y in loader:
    mask = torch.randint(0, 2, (64, 64), dtype=torch.uint8)
    out = model(mask.to(device).float())
```

## When it stays silent
When the type of the tensor is not known, for numbers that are written out, when it becomes smaller or stays, and on the
device.

## Fix safety
Safe from whole numbers of at most 32 bits to float64, of at most 16 bits to float32, and between floating types, which both
devices convert exactly, if `.to` gets exactly a device and waits.
Unsafe else.
"""

import ast
from collections.abc import Iterator
from functools import partial

from perflint.api import (
    OWN_TENSORS,
    Alternative,
    Code,
    Cost,
    Edit,
    Finding,
    Kind,
    Obligation,
    Place,
    Severity,
    Tensor,
    any_layout,
    moved_to,
    no_device,
    replace,
    rule,
)

_BYTES = {"bool": 1, "uint8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8, "float64": 8}
_CASTS = {"float": "float32", "double": "float64", "long": "int64", "int": "int32"}
_EXACT_BYTES = {"float32": 2, "float64": 4, "int64": 8, "int32": 4}
"""How many bytes a whole number may have that the type holds exactly."""


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.INFO,
    needs=[(any_layout(rb"\. (?:float|double|long|int) \( \) \. (?:to|cuda) \("),)],
    fixes=True,
    by_fix=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each conversion to a larger type right before a copy to the device."""
    for call in code.calls("to", "cuda"):
        match call.func:
            case ast.Attribute(value=ast.Call(func=ast.Attribute(value=inner, attr=cast), args=[], keywords=[])) if (
                cast in _CASTS
            ):
                pass
            case _:
                continue
        target = _CASTS[cast]
        if isinstance(inner, ast.Call) and any(isinstance(a, (ast.List, ast.Tuple)) for a in inner.args[:1]):
            continue  # a handful of numbers
        value = code.value(inner)
        if not code.is_hot(call) or not value.must(_SMALLER[target]):
            continue
        device = moved_to(code.facts, code.scope, call)
        if device is None:
            continue
        exact = value.must(_EXACT[target])
        missing = [
            None if exact else Obligation(Kind.NUMBERS, "the device may round the conversion differently"),
            None if device is call else no_device(code.facts, code.scope, device),
            *code.feared(OWN_TENSORS),
            _in_flight(call),
        ]
        types = sorted({a.dtype for a in value.alternatives if isinstance(a, Tensor)})
        message = f"{' or '.join(types)} becomes {target} before the copy, so more bytes are copied; convert it on the device"
        yield code.finding(call, message, code.fix("convert it on the device", _swapped(code, call), unless=missing), missing)


def _is_smaller(alternative: Alternative, target: str) -> bool:
    if not isinstance(alternative, Tensor) or alternative.place is not Place.HOST:
        return False
    return _BYTES.get(alternative.dtype, 8) < _BYTES[target]


def _is_exact(alternative: Alternative, target: str) -> bool:
    if not isinstance(alternative, Tensor):
        return False
    if "float" in alternative.dtype:
        return "float" in target
    return _BYTES.get(alternative.dtype, 8) <= _EXACT_BYTES[target]


_SMALLER = {target: partial(_is_smaller, target=target) for target in _CASTS.values()}
_EXACT = {target: partial(_is_exact, target=target) for target in _CASTS.values()}


def _in_flight(call: ast.Call) -> Obligation | None:
    """Whether the copy may go on while somebody writes to the tensor: the converted one was nobody else's."""
    if any(k.arg == "non_blocking" for k in call.keywords):
        return Obligation(Kind.TRANSFER, "a copy that does not wait reads a tensor that others may write to meanwhile")
    return None


def _swapped(code: Code, call: ast.Call) -> Iterator[Edit]:
    assert isinstance(call.func, ast.Attribute)
    cast = call.func.value
    assert isinstance(cast, ast.Call)
    assert isinstance(cast.func, ast.Attribute)
    moved = code.text(call)[len(code.text(cast)) :]
    inner = code.text(cast.func).removesuffix(cast.func.attr).rstrip().removesuffix(".")
    yield replace(code.source, call, f"{inner}{moved}{code.text(cast)[len(inner) :]}")
