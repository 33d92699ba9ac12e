"""A DataLoader is given arguments that it refuses.

## What it does
Finds `DataLoader(...)` with `prefetch_factor` or `persistent_workers=True` and no workers, with a `batch_sampler` beside
`batch_size`, `shuffle`, `sampler` or `drop_last`, and with `non_blocking`, which is an argument of copies.

## Why it is an error
The constructor raises `ValueError`, or `TypeError` for `non_blocking`, when it is reached.

## Example
```python
loader = DataLoader(dataset, batch_size=8, persistent_workers=True)
```

## Use instead
```python
loader = DataLoader(dataset, batch_size=8)
```

## When it stays silent
Where the number of workers is not a literal, where the call runs only with some (`if NUM_WORKERS > 0:`), and where arguments
come by `**kwargs`.

## Fix safety
Safe where nothing catches the error: the call cannot succeed as it stands. With a `batch_sampler` there is no fix: one of
the two has to go, and only you know which. Unsafe, too, where the number of workers is read from something and the program sets
attributes or variables by their names.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    BUILT_FROM_TEXT,
    DATA_LOADER,
    FILLS_OBJECT,
    SET_BY_NAME,
    Code,
    Edit,
    Finding,
    Kind,
    LoaderCall,
    Obligation,
    Severity,
    any_layout,
    conditions,
    flow_of,
    remove_keyword,
    rule,
)

_BESIDE_BATCH_SAMPLER = {"batch_size": 1, "shuffle": None, "sampler": None, "drop_last": False}
"""With the values that the constructor admits."""


@rule(category="data-loading", severity=Severity.ERROR, calls=[DATA_LOADER], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each argument that the constructor refuses."""
    for loader in code.loaders():
        for name, why in _refused(loader):
            message = f"the constructor raises: {why}; leave `{name}` out"
            missing = [code.caught(loader.call), *code.replaced(DATA_LOADER), _set_from_outside(code, loader)]
            fix = code.fix(f"leave `{name}` out", _without(code, loader, name), unless=missing)
            yield code.finding(loader.call, message, fix, missing)
        if loader.literal("batch_sampler", None) is ... and loader.gives("batch_sampler"):
            for name, default in _BESIDE_BATCH_SAMPLER.items():
                given = loader.literal(name, default)
                if loader.argument(name) is not None and given is not ... and given != default and given is not False:
                    yield code.finding(
                        loader.call, f"the constructor raises: `{name}` and `batch_sampler` exclude each other; keep one"
                    )


def _is_for_workers(loader: LoaderCall) -> bool:
    """Whether the call runs only where there are workers: `if NUM_WORKERS > 0:`."""
    workers = loader.argument("num_workers")
    if workers is None or isinstance(workers, ast.Constant):
        return False
    for test, holds in conditions(flow_of(loader.scope), loader.call):
        left, wants_none = test, False
        if isinstance(test, ast.Compare):
            left, wants_none = test.left, isinstance(test.ops[0], (ast.Eq, ast.Lt, ast.LtE))
        if ast.unparse(left) == ast.unparse(workers) and holds is not wants_none:
            return True
    return False


def _refused(loader: LoaderCall) -> Iterator[tuple[str, str]]:
    if any(keyword.arg == "non_blocking" for keyword in loader.call.keywords):
        yield "non_blocking", "`non_blocking` is an argument of copies"
    if loader.workers == 0 and not _is_for_workers(loader):
        if type(loader.literal("prefetch_factor", None)) is int:
            yield "prefetch_factor", "`prefetch_factor` needs workers"
        if loader.literal("persistent_workers", False) is True:
            yield "persistent_workers", "`persistent_workers` needs workers"


_FILLS = any_layout(rb"import_module|__import__|" + FILLS_OBJECT)
"""What gives a module or an object other attributes: `config = import_module(name)`, `parser.parse_args(argv, config)`."""


def _set_from_outside(code: Code, loader: LoaderCall) -> Obligation | None:
    """Whether the number of workers may be another one, because the program sets what it is read from by its name."""
    workers = loader.argument("num_workers")
    if workers is None or isinstance(workers, ast.Constant):
        return None
    if not any(code.feared(SET_BY_NAME, BUILT_FROM_TEXT)) and not code.facts.project.program_may_hold(code.source.path, _FILLS):
        return None
    return Obligation(Kind.VALUE, f"`{ast.unparse(workers)}` may be set by its name")


def _without(code: Code, loader: LoaderCall, name: str) -> Iterator[Edit]:
    yield remove_keyword(code.source, loader.call, name)
