"""A distribution reads its parameters back to check them.

## What it does
Finds distributions (`Normal`, `Categorical` and the others of torch.distributions) that a function makes without
`validate_args=False`, in programs that do not switch the checks off.

## Why it is slow
The constructor asks of each parameter whether all of it is valid, and `log_prob` asks the same of the sample: each answer is a
number on the device, for which the CPU waits.

## Example
```python
from torch.distributions import Normal


class Policy(nn.Module):
    def forward(self, x):
        return Normal(self.mean(x), self.deviation(x))
```

## Use instead
```python
from torch.distributions import Normal


class Policy(nn.Module):
    def forward(self, x):
        return Normal(self.mean(x), self.deviation(x), validate_args=False)
```
or `torch.distributions.Distribution.set_default_validate_args(False)` once.

## When it stays silent
At the top of a file, for parameters on the host, where the argument is given, also through `**kwargs`, and where
the program calls `set_default_validate_args`, or asks a distribution for `_validate_args`. Each step's waits are counted by
the sync budget; select the rule to see them one by one.

## Fix safety
It rests on `errors-are-bugs`: what is invalid (a `nan`, a negative deviation) raises no error any more. All else is as it was.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    CHECKS_SWITCHED,
    Alternative,
    Code,
    Cost,
    Edit,
    Finding,
    Kind,
    Literal,
    Number,
    Obligation,
    Place,
    Severity,
    Tensor,
    add_keyword,
    place_of,
    rule,
    words,
)

_KINDS = words(
    "Bernoulli Beta Binomial Categorical Cauchy ContinuousBernoulli Dirichlet Exponential Gamma Geometric Gumbel Laplace "
    "LogNormal Multinomial MultivariateNormal NegativeBinomial Normal OneHotCategorical Pareto Poisson StudentT Uniform"
)
_MODULES = {kind: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower() for kind in _KINDS} | {"StudentT": "studentT"}
_DISTRIBUTIONS = tuple(f"torch.distributions.{name}" for kind in sorted(_KINDS) for name in (kind, f"{_MODULES[kind]}.{kind}"))
_SILENT = Obligation(Kind.ERRORS_ARE_BUGS, "invalid parameters raise no error any more")


@rule(category="device-sync", costs=Cost.WAIT, severity=Severity.WARNING, calls=_DISTRIBUTIONS, fixes=True, in_budget=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each distribution that checks what it is given."""
    if code.scope.is_module:
        return
    for call in code.calls_to(*_DISTRIBUTIONS):
        given = (*call.args, *(keyword.value for keyword in call.keywords))
        if all(code.value(part).must(_is_on_host) for part in given):
            continue  # on the host
        if any(k.arg in (None, "validate_args") for k in call.keywords):
            continue
        if code.facts.project.program_may_hold(code.source.path, CHECKS_SWITCHED):
            return
        missing = [_SILENT, *code.needs_wait()]
        fix = code.fix("leave the checks out", _unchecked(code, call), unless=missing)
        message = "its parameters and samples are read back to be checked; pass `validate_args=False`"
        yield code.finding(call, message, fix, missing, waits=[call])


def _is_on_host(alternative: Alternative) -> bool:
    if isinstance(alternative, Tensor):
        return place_of(alternative) is Place.HOST
    return isinstance(alternative, (Number, Literal))


def _unchecked(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "validate_args", "False")
