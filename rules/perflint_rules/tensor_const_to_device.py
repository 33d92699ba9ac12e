"""A Python constant is copied to the device in every step.

## What it does
Finds `torch.tensor(0.0, device=device)` and `torch.tensor(0.0).to(device)` with a literal number in code that runs each step.

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
Outside of code that runs each step, for the device "cpu", and for anything but a literal number. Each step's waits are counted
by the sync budget; select the rule to see them one by one.

## Fix safety
Safe: shape and type are the same for literals. Unsafe for a number that its type may not hold: of `1e39`, `torch.tensor` makes
infinity, `torch.full` raises; for integers both raise, with other words. A float that half precision cannot hold, without a
type, assumes that nobody makes half precision the default. Unsafe, too, with `requires_grad` and for a bool without `dtype`, of
which TorchScript makes something else, when what `.to` gets may be no device, and where something may need the wait: several
streams, pinned memory, copies to the host. No fix where `tensor` is imported by its name.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    DEFAULT_TYPE,
    OWN_TENSORS,
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Finding,
    Kind,
    Obligation,
    Place,
    Severity,
    any_layout,
    argument,
    change_call,
    device_place,
    dtype_of,
    moved_to,
    no_device,
    replace,
    rule,
)
from perflint_rules.fallback_numbers import is_way_out
from perflint_rules.old_torch import of_old_torch

_KEYWORDS = frozenset(("device", "dtype", "requires_grad"))
_LARGEST_HALF = 65504
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
_LARGEST_EXACT = 2**53  # `torch.tensor` makes a double of an integer first, and rounds twice, `torch.full` once
_LARGEST_INT64 = 2**63 - 1
_RANGES = {
    **dict.fromkeys(("float16", "bfloat16"), (-_LARGEST_HALF, _LARGEST_HALF)),
    **dict.fromkeys(("float32", "float64"), (-_LARGEST_FLOAT, _LARGEST_FLOAT)),
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    "uint8": (0, 255),
}

_NUMBER = rb"tensor \( -? (?:\d|\.\d|True|False)"
_LITERAL = any_layout(_NUMBER + rb"[^()]*,[^()]*\bdevice\b")
_MOVED = any_layout(_NUMBER + rb"[^()]*\) \. (?:to|cuda) \(")


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.WARNING,
    needs=[("tensor(",), (_LITERAL, _MOVED)],
    fixes=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each literal that `torch.tensor` copies to a device."""
    yield from _moved(code)
    for call in code.calls("tensor"):
        device = argument(call, None, "device")
        if device is None or len(call.args) != 1 or not _is_literal_number(call.args[0]) or is_way_out(code, call):
            continue
        if not code.is_external(call.func, "torch.tensor") or not code.is_hot(call):
            continue
        if not {k.arg for k in call.keywords} <= _KEYWORDS or device_place(code.value(device)) is Place.HOST:
            continue
        missing = [
            of_old_torch(code, call),
            _too_large(code, call),
            _scripts_differently(call),
            *_changed(code),
            *code.needs_wait(),
        ]
        fix = code.fix("fill the number in on the device", _filled(code, call), unless=missing)
        message = "the number is built on the host and copied to the device in every step; use `torch.full((), ...)`"
        yield code.finding(call, message, fix, missing, waits=[call])


def _moved(code: Code) -> Iterator[Finding]:
    """`torch.tensor(0.0).to(device)`."""
    for call in code.calls("to", "cuda"):
        made = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not isinstance(made, ast.Call) or len(made.args) != 1 or not _is_literal_number(made.args[0]):
            continue
        if not {k.arg for k in made.keywords} <= {"dtype"} or not code.is_external(made.func, "torch.tensor"):
            continue
        device = moved_to(code.facts, code.scope, call)
        if device is None or not code.is_hot(call) or is_way_out(code, call):
            continue
        missing = [
            *code.needs_wait(),
            of_old_torch(code, made),
            _too_large(code, made),
            _scripts_differently(made),
            None if device is call else no_device(code.facts, code.scope, device),
            *code.changes_factories(made, "torch.tensor", "torch.full"),
        ]
        fix = code.fix("fill the number in on the device", _folded(code, call, made, device), unless=missing)
        message = "the number is built on the host and copied to the device in every step; fill it in there with `torch.full`"
        yield code.finding(call, message, fix, missing, waits=[call])


