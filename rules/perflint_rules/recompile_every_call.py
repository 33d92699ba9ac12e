"""Compiled code changes a Python number or list that its graph depends on, so it is compiled again at every call.

## What it does
Finds, in functions that are known to run compiled, an integer attribute or global variable that is counted up or down, and a
list that lives longer than the call and only grows.

## Why it is slower
torch takes numbers and lists of Python for constants, and checks them before each call. One that is different each time fails
that check each time: the function is compiled again, until after eight times torch gives up and runs it uncompiled
(`torch._dynamo.config.recompile_limit`). Measured on torch 2.13: six calls, six compilations; one with the cure.

## Example
```python
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        return self.layer(x)


net = torch.compile(Net())
```

## Use instead
```python
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.steps += 1
        return self.layer(x)


net = torch.compile(Net())
```
Or count where the compiled function is called.

## When it stays silent
For floats, which torch stops to check after one more compilation; buffers; counters that wrap around; attributes that get a new
value (`self.last = x`); lists that the function empties, or makes itself; where `allow_unspec_int_on_nn_module` is set. Loops
over a size, and texts as arguments, also compile anew when they change: whether they do is not in the source.

## Fix safety
There is no fix: a buffer is saved with the model, and a counter elsewhere counts other calls.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Alternative,
    Code,
    Cost,
    Elements,
    Finding,
    Literal,
    Number,
    Sequence,
    Severity,
    any_layout,
    path_of,
    rule,
)

_GROWING = ("append", "extend", "insert")
_SHRINKING = ("pop", "clear", "remove")
_DYNAMIC = any_layout(rb"\ballow_unspec_int_on_nn_module = True")
"""What makes torch take an integer of a module for a variable."""
_DEPTH = 3
"""How many function borders a variable's values are followed across."""


@rule(
    category="compilation",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("+=", "-=", "+1", "-1", *(f".{name}(" for name in _GROWING))],
    compiled=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each counter and each list that is different at the next call."""
    if code.compiled_by is None or code.facts.project.program_holds(code.source.path, _DYNAMIC):
        return
    again = "so torch compiles the function again at each call, and gives up after eight"
    for statement, path in _counted(code):
        if code.is_traced(statement) and _is_count(code, path):
            message = f"`{path_of(path)}` is another number each time, {again}; count outside, or in a buffer"
            yield code.finding(statement, message)
    for call in code.calls(*_GROWING):
        if isinstance(call.func, ast.Attribute) and code.is_traced(call) and _lives_on(code, call.func.value):
            yield code.finding(
                call, f"`{path_of(call.func.value)}` grows with each call, {again}; collect what is returned outside"
            )


def _counted(code: Code) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """The statements that change a variable by a constant number, each with the variable."""
    for node in list(code.flow.parent):
        match node:
            case ast.AugAssign(target=target, op=ast.Add() | ast.Sub(), value=ast.Constant(value=int())):
                if _outlives(code, target):
                    yield node, target
            case ast.Assign(
                targets=[target], value=ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=int()))
            ):
                if path_of(left) == path_of(target) is not None and _outlives(code, target):
                    yield node, target


def _outlives(code: Code, target: ast.expr) -> bool:
    """Whether a variable lives longer than the call: an attribute, or a global variable."""
    return isinstance(target, ast.Attribute) or (isinstance(target, ast.Name) and target.id in code.flow.outer_names)


def _is_count(code: Code, target: ast.expr) -> bool:
    """Whether a variable holds integers only, as far as the program shows."""
    held = _held(code, target)
    whole = [a == Number("int") or (isinstance(a, Literal) and type(a.value) is int) for a in held]
    return bool(whole) and all(whole)


def _lives_on(code: Code, receiver: ast.expr) -> bool:
    """Whether an expression is a list that lives longer than the call, and that the function only lets grow."""
    path = path_of(receiver)
    if path is None or code.flow.definitions_of(path):
        return False
    emptied = any(isinstance(call.func, ast.Attribute) and path_of(call.func.value) == path for call in code.calls(*_SHRINKING))
    lists = [
        (isinstance(a, Sequence) and a.mutable) or (isinstance(a, Elements) and a.kind == "list") for a in _held(code, receiver)
    ]
    return not emptied and bool(lists) and all(lists)


def _held(code: Code, variable: ast.expr) -> frozenset[Alternative]:
    """What an attribute or a global variable may hold when the function is called."""
    inference = code.facts.inference
    match variable:
        case ast.Attribute(value=owner, attr=name):
            values = [inference.member(a, name, _DEPTH) for a in code.value(owner).alternatives]
            return frozenset(a for value in values for a in value.alternatives)
        case ast.Name(id=name) if code.scope.parent is None:
            return inference.module_name(code.scope.module, name, _DEPTH).alternatives
    return frozenset()
