"""A number on the device is used where Python needs one.

## What it does
Finds a tensor on the device as the bound of a slice, a size (`range(n)`, `torch.zeros(n)`), an index of a list, an operand
of `max`, `min` or `in`, or an argument of `math` and `numpy`, in code that runs each step. And `int(self.pointer)`, where that
is a buffer of a network that begins as whole zeros: a position that Python could count itself.

## Why it is slow
Python asks for the number, and the CPU waits until everything that is queued is done; `t in numbers` waits once for each of
them.

## Example
```python
for x, y in loader:
    x = x.to("cuda", non_blocking=True)
    longest = (x != 0).sum(1).max()
    model(x[:, :longest]).sum().backward()
```

## Use instead
```python
for x, y in loader:
    longest = int((x != 0).sum(1).max())
    x = x.to("cuda", non_blocking=True)
    model(x[:, :longest]).sum().backward()
```
which asks for the number while the data is on the host. `torch.maximum` and `t.sqrt()` stay on the device.

## When it stays silent
For `.item()`, `int(t)`, `max(t, 1)` and the like, which `item-every-step` and `sync-branch-on-tensor` report, for numbers of
the host, and in code that does not run each step. Each step's waits are counted by the sync budget; select the rule to see them
one by one.

## Fix safety
There is no fix: where the number comes from decides what to do.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, HostRead, ReadKind, Road, Severity, Tensor, brief, last_name, rule
from perflint_rules.bounds import bounds_a_number

_OTHERS = frozenset(("one_hot", "repeat_interleave", "type", "type_as", "backward"))
"""What size-not-given, legacy-type-to-host and debug-switch-left-on report."""
_CHECKED = frozenset(("eigh", "eigvalsh", "solve", "svd", "svdvals"))
"""Solvers that ask the device for their status."""
_INVERSES = frozenset(("inv", "inverse"))
_CLIPS = frozenset(("clip_grad_norm_", "get_total_norm"))
"""With `error_if_nonfinite=True` they ask."""


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[("[", "range(", "max(", "min(", "math.", "np.", "numpy", " in ", "(")],
    in_file=[("torch",), ("cuda", "device")],
    steps=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each number that Python asks the device for without saying so."""
    waits = code.waits(
        Road.NUMBER, Road.TRUTH, Road.COPY, at=lambda node: not (_is_others(node) or bounds_a_number(node) or _asks_list(node))
    )
    known = {read.node for read in (*code.reads(), *code.truths())} if waits else set()
    for wait in waits:
        if wait.node in known:
            continue
        yield code.finding(wait.node, _message(wait.node), waits=[wait.node])
    for read in code.reads(formatted=False):
        if code.is_hot(read.node) and _is_position(code, read):
            text = ast.unparse(read.tensor)
            message = f"the CPU waits to learn `{text}`, a position that it counts itself; keep it as a Python number, too"
            yield code.finding(read.node, message, waits=[read.node])


def _message(node: ast.expr) -> str:
    text = brief(node)
    name = last_name(node.func) if isinstance(node, ast.Call) else ""
    if name in _CLIPS:
        return f"the CPU waits to learn whether `{text}` is finite; leave `error_if_nonfinite` to runs that look for it"
    if name in _INVERSES:
        return f"the CPU waits to learn whether `{text}` can be inverted; `torch.linalg.inv_ex` does not ask"
    if name in _CHECKED:
        return f"the CPU waits to learn whether `{text}` has succeeded; keep it out of the steps, or do it every N steps"
    return f"Python asks the device for a number in `{text}`, and the CPU waits; ask on the host, or stay on the device"


def _is_position(code: Code, read: HostRead) -> bool:
    """`int(self.pointer)`: a buffer that begins at 0 and says where to go on in a queue."""
    tensor, statement = read.tensor, code.flow.statement(read.node)
    if not isinstance(tensor, ast.Attribute) or read.kind is ReadKind.COPY or not isinstance(statement, ast.Assign):
        return False
    begins = code.value(tensor).must(lambda a: isinstance(a, Tensor) and a.zeros and a.dtype == "int64")
    return begins and statement.value is read.node


def _asks_list(node: ast.expr) -> bool:
    """`int(names.index(name))`: tensors have no such method."""
    match node:
        case ast.Call(args=[ast.Call(func=ast.Attribute(attr="index" | "find" | "rfind"))]):
            return True
    return False


def _is_others(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _OTHERS