def _folded(code: Code, call: ast.Call, made: ast.Call, device: ast.expr) -> Iterator[Edit]:
    if "#" in code.text(call):
        raise CannotRewrite("a comment would be lost")
    if not isinstance(made.func, ast.Attribute):
        raise CannotRewrite("`tensor` is imported by its name")
    given = [code.text(made.args[0]), *(f"{k.arg}={code.text(k.value)}" for k in made.keywords)]
    given.append('device="cuda"' if device is call else f"device={code.text(device)}")
    full = ast.unparse(made.func).removesuffix("tensor") + "full"
    yield replace(code.source, call, f"{full}((), {', '.join(given)})")


def _changed(code: Code) -> Iterator[Obligation]:
    """What may make something else of `torch.tensor` or of `torch.full`."""
    yield from code.feared(OWN_TENSORS)
    yield from code.replaced("torch.tensor", "torch.full")


def _is_literal_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) in (int, float, bool)


def _too_large(code: Code, call: ast.Call) -> Obligation | None:
    """`torch.tensor` makes infinity of a float that its type cannot hold, `torch.full` raises; both raise for integers, each
    with its own words. Without a known type, what every type holds.
    """
    value = ast.literal_eval(call.args[0])
    dtype = argument(call, None, "dtype")
    if dtype is None and isinstance(value, float) and _LARGEST_HALF < abs(value) <= _LARGEST_FLOAT:
        set_here = next(code.feared(DEFAULT_TYPE), None)
        return set_here or Obligation(Kind.PLAIN_MODULES, "a library may have set a default type that cannot hold the number")
    if dtype is None:
        low, high = (-_LARGEST_HALF, _LARGEST_HALF) if isinstance(value, float) else (-_LARGEST_INT64, _LARGEST_INT64)
    else:
        low, high = _RANGES.get(dtype_of(code.value(dtype)), (0, 127))
    exact = isinstance(value, float) or isinstance(low, int) or abs(value) <= _LARGEST_EXACT
    return None if exact and low <= value <= high else Obligation(Kind.VALUE, "the number may be too large for its type")


def _scripts_differently(call: ast.Call) -> Obligation | None:
    """What TorchScript makes of `torch.full` that it does not make of `torch.tensor`: who scripts a function is not known."""
    if argument(call, None, "requires_grad") is not None:
        return Obligation(Kind.PLAIN_MODULES, "TorchScript's `torch.full` takes no `requires_grad`")
    boolean = isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, bool)
    if boolean and argument(call, None, "dtype") is None:
        return Obligation(Kind.PLAIN_MODULES, "TorchScript's `torch.full` makes an integer of a bool")
    return None


def _filled(code: Code, call: ast.Call) -> Iterator[Edit]:
    import libcst as cst

    if not isinstance(call.func, ast.Attribute):
        raise CannotRewrite("`tensor` is imported by its name")
    full = ast.unparse(call.func).removesuffix("tensor") + "full"

    def change(node: cst.Call) -> cst.Call:
        between: cst.BaseParenthesizableWhitespace = cst.SimpleWhitespace(" ")
        if isinstance(opening := node.whitespace_before_args, cst.ParenthesizedWhitespace):
            between = cst.ParenthesizedWhitespace(indent=opening.indent, last_line=opening.last_line)
        shape = cst.Arg(cst.Tuple([]), comma=cst.Comma(whitespace_after=between))
        return node.with_changes(func=cst.parse_expression(full), args=[shape, *node.args])

    yield change_call(code.source, call, change)
