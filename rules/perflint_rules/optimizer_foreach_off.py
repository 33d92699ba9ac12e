"""An optimizer is told to take one parameter at a time.

## What it does
Finds optimizers of torch with `foreach=False` and without `fused=True`.

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
When the value is no literal, and with `fused=True`.

## Fix safety
Unsafe: `foreach` needs memory for one more copy of the parameters at its peak, and may round differently.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Edit, Finding, Kind, Obligation, Severity, remove_keyword, rule

_OPTIMIZERS = tuple(
    f"torch.optim.{name}"
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop")
)
_PEAK = Obligation(Kind.NUMBERS, "kernels for many parameters may round differently, and need a copy of them at their peak")


@rule(
    category="optimizer",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    calls=_OPTIMIZERS,
    needs=[("foreach=False",)],
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


def _grouped(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield remove_keyword(code.source, call, "foreach")
