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
For literal numbers (`tensor-const-to-device` has those), tensors that are on the device already, and code that does not run
each step.

## Fix safety
There is no fix: pinned memory is taken from RAM, and whether the two copies gain anything was not measured on a GPU.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Road, Severity, rule, words

_NAMES = words("tensor as_tensor asarray new_tensor scalar_tensor")


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.WARNING,
    needs=[("tensor(", "Tensor(", "asarray(")],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each constructor that copies Python data to the device."""
    for wait in code.waits(Road.UPLOAD, at=_makes_tensor):
        assert isinstance(wait.node, ast.Call)
        data = ast.unparse(wait.node.args[0])[:40]
        cure = "make it a tensor in the loader" if b"oader" in code.source.body else "copy less often, or from pinned memory"
        message = f"the CPU waits while `{data}` is copied to the device; {cure}"
        yield code.finding(wait.node, message, waits=[wait.node])


def _makes_tensor(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[data, *_]):
            return (name in _NAMES or name.endswith("Tensor")) and not _is_literal(data)
    return False


def _is_literal(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant)
