"""Gradients are filled with zeros instead of being dropped.

## What it does
Finds `zero_grad(set_to_none=False)`.

## Why it is slow
Filling takes one kernel per parameter (or one for all, with `foreach`), keeps the gradients' memory alive during the
forward pass, and makes the next backward pass add to zeros instead of writing. Dropping is the default since torch 2.0.

## Example
```python
optimizer.zero_grad(set_to_none=False)
```

## Use instead
```python
optimizer.zero_grad()
```

## When it stays silent
For `zero_grad()` and `zero_grad(set_to_none=True)`: the default needs no help.

## Fix safety
Unsafe: code that reads `p.grad` of a parameter without a gradient meets `None`, and optimizers skip such parameters
where they would step on a zero gradient: AdamW's weight decay moved an unused parameter from 0.89 to 0.70.
"""

import ast
import contextlib
from collections.abc import Iterator

from packaging.version import Version

from perflint.api import (
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Finding,
    Import,
    Kind,
    Obligation,
    Severity,
    argument,
    remove_keyword,
    replace,
    rule,
)

_SKIPPED = Obligation(Kind.NUMBERS, "optimizers skip a parameter whose gradient is `None`, but step on a zero gradient")


@rule(
    category="optimizer",
    costs=Cost.MEMORY,
    severity=Severity.WARNING,
    needs=[("zero_grad",), ("False",)],
    fixes=True,
    by_fix=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each `zero_grad` that asks for zeros."""
    for call in code.calls("zero_grad"):
        given = argument(call, 0, "set_to_none")
        if isinstance(given, ast.Constant) and given.value is False:
            fix = code.fix("drop the gradients", _dropped(code, call, given), unless=[_SKIPPED])
            yield code.finding(call, "gradients are filled with zeros; drop them with `set_to_none=True`", fix, [_SKIPPED])


def _dropped(code: Code, call: ast.Call, given: ast.expr) -> Iterator[Edit | Import]:
    oldest = code.facts.versions.get("torch")
    if call.keywords and oldest is not None and oldest >= Version("2.0"):
        with contextlib.suppress(CannotRewrite):  # a comment stands there
            yield remove_keyword(code.source, call, "set_to_none")
            return
    yield replace(code.source, given, "True")
