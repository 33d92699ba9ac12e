"""Old gradients stay alive during the forward pass.

## What it does
Finds `optimizer.zero_grad()` between the forward pass and the backward pass of a step.

## Why it costs memory
The gradients of the step before are still allocated while the activations of this step pile up. Cleared before the
forward pass (or right after the step), they are free by then: the peak is lower by up to one copy of the gradients, 4
bytes per parameter in float32. The time does not change, and neither do the weights.

## Example
```python
for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Use instead
```python
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
```

## When it stays silent
When another backward pass stands between the forward pass and the `zero_grad` (GANs: it must stay behind it), in closures,
with gradient accumulation (a condition around it), and when the forward pass comes after it.

## Fix safety
Safe when everything stands in one block without a way out, the optimizer is the same object, no gradient is read in
between, and the forward pass runs no backward pass of its own (SAM, MAML, gradient penalties).
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    Category,
    Code,
    Edit,
    Finding,
    FunctionRef,
    Instance,
    Loop,
    Object,
    Severity,
    is_neural_module,
    is_optimizer,
    move_before,
    path_of,
    rule,
)


@rule(category=Category.OPTIMIZER, severity=Severity.WARNING, needs=[("zero_grad",), ("backward",)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each `zero_grad` that comes after the forward pass."""
    flow = code.flow
    for zero in code.calls("zero_grad"):
        statement = flow.statement(zero)
        if not isinstance(statement, ast.Expr) or statement.value is not zero or not isinstance(zero.func, ast.Attribute):
            continue
        backward = _backward_after(code, zero)
        if backward is None or not _repeats(code, zero):
            continue
        forward = _forward_before(code, zero, backward)
        if forward is None:
            continue
        missing = [*_missing(code, zero, forward)]
        siblings = _siblings(code, statement)
        target = next((s for s in siblings if s is forward), None)
        fix = None
        if target is not None:
            fix = code.fix(
                "clear the gradients before the forward pass",
                _moved(code, statement, target, siblings),
                unless=missing,
            )
        message = (
            f"the last step's gradients stay alive during the forward pass of line {forward.lineno}; "
            "clear them before it to lower the memory peak"
        )
        yield code.finding(zero, message, fix, missing)


def _moved(code: Code, statement: ast.stmt, target: ast.stmt, siblings: list[ast.stmt]) -> Iterator[Edit]:
    yield from move_before(code.source, statement, target, siblings)


def _backward_after(code: Code, zero: ast.Call) -> ast.Call | None:
    """The next backward pass, if it always follows in the same iteration."""
    flow = code.flow
    for call in flow.calls:
        if flow.order[call] > flow.order[zero] and code.facts.loops.training_acts(code.scope, call, 2)[0]:
            return call if flow.loop(call) is flow.loop(zero) else None
    return None


def _repeats(code: Code, zero: ast.Call) -> bool:
    """Whether the step runs again and again, so that there are old gradients."""
    return code.around(zero) is not None or code.is_hot(zero)


def _forward_before(code: Code, zero: ast.Call, backward: ast.Call) -> ast.stmt | None:
    """The first statement of the forward pass that the backward pass belongs to, if it stands before `zero`."""
    flow = code.flow
    block = flow.block[zero]
    since = max(
        (
            flow.order[c]
            for c in flow.calls
            if flow.order[c] < flow.order[zero]
            and flow.within(c, block)
            and "backward" in (path_of(c.func) or getattr(c.func, "attr", "") or "")
        ),
        default=0,
    )
    calls = [
        call
        for call in _slice(code, backward)
        if since < flow.order[call] < flow.order[zero] and flow.within(call, block) and _is_forward(code, call)
    ]
    if not calls:
        return None
    first: ast.AST = flow.statement(min(calls, key=flow.order.__getitem__))
    siblings = _siblings(code, flow.statement(zero))
    while first not in siblings:
        parent = flow.parent.get(first)
        if parent is None:
            return None
        first = parent
    return first if isinstance(first, ast.stmt) else None


