"""Old gradients stay alive during the forward pass.

## What it does
Finds `optimizer.zero_grad()` between the forward pass and the backward pass of a step.

## Why it costs memory
The gradients of the step before are still allocated while the activations of this step pile up. Cleared before the
forward pass, they are free by then: the peak is lower by up to one copy of the gradients, 4 bytes per parameter in float32. The
time does not change, and neither do the weights. The rule runs only when it is selected.

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
Safe when everything stands in one block without a way out, the optimizer is the same object, no gradient is read or copied
in between, and the forward pass runs no `backward()` of its own (SAM, MAML); what `torch.autograd.grad` computes is apart from
the gradients that parameters hold. No caller handles an error and goes on, and the program registers no hooks and puts no
method in the place of another. Layers that cannot be followed assume `known-layers`.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    LOOKS_AT_OBJECTS,
    READS_GRADIENTS,
    RUNS_WITHIN,
    SIDE_STREAM,
    WRAPPED,
    Alternative,
    Code,
    Cost,
    Finding,
    Instance,
    Kind,
    Object,
    Obligation,
    Severity,
    clears_gradients,
    error_is_survived,
    find_method,
    forward_before,
    gradients_untouched,
    is_module_name,
    is_neural_module,
    is_optimizer,
    leaves_gradients_alone,
    move_before,
    path_of,
    rule,
    surgery,
    suspends,
)


@rule(category="optimizer", costs=Cost.MEMORY, severity=Severity.INFO, needs=[("_grad",), ("backward",)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each `zero_grad` that comes after the forward pass."""
    flow = code.flow
    for zero in [call for call in flow.calls if clears_gradients(code.facts, code.scope, call)]:
        statement = flow.statement(zero)
        if not isinstance(statement, ast.Expr) or statement.value is not zero or not isinstance(zero.func, ast.Attribute):
            continue
        backward = _backward_after(code, zero) if _repeats(code, zero) else None
        forward = forward_before(code.facts, code.scope, zero, backward) if backward is not None else None
        if forward is None:
            continue
        missing = [*_missing(code, zero, forward)]
        siblings = flow.siblings(statement)
        target = next((s for s in siblings if s is forward and zero.func.attr == "zero_grad"), None)
        fix = None
        receiver = path_of(zero.func.value)
        same = all(isinstance(given, ast.Constant) for given in (*zero.args, *(k.value for k in zero.keywords)))
        if target is not None and same and not (receiver and _is_assigned(code, receiver, forward, zero)):
            fix = code.fix(
                "clear the gradients before the forward pass",
                move_before(code.source, statement, target, siblings, _ABOUT),
                unless=missing,
            )
        message = f"the last step's gradients stay alive during the forward pass of line {forward.lineno}"
        yield code.finding(zero, f"{message}; clear them before it to lower the memory peak", fix, missing)


_ABOUT = re.compile(r"zero|clear|reset|(?:old|previous|last) grad", re.I)
"""A comment that speaks of clearing gradients; any other heads the lines below it and stays."""


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


