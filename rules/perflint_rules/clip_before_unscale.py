"""Gradients are clipped while they are still scaled.

## What it does
Finds `clip_grad_norm_` and `clip_grad_value_` between `scaler.scale(loss).backward()` and `scaler.step(optimizer)` without
`scaler.unscale_(optimizer)`.

## Why it is an error
The gradients are then thousands of times too large, so nearly every step is clipped, and after the scaler has divided them
they are thousands of times too small: a norm of 5420 was clipped to 1, where the real one was 5.29.

## Example
```python
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
```

## Use instead
```python
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
```

## When it stays silent
When the function, or the file, names `unscale_` anywhere, and when the backward pass runs without the scaler, if only in the
branch that clips. Where clipping or `enabled` is left to an option or a parameter that is off, and that no
command, file of settings or call of the project gives, select it to see it.

## Fix safety
Unsafe: the program computes something else, which is the point.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Code,
    Edit,
    Finding,
    Kind,
    Object,
    Obligation,
    Scope,
    Severity,
    argument,
    insert_before,
    is_off_by_default,
    is_scaler,
    rule,
)

_CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_")
_OTHER = Obligation(Kind.NUMBERS, "other gradients are clipped")


@rule(category="precision", severity=Severity.ERROR, calls=_CLIPS, needs=[(".scale(",), (".step(",)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each clipping of scaled gradients."""
    if b"unscale_" in code.source.body:
        return
    order = code.flow.order
    scaled = [call for call in code.calls("scale") if _of_scaler(code, call) and _is_differentiated(code, call)]
    steps = [call for call in code.calls("step") if _of_scaler(code, call) and len(call.args) == 1]
    for call in code.calls_to(*_CLIPS):
        after = next(
            (step for step in steps if order[step] > order[call] and code.flow.loop(step) is code.flow.loop(call)), None
        )
        before = [s for s in scaled if order[s] < order[call] and code.flow.loop(s) is code.flow.loop(call)]
        if before and after is not None and not _is_plain(code, call):
            message = "the gradients are still scaled, so they are clipped thousands of times too early; unscale them first"
            fix = code.fix("unscale them first", _unscaled(code, call, after), unless=[_OTHER])
            severity = Severity.INFO if _is_off(code, after) else None
            yield code.finding(call, message, fix, [_OTHER], severity=severity)


def _is_plain(code: Code, call: ast.Call) -> bool:
    """Whether the last backward pass that surely runs before a clipping does without the scaler: `else: loss.backward()`.

    Behind one with the scaler it is another network's, unless it names the one that is clipped.
    """
    before = [other for other in code.calls("backward") if code.flow.dominates(other, call)]
    if not before or _is_scaled(before[-1]):
        return False
    clipped = {node.id for given in call.args[:1] for node in ast.walk(given) if isinstance(node, ast.Name)}
    named = {node.id for node in ast.walk(before[-1].func) if isinstance(node, ast.Name)}
    return not any(map(_is_scaled, before)) or bool(clipped & named)


def _is_scaled(backward: ast.Call) -> bool:
    match backward.func:
        case ast.Attribute(value=ast.Call(func=ast.Attribute(attr="scale"))):
            return True
    return False


def _of_scaler(code: Code, call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and code.value(call.func.value).may(is_scaler)


def _is_off(code: Code, step: ast.Call) -> bool:
    """Whether all scalers that a step may be of hand gradients on as they are: `GradScaler(enabled=False)`."""
    assert isinstance(step.func, ast.Attribute)
    scalers = [a for a in code.value(step.func.value).alternatives if isinstance(a, Object)]
    return bool(scalers) and all(_is_made_off(code, scaler) for scaler in scalers)


def _is_made_off(code: Code, scaler: Object) -> bool:
    match scaler.site:
        case (Scope() as scope, ast.Call() as made):
            enabled = argument(made, None, "enabled")
            return enabled is not None and is_off_by_default(code.facts, scope, enabled)
    return False


def _is_differentiated(code: Code, call: ast.Call) -> bool:
    parent = code.flow.parent.get(call)
    return isinstance(parent, ast.Attribute) and parent.attr == "backward"


def _unscaled(code: Code, call: ast.Call, step: ast.Call) -> Iterator[Edit]:
    statement = code.flow.statement(call)
    if (
        not isinstance(statement, (ast.Expr, ast.Assign))
        or code.flow.block[statement] is not code.flow.block[code.flow.statement(step)]
    ):
        raise CannotRewrite("the step stands in another block")
    assert isinstance(step.func, ast.Attribute)
    yield insert_before(code.source, statement, f"{code.text(step.func.value)}.unscale_({code.text(step.args[0])})")
