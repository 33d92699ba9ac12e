"""A tensor on the device is indexed by a list or by a tensor of the host, or filled from one.

## What it does
Finds `x[[0, 2, 5]]` and `x[index]` with a tensor on the host, and `x[key] = torch.tensor(...)`, where `x` is on the device, in
code that runs each step.

## Why it is slow
The index, or what is stored, is copied to the device in every step, and the CPU waits for the copy.

## Example
```python
for x, y in loader:
    out = model(x.to("cuda", non_blocking=True))
    out[[0, 2, 5]].sum().backward()
```

## Use instead
```python
rows = torch.tensor([0, 2, 5], device="cuda")
for x, y in loader:
    out = model(x.to("cuda", non_blocking=True))
    out[rows].sum().backward()
```

## When it stays silent
For slices, numbers, an index on the device, and in code that does not run each step. In evaluations and forward
passes it is reported only if the rule is selected.

## Fix safety
There is no fix: the index may change between steps.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, External, Finding, Heat, Road, Severity, made_on_host, rule


@rule(category="transfer", costs=Cost.COPY, severity=Severity.WARNING, needs=[("[",)], in_file=[("cuda", "device")], steps=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each index that is copied to the device."""
    for wait in code.waits(Road.UPLOAD, at=lambda node: isinstance(node, ast.Subscript)):
        assert isinstance(wait.node, ast.Subscript)
        stored = made_on_host(code.flow, wait.node)
        if stored is not None:
            message = f"`{ast.unparse(stored)[:40]}` is copied into a tensor on the device in every step; make it there"
        else:
            index = ast.unparse(wait.node.slice)[:40]
            cure = "draw it there" if _is_drawn(code, wait.node.slice) else "make it a tensor there once"
            message = f"`{index}` is copied to the device as an index in every step; {cure}"
        trains = code.heat is not Heat.FORWARD and code.facts.loops.is_of_training(code.scope, wait.node)
        yield code.finding(wait.node, message, waits=[wait.node], severity=None if trains else Severity.INFO)


def _is_drawn(code: Code, index: ast.expr) -> bool:
    """Whether an index is of random numbers, and another one each time: `np.random.permutation(n)`."""
    made = [d.value for d in code.flow.reaching.get(index, ())] or [index]
    calls = [node.func for node in made if isinstance(node, ast.Call)]
    return len(calls) == len(made) and all(
        code.value(function).must(lambda a: isinstance(a, External) and "random" in a.qualname.split(".")) for function in calls
    )
