"""A tensor is made from a list of arrays, number by number.

## What it does
Finds `torch.tensor(arrays)`, `torch.as_tensor(arrays)` and `torch.FloatTensor(arrays)` for a list whose items are numpy
arrays.

## Why it is slow
torch walks through the list and asks each array for each of its numbers as a Python object; it warns about it itself, once.
`np.array` copies whole rows.

## Example
```python
for x, y in loader:
    rows = [row.numpy() for row in x]
    out = model(torch.tensor(rows))
```

## Use instead
```python
for x, y in loader:
    rows = [row.numpy() for row in x]
    out = model(torch.tensor(np.array(rows)))
```

## When it stays silent
When an item may be something else than an array, a number say, and for a single array.

## Fix safety
Unsafe: an empty list gives another type (float64), and arrays of several types are joined by numpy's rules, not torch's. With
`runtime = true` it is `torch.tensor(joined(rows))`: `joined` looks at the arrays when the program runs, and joins those of
which torch makes the same tensor. That is safe, unless the program records warnings or makes errors of them: torch no longer
warns of the slow way.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    WATCHES_WARNINGS,
    Code,
    Cost,
    Definition,
    Edit,
    Finding,
    Import,
    Kind,
    Obligation,
    Severity,
    items_of,
    path_of,
    replace,
    rule,
    words,
)

_MAKERS = tuple(f"torch.{name}" for name in ("tensor", "as_tensor", "Tensor", "FloatTensor", "LongTensor", "DoubleTensor"))
_MAKES = words(
    """
    array asarray ascontiguousarray zeros ones full eye arange linspace stack vstack hstack concatenate load loadtxt
    frombuffer fromfile tile repeat zeros_like ones_like genfromtxt
    """
)
_SAME = words("astype copy reshape flatten ravel transpose squeeze clip")
_TYPES = Obligation(Kind.NUMBERS, "an empty list, or arrays of several types, give another type")


@rule(
    category="data-loading",
    costs=Cost.COPY,
    severity=Severity.WARNING,
    calls=_MAKERS,
    in_file=[("torch",), ("numpy",)],
    fixes=True,
    by_fix=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each tensor that is made from a list of arrays."""
    for call in code.calls_to(*_MAKERS):
        if not call.args or not isinstance(call.args[0], (ast.Name, ast.List, ast.ListComp)):
            continue
        rows = call.args[0]
        items = items_of(code.scope, rows)
        if not items or not all(_is_array(code, item) for item in items):
            continue
        message = "torch asks each array for each number as a Python object; join the list by `np.array` first"
        missing = [_TYPES]
        fix = code.fix("join it by `np.array`", _joined(code, rows), unless=missing)
        if code.offers_runtime and (joined := _joined_at_run_time(code, call)) is not None:
            watched = [*code.feared(WATCHES_WARNINGS)]  # torch would no longer warn that this is slow
            guarded = code.fix("let the runtime join it", joined, unless=watched)
            fix, missing = (guarded, watched) if guarded is not None else (fix, missing)
        yield code.finding(call, message, fix, missing)


def _is_array(code: Code, node: ast.expr, depth: int = 4) -> bool:
    """Whether an expression makes an array, not a number of numpy's: by the function or the method that it ends with."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=name)):
            if name == "numpy" and not node.args:
                return True
            if name in _SAME and depth:
                return _is_array(code, value, depth - 1)
            return name in _MAKES and code.is_external(node.func, f"numpy.{name}")
        case ast.Subscript(value=value, slice=key) if depth:
            whole = isinstance(key, (ast.Slice, ast.Call, ast.Compare)) or (
                isinstance(key, ast.Tuple) and any(isinstance(part, ast.Slice) for part in key.elts)
            )
            return whole and _is_array(code, value, depth - 1)
        case ast.Name() if depth:
            found = [_bound(code, definition) for definition in code.flow.reaching.get(node, ())]
            return bool(found) and all(values and all(_is_array(code, v, depth - 1) for v in values) for values in found)
    return False


def _bound(code: Code, definition: Definition) -> list[ast.expr]:
    """The expressions that a name is bound to: one, or the items of the list that a loop goes over."""
    if definition.value is None or definition.index or definition.kind not in ("assign", "for"):
        return []
    return [definition.value] if definition.kind == "assign" else items_of(code.scope, definition.value)


def _joined(code: Code, rows: ast.expr) -> Iterator[Edit | Import]:
    numpy, imports = code.name_for("numpy")
    yield from imports
    yield replace(code.source, rows, f"{numpy}.array({code.text(rows)})")


def _joined_at_run_time(code: Code, call: ast.Call) -> list[Edit | Import] | None:
    """The list as an array where torch makes the same tensor of it, if the maker is one of which that can be told."""
    maker = next(name for name in _MAKERS if call in code.calls_to(name)).rpartition(".")[2]
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    if maker == "as_tensor" or len(call.args) > 1 or not named.keys() <= {"dtype", "device", "requires_grad", "pin_memory"}:
        return None
    integers = maker == "LongTensor"
    if "dtype" in named:
        dtype = (path_of(named["dtype"]) or "").rpartition(".")[2]
        if not code.is_external(named["dtype"], f"torch.{dtype}") or dtype not in _INTEGERS | _FLOATS:
            return None
        integers = dtype in _INTEGERS
    rows = call.args[0]
    text = f"joined({code.text(rows)}, integers=True)" if integers else f"joined({code.text(rows)})"
    return [Import("perflint_runtime", "joined"), replace(code.source, rows, text)]


_FLOATS = words("float32 float float64 double")
_INTEGERS = words("int64 long")
