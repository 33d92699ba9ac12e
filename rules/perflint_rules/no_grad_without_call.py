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
Safe where nothing catches the error: the statement cannot succeed as it stands.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Code,
    Edit,
    Finding,
    Severity,
    any_layout,
    keyword,
    replace,
    rule,
)

_ENTERED = any_layout(rb"(?:no_grad|enable_grad|inference_mode) (?:[:,)]|\bas\b)")
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
            missing = [code.caught(manager), *code.replaced(*_MANAGERS)]
            fix = code.fix("call it", _called(code, manager), unless=missing, leads_to=("no-grad-to-inference-mode",))
            yield code.finding(manager, f"`with {text}:` raises TypeError; write `{text}()`", fix, missing)


def _called(code: Code, manager: ast.expr) -> Iterator[Edit]:
    yield replace(code.source, manager, f"{code.text(manager)}()")
