"""A checkpoint of a compiled model has names that the model itself does not know.

## What it does
Finds `state_dict()` of what `torch.compile` returned, in programs that never name `_orig_mod`.

## Why it is an error
`torch.compile(model)` wraps the model: each name of its state begins with `_orig_mod.`, and a model that is not compiled
refuses to load it.

## Example
```python
compiled = torch.compile(model)
torch.save(compiled.state_dict(), "model.pt")
```

## Use instead
```python
compiled = torch.compile(model)
torch.save(model.state_dict(), "model.pt")
```
or compile in place: `model.compile()`.

## When it stays silent
When the program takes the prefix away, and for functions.

## Fix safety
There is no fix: who loads the checkpoint is not known.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Finding, Severity, rule

_TAKES_AWAY = re.compile(rb"_orig_mod")


@rule(category="compilation", severity=Severity.INFO, needs=[("state_dict(",), ("compile(",)])
def check(code: Code) -> Iterator[Finding]:
    """Report each state of a compiled model."""
    for call in code.calls("state_dict"):
        if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, (ast.Name, ast.Attribute)):
            continue
        found = code.flow.reaching.get(call.func.value, frozenset())
        values = [d.value for d in found if d.kind == "assign" and not d.index and isinstance(d.value, ast.Call)]
        if not values or not any(code.is_external(value.func, "torch.compile") for value in values):
            continue
        if not code.facts.project.program_may_hold(code.source.path, _TAKES_AWAY):
            yield code.finding(call, "its names begin with `_orig_mod.`; save the state of the model that was compiled")
