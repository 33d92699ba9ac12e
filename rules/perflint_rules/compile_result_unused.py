"""What `torch.compile` returns is not used, so nothing is compiled.

## What it does
Finds `torch.compile(model)` as a statement of its own, `self = torch.compile(self)` as the last that a method does with `self`,
and `model = model.compile()`.

## Why it is an error
`torch.compile` leaves what it is given as it is, and returns the compiled one: without the result the program runs uncompiled.
The method `compile` of a module (torch 2.2) is the other way round: it compiles in place and returns None. Within a method a
network can be compiled by it alone: another value for `self` is gone when the method ends.

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
There is none for `self`: `nn.Module.compile(self)` compiles it in place, also where the class has a `compile` of its own, but
is not there before torch 2.2. Otherwise unsafe: the program begins to compile, which takes time, rounds differently, and
prefixes the names in `state_dict` with `_orig_mod.`.
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
        path, text = path_of(compiled), None
        if not in_place and _is_own_object(code, compiled) and _is_dropped(code, parent, path):
            cure = f"`nn.Module.compile({path})` does it in place, from torch 2.2 on"
            message = f"nobody gets what `torch.compile` returns, so nothing is compiled; {cure}"
        elif isinstance(parent, ast.Expr) and not in_place:
            message = "nobody takes what `torch.compile` returns, so nothing is compiled; assign it"
            text = f"{path} = {code.text(call)}" if path is not None else None
        elif isinstance(parent, ast.Assign) and in_place:
            message = "a module's own `compile` compiles it in place and returns None; call it as a statement"
            text = code.text(call)
        else:
            continue
        fix, missing = None, [_STARTS] if text is not None else []
        if text is not None:
            fix = code.fix("use what is compiled", _edits(code, code.flow.statement(call), text), unless=missing)
        yield code.finding(call, message, fix, missing)


def _is_own_object(code: Code, node: ast.expr) -> bool:
    """Whether an expression is the object that a method is called on: whoever has it keeps it, whatever the method binds."""
    scope = code.scope
    first = scope.parameters[0].arg if scope.owner is not None and scope.parameters else None
    return isinstance(node, ast.Name) and node.id == first


def _is_dropped(code: Code, parent: ast.AST | None, name: str | None) -> bool:
    """Whether a statement is a call alone, or gives a name what the rest of the function does not use."""
    match parent:
        case ast.Expr():
            return True
        case ast.Assign(targets=[ast.Name(id=target)]) if target == name and target not in code.flow.inner_names:
            return not any(code.flow.uses[d] for d in code.flow.definitions_of(target) if d.value is parent.value)
    return False


def _edits(code: Code, statement: ast.stmt, text: str) -> Iterator[Edit]:
    yield replace_statement(code.source, statement, text)
