"""A recurrent layer's zero state is built on the host.

## What it does
Finds `torch.zeros(...)` without `device=` that becomes the initial state of an RNN, with or without a `.to(device)`
behind it.

## Why it is slow
With `.to(device)` each batch pays a fill on the host, a copy and a wait per state. Without it, the module fails as soon
as it is moved to a GPU.

## Example
```python
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 16)

    def forward(self, x):
        h = torch.zeros(x.size(0), 16).to(x.device)
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
        return h
```

## Use instead
```python
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 16)

    def forward(self, x):
        h = torch.zeros(x.size(0), 16, device=x.device)
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
        return h
```

## When it stays silent
When the zeros can be left out altogether (rnn-explicit-zero-state), when they are built on the device, and in code that
runs once.

## Fix safety
Safe: folding `.to(device)` into `torch.zeros` gives the same zeros. Where no device is named, the fix takes that of the
layer's input; on the CPU nothing changes.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Category,
    Code,
    Definition,
    Edit,
    Finding,
    Import,
    Place,
    RnnCall,
    Severity,
    Tensor,
    add_keyword,
    argument,
    is_zero_state,
    origins,
    path_of,
    replace,
    rnn_calls,
    rule,
    state_parts,
    untouched,
)

_RNN_NAMES = [re.compile(name + rb"\w*\(") for name in (rb"lstm", rb"LSTM", rb"gru", rb"GRU", rb"rnn", rb"RNN", rb"[cC]ell")]


@rule(category=Category.STATE, severity=Severity.WARNING, needs=[("zeros(",), _RNN_NAMES], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each zero state that is built on the host and cannot be left out."""
    seen: set[ast.AST] = set()
    for call in rnn_calls(code.facts, code.scope):
        if not code.is_hot(call.node):
            continue
        for part in state_parts(code.facts, code.scope, call.state):
            for definition in origins(code.facts, code.scope, part):
                made = definition.value
                if made is None or made in seen or definition.kind != "assign" or definition.index:
                    continue
                factory = _factory(code, made)
                if factory is None or not code.is_hot(made) or _can_go(code, call, definition):
                    continue
                if untouched(code.facts, code.scope, definition, call.node) is not None:
                    continue  # filled with something else: on the device other numbers would be drawn
                seen.add(made)
                moved = isinstance(made, ast.Call) and made is not factory
                fix = code.fix(
                    "build the state on the device",
                    _on_device(code, call, made, factory),
                )
                message = (
                    "the zero state is filled on the host and copied to the device for every batch; pass `device=`"
                    if moved
                    else "the zero state is built on the host, so the module fails on a GPU; pass `device=`"
                )
                yield code.finding(made, message, fix, waits=[made] if moved else [])


def _factory(code: Code, made: ast.expr) -> ast.Call | None:
    """The `torch.zeros` call behind an optional `.to(device)`, if it names no device itself."""
    inner = made
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in ("to", "cuda"):
        inner = inner.func.value
    if not isinstance(inner, ast.Call) or not code.is_external(inner.func, "torch.zeros"):
        return None
    if any(k.arg in ("device", "out", "requires_grad", None) for k in inner.keywords):
        return None
    if inner is not made and not code.value(made).must(lambda a: isinstance(a, Tensor) and a.place is not Place.HOST):
        return None
    return inner


def _can_go(code: Code, call: RnnCall, definition: Definition) -> bool:
    """Whether rnn-explicit-zero-state removes the state: only zeros reach the call, and nothing else uses them."""
    parts = state_parts(code.facts, code.scope, call.state)
    if not all(is_zero_state(code.facts, code.scope, part) for part in parts):
        return False
    inside = {id(n) for n in ast.walk(call.state)}
    for part in parts:
        inside |= {id(n) for n in ast.walk(part)}
    return all(id(use) in inside for use in code.flow.uses[definition])


def _on_device(code: Code, call: RnnCall, made: ast.expr, factory: ast.Call) -> Iterator[Edit | Import]:
    if made is not factory:
        assert isinstance(made, ast.Call)
        assert isinstance(made.func, ast.Attribute)
        if made.func.attr == "cuda":
            device = code.text(made.args[0]) if made.args else '"cuda"'
        else:
            given = argument(made, 0, "device")
            if given is None or len(made.args) > 1 or any(k.arg not in ("device", "non_blocking") for k in made.keywords):
                raise CannotRewrite("`.to` does more than move")
            device = code.text(given)
        yield replace(code.source, made, add_keyword(code.source, factory, "device", device).content)
        return
    source = call.node.args[0] if call.node.args else None
    parameters = {p.arg for p in code.scope.parameters}
    first = next((p.arg for p in code.scope.parameters if p.arg != "self"), None)
    root = path_of(source) if source is not None else None
    name = root if root in parameters else first
    if name is None or any(d.kind != "parameter" for d in code.flow.definitions_of(name)):
        raise CannotRewrite("the layer's input is not a parameter")
    if not _is_tensor_parameter(code, name):
        raise CannotRewrite("the parameter may be no tensor")
    yield add_keyword(code.source, factory, "device", f"{name}.device")


def _is_tensor_parameter(code: Code, name: str) -> bool:
    """Whether the function uses a parameter as a tensor before the state is built."""
    for definition in code.flow.definitions_of(name):
        for use in code.flow.uses[definition]:
            parent = code.flow.parent.get(use)
            if isinstance(parent, ast.Attribute) and parent.attr in ("size", "shape", "split", "unsqueeze", "dim", "device"):
                return True
    return False
