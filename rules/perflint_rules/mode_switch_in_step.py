"""The model is told in every step that it is training.

## What it does
Finds `model.train()` in the loop over batches, where nothing in that loop calls `eval()`, and in methods that are one step of a
training.

## Why it is slow
`train()` walks through all modules and sets an attribute of each, on the CPU, before the step's first
kernel.

## Example
```python
for x, y in loader:
    model.train()
    criterion(model(x), y).backward()
    optimizer.step()
```

## Use instead
```python
model.train()
for x, y in loader:
    criterion(model(x), y).backward()
    optimizer.step()
```

## When it stays silent
When the loop or the step, or a function of the project that it calls, names `eval(` or `train(False)`, and under a guard.

## Fix safety
There is no fix: a `train` of one's own (which keeps some layers in evaluation mode) may do more, and code that cannot be seen
may switch the mode.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Loop, Severity, call_pattern, called_from, is_neural_module, rule

_EVAL = call_pattern("eval")
_SWITCHES = call_pattern("eval", "evaluate", "validate", "test")


@rule(
    category="optimizer",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[(".train()",), ("backward(", ".step(")],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each switch that changes nothing after the first step."""
    for call in code.calls("train"):
        if call.args or call.keywords or not isinstance(call.func, ast.Attribute):
            continue
        loop = code.training_loop_of(call)
        if loop is not code.flow.loop(call) or (loop is None and not _is_step(code, call)):
            continue
        if not code.value(call.func.value).may(lambda a: is_neural_module(code.facts.inference, a)) or _may_switch(code, loop):
            continue
        name, where = ast.unparse(call.func.value), "before the loop" if loop is not None else "once, and after each evaluation"
        yield code.finding(
            call, f"`{name}` and each of its modules is set to what it is already in every step; call it {where}"
        )


def _is_step(code: Code, call: ast.Call) -> bool:
    """Whether a call stands in a function that is one step of a training, and runs each time."""
    return bool(code.flow.calls_named["backward"]) and code.facts.loops.is_training_step(code.scope) and code.is_hot(call)


def _may_switch(code: Code, loop: Loop | None) -> bool:
    """Whether the loop or the step, or what it calls, may set a model to evaluation."""
    for call in code.flow.calls:
        if loop is not None and not code.flow.within(call, loop.block):
            continue
        if _SWITCHES.search(code.text(call).encode()):
            return True
        for target in code.facts.loops.targets(code.scope, call):
            if any(_EVAL.search(scope.text) for scope in called_from(code.facts, target, depth=2)):
                return True
    return False
