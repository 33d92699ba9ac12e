"""An optimizer takes one parameter at a time.

## What it does
Finds optimizers of torch with `foreach=False` and without `fused=True`, and optimizers of the project whose `step` computes
with each parameter in a loop.

## Why it is slow
With `foreach` a step takes a handful of kernels for all parameters; with `foreach=False` it takes a dozen for each of them,
and a round of Python. torch's documentation calls the former "usually significantly more performant".

## Example
```python
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
```

## Use instead
```python
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
```

## When it stays silent
When the value is no literal, and with `fused=True`; for loops that only copy or collect.

## Fix safety
Unsafe: `foreach` needs memory for one more copy of the parameters at its peak, and may round differently. There is no fix for
a `step` that is written out.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Code,
    Cost,
    Edit,
    Finding,
    Kind,
    Loop,
    Obligation,
    Severity,
    goes_over_parameters,
    is_optimizer_class,
    remove_keyword,
    rule,
    words,
)

_OPTIMIZERS = tuple(
    f"torch.optim.{name}"
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop")
)
_UPDATES = words("add_ mul_ sub_ div_ addcmul_ addcdiv_ lerp_ sqrt_ clamp_")
_MIN_KERNELS = 3
"""A loop with fewer updates of a tensor does little with each parameter."""
_PEAK = Obligation(Kind.NUMBERS, "kernels for many parameters may round differently, and need a copy of them at their peak")


@rule(
    category="optimizer",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("foreach=False", "param_groups")],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each optimizer without kernels for many parameters."""
    for call in code.calls_to(*_OPTIMIZERS):
        given = {k.arg: k.value for k in call.keywords}
        if "fused" in given or None in given:
            continue
        match given.get("foreach"):
            case ast.Constant(value=False):
                message = "each parameter takes a dozen kernels of its own; leave `foreach=False` out"
                yield code.finding(call, message, code.fix("leave it out", _grouped(code, call), unless=[_PEAK]), [_PEAK])
    loop = _loop_of_step(code)
    if loop is not None and loop.iterated is not None:
        message = "each parameter takes kernels of its own in every step; use `torch._foreach_*`, or one of torch's optimizers"
        yield code.finding(loop.iterated, message)


def _loop_of_step(code: Code) -> Loop | None:
    """The innermost loop of an optimizer's `step` that updates one parameter after the other."""
    owner = code.scope.owner
    if owner is None or code.scope.name != "step" or not is_optimizer_class(code.facts.inference, owner):
        return None
    updates = code.calls(*_UPDATES)
    loops = [loop for loop in code.flow.loops if loop.statement is not None and goes_over_parameters(loop)]
    busy = [loop for loop in loops if sum(code.flow.within(call, loop.block) for call in updates) >= _MIN_KERNELS]
    return max(busy, key=lambda loop: len(list(loop.ancestry())), default=None)


def _grouped(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield remove_keyword(code.source, call, "foreach")
