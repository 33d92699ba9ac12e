"""A tensor on the device is indexed by a list or by a tensor of the host, or filled from one.

## What it does
Finds `x[[0, 2, 5]]` and `x[index]` with a tensor on the host, and `x[key] = torch.tensor(...)`, where `x` is on the device, in
code that runs each step.

## Why it is slow
The index, or what is stored, is copied to the device in every step, and the CPU waits for the copy.

## Example
```python
for x, y in loader:
    out = model(x.to("cuda", non_blocking=True))
    out[[0, 2, 5]].sum().backward()
```

## Use instead
```python
rows = torch.tensor([0, 2, 5], device="cuda")
for x, y in loader:
    out = model(x.to("cuda", non_blocking=True))
    out[rows].sum().backward()
```

## When it stays silent
For slices, numbers, an index on the device, and in code that does not run each step. Each step's waits are counted by the sync
budget; select the rule to see them one by one.

## Fix safety
Where fixes may import the runtime (`runtime = true`), and the tensor has a name: `out[device_index(rows, out)]` copies integers
from pinned memory, and the CPU does not wait. The result is the same to the last bit. Else there is no fix: the index may
change between steps.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Alternative,
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Elements,
    External,
    Finding,
    Import,
    Object,
    Road,
    Sequence,
    Severity,
    Tensor,
    brief,
    last_name,
    made_on_host,
    path_of,
    replace,
    rule,
    without_effect,
    words,
)

_OF_NUMBERS = words("tensor as_tensor Tensor FloatTensor LongTensor IntTensor")


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.WARNING,
    needs=[("[",)],
    in_file=[("cuda", "device")],
    fixes=True,
    steps=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each index that is copied to the device."""
    for wait in code.waits(Road.UPLOAD, at=lambda node: isinstance(node, ast.Subscript)):
        assert isinstance(wait.node, ast.Subscript)
        stored, fix = made_on_host(code.flow, wait.node), None
        if stored is not None:
            fills = not any(isinstance(part, ast.Call) and last_name(part.func) in _OF_NUMBERS for part in ast.walk(stored))
            cure = "make it there" if fills else "write the numbers one by one, which waits for nothing"
            message = f"`{brief(stored)}` is copied into a tensor on the device in every step; {cure}"
        else:
            index = brief(wait.node.slice)
            cure = "copy it without a wait, by `device_index` of the runtime"
            if code.offers_runtime and code.compiled_by is None:
                fix = code.fix(cure, _copied(code, wait.node), unless=code.needs_wait())
            cure = cure if fix else _cure(code, wait.node)
            message = f"`{index}` is copied to the device as an index in every step; {cure}"
        missing = code.needs_wait() if fix else ()
        yield code.finding(wait.node, message, fix, missing, waits=[wait.node])


def _cure(code: Code, item: ast.Subscript) -> str:
    if _is_drawn(code, item.slice):
        return "draw it there"
    loop = code.flow.loop(item)
    names = [part for part in ast.walk(item.slice) if isinstance(part, ast.Name)]
    changes = loop is not None and any(code.flow.loop(d.node) is not None for n in names for d in code.flow.reaching.get(n, ()))
    return "make it there, or in the loader" if changes else "make it a tensor there once"


def _is_drawn(code: Code, index: ast.expr) -> bool:
    """Whether an index is of random numbers, and another one each time: `np.random.permutation(n)`."""
    made = [d.value for d in code.flow.reaching.get(index, ())] or [index]
    calls = [node.func for node in made if isinstance(node, ast.Call)]
    return len(calls) == len(made) and all(
        code.value(function).must(lambda a: isinstance(a, External) and "random" in a.qualname.split(".")) for function in calls
    )


def _copied(code: Code, item: ast.Subscript) -> Iterator[Edit | Import]:
    """`x[device_index(key, x)]`, or that for each part of a key that has slices, too."""
    receiver, key = item.value, item.slice
    if path_of(receiver) is None or without_effect(code.facts, code.scope, receiver) is not None:
        raise CannotRewrite("the tensor is computed there, and would be computed twice")
    parts = [key]
    if isinstance(key, ast.Tuple) and any(isinstance(part, ast.Slice | ast.Starred) for part in key.elts):
        parts = [part for part in key.elts if _is_no_tuple(code, part)]
        if not parts:
            raise CannotRewrite("a part of the index may be a tuple")
    yield Import("perflint_runtime", "device_index")
    for part in parts:
        text = code.text(part)
        if "#" in text or "\n" in text:
            raise CannotRewrite("it stands on several lines")
        whole = f"({text})" if isinstance(part, ast.Tuple) and not text.startswith("(") else text
        yield replace(code.source, part, f"device_index({whole}, {code.text(receiver)})")


def _is_no_tuple(code: Code, part: ast.expr) -> bool:
    """Whether a part of a key is a list, a tensor or an array: a tuple among slices is one index, and would become several."""
    match part:
        case ast.List() | ast.ListComp():
            return True
        case ast.Call(func=ast.Name(id="range" | "list" | "sorted" as name)):
            return code.means_builtin(name)
        case ast.Slice() | ast.Constant() | ast.Starred():
            return False
    return code.value(part).must(_is_list_or_array)


def _is_list_or_array(alternative: Alternative) -> bool:
    match alternative:
        case Tensor() | Object("numpy.ndarray") | Sequence(mutable=True) | Elements(kind="list"):
            return True
    return False
