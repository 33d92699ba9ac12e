"""A checkpoint is loaded as a program that may do anything.

## What it does
Finds `torch.load(...)` without `weights_only` and without a `pickle_module`, and says so once for a file.

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
Rests on `plain-modules` where the project's oldest torch is 2.6 or newer: it says what is the default, and a package that is
not known (ultralytics) may put a function of its own in the place of `torch.load`, as a shell may set
`TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD`, which no longer counts where the argument is given. Otherwise unsafe: a file that holds
other objects raises. Unsafe, too, where the source itself does one of these.
"""

import ast
from collections.abc import Iterator

from packaging.version import Version

from perflint.api import Code, Cost, Edit, Finding, Kind, Obligation, Severity, add_keyword, any_layout, rule, stranger
from perflint_rules.once_in_file import also, places_in_file

_FORCED = any_layout(rb"TORCH_FORCE_|WEIGHTS_ONLY_LOAD")
_RAISES = Obligation(Kind.UNKNOWN_CODE, "a file that holds more than tensors raises")


@rule(category="memory", costs=Cost.DISK, severity=Severity.INFO, calls=["torch.load"], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report, once for a file, the loads that leave to torch's version what a file may do."""
    calls = places_in_file(code, "load", _loads)
    if calls:
        missing = [*_missing(code)]
        edits = (edit for call in calls for edit in _restricted(code, call))
        fix = code.fix("load nothing but weights", edits, unless=missing)
        message = f"what the file may do depends on torch's version; pass `weights_only=True`{also(calls)}"
        yield code.finding(calls[0], message, fix, missing)


def _missing(code: Code) -> Iterator[Obligation]:
    if code.facts.versions.get("torch", Version("2.0")) < Version("2.6"):
        yield _RAISES
    yield from code.replaced("torch.load")
    if (unknown := stranger(code.facts.project, code.source.path)) is not None:  # ultralytics puts a function in its place
        yield Obligation(Kind.PLAIN_MODULES, f"`{unknown}` may load files in another way than torch")
    yield Obligation(Kind.PLAIN_MODULES, "the environment may say what is loaded where nothing is given")
    if code.facts.project.program_may_hold(code.source.path, _FORCED):
        yield Obligation(Kind.VALUE, "the program says by the environment what is loaded where nothing is given")


def _loads(code: Code) -> Iterator[ast.Call]:
    for call in code.calls_to("torch.load"):
        if any(isinstance(given, ast.Starred) for given in call.args):
            continue  # `weights_only` and `pickle_module` may be among them
        if len(call.args) <= 2 and not any(k.arg in (None, "weights_only", "pickle_module") for k in call.keywords):
            yield call


def _restricted(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "weights_only", "True")
