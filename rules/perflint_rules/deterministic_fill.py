"""Deterministic algorithms also fill all memory that is not initialised.

## What it does
Finds `torch.use_deterministic_algorithms(True)` in programs that leave `torch.utils.deterministic.fill_uninitialized_memory`
as it is.

## Why it is slow
With deterministic algorithms each `torch.empty`, which many operations use for their results, is filled with nan first: a
kernel that writes all of it, for nothing, unless a bug reads what nobody wrote. One project gained 10.9 points of step time
by switching that off (ultralytics#26180).

## Example
```python
torch.use_deterministic_algorithms(True)
```

## Use instead
```python
torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = False
```

## When it stays silent
When the program names `fill_uninitialized_memory`, where the value is no literal, and in test suites.

## Fix safety
There is no fix: a program that reads what it did not write is then no longer the same in each run.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, argument, is_test, rule

_SWITCH = "torch.use_deterministic_algorithms"
_CHOSEN = re.compile(rb"fill_uninitialized_memory")


@rule(category="memory", costs=Cost.LAUNCH, severity=Severity.INFO, calls=[_SWITCH])
def check(code: Code) -> Iterator[Finding]:
    """Report each switch to deterministic algorithms that leaves the filling on."""
    if is_test(code.scope):
        return
    for call in code.calls_to(_SWITCH):
        mode = argument(call, 0, "mode")
        if isinstance(mode, ast.Constant) and mode.value is True:
            if not code.facts.project.program_may_hold(code.source.path, _CHOSEN):
                message = "each `torch.empty` is filled with nan, too; set `fill_uninitialized_memory = False`"
                yield code.finding(call, message)
