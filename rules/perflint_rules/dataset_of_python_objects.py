"""A dataset keeps a Python object for each sample, which each worker copies.

## What it does
Finds datasets whose constructor fills a list with tuples, lists or dictionaries, one for each sample, that `__getitem__` reads.

## Why it costs memory
Workers share the memory of the process that starts them until somebody writes to it, and reading a Python object writes to its
reference count: in the course of an epoch each worker gets its own copy of all of them.

## Example
```python
class Pictures(Dataset):
    def __init__(self, rows):
        self.samples = []
        for row in rows:
            self.samples.append((row.path, row.label))

    def __getitem__(self, index):
        path, label = self.samples[index]
        return load(path), label
```

## Use instead
```python
class Pictures(Dataset):
    def __init__(self, rows):
        self.paths = np.array([row.path for row in rows])
        self.labels = np.array([row.label for row in rows])

    def __getitem__(self, index):
        return load(self.paths[index]), self.labels[index]
```

## When it stays silent
For lists of numbers, texts and tensors, outside of datasets, where `__getitem__` does not read the list or the constructor
makes an array of it, and where the loaders of the program have no workers.

## Fix safety
There is no fix: what the objects hold decides what they become.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, any_layout, is_test, last_name, path_of, rule

_LOADER = any_layout(rb"DataLoader \(")
_WORKERS = any_layout(rb"\w*workers?\w*['\"]? [=:]")
_METHODS = ("__getitem__", "__getitems__")


@rule(
    category="data-loading",
    costs=Cost.MEMORY,
    severity=Severity.INFO,
    needs=[("self.",), ("append(", "for")],
    in_file=[("torch",), ("Dataset",), ("__getitem__",)],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each list of objects that a dataset's constructor fills."""
    owner = code.scope.owner
    if owner is None or code.scope.name != "__init__" or is_test(code.scope):
        return
    project, path = code.facts.project, code.source.path
    if project.program_holds(path, _LOADER) and not project.program_may_hold(path, _WORKERS):
        return
    readers = [owner.methods[name] for name in _METHODS if name in owner.methods]
    for place, kept in _lists(code):
        read = any_layout(rb" \. ".join(map(re.escape, kept.encode().split(b"."))) + rb" \[")
        if kept.startswith("self.") and not _is_packed(code, kept) and any(read.search(reader.text) for reader in readers):
            yield code.finding(place, f"each worker gets a copy of all objects in `{kept}`; keep their parts in arrays")


def _is_packed(code: Code, kept: str) -> bool:
    """Whether the constructor makes an array of a list that it has filled."""
    return any(
        d.name == kept and isinstance(d.value, ast.Call) and last_name(d.value.func) in ("array", "asarray", "tensor", "stack")
        for d in code.flow.definitions
    )


def _lists(code: Code) -> Iterator[tuple[ast.expr, str]]:
    """Where a list gets an object for each round of a loop, and what it is called."""
    for call in code.calls("append"):
        if isinstance(call.func, ast.Attribute) and len(call.args) == 1 and code.flow.loop(call) is not None:
            if isinstance(call.args[0], (ast.Tuple, ast.List, ast.Dict)):
                yield call, path_of(call.func.value) or ""
    for definition in code.flow.definitions:
        if isinstance(definition.value, ast.ListComp) and isinstance(definition.value.elt, (ast.Tuple, ast.List, ast.Dict)):
            yield definition.value, definition.name
