"""The size of a result depends on the data, so the CPU waits to learn it.

## What it does
Finds, in code that runs each step, reads and writes by a boolean mask (`x[mask]`, `x[mask] = y`), `nonzero`, `argwhere`,
`where` with one argument, `masked_select`, `unique`, `bincount` and `to_sparse` of tensors on the device.

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
Each step's waits are counted by the sync budget; select the rule to see them one by one.

## Fix safety
There is no fix that keeps the size fixed: a sum over a mask adds in another order, and nan outside of the mask gets into
gradients. Where one mask selects several times and fixes may import the runtime, its places are looked for once:
```python
        rows = selected(mask)
        loss = criterion(logits[rows], labels[rows])
```
Results and gradients are the same to the last bit, since torch looks for the same places itself at each use, and once more in
the backward pass. It assumes that a mask of another size is a bug (`errors-are-bugs`), and memory for the places
(`memory-to-spare`). It is unsafe where the mask may be written to in between.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    MASKED,
    Code,
    Cost,
    Finding,
    Kind,
    Obligation,
    Road,
    Severity,
    any_layout,
    is_counted_in_step,
    rule,
)
from perflint_rules.same_masks import Selections, by_mask, looked_for_once, missing, selectors

_MASKS = ("mask", "valid", "bool", "isnan", "isfinite", "==", "!=", "<", ">")
_TO_SPARSE = tuple(f"to_sparse{kind}(" for kind in ("", "_coo", "_csc", "_csr"))
_CALLS = ("nonzero(", "argwhere(", "masked_select(", "unique(", "unique_consecutive(", "bincount(", *_TO_SPARSE)
_ONE_ARGUMENT = any_layout(rb"where \((?!(?:[^(),]|\((?:[^()]|\([^()]*\))*\))*,)")


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[(*_MASKS, *_CALLS, "where("), (*_CALLS, _ONE_ARGUMENT, MASKED)],
    fixes=True,
    steps=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each operation whose result has a size that only the device knows."""
    said: set[tuple[ast.stmt, str]] = set()
    found = [wait.node for wait in code.waits(Road.SHAPE, at=_is_selection) if not is_counted_in_step(code.scope, wait.node)]
    once: set[ast.expr] = set()
    for selections in by_mask(code, found):
        open_ = [obligation for obligation in missing(code, selections) if obligation is not None]
        if all(obligation.kind is not Kind.WRITE for obligation in open_):
            once.update(selections.nodes)
            yield _searched_again(code, selections, open_)
    for node in found:
        chosen = {(code.flow.statement(node), ast.unparse(part)) for part in selectors(code, node)}
        if node in once or not said.isdisjoint(chosen):
            continue
        said |= chosen
        yield code.finding(node, f"the CPU waits to learn {_cure(node)}", waits=[node])


def _searched_again(code: Code, selections: Selections, open_: list[Obligation]) -> Finding:
    """Several selections by the same mask."""
    fix, cure = None, "look for the places once, by `selected` of the runtime"
    if code.offers_runtime:
        fix = code.fix(cure, looked_for_once(code, selections), unless=open_)
    mask, times = ast.unparse(selections.masks[0]), len(selections.nodes)
    often = "twice" if times == 2 else f"{times} times"
    if fix is None:
        cure = f"look for the places once: `{mask}.nonzero(as_tuple=True)`"
    message = f"the CPU waits {often} to learn how many `{mask}` selects; {cure}"
    distinct, first = [*dict.fromkeys(selections.nodes)], selections.nodes[0]
    waits, still_open = distinct[1:] or distinct, open_ if fix is not None else ()
    return code.finding(first, message, fix, still_open, waits=waits)


def _cure(node: ast.expr) -> str:
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("bincount"):
        return "the largest number; count with `scatter_add_` into zeros of a known size"
    if isinstance(node, ast.Call) and "to_sparse" in ast.unparse(node.func):
        return "how many elements are no zeros; keep it dense, or keep the indices that it was filled by"
    what = "this mask selects" if isinstance(node, ast.Subscript) else "elements there are"
    return f"how many {what}; keep the size fixed with `where`, `masked_fill` or weights"


def _is_selection(node: ast.expr) -> bool:
    return not (isinstance(node, ast.Call) and "repeat_interleave" in ast.unparse(node.func))
