"""The size of a result depends on the data, so the CPU waits to learn it.

## What it does
Finds, in code that runs each step, reads and writes by a boolean mask (`x[mask]`, `x[mask] = y`), `nonzero`, `argwhere`,
`where` with one argument, `masked_select`, `unique` and `bincount` of tensors on the device.

## Why it is slow
torch has to allocate the result before it queues the work that follows, and only the device knows how large it is: the CPU
waits for everything that is queued. `torch.compile` breaks its graph there.

## Example
```python
for x, y in loader:
    x = x.to("cuda")
    loss = model(x)[x > 0].sum()
    loss.backward()
```

## Use instead
```python
for x, y in loader:
    x = x.to("cuda")
    loss = torch.where(x > 0, model(x), 0.0).sum()
    loss.backward()
```
A weighted sum, `masked_fill`, or a size that is known (`torch.topk`, `nonzero_static`) waits for nothing.

## When it stays silent
For `x[mask] = number`, which waits for nothing, `where` with three arguments, arrays, tensors on the host, code that does not
run each step, and where the same function reads on the host what comes of it, or loops over it: that wait stays in any case.

## Fix safety
There is no fix: a sum over a mask adds in another order, and nan outside of the mask gets into gradients.
"""

import ast
from collections.abc import Iterator

from perflint.api import MASKED, Code, Cost, Finding, Road, Severity, any_layout, is_counted_in_step, rule

_MASKS = ("mask", "valid", "bool", "isnan", "isfinite", "==", "!=", "<", ">")
_CALLS = ("nonzero(", "argwhere(", "masked_select(", "unique(", "unique_consecutive(", "bincount(")
_ONE_ARGUMENT = any_layout(rb"where \((?!(?:[^(),]|\((?:[^()]|\([^()]*\))*\))*,)")


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[(*_MASKS, *_CALLS, "where("), (*_CALLS, _ONE_ARGUMENT, MASKED)],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each operation whose result has a size that only the device knows."""
    said: set[tuple[ast.stmt, str]] = set()
    for wait in code.waits(Road.SHAPE, at=_is_selection):
        place = (code.flow.statement(wait.node), ast.unparse(wait.node))
        if place in said or is_counted_in_step(code.scope, wait.node):
            continue
        said.add(place)
        yield code.finding(wait.node, f"the CPU waits to learn {_cure(wait.node)}", waits=[wait.node])


def _cure(node: ast.expr) -> str:
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("bincount"):
        return "the largest number; count with `scatter_add_` into zeros of a known size"
    what = "this mask selects" if isinstance(node, ast.Subscript) else "elements there are"
    return f"how many {what}; keep the size fixed with `where`, `masked_fill` or weights"


def _is_selection(node: ast.expr) -> bool:
    return not (isinstance(node, ast.Call) and "repeat_interleave" in ast.unparse(node.func))
