"""The model is told in every step that it is training, or that it is not.

## What it does
Finds `model.train()` in the loop over batches, where nothing in that loop calls `eval()`, and in methods that are one step of a
training; and `model.eval()` in the loop over batches of an evaluation, where nothing in it calls `train()`.

## Why it is slow
Both walk through all modules and set an attribute of each, on the CPU, before the step's first
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
When the loop or the step, or a function of the project that it calls, or that what calls the step calls, names `eval(` or
`train(False)` (or `train(`, in an evaluation), and under a guard.

## Fix safety
There is no fix: a `train` of one's own (which keeps some layers in evaluation mode) may do more, and code that cannot be seen
may switch the mode.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    Code,
    Cost,
    Finding,
    Loop,
    LoopKind,
    Severity,
    call_pattern,
    called_from,
    is_neural_module,
    keyword,
    rule,
)

_EVAL = call_pattern("eval")
_TRAIN = call_pattern("train")
_SWITCHES = call_pattern("eval", "evaluate", "validate", "test")


@rule(
    category="optimizer",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[(".train()", ".eval()"), ("backward(", ".step(", *keyword("for"))],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each switch that changes nothing after the first step."""
    for call in code.calls("train", "eval"):
        if call.args or call.keywords or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr == "eval":
            loop = code.step_loop(call)
            idle = loop is not None and code.step_loops()[loop] is LoopKind.EVALUATE
            back = (_TRAIN, _TRAIN)
        else:
            loop = code.training_loop_of(call)
            idle = loop is not None or _is_step(code, call)
            back = (_SWITCHES, _EVAL)
        if not idle or loop is not code.flow.loop(call):
            continue
        network = code.value(call.func.value).may(lambda a: is_neural_module(code.facts.inference, a))
        if not network or _may_switch(code, loop, *back):
            continue
        name, where = ast.unparse(call.func.value), "before the loop" if loop is not None else "once, and after each evaluation"
        yield code.finding(
            call, f"`{name}` and each of its modules is set to what it is already in every step; call it {where}"
        )


def _is_step(code: Code, call: ast.Call) -> bool:
    """Whether a call stands in a function that is one step of a training, and runs each time."""
    return bool(code.flow.calls_named["backward"]) and code.facts.loops.is_training_step(code.scope) and code.is_hot(call)


def _may_switch(code: Code, loop: Loop | None, here: re.Pattern[bytes], elsewhere: re.Pattern[bytes]) -> bool:
    """Whether the loop or the step, or what it calls, may set a model back. here, elsewhere: what finds the calls that do.

    Who calls the step may as well: an evaluation after each step of a meta-training, say.
    """
    sites = code.facts.inference.callers.sites(code.scope).sites if loop is None else ()
    around = (scope for site in sites for scope in called_from(code.facts, site.scope, depth=2) if scope is not code.scope)
    if any(_EVAL.search(scope.text) for scope in around):
        return True
    for call in code.flow.calls:
        if loop is not None and not code.flow.within(call, loop.block):
            continue
        if here.search(code.text(call).encode()):
            return True
        for target in code.facts.loops.targets(code.scope, call):
            if any(elsewhere.search(scope.text) for scope in called_from(code.facts, target, depth=2)):
                return True
    return False
