"""A parameter is frozen under a name that torch does not know.

## What it does
Finds assignments to `require_grad` (for `requires_grad`).

## Why it is an error
Python takes the attribute, and nothing looks at it: gradients are computed for what should be frozen, in each step, and the
optimizer changes it.

## Example
```python
for parameter in model.parameters():
    parameter.require_grad = False
```

## Use instead
```python
for parameter in model.parameters():
    parameter.requires_grad = False
```

## When it stays silent
For `self.require_grad`: a class may have an attribute of that name. For `False` and a tensor that is no parameter: it asks
for no gradients in any case. Where it is set to True, nothing was to be frozen: select it to see it.

## Fix safety
Unsafe: the program then trains something else.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Alternative,
    Code,
    Edit,
    Finding,
    Instance,
    Kind,
    Obligation,
    Severity,
    Tensor,
    any_layout,
    last_name,
    replace,
    rule,
)

_WRITTEN = any_layout(rb"\. require_grad =")
_TRAINS = Obligation(Kind.NUMBERS, "what is trained is something else then")


@rule(category="autograd", severity=Severity.ERROR, needs=[(_WRITTEN,)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each assignment to the misspelt attribute."""
    for store in code.flow.stores:
        if not isinstance(store, ast.Attribute) or store.attr != "require_grad":
            continue
        if isinstance(store.value, ast.Name) and store.value.id == "self":
            continue
        if code.value(store.value).must(_has_such_an_attribute):
            continue  # an attribute of the project's own
        told = getattr(code.flow.statement(store), "value", None)
        if isinstance(told, ast.Constant) and (_becomes_parameter(code, store) if told.value else _is_not_trained(code, store)):
            continue
        fix = code.fix("write `requires_grad`", _spelt(code, store), unless=[_TRAINS])
        message = "torch knows no `require_grad`, so nothing is frozen; write `requires_grad`"
        asks = isinstance(told, ast.Constant) and bool(told.value)  # for what a program that trains has anyhow
        yield code.finding(store, message, fix, [_TRAINS], severity=Severity.INFO if asks else None)


def _has_such_an_attribute(alternative: Alternative) -> bool:
    return isinstance(alternative, Instance) and bool(alternative.cls.methods_assigning("require_grad"))


def _is_not_trained(code: Code, store: ast.Attribute) -> bool:
    """Whether a tensor that is no parameter is told not to ask for gradients: it does not, whatever the name."""
    return code.value(store.value).must(lambda a: isinstance(a, Tensor) and not a.parameter)


def _becomes_parameter(code: Code, store: ast.Attribute) -> bool:
    """`pe.require_grad = True`, `self.pe = nn.Parameter(pe)`: a parameter is trained, whatever the tensor was told."""
    name = ast.unparse(store.value)
    made = (call for call in code.flow.calls if last_name(call.func) == "Parameter" and call.args)
    return any(ast.unparse(part) == name for call in made for part in ast.walk(call.args[0]))


def _spelt(code: Code, store: ast.Attribute) -> Iterator[Edit]:
    yield replace(code.source, store, f"{code.text(store.value)}.requires_grad")
