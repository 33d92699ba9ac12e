"""What a tensor's method returns is thrown away.

## What it does
Finds statements such as `x.to(device)`, `x.cuda()`, `x.float()` and `x.detach()` for a tensor, whose result nobody takes.

## Why it is an error
These methods leave the tensor as it is and return another one. The copy is made and dropped, and the tensor stays where it
was. Modules are moved in place; tensors are not.

## Example
```python
mask = torch.zeros(4)
mask.to(device)
```

## Use instead
```python
mask = torch.zeros(4)
mask = mask.to(device)
```

## When it stays silent
For modules, where it is not known that it is a tensor, and in functions that read a clock: they measure the copy, or wait by
it. Where it may be on the device already, or nobody uses it later (some copy to take memory, on purpose), and for what only
looks at the same numbers in another way (`view`, `detach`), select it to see it.

## Fix safety
Unsafe: the program goes on with another tensor than before.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Code,
    Edit,
    Finding,
    Kind,
    Obligation,
    Severity,
    Tensor,
    any_layout,
    replace_statement,
    rule,
    untimed,
    words,
)

_METHODS = (
    "to",
    "cuda",
    "cpu",
    "float",
    "double",
    "half",
    "long",
    "int",
    "bool",
    "detach",
    "contiguous",
    "clone",
    "view",
    "reshape",
    "permute",
    "transpose",
    "squeeze",
    "unsqueeze",
    "pin_memory",
)
_SHAPES = words("detach contiguous clone view reshape permute transpose squeeze unsqueeze pin_memory")
"""What a program that runs does without: it would fail, or train otherwise, if it needed them."""
_OTHER = Obligation(Kind.VALUE, "the program goes on with another tensor than before")
_CALLED = any_layout(rb"\. (?:%s) \(" % "|".join(_METHODS).encode())
_ALONE = any_layout(rb"[\n;:][\t\x20]*\w[\w.\[\]]*?(?=[.\s\\#]) \. (?:%s) \(" % "|".join(_METHODS).encode())
"""Slow to look for: only where `_CALLED` is found."""


@rule(category="transfer", severity=Severity.ERROR, needs=[(_CALLED,), (_ALONE,)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each tensor whose copy is dropped."""
    for call in code.calls(*_METHODS):
        statement = code.flow.parent.get(call)
        if not isinstance(statement, ast.Expr) or not isinstance(call.func, ast.Attribute):
            continue
        tensor = call.func.value
        if untimed(code.flow.calls) is not None:
            continue  # the copy is what is measured, or waits for it
        if not isinstance(tensor, (ast.Name, ast.Attribute)) or not code.value(tensor).must_be(Tensor):
            continue
        name = ast.unparse(tensor)
        cure = f"assign it (`{name} = ...`), or leave the line out"
        message = f"`.{call.func.attr}()` leaves `{name}` as it is, and its result is dropped; {cure}"
        fix = code.fix("assign it", _assigned(code, call), unless=[_OTHER])
        # on the device, `.to(device)` is nothing, and may be left out just as well
        little = (
            call.func.attr in _SHAPES
            or (call.func.attr in ("to", "cuda") and code.may_be_on_device(tensor))
            or not _is_used_later(code, tensor)
            or not code.may_take(fix)
        )
        yield code.finding(call, message, fix, [_OTHER], severity=Severity.INFO if little else None)


def _is_used_later(code: Code, tensor: ast.expr) -> bool:
    """Whether anybody asks for a tensor behind its copy: some are made to take memory, and dropped."""
    if not isinstance(tensor, ast.Name):
        return True
    uses = (use for definition in code.flow.reaching.get(tensor, ()) for use in code.flow.uses[definition])
    return any(code.flow.order[use] > code.flow.order[tensor] and not _is_deleted(code, use) for use in uses)


def _is_deleted(code: Code, use: ast.expr) -> bool:
    return isinstance(code.flow.parent.get(use), ast.Delete)


def _assigned(code: Code, call: ast.Call) -> Iterator[Edit]:
    assert isinstance(call.func, ast.Attribute)
    statement = code.flow.statement(call)
    text = code.text(statement)
    if "\n" in text:
        raise CannotRewrite("the statement goes over several lines")
    yield replace_statement(code.source, statement, f"{code.text(call.func.value)} = {text}")
