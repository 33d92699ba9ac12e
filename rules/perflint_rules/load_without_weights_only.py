"""A checkpoint is loaded as a program that may do anything.

## What it does
Finds `torch.load(...)` without `weights_only` and without a `pickle_module`.

## Why it is slow
It is not. Below torch 2.6 a file may run any code when it is loaded; from 2.6 on, `weights_only=True` is the default, and a
file that holds more than tensors raises. The rule is here so that nobody needs a second linter for it.

## Example
```python
state = torch.load("model.pt", map_location="cpu")
```

## Use instead
```python
state = torch.load("model.pt", map_location="cpu", weights_only=True)
```

## When it stays silent
When the argument is given, also through `**kwargs`.

## Fix safety
Safe where the project's oldest torch is 2.6 or newer: it says what is the default. Otherwise unsafe: a file that holds other
objects raises.
"""

import ast
from collections.abc import Iterator

from packaging.version import Version

from perflint.api import Code, Cost, Edit, Finding, Kind, Obligation, Severity, add_keyword, rule

_RAISES = Obligation(Kind.UNKNOWN_CODE, "a file that holds more than tensors raises")


@rule(category="memory", costs=Cost.DISK, severity=Severity.INFO, calls=["torch.load"], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each load that leaves to torch's version what a file may do."""
    missing = [] if code.facts.versions.get("torch", Version("2.0")) >= Version("2.6") else [_RAISES]
    for call in code.calls_to("torch.load"):
        if len(call.args) > 2 or any(k.arg in (None, "weights_only", "pickle_module") for k in call.keywords):
            continue
        fix = code.fix("load nothing but weights", _restricted(code, call), unless=missing)
        yield code.finding(call, "what the file may do depends on torch's version; pass `weights_only=True`", fix, missing)


def _restricted(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "weights_only", "True")
