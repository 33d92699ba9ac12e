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
When the file, or what is called before the clipping, names `unscale_`, and when the backward pass runs without the scaler, if
only in the branch that clips. When flags let no step come to all three: `if amp: scaler.scale(loss).backward()`,
`if not amp: clip`. With `float("inf")`, which only measures the norm. Where clipping or `enabled` is left to an option or a
parameter that is off, and that no command, file of settings or call of the project gives, or where a constant switches the
scaler off, select it to see it.

## Fix safety
Unsafe: the program computes something else, which is the point.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Code,
    Edit,
    External,
    Finding,
    Kind,
    Literal,
    Object,
    Obligation,
    Scope,
    Severity,
    argument,
    called_from,
    conditions,
    exclude_each_other,
    insert_before,
    is_off_by_default,
    is_scaler,
    last_name,
    rule,
)

_CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_")
_BFLOAT16 = External("torch.bfloat16")
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
        near = [other for other in (*scaled, *steps) if _runs_with(code, other, call)]
        after = next((step for step in near if step in steps and order[step] > order[call]), None)
        before = [s for s in near if s in scaled and order[s] < order[call]]
        if before and after is not None and not _is_plain(code, call) and not _only_measures(code, call):
            if any(_unscales(code, other) for other in code.flow.calls_between(before[0], call)):
                continue
            message = "the gradients are still scaled, so they are clipped thousands of times too early; unscale them first"
            fix = code.fix("unscale them first", _unscaled(code, call, after), unless=[_OTHER])
            severity = Severity.INFO if _is_off(code, after) else None
            yield code.finding(call, message, fix, [_OTHER], severity=severity)


def _runs_with(code: Code, other: ast.Call, call: ast.Call) -> bool:
    """Whether a step that gets to a clipping may get to another call, too: no `if amp: scale`, `if not amp: clip`."""
    return code.flow.loop(other) is code.flow.loop(call) and not exclude_each_other(code.flow, other, call)


def _only_measures(code: Code, call: ast.Call) -> bool:
    """Whether no gradient is too large: `clip_grad_norm_(parameters, float("inf"))` is called for what it returns."""
    limit = argument(call, 1, "clip_value" if last_name(call.func) == "clip_grad_value_" else "max_norm")
    match limit:
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))]):
            return text.lower() in ("inf", "infinity")
        case ast.Attribute(attr="inf"):
            return True
    return False


def _unscales(code: Code, call: ast.Call) -> bool:
    """Whether a call leads to `unscale_` in another file."""
    below = called_from(code.facts, *code.facts.loops.targets(code.scope, call))
    return any(b"unscale_" in function.text for function in below)


def _is_plain(code: Code, call: ast.Call) -> bool:
    """Whether the last backward pass that surely runs before a clipping does without the scaler: `else: loss.backward()`.

    Behind one with the scaler it is another network's, unless it names the one that is clipped.
    """
    if any(_rules_out_scaler(code, test, holds) for test, holds in conditions(code.flow, call)):
        return True
    before = [other for other in code.calls("backward") if code.flow.dominates(other, call)]
    if not before or _is_scaled(before[-1]):
        return False
    clipped = {node.id for given in call.args[:1] for node in ast.walk(given) if isinstance(node, ast.Name)}
    named = {node.id for node in ast.walk(before[-1].func) if isinstance(node, ast.Name)}
    return not any(map(_is_scaled, before)) or bool(clipped & named)


def _rules_out_scaler(code: Code, test: ast.expr, holds: bool) -> bool:
    """`scaler is None`, `not scaler.is_enabled()`: one that is off hands gradients on as they are."""
    match test:
        case ast.Compare(left=scaler, ops=[ast.Is()], comparators=[ast.Constant(value=None)]) if holds:
            return code.value(scaler).may(is_scaler)
        case ast.Call(func=ast.Attribute(value=scaler, attr="is_enabled")) if not holds:
            return code.value(scaler).may(is_scaler)
    return False


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
            return enabled is not None and (_is_false(code.at(scope), enabled) or is_off_by_default(code.facts, scope, enabled))
    return False


def _is_false(code: Code, enabled: ast.expr) -> bool:
    """Whether a constant says that nothing is scaled: `USE_AMP`, `dtype == "float16"` where it is "bfloat16"."""
    match enabled:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            sides = {code.value(left).single, code.value(right).single}
            texts = all(isinstance(side, Literal) for side in sides)
            return len(sides) == 2 and (texts or (_BFLOAT16 in sides and all(isinstance(side, External) for side in sides)))
    return code.value(enabled).literal is False


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
