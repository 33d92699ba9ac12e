"""What `torch.compile` returns is not used, so nothing is compiled.

## What it does
Finds `torch.compile(model)` as a statement of its own, and `model = model.compile()`.

## Why it is an error
`torch.compile` leaves what it is given as it is, and returns the compiled one: without the result the program runs uncompiled.
The method `compile` of a module is the other way round: it compiles in place and returns None.

## Example
```python
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
torch.compile(model)
```

## Use instead
```python
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
model = torch.compile(model)
```

## When it stays silent
For `torch.compile` without a model, which makes a decorator, for a `compile` that is a method of another class, and in tests.

## Fix safety
Unsafe: the program begins to compile, which takes time, rounds differently, and prefixes the names in `state_dict` with
`_orig_mod.`.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Edit, Finding, Kind, Obligation, Severity, path_of, replace_statement, rule

_STARTS = Obligation(Kind.NUMBERS, "the program begins to compile, and what is compiled rounds differently")
_TESTS = re.compile(r"(?:^|[/\\])(?:tests?[/\\]|test_\w+\.py$|\w+_test\.py$)")


@rule(category="compilation", severity=Severity.ERROR, needs=[("compile(",)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each call whose result is dropped, or is None and kept."""
    if _TESTS.search(code.source.path):
        return
    for call in code.calls("compile"):
        compiled, parent = code.compiles(call), code.flow.parent.get(call)
        if compiled is None:
            continue
        in_place = isinstance(call.func, ast.Attribute) and call.func.value is compiled
        path = path_of(compiled)
        if isinstance(parent, ast.Expr) and not in_place:
            message = "nobody takes what `torch.compile` returns, so nothing is compiled; assign it"
            text = f"{path} = {code.text(call)}" if path is not None else None
        elif isinstance(parent, ast.Assign) and in_place:
            message = "a module's own `compile` compiles it in place and returns None; call it as a statement"
            text = code.text(call)
        else:
            continue
        fix = code.fix("use what is compiled", _edits(code, parent, text), unless=[_STARTS]) if text is not None else None
        yield code.finding(call, message, fix, [_STARTS])


def _edits(code: Code, statement: ast.stmt, text: str) -> Iterator[Edit]:
    yield replace_statement(code.source, statement, text)
