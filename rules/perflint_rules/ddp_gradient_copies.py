"""DistributedDataParallel keeps a second copy of all gradients.

## What it does
Finds `DistributedDataParallel(...)` without `gradient_as_bucket_view`.

## Why it costs memory and time
Gradients are reduced in buckets. Without `gradient_as_bucket_view=True` each gradient is copied into its bucket and back:
twice the memory of the gradients, and two copies of all of them in each step.

## Example
```python
from torch.nn.parallel import DistributedDataParallel

model = DistributedDataParallel(model, device_ids=[0])
```

## Use instead
```python
from torch.nn.parallel import DistributedDataParallel

model = DistributedDataParallel(model, device_ids=[0], gradient_as_bucket_view=True)
```

## When it stays silent
When the argument is given, also through `**kwargs`, for a network whose parameters all get `requires_grad = False` in the
same function (a teacher), and in programs with `p.grad.detach_()`, which raises where gradients are views.

## Fix safety
Unsafe: gradients are views of buckets then, so whoever keeps a gradient beyond the step sees the next.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Edit, Finding, Kind, Obligation, Severity, add_keyword, any_layout, argument, path_of, rule

_DDP = "torch.nn.parallel.DistributedDataParallel"
_DETACHED = any_layout(rb"grad \. detach_ \(")
"""What raises where gradients are views."""
_VIEWS = Obligation(Kind.ALIASING, "gradients become views of buckets, which the next step writes to")


@rule(category="distributed", costs=Cost.MEMORY, severity=Severity.INFO, calls=[_DDP], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each wrapper that copies gradients into its buckets."""
    calls = code.calls_to(_DDP)
    if calls and code.facts.project.program_holds(code.source.path, _DETACHED):
        return
    for call in calls:
        if any(k.arg in (None, "gradient_as_bucket_view") for k in call.keywords) or _is_frozen(code, call):
            continue
        message = "each gradient is copied into a bucket and back in every step; pass `gradient_as_bucket_view=True`"
        fix = code.fix("let gradients be views of the buckets", _viewed(code, call), unless=[_VIEWS])
        yield code.finding(call, message, fix, [_VIEWS])


def _is_frozen(code: Code, call: ast.Call) -> bool:
    """Whether the function switches off the gradients of what it wraps."""
    statement = code.flow.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    networks = {path_of(node) for node in (*targets, *call.args[:1])} - {None}
    for switch in code.calls("requires_grad_"):
        if isinstance(switch.func, ast.Attribute) and _is_false(argument(switch, 0, "requires_grad")):
            if path_of(switch.func.value) in networks:
                return True
    for store in code.flow.stores:
        loop, assigned = code.flow.loop(store), code.flow.statement(store)
        if isinstance(store, ast.Attribute) and store.attr == "requires_grad" and loop is not None:
            each = loop.iterated.func if isinstance(loop.iterated, ast.Call) else None
            if _is_false(getattr(assigned, "value", None)) and isinstance(each, ast.Attribute) and each.attr == "parameters":
                if path_of(each.value) in networks:
                    return True
    return False


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _viewed(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "gradient_as_bucket_view", "True")
