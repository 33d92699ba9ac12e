"""All elements are sorted, and the first few are kept.

## What it does
Finds tensors that are sorted (`sort`, `argsort`) where nothing but a slice of the first or last elements is used.

## Why it is slow
A sort orders everything, in several passes over the data on a GPU, and writes as many indices of 8 bytes each. `topk` looks
for the few that are wanted.

## Example
```python
for x, y in loader:
    distances = torch.cdist(model(x), y)
    nearest = distances.sort(dim=-1)[1][:, :3]
```

## Use instead
```python
for x, y in loader:
    distances = torch.cdist(model(x), y)
    nearest = distances.topk(3, dim=-1, largest=False)[1]
```

## When it stays silent
When the rest of the order is used, too, or a share of the whole (`n * ratio`), or one `k` of a series after the other, for
lists and arrays, and for `stable=True`.

## Fix safety
There is no fix: `topk` raises where fewer elements than that are there, and orders equal elements another way.
"""

import ast
from collections.abc import Iterator

from perflint.api import Batch, Code, Cost, Finding, Output, Severity, Tensor, rule

_SORTS = ("torch.sort", "torch.argsort")


@rule(category="memory", costs=Cost.LAUNCH, severity=Severity.INFO, needs=[("sort(",), ("[",)])
def check(code: Code) -> Iterator[Finding]:
    """Report each sort of a tensor of which a few elements are used."""
    for call in code.calls("sort", "argsort"):
        if any(k.arg == "stable" for k in call.keywords) or not _sorts_tensor(code, call):
            continue
        if _is_cut(code, call):
            yield code.finding(call, "everything is sorted for the first few; `topk` finds those alone")


def _sorts_tensor(code: Code, call: ast.Call) -> bool:
    """Whether a tensor is sorted: a list returns nothing from `sort`, and an array has no `dim` and no `descending`."""
    if code.is_external(call.func, *_SORTS):
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    if any(k.arg in ("dim", "descending") for k in call.keywords):
        return True
    return code.value(call.func.value).may_be(Tensor, Batch, Output)


def _is_cut(code: Code, node: ast.expr) -> bool:
    """Whether all that becomes of a value are slices of a few elements."""
    parent = code.flow.parent.get(node)
    match parent:
        case ast.Subscript(value=value, slice=key) if value is node:
            return _is_few(code, key) or (isinstance(key, ast.Constant) and _is_cut(code, parent))
        case ast.Attribute(value=value, attr="values" | "indices") if value is node:
            return _is_cut(code, parent)
        case ast.Assign(targets=[_], value=value) if value is node:
            uses = [use for d in code.flow.definitions_from(node) for use in code.flow.uses[d]]
            return bool(uses) and all(_is_cut(code, use) for use in uses)
    return False


def _is_few(code: Code, key: ast.expr) -> bool:
    """`:3`, `-3:`, `..., :k`: the last part of an index is a slice with one end, which is no share of the whole."""
    parts = key.elts if isinstance(key, ast.Tuple) else [key]
    last = parts[-1] if parts else key
    if not isinstance(last, ast.Slice) or last.step is not None:
        return False
    if (last.lower is None) == (last.upper is None) or isinstance(last.upper, ast.UnaryOp) or _is_from_start(last):
        return False
    return not _is_share(code, last.lower or last.upper)


def _is_share(code: Code, bound: ast.expr | None) -> bool:
    """Whether a number goes through a series, or is a product or a quotient: `int(0.3 * n)`."""
    if bound is None:
        return False
    computed = (d.value for d in code.flow.reaching.get(bound, frozenset()) if d.value is not None)
    goes_on = any(d.kind == "for" for d in code.flow.reaching.get(bound, frozenset()))
    return goes_on or any(
        isinstance(part, ast.BinOp) and isinstance(part.op, (ast.Mult, ast.Div, ast.FloorDiv))
        for value in (bound, *computed)
        for part in ast.walk(value)
    )


def _is_from_start(part: ast.Slice) -> bool:
    return part.lower is not None and not isinstance(part.lower, ast.UnaryOp)
