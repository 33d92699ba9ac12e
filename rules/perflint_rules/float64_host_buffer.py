"""A buffer holds twice the bytes that its samples need.

## What it does
Finds attributes that are made by `np.zeros`, `np.ones` or `np.empty` without a `dtype`, or are dicts of such arrays, in classes
that turn parts of them into float32 tensors (`torch.FloatTensor(self.states[i])`).

## Why it is slow
numpy's default is float64: the buffer takes twice the memory, each sample gathers twice the bytes, and each is converted once
more.

## Example
```python
class Replay:
    def __init__(self, size, width):
        self.states = np.zeros((size, width))

    def sample(self, index):
        return torch.FloatTensor(self.states[index])
```

## Use instead
```python
class Replay:
    def __init__(self, size, width):
        self.states = np.zeros((size, width), dtype=np.float32)

    def sample(self, index):
        return torch.from_numpy(self.states[index])
```

## When it stays silent
When a `dtype` is given, and when the class makes no float32 tensors of the attribute.

## Fix safety
There is no fix: what else is computed with the buffer would be rounded to float32.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, path_of, rule

_MAKERS = ("numpy.zeros", "numpy.ones", "numpy.empty")
_MADE_NARROW = frozenset(("FloatTensor", "Tensor"))
_NARROW = frozenset(("torch.float32", "torch.float"))


@rule(
    category="transfer", costs=Cost.COPY, severity=Severity.INFO, calls=_MAKERS, in_file=[("torch",), ("numpy",), ("class ",)]
)
def check(code: Code) -> Iterator[Finding]:
    """Report each buffer of a class that is wider than what is made of it."""
    owner = code.scope.owner
    if owner is None or code.scope.name != "__init__":
        return
    for call in code.calls_to(*_MAKERS):
        statement = code.flow.statement(call)
        if len(call.args) != 1 or call.keywords or not isinstance(statement, ast.Assign):
            continue
        match statement:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=made):
                if made is not call and not _is_first_of_dict(code, made, call):
                    continue
                if any(_narrows(code.at(method), name) for method in owner.methods.values()):
                    holds = "is" if made is call else "holds"
                    yield code.finding(call, f"`self.{name}` {holds} float64, its samples are float32; pass `dtype=np.float32`")


def _is_first_of_dict(code: Code, made: ast.expr, call: ast.Call) -> bool:
    """Whether a dict of arrays is written out, and a call makes the first that is wide."""
    if not isinstance(made, ast.Dict) or call not in made.values:
        return False
    return call is next((v for v in made.values if v in code.calls_to(*_MAKERS) and not v.keywords), None)


def _narrows(code: Code, name: str) -> bool:
    """Whether a method makes tensors in float32 of items of an attribute."""
    for call in code.flow.calls:
        match call.args:
            case [ast.Subscript(value=ast.Attribute(value=ast.Name(id="self"), attr=attr)), *_] | [
                ast.Subscript(value=ast.Subscript(value=ast.Attribute(value=ast.Name(id="self"), attr=attr))),
                *_,
            ] if attr == name:
                made = (path_of(call.func) or "").rpartition(".")[2]
                method = code.flow.parent.get(call)
                converted = isinstance(method, ast.Attribute) and method.attr == "float"
                dtypes = [path_of(k.value) for k in call.keywords if k.arg == "dtype"]
                if made in _MADE_NARROW or converted or any(dtype in _NARROW for dtype in dtypes):
                    return True
    return False