def _slice(code: Code, backward: ast.Call) -> Iterator[ast.Call]:
    """The calls whose results flow into the loss, in this iteration."""
    flow = code.flow
    pending: list[ast.AST] = []
    if isinstance(backward.func, ast.Attribute):
        pending += [backward.func.value, *backward.args]
    else:
        pending += backward.args
    seen: set[object] = set()
    while pending:
        node = pending.pop()
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and part in flow.order:
                yield part
            for definition in flow.reaching.get(part, frozenset()):
                if definition not in seen and definition.value is not None:
                    seen.add(definition)
                    if definition.kind in ("assign", "augmented", "walrus") and definition.order < flow.order[backward]:
                        pending.append(definition.value)
                        if definition.kind == "augmented":
                            pending.append(definition.node)


def _is_forward(code: Code, call: ast.Call) -> bool:
    """Whether a call runs a network: a module that is no loss, or a method of one."""
    inference = code.facts.inference
    if isinstance(call.func, ast.Attribute):
        owner = code.value(call.func.value)
        if owner.may(lambda a: isinstance(a, Instance) and is_neural_module(inference, a)) and not _NO_FORWARD.search(
            call.func.attr
        ):
            return code.value(call.func).may(lambda a: isinstance(a, (FunctionRef, Instance, Object)) and not is_optimizer(a))
    return code.value(call.func).may(lambda a: is_neural_module(inference, a))


_NO_FORWARD = re.compile(r"^(?:parameters|zero_grad|train|eval|to|cuda|cpu|state_dict|size|backward|_*(?:init|reset)\w*)$")


def _siblings(code: Code, statement: ast.stmt) -> list[ast.stmt]:
    parent = code.flow.parent[statement]
    for field in ("body", "orelse", "finalbody"):
        body = getattr(parent, field, None)
        if isinstance(body, list) and statement in body:
            return body
    return []


def _missing(code: Code, zero: ast.Call, forward: ast.stmt) -> Iterator[str | None]:
    flow = code.flow
    assert isinstance(zero.func, ast.Attribute)
    receiver = path_of(zero.func.value)
    low, high = flow.order[forward], flow.order[zero]
    for node in flow.block:
        if isinstance(node, (ast.Continue, ast.Break, ast.Return, ast.Raise)) and low <= flow.order.get(node, -1) <= high:
            yield f"line {node.lineno} may leave the step in between"
    if receiver is None:
        yield "the optimizer is not a variable"
    elif any(d.name == receiver and low <= d.order <= high for d in flow.definitions):
        yield f"`{receiver}` is assigned in between"
    if ".grad" in code.source.body.decode() and b".grad" in code.scope.text.replace(b".grad_", b""):
        yield "the function reads gradients"
    for call in flow.calls:
        if not low <= flow.order[call] < high:
            continue
        name = (path_of(call.func) or getattr(call.func, "attr", "") or "").rpartition(".")[2]
        if "grad" in name and name not in ("no_grad", "enable_grad", "set_grad_enabled"):
            yield f"`{ast.unparse(call.func)}` works on gradients in between"
        elif name in ("backward", "step", "closure"):
            yield f"`{ast.unparse(call.func)}` stands in between"
        else:
            yield _runs_backward(code, call)
    if flow.calls_named["step"] and not any(_steps(code, zero, s) for s in flow.calls_named["step"]):
        yield "the step of this optimizer is conditional or elsewhere"
    loop: Loop | None = flow.loop(zero)
    if loop is None and not flow.calls_named["step"]:
        yield "the step of this optimizer is elsewhere"


def _steps(code: Code, zero: ast.Call, step: ast.Call) -> bool:
    """Whether a step runs in the same iterations as the `zero_grad`: no gradient accumulation."""
    return code.flow.loop(step) is code.flow.loop(zero) and not any(
        block.kind in ("then", "else") and "%" in ast.unparse(getattr(block.node, "test", ast.Constant(0)))
        for block in code.flow.block[step].ancestry()
    )


def _runs_backward(code: Code, call: ast.Call) -> str | None:
    """Whether a call may run a backward pass of its own."""
    targets = code.facts.loops.targets(code.scope, call)
    for target in targets:
        if b"backward" in target.text or b"autograd.grad" in target.text or b"grad(" in target.text.replace(b"no_grad(", b""):
            return f"`{ast.unparse(call.func)}` may run a backward pass of its own"
    if not targets and code.value(call.func).open and not code.value(call.func).alternatives:
        if not isinstance(call.func, ast.Attribute):
            return f"`{ast.unparse(call.func)}` is not known"
    return None
