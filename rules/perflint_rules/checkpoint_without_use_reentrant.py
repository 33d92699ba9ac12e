"""Activation checkpointing leaves its variant to torch's default, which is about to change.

## What it does
Finds `torch.utils.checkpoint.checkpoint(...)` and `checkpoint_sequential(...)` without `use_reentrant`.

## Why it is slow
It is not by itself: each call warns, and a later torch raises. The variant with `use_reentrant=False` stops recomputing as
soon as it has what the backward pass needs, and works with inputs that need no gradients; torch recommends it.

## Example
```python
from torch.utils.checkpoint import checkpoint

out = checkpoint(block, x)
```

## Use instead
```python
from torch.utils.checkpoint import checkpoint

out = checkpoint(block, x, use_reentrant=True)
```
and then try `use_reentrant=False`.

## When it stays silent
When the argument is given, also through `**kwargs`, for torch below 1.11 (2.0 for `checkpoint_sequential`), and for functions
of other packages.

## Fix safety
Safe: `use_reentrant=True` is what torch does today where nothing is given. It is the other value that may change what you
get. Not safe in programs that look at warnings, or that put a function of their own in the place of torch's.
"""

import ast
from collections.abc import Iterator

from packaging.version import Version

from perflint.api import WATCHES_WARNINGS, Code, Cost, Edit, Finding, Severity, add_keyword, rule

_FUNCTIONS = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")

_FIRST, _OF_SEQUENCES = Version("1.11"), Version("2.0")
"""The first torch whose two functions have the argument; `checkpoint_sequential` got it in October 2022."""


@rule(category="memory", costs=Cost.MEMORY, severity=Severity.INFO, calls=_FUNCTIONS, in_file=[("checkpoint",)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each checkpoint that does not say how it recomputes."""
    oldest = code.facts.versions.get("torch", _OF_SEQUENCES)
    for call in code.calls_to(*_FUNCTIONS):
        if oldest < (_FIRST if code.is_external(call.func, _FUNCTIONS[0]) else _OF_SEQUENCES):
            continue
        if any(k.arg in (None, "use_reentrant") for k in call.keywords) or _is_given(code, call):
            continue
        missing = [*code.feared(WATCHES_WARNINGS), *code.replaced(*_FUNCTIONS)]
        message = "torch's default is about to change; say `use_reentrant=True`, which is today's, or try `use_reentrant=False`"
        yield code.finding(call, message, code.fix("say what torch does today", _said(code, call), unless=missing), missing)


def _is_given(code: Code, call: ast.Call) -> bool:
    """Whether `checkpoint_sequential(layers, segments, x, use_reentrant)` may get it by its place."""
    if code.is_external(call.func, _FUNCTIONS[0]):
        return False
    return len(call.args) > 3 or any(isinstance(argument, ast.Starred) for argument in call.args)


def _said(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "use_reentrant", "True")
