"""An array is copied to make a tensor of it.

## What it does
Finds `torch.tensor(array)` in code that runs each step, for arrays of numpy, and `torch.Tensor(t.numpy())`.

## Why it is slow
It copies all of the array, on the CPU and into memory that is not pinned. `torch.from_numpy` shares it.

## Example
```python
for x, y in loader:
    points = np.ascontiguousarray(x.numpy())
    out = model(torch.tensor(points))
```

## Use instead
```python
for x, y in loader:
    points = np.ascontiguousarray(x.numpy())
    out = model(torch.from_numpy(points))
```

## When it stays silent
For other arrays that `torch.Tensor` and `torch.FloatTensor` convert, for lists and numbers, where nothing says that it is an
array, when a `dtype` or a `device` is given, and outside of code that runs each step.

## Fix safety
There is no fix: a tensor that shares an array changes with it, `torch.Tensor` also converts to float32, and arrays with a
negative stride raise.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Object, Severity, rule

_CONVERTERS = ("torch.Tensor", "torch.FloatTensor")
"""They also convert to float32, which takes a copy in any case, unless the array is that of a tensor."""


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.INFO,
    calls=["torch.tensor", *_CONVERTERS],
    in_file=[("torch",), ("numpy",)],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each constructor that copies an array."""
    for call in code.calls_to("torch.tensor", *_CONVERTERS):
        if len(call.args) != 1 or call.keywords or isinstance(call.args[0], (ast.List, ast.ListComp, ast.Constant)):
            continue
        known = code.is_external(call.func, "torch.tensor") and code.value(call.args[0]).must(_is_array)
        if (known or _ends_with_numpy(code, call.args[0])) and code.is_hot(call):
            yield code.finding(call, "all of the array is copied; `torch.from_numpy` shares it")


def _ends_with_numpy(code: Code, node: ast.expr) -> bool:
    """Whether an expression, or what a name is bound to, is `x.numpy()`."""
    if isinstance(node, ast.Name):
        found = [d.value for d in code.flow.reaching.get(node, ()) if not d.index]
        return bool(found) and all(isinstance(value, ast.Call) and _ends_with_numpy(code, value) for value in found)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "numpy"


def _is_array(alternative: object) -> bool:
    return isinstance(alternative, Object) and alternative.qualname == "numpy.ndarray"
