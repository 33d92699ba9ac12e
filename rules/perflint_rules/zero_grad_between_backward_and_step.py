"""Gradients are thrown away before the optimizer uses them.

## What it does
Finds `optimizer.zero_grad()` between `loss.backward()` and `optimizer.step()` of the same optimizer.

## Why it is an error
The step sees no gradients: with the default (`set_to_none=True`) no parameter ever changes. The backward pass, the most
expensive part of the step, is done for nothing.

## Example
```python
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
```

## Use instead
```python
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
```

## When it stays silent
For two different optimizers (a GAN's discriminator and generator), when a backward pass stands between the `zero_grad`
and the step, in a branch that skips the step, in an LBFGS closure, and when anything stands between the backward pass and the
step that may save gradients or set them: an assignment to an attribute, a call that does more than show a loss.

## Fix safety
Unsafe by nature: the fixed program trains, the original did not.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Code,
    Edit,
    External,
    Finding,
    Import,
    Instance,
    Kind,
    Obligation,
    Severity,
    delete_statement,
    insert_after,
    path_of,
    rule,
    words,
)

_TRAINS = Obligation(Kind.GRADIENT, "the fixed program trains, the original does not")


@rule(category="optimizer", severity=Severity.ERROR, needs=[("zero_grad",), ("backward",), (".step(",)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each `zero_grad` that comes between backward and step."""
    for zero in code.calls("zero_grad"):
        if not isinstance(zero.func, ast.Attribute):
            continue
        step = _step_after(code, zero)
        if step is None or _backward_before(code, zero) is None:
            continue
        if not _gradients_are_lost(code, zero, step):
            continue
        fix = code.fix("clear the gradients after the step", _moved(code, zero, step), unless=[_TRAINS])
        message = (
            f"the gradients of the backward pass are cleared before `{ast.unparse(step)}` uses them, so nothing is learned; "
            "clear them after the step"
        )
        yield code.finding(zero, message, fix, [_TRAINS])


def _step_after(code: Code, zero: ast.Call) -> ast.Call | None:
    """The step of the same optimizer that always follows in the same iteration."""
    assert isinstance(zero.func, ast.Attribute)
    receiver = zero.func.value
    name = path_of(receiver)
    if name is None:
        return None
    for step in code.calls("step"):
        if not isinstance(step.func, ast.Attribute) or not code.flow.dominates(zero, step):
            continue
        stepped = step.func.value
        if path_of(stepped) != name and step.args:
            stepped = step.args[0]  # scaler.step(optimizer)
        elif step.args:
            continue  # a closure computes the gradients anew
        same = code.flow.reaching.get(stepped) == code.flow.reaching.get(receiver)
        if path_of(stepped) == name and same and code.flow.loop(step) is code.flow.loop(zero):
            return step
    return None


def _backward_before(code: Code, zero: ast.Call) -> ast.Call | None:
    """The last backward pass that always comes before in the same iteration."""
    flow = code.flow
    found = [
        call
        for call in flow.calls
        if flow.dominates(call, zero)
        and flow.loop(call) is flow.loop(zero)
        and code.facts.loops.training_acts(code.scope, call)[0]
    ]
    return found[-1] if found else None


_SHOWS = words(
    "parameters print item float int len format append update set_postfix set_description info debug tolist detach cpu"
)
_HARMLESS = words("torch.nn.utils.clip_grad_norm_ torch.nn.utils.clip_grad_value_ torch.no_grad torch.isnan torch.isfinite")
_TIMES = words("time perf_counter synchronize")


def _gradients_are_lost(code: Code, zero: ast.Call, step: ast.Call) -> bool:
    """Whether nothing between the backward pass and the step can save the gradients or set others."""
    backward = _backward_before(code, zero)
    if backward is None or not isinstance(zero.func, ast.Attribute) or code.value(zero.func.value).may_be(Instance):
        return False
    flow = code.flow
    low, high = flow.order[backward], flow.order[step]
    if any(low < flow.order.get(s, -1) < high for s in flow.stores if isinstance(s, (ast.Attribute, ast.Subscript))):
        return False
    between = [call for call in flow.calls_between(backward, step) if call is not zero and not _is_part(call, (backward, step))]
    return all(_leaves_gradients(code, call) for call in between)


def _is_part(call: ast.Call, of: tuple[ast.Call, ...]) -> bool:
    return any(part is call for whole in of for part in ast.walk(whole))


def _leaves_gradients(code: Code, call: ast.Call) -> bool:
    """Whether a call is one of the few that show a loss or a time, or clears another optimizer."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else path_of(call.func) or ""
    callee = code.value(call.func)
    if callee.must(lambda a: isinstance(a, External) and a.qualname in _HARMLESS):
        return True
    if any(isinstance(part, ast.Attribute) and "grad" in part.attr for given in call.args for part in ast.walk(given)):
        return False
    if code.facts.loops.targets(code.scope, call):
        return False
    return name in _SHOWS | _TIMES or name == "zero_grad"


def _moved(code: Code, zero: ast.Call, step: ast.Call) -> Iterator[Edit | Import]:
    statement, after = code.flow.statement(zero), code.flow.statement(step)
    yield delete_statement(code.source, statement, code.flow.siblings(statement))
    yield insert_after(code.source, after, code.text(statement))
