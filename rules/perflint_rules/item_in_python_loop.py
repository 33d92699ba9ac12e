"""A tensor's elements are read one by one.

## What it does
Finds `[v.item() for v in t]`, `[float(v) for v in t]` and `[int(v) for v in t]` over the elements of a device tensor or of
a list of device scalars.

## Why it is slow
Each element is a tensor of its own and each read a wait. For a queue that is drained already that is about 10 us per
element; the first read waits for the queued work in either form.

## Example
```python
scores = model(x.cuda()).softmax(-1)[0]
values = [v.item() for v in scores]
```

## Use instead
```python
scores = model(x.cuda()).softmax(-1)[0]
values = scores.tolist()
```

## When it stays silent
For host lists of Python numbers, for comprehensions that do more than read, and for tensors used as dict keys.

## Fix safety
Safe when the iterated value is a one-dimensional tensor without doubt, and `float` or `int` does not change the type of
its numbers. A comprehension with a condition or a comment gets no fix. For a list of scalars
(`torch.stack(losses).tolist()`) the fix is unsafe: `stack` promotes mixed types and fails on an empty list.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Category,
    Code,
    Edit,
    Elements,
    Finding,
    Import,
    Severity,
    Tensor,
    Value,
    path_of,
    replace,
    rule,
)

_OVER = rb"[^\n]{0,80}\n?[^\n]{0,40}\bfor\s+\w+\s+in\b"
_ELEMENT_READS = [re.compile(read + _OVER) for read in (rb"\.item\(\)", rb"float\(\w+\)", rb"int\(\w+\)")]


@rule(
    category=Category.SYNC,
    severity=Severity.WARNING,
    needs=[_ELEMENT_READS],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each comprehension that reads a tensor element by element."""
    for node in code.flow.order:
        if not isinstance(node, ast.ListComp) or len(node.generators) != 1:
            continue
        generator = node.generators[0]
        if not isinstance(generator.target, ast.Name) or not _reads(node.elt, generator.target.id):
            continue
        if not code.may_be_on_device(generator.iter) and not code.may_be_on_device(_read_name(node.elt)):
            continue
        value = code.value(generator.iter)
        if value.may(lambda a: isinstance(a, Tensor)):
            missing = [
                None
                if value.must(lambda a: isinstance(a, Tensor) and a.ndim == 1)
                else "the tensor may have several dimensions",
                "the comprehension has a condition" if generator.ifs else None,
                None if _keeps_type(node.elt, value) else "`float` and `int` change the type of the numbers",
            ]
            fix = None
            if not generator.ifs:
                fix = code.fix("read all elements at once", _listed(code, node, generator.iter), unless=missing)
        elif value.may(lambda a: isinstance(a, Elements) and a.element.may_be(Tensor)) and not generator.ifs:
            missing = ["`torch.stack` promotes mixed types and fails on an empty list"]
            fix = code.fix(
                "stack the scalars and read them at once",
                _stacked(code, node, generator.iter),
                unless=missing,
            )
        else:
            continue
        message = f"each element of `{ast.unparse(generator.iter)}` is read from the device by itself; use `tolist()`"
        yield code.finding(node, message, fix, missing)


def _reads(element: ast.expr, name: str) -> bool:
    read = _read_name(element)
    return isinstance(read, ast.Name) and read.id == name


def _read_name(element: ast.expr) -> ast.expr:
    match element:
        case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[]):
            return inner
        case ast.Call(func=ast.Name(id="float" | "int"), args=[inner]):
            return inner
    return element


def _keeps_type(element: ast.expr, value: Value) -> bool:
    """Whether an element read gives the number that `tolist()` gives."""
    match element:
        case ast.Call(func=ast.Name(id="float")):
            return value.must(lambda a: isinstance(a, Tensor) and "float" in a.dtype)
        case ast.Call(func=ast.Name(id="int")):
            return value.must(lambda a: isinstance(a, Tensor) and a.dtype == "int64")
    return True


def _listed(code: Code, node: ast.ListComp, iterated: ast.expr) -> Iterator[Edit | Import]:
    if "#" in code.text(node):
        raise CannotRewrite("a comment would be lost")
    text = code.text(iterated)
    simple = isinstance(iterated, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    yield replace(code.source, node, f"{text}.tolist()" if simple else f"({text}).tolist()")


def _stacked(code: Code, node: ast.ListComp, iterated: ast.expr) -> Iterator[Edit | Import]:
    if path_of(iterated) is None or "#" in code.text(node):
        raise CannotRewrite("the list is computed here, or a comment would be lost")
    torch, imports = code.name_for("torch")
    yield from imports
    text = code.text(iterated)
    stacked = f"{torch}.stack({text}).tolist() if {text} else []"
    alone = isinstance(code.flow.parent.get(node), (ast.Assign, ast.Return))
    yield replace(code.source, node, stacked if alone else f"({stacked})")
