"""A tensor is copied to the host asynchronously and read before the copy is known to be done.

## What it does
Finds `t.to("cpu", non_blocking=True)` and `host.copy_(t, non_blocking=True)` whose result is read (`.numpy()`, `.item()`,
arithmetic, printing) with no synchronisation in between.

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
When `torch.cuda.synchronize()`, an event's or a stream's `synchronize()`, or a blocking read or copy stands between the copy
and the first use, and when the result is only kept or returned.

## Fix safety
Safe for a tensor: dropping `non_blocking` waits for the copy, which is what the code takes for granted. Unsafe for what may
be an object of another kind, whose method may do something else, and where the program captures CUDA
graphs, which must not wait.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    CAPTURED,
    Batch,
    Code,
    Edit,
    External,
    Finding,
    Instance,
    Kind,
    Obligation,
    Output,
    Place,
    Severity,
    Tensor,
    any_layout,
    argument,
    device_place,
    looks_at_numbers,
    path_of,
    place_of,
    remove_keyword,
    rule,
    words,
)

_SYNCHRONISES = frozenset(("synchronize", "item", "wait", "tolist", "barrier", "wait_stream", "query"))
_DATA_DEPENDENT = words("nonzero argwhere unique masked_select equal allclose repeat_interleave bincount print int float bool")


@rule(category="transfer", severity=Severity.ERROR, needs=[("non_blocking",), ("cpu", "copy_(")], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each asynchronous copy to the host that is read too early."""
    if code.flow.calls_named["record_stream"]:
        return  # somebody keeps account of streams, and waits where he reads
    for call in code.calls("to", "copy_"):
        given = argument(call, None, "non_blocking")
        if not isinstance(given, ast.Constant) or given.value is not True or not isinstance(call.func, ast.Attribute):
            continue
        read = _read_of_result(code, call) if call.func.attr == "to" else _read_of_buffer(code, call, call.func.value)
        if read is None or _synchronised(code, call, read):
            continue
        missing = [_not_a_tensor(code, call.func.value), *code.feared(CAPTURED)]  # a capture must not wait
        fix = code.fix("wait for the copy", _waiting(code, call), unless=missing)
        yield code.finding(
            call,
            f"the copy to the host may not be done when line {read.lineno} reads it; drop `non_blocking`, or synchronize first",
            fix,
            missing,
        )


def _not_a_tensor(code: Code, receiver: ast.expr) -> Obligation | None:
    value = code.value(receiver)
    if value.may_be(Tensor, Output, Batch) and not value.may_be(Instance):
        return None
    return Obligation(Kind.VALUE, f"`{ast.unparse(receiver)}` may be no tensor, and its method may look at `non_blocking`")


def _read_of_result(code: Code, call: ast.Call) -> ast.expr | None:
    """The first expression that looks at the numbers of `call`, a copy to the host."""
    assert isinstance(call.func, ast.Attribute)
    device = argument(call, 0, "device")
    if device is None or device_place(code.value(device)) is not Place.HOST or _is_on_host(code, call.func.value):
        return None
    flow = code.flow
    parent = flow.parent.get(call)
    if isinstance(parent, ast.expr) and looks_at_numbers(flow, call):
        return parent
    uses = [u for d in flow.definitions_from(call) if d.kind == "assign" for u in flow.uses[d]]
    return _first_read(code, uses)


def _read_of_buffer(code: Code, call: ast.Call, buffer: ast.expr) -> ast.expr | None:
    """The first expression that looks at a host buffer after a copy from a device into it."""
    path = path_of(buffer)
    if path is None or not call.args or not code.may_be_on_device(call.args[0]) or not _is_on_host(code, buffer):
        return None
    flow = code.flow
    same = flow.reaching.get(buffer, frozenset())
    uses = [use for definition in same for use in flow.uses[definition] if flow.order[use] > flow.order[call]]
    return _first_read(code, uses)


def _is_on_host(code: Code, node: ast.expr) -> bool:
    return code.value(node).must(lambda a: isinstance(a, (Tensor, Batch, Output)) and place_of(a) is Place.HOST)


def _first_read(code: Code, uses: list[ast.expr]) -> ast.expr | None:
    return next((use for use in sorted(uses, key=code.flow.order.__getitem__) if looks_at_numbers(code.flow, use)), None)


_WAITS = any_layout(
    rb"\. (?:item|tolist|cpu|numpy|synchronize|wait|nonzero|unique|barrier) \(|\bnonzero \(|\bfloat \(|\bint \(|\bprint \("
)


def _synchronised(code: Code, call: ast.Call, read: ast.expr) -> bool:
    """Whether something may wait for the device between a copy and the first look at it."""
    flow = code.flow
    low, high = flow.order[call], flow.order[read]
    if any(low < flow.order[other.node] < high for other in (*code.reads(), *code.truths())):
        return True
    for other in flow.calls_between(call, read):
        if other is not call and any(_WAITS.search(target.text) for target in code.facts.loops.targets(code.scope, other)):
            return True
        name = other.func.attr if isinstance(other.func, ast.Attribute) else path_of(other.func) or ""
        if name.rpartition(".")[2] in _DATA_DEPENDENT or (isinstance(other.func, ast.Name) and name in _SYNCHRONISES):
            return True
        if other is not call and _is_unknown(code, other):
            return True
    return any(
        isinstance(c.func, ast.Attribute)
        and ((c.func.attr in _SYNCHRONISES and c.func.value is not read) or _copies_to_host(code, c, c.func))
        for c in code.flow.calls_between(call, read)
        if c is not call
    )


def _is_unknown(code: Code, call: ast.Call) -> bool:
    """Whether a call by a name may be of anything: `fence()` of another package may wait."""
    callee = code.value(call.func)
    if isinstance(call.func, ast.Attribute) or code.facts.loops.targets(code.scope, call):
        return False
    known = ("torch.", "builtins.", "numpy.", "math.")
    return not callee.must(lambda a: not isinstance(a, External) or a.qualname.startswith(known))


def _copies_to_host(code: Code, call: ast.Call, func: ast.Attribute) -> bool:
    """Whether a call waits for a copy from the device, and so for the copies before it."""
    match func.attr:
        case "cpu":
            blocks = True
        case "to":
            device, given = argument(call, 0, "device"), argument(call, None, "non_blocking")
            blocks = device is not None and device_place(code.value(device)) is Place.HOST
            blocks = blocks and (given is None or (isinstance(given, ast.Constant) and given.value is False))
        case _:
            blocks = False
    return blocks and not _is_on_host(code, func.value)


def _waiting(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield remove_keyword(code.source, call, "non_blocking")
