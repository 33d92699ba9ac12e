"""Python data is made a tensor on the device in every step.

## What it does
Finds `torch.tensor(data, device=device)`, `torch.as_tensor`, `new_tensor` and `torch.cuda.FloatTensor(data)` of lists,
arrays and numbers that are no literals, in code that runs each step.

## Why it is slow
The data lies in ordinary host memory: the copy is staged, and the CPU waits until all that is queued before it, and the
copy itself, are done.

## Example
```python
for x, y in loader:
    lengths = torch.tensor([len(row) for row in y], device="cuda")
    loss = model(x.cuda(non_blocking=True), lengths)
    loss.backward()
```

## Use instead
```python
for x, y in loader:
    lengths = torch.tensor([len(row) for row in y]).pin_memory().to("cuda", non_blocking=True)
    loss = model(x.cuda(non_blocking=True), lengths)
    loss.backward()
```
or let the `collate_fn` make the tensor, and the loader pin it.

## When it stays silent
For literal numbers (`tensor-const-to-device` has those), tensors that are on the device already, code that does not run
each step, and where the same function reads on the host what comes of it: that wait stays in any case. Each step's waits are
counted by the sync budget; select the rule to see them one by one.

## Fix safety
With `runtime = true`, `torch.tensor` and `torch.as_tensor` become `uploaded(torch.tensor, data, device=device)`, which makes
the tensor on the host, copies it into pinned memory of its own and lets the copy to a CUDA device run on; whatever else is
asked for is the plain call. That no other stream reads the result must be proved. Without the runtime there is no fix: pinned
memory is taken from RAM. What the two copies gain was not measured on a GPU.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    Batch,
    Code,
    Cost,
    Edit,
    Finding,
    Import,
    Literal,
    Number,
    Road,
    Severity,
    is_of_constants,
    is_read_in_step,
    items_of,
    rule,
    words,
)

_SPACE = re.compile(rb"(?:\s|\\\n|#[^\n]*)*")
_NAMES = words("tensor as_tensor asarray new_tensor scalar_tensor")


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.WARNING,
    needs=[("tensor(", "Tensor(", "asarray(")],
    fixes=True,
    steps=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each constructor that copies Python data to the device."""
    for wait in code.waits(Road.UPLOAD, at=_makes_tensor):
        assert isinstance(wait.node, ast.Call)
        if is_read_in_step(code.scope, wait.node):
            continue
        data = wait.node.args[0]
        if any(code.may_be_on_device(item) for item in items_of(code.scope, data)):
            did = f"the CPU reads each tensor in `{_short(data)}` and copies the numbers back; `torch.stack` leaves them there"
            yield code.finding(wait.node, did, waits=[wait.node])
            continue
        message = f"the CPU waits while `{_short(data)}` is copied to the device; {_cure(code, wait.node)}"
        fix, missing = None, list(code.needs_wait())
        if code.offers_runtime and _is_of_torch(code, wait.node):
            fix = code.fix("use `uploaded` of the runtime", _uploaded(code, wait.node), unless=missing)
        yield code.finding(wait.node, message, fix, missing if fix is not None else (), waits=[wait.node])


def _short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _cure(code: Code, call: ast.Call) -> str:
    data = call.args[0]
    read = [d.value for d in code.flow.reaching.get(data, ()) if d.value is not None]
    if read and all(isinstance(v, ast.Call) and isinstance(v.func, ast.Attribute) and v.func.attr == "item" for v in read):
        return "it was read from there: keep the tensor"
    if code.value(data).may_be(Batch):
        return "a batch's `.to(device, non_blocking=True)` does not wait where its memory is pinned"
    if is_of_constants(data):
        return "it is always the same: make it once, and keep it there"
    match data:
        case ast.BinOp(left=ast.List(elts=[_]), op=ast.Mult()):
            return "fill the number in there with `torch.full`"
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if code.scope.owner is not None:
            if all(method.name == "__init__" for method in code.scope.owner.methods_assigning(name)):
                return "it is always the same: make it once, and keep it there, as a buffer"
    ends = data
    while isinstance(ends, (ast.List, ast.Tuple)) and len(ends.elts) == 1:
        ends = ends.elts[0]
    if _is_number(code, ends):
        return "fill the number in there with `torch.full`"
    return "make it on the host in pinned memory: a copy from there with `non_blocking=True` does not wait for queued work"


def _is_number(code: Code, node: ast.expr) -> bool:
    """Whether an expression is one number: `n`, `[n]`, `torch.finfo(dtype).min`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
        return code.is_external(node.value.func, "torch.finfo", "torch.iinfo")
    value = code.value(node)
    return value.must(lambda a: isinstance(a, Number) or (isinstance(a, Literal) and isinstance(a.value, (int, float))))


def _is_of_torch(code: Code, call: ast.Call) -> bool:
    """Whether a call is `torch.tensor(data, device=...)`, with its arguments written out."""
    if any(isinstance(given, ast.Starred) for given in call.args) or any(k.arg is None for k in call.keywords):
        return False
    named = any(k.arg == "device" for k in call.keywords)
    return named and code.is_external(call.func, "torch.tensor", "torch.as_tensor")


def _uploaded(code: Code, call: ast.Call) -> Iterator[Edit | Import]:
    start, end = code.span(call.func)
    opening = code.source.body.index(b"(", end)
    yield Import("perflint_runtime", "uploaded")
    space = _SPACE.match(code.source.body, opening + 1)
    first = space.end() if space is not None else opening + 1  # what stands on lines of its own stays there
    yield Edit(start, end, "uploaded")
    yield Edit(first, first, f"{code.text(call.func)}, ")


def _makes_tensor(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[data, *_]):
            return (name in _NAMES or name.endswith("Tensor")) and not _is_literal(data)
    return False


def _is_literal(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant)
