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
and the step, in a branch that skips the step, in an LBFGS closure, and when gradients are set by hand in between.

## Fix safety
Unsafe by nature: the fixed program trains, the original did not.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Code,
    Edit,
    Finding,
    Import,
    Kind,
    Obligation,
    Severity,
    any_layout,
    delete_statement,
    insert_after,
    path_of,
    rule,
)

_TRAINS = Obligation(Kind.GRADIENT, "the fixed program trains, the original does not")


@rule(category="optimizer", severity=Severity.ERROR, needs=[("zero_grad",), ("backward",), (".step(",)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each `zero_grad` that comes between backward and step."""
    flow = code.flow
    for zero in code.calls("zero_grad"):
        if not isinstance(zero.func, ast.Attribute):
            continue
        step = _step_after(code, zero)
        if step is None or not _backward_before(code, zero):
            continue
        between = list(flow.calls_between(zero, step))
        if any(_may_set_gradients(code, call) for call in between) or _sets_grad(code, zero, step):
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


def _backward_before(code: Code, zero: ast.Call) -> bool:
    flow = code.flow
    return any(
        flow.dominates(call, zero)
        and flow.loop(call) is flow.loop(zero)
        and code.facts.loops.training_acts(code.scope, call)[0]
        for call in flow.calls
    )


_GRADIENT = any_layout(rb"backward|\. grad")


def _may_set_gradients(code: Code, call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else path_of(call.func) or ""
    if "backward" in name or "grad" in name or "closure" in name:
        return True
    return any(_GRADIENT.search(target.text) for target in code.facts.loops.targets(code.scope, call))


def _sets_grad(code: Code, zero: ast.Call, step: ast.Call) -> bool:
    low, high = code.flow.order[zero], code.flow.order[step]
    return any(
        isinstance(store, ast.Attribute) and store.attr == "grad" and low < code.flow.order[store] < high
        for store in code.flow.stores
    )


def _moved(code: Code, zero: ast.Call, step: ast.Call) -> Iterator[Edit | Import]:
    statement, after = code.flow.statement(zero), code.flow.statement(step)
    yield delete_statement(code.source, statement, code.flow.siblings(statement))
    yield insert_after(code.source, after, code.text(statement))