def _missing(code: Code, zero: ast.Call, forward: ast.stmt) -> Iterator[Obligation | None]:
    flow = code.flow
    assert isinstance(zero.func, ast.Attribute)
    receiver = path_of(zero.func.value)
    low, high = flow.order[forward], flow.order[zero]
    for node in flow.block:
        if isinstance(node, (ast.Continue, ast.Break, ast.Return, ast.Raise)) and low <= flow.order.get(node, -1) <= high:
            yield Obligation(Kind.CONTROL_FLOW, f"line {node.lineno} may leave the step in between")
    if receiver is None:
        yield Obligation(Kind.NAMES, "the optimizer is not a variable")
    elif _is_assigned(code, receiver, forward, zero):
        yield Obligation(Kind.NAMES, f"`{receiver}` is assigned in between")
    between = code.source.body[code.span(forward)[0] : code.span(zero)[0]]
    if READS_GRADIENTS.search(between) or re.search(rb"group|params\b", between):
        yield Obligation(Kind.GRADIENT, "lines in between read gradients, or change whose are cleared")
    if (zero.args or zero.keywords) and code.facts.project.program_may_hold(code.source.path, READS_GRADIENTS):
        yield Obligation(Kind.GRADIENT, "gradients that are filled with zeros may be held elsewhere")
    fears = [*code.feared(*RUNS_WITHIN, WRAPPED, LOOKS_AT_OBJECTS, SIDE_STREAM)]
    yield from fears
    yield from surgery(code.facts, code.source.path, fears)
    if suspends(flow):
        yield Obligation(Kind.CONTROL_FLOW, "the function is suspended in between, and others may read gradients")
    for block in flow.block[zero].ancestry():
        if block.kind == "try" and (getattr(block.node, "handlers", []) or getattr(block.node, "finalbody", [])):
            yield Obligation(Kind.ERRORS_ARE_BUGS, "an exception in between is caught, and old gradients may be used then")
        if block.kind == "with" and flow.within(zero, block) and isinstance(block.node, (ast.With, ast.AsyncWith)):
            if not all(leaves_gradients_alone(code.facts, code.scope, item.context_expr) for item in block.node.items):
                manager = ast.unparse(block.node.items[0].context_expr)
                yield Obligation(Kind.CONTROL_FLOW, f"`{manager}` is around it, and may change what it does")
    if error_is_survived(code.facts, code.scope):
        yield Obligation(Kind.ERRORS_ARE_BUGS, "a caller handles errors and goes on, with gradients that may be old ones then")
    yield _may_do_more(code, zero.func.value)
    yield from gradients_untouched(code.facts, code.scope, low, high)
    if flow.calls_named["step"] and not any(_steps(code, zero, s) for s in flow.calls_named["step"]):
        yield Obligation(Kind.CONTROL_FLOW, "the step of this optimizer is conditional or elsewhere")
    if flow.loop(zero) is None and not flow.calls_named["step"]:
        yield Obligation(Kind.CONTROL_FLOW, "the step of this optimizer is elsewhere")


def _is_assigned(code: Code, path: str, forward: ast.stmt, zero: ast.Call) -> bool:
    """Whether a variable, or what it is a part of, gets another value between the forward pass and the `zero_grad`."""
    low, high = code.flow.order[forward], code.flow.order[zero]
    names = [path[:at] for at, character in enumerate(f"{path}.") if character in ".["]
    stores = (ast.unparse(store) for store in code.flow.stores if low <= code.flow.order[store] <= high)
    if any(text.startswith((f"{path}.", f"{path}[")) for text in stores):
        return True  # a part of a network
    return any(low <= d.order <= high for name in names for d in code.flow.definitions_of(name))


def _steps(code: Code, zero: ast.Call, step: ast.Call) -> bool:
    """Whether a step runs in the same iterations as the `zero_grad`: no gradient accumulation."""
    flow = code.flow
    return flow.loop(step) is flow.loop(zero) and not any(
        block.kind in ("then", "else") and "%" in ast.unparse(getattr(block.node, "test", ast.Constant(0)))
        for block in flow.block[step].ancestry()
        if not flow.within(zero, block)
    )


def _may_do_more(code: Code, owner: ast.expr) -> Obligation | None:
    """Whether `zero_grad` of an object is torch's own: that of an optimizer or a network."""
    value = code.value(owner)
    if value.must(lambda a: _has_plain_zero_grad(code, a)):
        return None
    words = f"`{ast.unparse(owner)}` may do more than clear gradients"
    handed_in = {d.kind for d in code.flow.reaching.get(owner, ())} == {"parameter"}
    if handed_in and value.alternatives and all(_has_plain_zero_grad(code, a) for a in value.alternatives):
        return Obligation(Kind.APPLICATION, f"{words}, if a caller that cannot be seen hands it in")
    return Obligation(Kind.UNKNOWN_CODE, words)


def _has_plain_zero_grad(code: Code, alternative: Alternative) -> bool:
    if isinstance(alternative, Instance):
        inference = code.facts.inference
        return is_neural_module(inference, alternative) and find_method(inference, alternative.cls, "zero_grad") is None
    return isinstance(alternative, Object) and (is_optimizer(alternative) or is_module_name(alternative.qualname))
