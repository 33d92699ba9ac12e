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
Safe where `.to(...)` gets a device without doubt: folding it into `torch.zeros` gives the same zeros. Where no device is
named, the fix takes that of the function's first parameter: safe if the layer's input is computed from that parameter
and never moved, as the layer raises for a state on another device. Otherwise unsafe.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    RECURRENT_CALL,
    RECURRENT_LAYER,
    Batch,
    CannotRewrite,
    Code,
    Cost,
    Definition,
    Edit,
    Finding,
    Import,
    Kind,
    Obligation,
    Output,
    Place,
    RnnCall,
    Severity,
    Tensor,
    add_keyword,
    any_layout,
    argument,
    is_used_as_tensor,
    is_where,
    is_zero_state,
    moved_to,
    no_device,
    origins,
    path_of,
    replace,
    rnn_calls,
    rule,
    state_parts,
    untouched,
    used_outside,
    without_effect,
)

_LIKE_TENSORS = any_layout(rb"\bdef (?:size|shape|split|unsqueeze|dim) \(|\b(?:size|shape|dim) = property")
"""What objects of the program have that ask like tensors for their size."""


@rule(
    category="hidden-state",
    costs=Cost.COPY,
    severity=Severity.WARNING,
    needs=[("zeros(",), RECURRENT_CALL],
    near=[RECURRENT_LAYER],
    fixes=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each zero state that is built on the host and cannot be left out."""
    places = list(_places(code))
    elsewhere = [_elsewhere(code, call) for call, made, factory in places if made is factory]
    for _, made, factory in places:
        moved = made is not factory
        missing = list(_moved(code, made) if moved else elsewhere)  # the states of a module move together, or not at all
        missing += [*code.changes_factories(factory, "torch.zeros"), *(code.needs_wait() if moved else ())]
        fix = code.fix("build the state on the device", _on_device(code, made, factory), unless=missing)
        message = (
            "the zero state is filled on the host and copied to the device for every batch; pass `device=`"
            if moved
            else "the zero state is built on the host, so the module fails on a GPU; pass `device=`"
        )
        yield code.finding(made, message, fix, missing, waits=[made] if moved else [])


def _places(code: Code) -> Iterator[tuple[RnnCall, ast.expr, ast.Call]]:
    """The zero states that are built on the host: the layer's call, what builds the state, and the factory in it."""
    seen: set[ast.AST] = set()
    for call in rnn_calls(code.facts, code.scope):
        if not code.is_hot(call.node):
            continue
        for part in state_parts(code.scope, call.state):
            for definition in origins(code.scope, part):
                made = definition.value
                if made is None or made in seen or definition.kind != "assign" or definition.index:
                    continue
                factory = _factory(code, made)
                if factory is None or not code.is_hot(made) or _can_go(code, call, definition):
                    continue
                if untouched(code.facts, code.scope, definition, call.node) is not None:
                    continue  # filled with something else: on the device other numbers would be drawn
                seen.add(made)
                yield call, made, factory


def _factory(code: Code, made: ast.expr) -> ast.Call | None:
    """The `torch.zeros` call behind an optional `.to(device)`, if it names no device itself."""
    inner = made
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in ("to", "cuda"):
        inner = inner.func.value
    if not isinstance(inner, ast.Call) or not code.is_external(inner.func, "torch.zeros"):
        return None
    if any(k.arg in ("device", "out", "requires_grad", "pin_memory", None) for k in inner.keywords):
        return None
    if inner is not made and not code.value(made).must(lambda a: isinstance(a, Tensor) and a.place is not Place.HOST):
        return None
    return inner


def _can_go(code: Code, call: RnnCall, definition: Definition) -> bool:
    """Whether rnn-explicit-zero-state removes the state: only zeros reach the call, and nothing else uses them."""
    parts = state_parts(code.scope, call.state)
    if not all(is_zero_state(code.facts, code.scope, part) for part in parts):
        return False
    return not used_outside(code.flow, definition, [call.state, *parts])


def _on_device(code: Code, made: ast.expr, factory: ast.Call) -> Iterator[Edit | Import]:
    if made is factory:
        yield add_keyword(code.source, factory, "device", f"{_first_tensor(code)}.device")
        return
    assert isinstance(made, ast.Call)
    device = moved_to(code.facts, code.scope, made)
    if device is None or (device is not made and code.value(device).may_be(Tensor, Batch, Output)):
        raise CannotRewrite("`device=` takes no such argument, or the call does more than move")
    text = '"cuda"' if device is made else code.text(device)
    yield replace(code.source, made, add_keyword(code.source, factory, "device", text).content)


def _moved(code: Code, made: ast.expr) -> Iterator[Obligation | None]:
    """What must hold of the device that a state is moved to."""
    assert isinstance(made, ast.Call)
    device = argument(made, 0, "device")
    if device is not None:
        yield no_device(code.facts, code.scope, device)
        if path_of(device) is None:
            yield without_effect(code.facts, code.scope, device)


def _first_tensor(code: Code) -> str:
    """The parameter whose device the state gets."""
    name = next((p.arg for p in code.scope.parameters if p.arg != "self"), None)
    if name is None or any(d.kind != "parameter" for d in code.flow.definitions_of(name)):
        raise CannotRewrite("the layer's input is no parameter")
    if not is_used_as_tensor(code.flow, name):
        raise CannotRewrite("the parameter may be no tensor")
    return name


def _elsewhere(code: Code, call: RnnCall) -> Obligation | None:
    """Whether the layer's input is where the first parameter is: a part of it, or what torch's layers make of it."""
    first = next((p.arg for p in code.scope.parameters if p.arg != "self"), None)
    if first is not None and code.facts.project.program_may_hold(code.source.path, _LIKE_TENSORS):
        return Obligation(Kind.VALUE, f"`{first}` may be an object of the program, without a device")
    if call.node.args and is_where(code.facts, code.scope, call.node.args[0], first):
        return None
    return Obligation(Kind.VALUE, "the layer's input may be on another device than the first parameter")
