"""`torch.no_grad` is used as a context manager without being called.

## What it does
Finds `with torch.no_grad:` (and `enable_grad`, `inference_mode`, `set_grad_enabled`) without parentheses.

## Why it is an error
The class itself is no context manager: the `with` raises `TypeError` when it is reached (`AttributeError` before Python 3.11).
As a decorator, `@torch.no_grad` without parentheses works.

## Example
```python
with torch.no_grad:
    out = model(x)
```

## Use instead
```python
with torch.no_grad():
    out = model(x)
```

## When it stays silent
On decorators, and wherever the name is not torch's.

## Fix safety
Safe where nothing catches the error: the statement cannot succeed as it stands. Where a function has callers that cannot be
seen, a method none, or programs run others, that errors are bugs is assumed.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Code,
    Edit,
    Finding,
    Kind,
    Obligation,
    Severity,
    any_layout,
    keyword,
    replace,
    rule,
)

_ENTERED = any_layout(rb"(?:no_grad|enable_grad|inference_mode) (?:[:,)]|\bas\b)")
_RUNS_PROGRAMS = any_layout(rb"\bsubprocess\b|\bos \. (?:system|popen|spawn\w*) \(|\brunpy\b")
_MANAGERS = ("torch.no_grad", "torch.enable_grad", "torch.inference_mode")


@rule(
    category="autograd",
    severity=Severity.ERROR,
    needs=[("no_grad", "enable_grad", "inference_mode"), keyword("with"), (_ENTERED,)],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each context manager class that is entered without being called."""
    for node in code.flow.order:
        if not isinstance(node, ast.withitem) or not isinstance(node.context_expr, (ast.Attribute, ast.Name)):
            continue
        manager = node.context_expr
        if code.is_external(manager, *_MANAGERS):
            text = code.text(manager)
            missing = [code.caught(manager), _may_be_survived(code), *code.replaced(*_MANAGERS)]
            fix = code.fix("call it", _called(code, manager), unless=missing, leads_to=("no-grad-to-inference-mode",))
            yield code.finding(manager, f"`with {text}:` raises TypeError; write `{text}()`", fix, missing)


def _may_be_survived(code: Code) -> Obligation | None:
    """Whether somebody who cannot be seen may run the code, and go on after its error."""
    found = code.facts.inference.callers.sites(code.scope)
    unseen = not found.complete or (code.scope.owner is not None and not found.sites)
    if unseen and not code.scope.is_module:
        return Obligation(Kind.ERRORS_ARE_BUGS, "whoever calls the function may handle the error")
    if code.facts.project.anywhere(_RUNS_PROGRAMS):
        return Obligation(Kind.ERRORS_ARE_BUGS, "another program may run this one, and go on after its error")
    return None


def _called(code: Code, manager: ast.expr) -> Iterator[Edit]:
    yield replace(code.source, manager, f"{code.text(manager)}()")
