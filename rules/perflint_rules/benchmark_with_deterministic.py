"""cuDNN is told to try all algorithms, and to use those alone that give the same result each time.

## What it does
Finds functions and modules that set both `torch.backends.cudnn.benchmark = True` and `torch.backends.cudnn.deterministic =
True`.

## Why it is slow
`benchmark` runs each algorithm for each new shape and takes the fastest, which may be another one in the next run: results
then differ, though each algorithm is deterministic. `deterministic` rules out the fast ones. Together the program pays for
both, and has neither the fastest kernels nor the same results in each run.

## Example
```python
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = True
```

## Use instead
```python
torch.backends.cudnn.benchmark = True
```
for speed, or `benchmark = False` and `deterministic = True` to get the same results again.

## When it stays silent
When the two stand in different arms of a condition, and where a value is no literal.

## Fix safety
There is no fix: which of the two is wanted is for you to say.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, path_of, rule

_FLAGS = ("benchmark", "deterministic")


@rule(
    category="memory",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("cudnn.benchmark=True",), ("cudnn.deterministic=True",)],
)
def check(code: Code) -> Iterator[Finding]:
    """Report the second of the two flags."""
    found: dict[str, ast.expr] = {}
    for store in code.flow.stores:
        statement = code.flow.statement(store)
        path = path_of(store) or ""
        if isinstance(statement, ast.Assign) and path.endswith(tuple(f"cudnn.{flag}" for flag in _FLAGS)):
            if isinstance(statement.value, ast.Constant) and statement.value.value is True:
                found[path.rpartition(".")[2]] = store
    if len(found) == len(_FLAGS):
        first, last = sorted(found.values(), key=code.flow.order.__getitem__)
        if code.flow.block[first] is code.flow.block[last]:
            yield code.finding(last, "fast kernels are looked for, and ruled out by the other flag; set one of the two")
