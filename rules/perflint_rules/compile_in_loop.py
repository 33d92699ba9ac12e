"""The model is handed to `torch.compile` again in every step.

## What it does
Finds calls of `torch.compile`, and of a module's own `compile`, in code that runs each step.

## Why it is slower
Each call wraps the model anew, and the compiled code is looked up through the new wrapper, on the CPU in every step. torch
finds its graphs again, so it does not compile again.

## Example
```python
for x, y in loader:
    compiled = torch.compile(model)
    loss = criterion(compiled(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
```

## Use instead
```python
compiled = torch.compile(model)
for x, y in loader:
    loss = criterion(compiled(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
```

## When it stays silent
Outside of loops over batches and of what they call, under a condition or behind a return (`if self.compiled is None: ...`), and
where each round compiles another model.

## Fix safety
There is no fix: what is compiled may be made in the loop.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, argument, rule


@rule(category="compilation", costs=Cost.LAUNCH, severity=Severity.WARNING, needs=[("compile(",)], steps=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each call that runs in every step."""
    for call in code.calls("compile"):
        if code.compiles(call) is None or _is_conditional(code, call) or _is_another(code, call) or not code.is_hot(call):
            continue
        yield code.finding(
            call, "the model is wrapped by `torch.compile` again in every step; compile it once, before the loop"
        )


def _is_another(code: Code, call: ast.Call) -> bool:
    """`for block in blocks: torch.compile(block)`: each round compiles another one."""
    compiled = argument(call, 0, "model")
    return compiled is not None and any(d.kind == "for" for d in code.flow.reaching.get(compiled, ()))


def _is_conditional(code: Code, call: ast.Call) -> bool:
    """Whether somebody has looked whether it is compiled yet: by a condition around it, or by a return above."""
    flow = code.flow
    if any(block.kind in ("then", "else", "handler") for block in flow.block[call].ancestry()):
        return True
    own = flow.statement(call)
    return any(isinstance(n, ast.Return) and n is not own and flow.order[n] < flow.order[call] for n in flow.order)
