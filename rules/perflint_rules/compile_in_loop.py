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
Outside of loops over batches and of what they call, and where the result is kept: `if self.compiled is None: ...`.

## Fix safety
There is no fix: what is compiled may be made in the loop.
"""

from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, rule


@rule(category="compilation", costs=Cost.LAUNCH, severity=Severity.WARNING, needs=[("compile(",)], steps=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each call that runs in every step."""
    for call in code.calls("compile"):
        if code.compiles(call) is not None and code.is_hot(call):
            yield code.finding(
                call, "the model is wrapped by `torch.compile` again in every step; compile it once, before the loop"
            )
