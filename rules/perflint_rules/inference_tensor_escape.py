"""A tensor made under `inference_mode` is used in training.

## What it does
Finds tensors that are computed in an `inference_mode` region and meet autograd afterwards: in a loss that is
back-propagated, in a network that is trained, in an in-place operation, also in a caller or by way of an attribute; and
modules that are created in such a region.

## Why it is an error
Autograd cannot save inference tensors: `RuntimeError: Inference tensors cannot be saved for backward`. Some expressions
happen to work (`((a - b) ** 2).mean()`), until the next edit of the loss. A module that is created inside trains without
gradients, and says nothing: `.grad` stays `None`.

## Example
```python
def step(teacher, student, optimizer, x):
    with torch.inference_mode():
        target = teacher(x)
    loss = F.mse_loss(student(x), target)
    loss.backward()
    optimizer.step()
```

## Use instead
```python
def step(teacher, student, optimizer, x):
    with torch.no_grad():
        target = teacher(x)
    loss = F.mse_loss(student(x), target)
    loss.backward()
    optimizer.step()
```

## When it stays silent
When the tensors are read as numbers, cloned outside of the region, or never used after it.

It is an error where torch is sure to raise one: the tensor itself goes to a loss or a layer that saves it, or is changed in
place. Where it only may be saved for the backward pass, it is a warning.

## Fix safety
Safe: `no_grad` computes the same numbers, and everything that worked keeps working. Unsafe where the program asks for the
mode, switches autograd on again or differentiates by other means than `backward()`, where the error may be caught, and where
the fixed program trains what is created inside.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    ASKS_FOR_GRADIENTS,
    Code,
    Edit,
    Finding,
    Import,
    Kind,
    Obligation,
    Region,
    Severity,
    any_layout,
    creates_module,
    inference_escapes,
    path_of,
    replace,
    rule,
)


@rule(category="autograd", severity=Severity.ERROR, needs=[("inference_mode",)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each `inference_mode` block whose tensors meet autograd later."""
    for node in list(code.flow.order):
        if not isinstance(node, ast.withitem) or not isinstance(node.context_expr, ast.Call):
            continue
        manager = node.context_expr
        if manager.args or manager.keywords or not code.is_external(manager.func, "torch.inference_mode"):
            continue
        statement = code.flow.parent[node]
        assert isinstance(statement, (ast.With, ast.AsyncWith))
        inside = Region(code.flow, statement.body)
        escape = next(inference_escapes(code.facts, code.scope, inside), None)
        if escape is not None:
            missing = [*_missing(code, statement, inside)]
            fix = code.fix("use no_grad", _renamed(code, manager), unless=missing)
            severity = Severity.ERROR if escape.is_certain else Severity.WARNING
            yield code.finding(manager, f"{escape.words}; use `torch.no_grad()` here", fix, missing, severity=severity)


_SWITCH = any_layout(rb"enable_grad|set_grad_enabled|is_inference|\b_version\b|getattr \( torch , (?!['\"]\w+['\"] [,)])")
"""What switches autograd on again, or looks at the mode: also what finds a function of torch by a name that it computes."""
_CATCHES = re.compile(rb"\bexcept\b|\bfinally\b|suppress|\braises\b|assertRaises|\bExitStack\b")


def _missing(code: Code, statement: ast.stmt, inside: Region) -> Iterator[Obligation]:
    if code.facts.project.program_may_hold(code.source.path, _SWITCH):
        yield Obligation(
            Kind.GRADIENT, "the program switches autograd on again, which `inference_mode` ignores, or asks for the mode"
        )
    if any(creates_module(code.facts, code.scope, c) or (path_of(c.func) or "").endswith("Parameter") for c in inside.calls):
        yield Obligation(Kind.GRADIENT, "the fixed program trains what is created inside, the original does not")
    if "requires_grad" in code.text(statement):
        yield Obligation(Kind.GRADIENT, "what is created inside gets gradients in the fixed program")
    yield from code.feared(ASKS_FOR_GRADIENTS)
    yield from code.replaced("torch.inference_mode", "torch.no_grad")
    callers = [site.scope for site in code.facts.inference.callers.sites(code.scope).sites]
    if any(_CATCHES.search(scope.text) for scope in (code.scope, *callers)):
        yield Obligation(Kind.ERRORS_ARE_BUGS, "the error may be caught")
    elif (caught := code.caught(statement)) is not None:
        yield caught


def _renamed(code: Code, manager: ast.Call) -> Iterator[Edit | Import]:
    if isinstance(manager.func, ast.Attribute):
        yield replace(code.source, manager.func, code.text(manager.func).removesuffix("inference_mode") + "no_grad")
    else:
        torch, imports = code.name_for("torch")
        yield from imports
        yield replace(code.source, manager.func, f"{torch}.no_grad")
