"""A batch is copied to the GPU while the CPU waits.

## What it does
Finds `.to(device)`, `.cuda()` and `.type(torch.cuda.FloatTensor)` on host tensors in code that runs once per batch.

## Why it is slow
A blocking copy ends with a stream synchronisation: the CPU waits until all work queued before the copy, and the copy
itself, are done, and queues nothing meanwhile. `non_blocking=True` drops that wait, one per tensor. The copy still runs
in stream order: it overlaps with kernels only when it is issued on another stream. From pinned memory the call returns
at once; from ordinary memory it returns once the bytes are staged.

## Example
```python
for x, y in loader:
    x, y = x.to(device), y.to(device)
```

## Use instead
```python
for x, y in loader:
    x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
```

## When it stays silent
When the tensor is on the device already (a second `.to` is a no-op), in code that does not run per batch, under a
guard such as `step % 100 == 0`, for a change of dtype only, for modules, and for copies to the host: those are unsafe
without a synchronisation (see non-blocking-d2h-read).

## Fix safety
Safe when the receiver is a tensor without doubt, comes from host memory, is not written to on the host afterwards, and
the target is a CUDA device or the CPU. Unsafe when the loader has its own `collate_fn` (the object's `to` may not take
the keyword), or when the device may be another one: asynchronous copies are safe for CUDA only.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    Batch,
    Category,
    Code,
    Definition,
    Edit,
    Finding,
    Flow,
    Heat,
    Output,
    Place,
    Severity,
    Tensor,
    Value,
    add_keyword,
    argument,
    device_place,
    is_neural_module,
    path_of,
    place_of,
    rule,
    transfer_target,
    words,
)

_MOVE = re.compile(rb"\.to\((?!\s*(?:torch\.|dtype\b|\w+\.dtype))|\.cuda\(|\.type\(")

_BUILDS_ON_HOST = re.compile(rb"from_numpy|ensor\(|as_tensor|[lL]oader")


@rule(
    category=Category.TRANSFER,
    severity=Severity.WARNING,
    needs=[(_MOVE,), ("oader", "backward", "zero_grad", " for ", "for(", "while ", "from_numpy", "ensor(", "batch")],
    in_file=[("torch", "loader", "device")],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each blocking copy of batch data to a device."""
    if not code.step_loops():
        heat = code.heat
        if heat is None or (heat is Heat.FORWARD and not _BUILDS_ON_HOST.search(code.scope.text)):
            return  # the inputs of a forward pass are where the network is
    for call in code.calls("to", "cuda", "type"):
        if not isinstance(call.func, ast.Attribute) or argument(call, None, "non_blocking") is not None:
            continue
        target = _target(code, call)
        if target is None or target is Place.HOST or not code.is_hot(call):
            continue
        receiver = code.value(call.func.value)
        if not _comes_from_host(code, call.func.value, receiver) or _is_made_here(call.func.value) or _without_cuda(code, call):
            continue
        spread = any(k.arg is None for k in call.keywords)
        positional = len(call.args) > (2 if call.func.attr == "to" else 1)
        missing = [
            _not_a_tensor(receiver),
            _not_cuda(code, call, target),
            _may_be_on_device(receiver),
            _written_later(code, call.func.value, call),
        ]
        fix = None
        if not spread and not positional:
            fix = code.fix(
                "pass `non_blocking=True`",
                _non_blocking(code, call),
                unless=missing,
            )
        pinned = any(isinstance(a, Batch) and a.pinned is False for a in receiver.alternatives)
        hint = " (the loader does not pin its batches, so little is gained before it does)" if pinned else ""
        message = f"the CPU waits for this copy to the device; pass `non_blocking=True`{hint}"
        yield code.finding(call, message, fix, missing, waits=[call])


def _target(code: Code, call: ast.Call) -> Place | None:
    """Where the call puts its receiver; None when it moves nothing."""
    assert isinstance(call.func, ast.Attribute)
    inference = code.facts.inference
    frame = inference.frame(code.scope)
    match call.func.attr:
        case "to":
            if not call.args and argument(call, None, "device") is None:
                return None
            target = transfer_target(inference, call, frame)
            if not target.open and not target.alternatives:
                return None
            others = [place_of(a) for a in target.alternatives if isinstance(a, (Tensor, Batch, Output))]
            if others:
                return others[0] if others[0].may_be_device else None
            return device_place(target)
        case "cuda":
            return Place.CUDA
        case _:
            places = {place_of(a) for a in code.value(call).alternatives}
            return next((p for p in places if p in (Place.CUDA, Place.CUDA_OR_HOST)), None)


def _comes_from_host(code: Code, node: ast.expr, receiver: Value) -> bool:
    """Whether the receiver may be a tensor in host memory that arrives with each batch."""
    if receiver.may(lambda a: is_neural_module(code.facts.inference, a)):
        return False
    held = [a for a in receiver.alternatives if isinstance(a, (Tensor, Batch, Output))]
    if held:
        if any(isinstance(a, Tensor) and (a.random or a.parameter) for a in held):
            return False
        if any(place_of(a) is not Place.UNKNOWN for a in held):
            return any(place_of(a) is Place.HOST for a in held)
    nothing_known = receiver.open and not receiver.alternatives
    return (bool(held) or nothing_known) and _is_loop_variable(code, node)


def _is_loop_variable(code: Code, node: ast.expr) -> bool:
    """Whether an expression of unknown type is what a step loop iterates over or draws, or a part of it."""
    root = node
    while isinstance(root, (ast.Subscript, ast.Attribute)):
        root = root.value
    loops = [loop.statement for loop in code.step_loops()]
    for definition in code.flow.reaching.get(root, frozenset()):
        if definition.kind != "for" and not (definition.value is not None and _DRAWS.search(_callee(definition.value))):
            return False
        loop = definition.block.loop
        while loop is not None:
            if loop.statement is not None and loop.statement in loops:
                return True
            loop = loop.parent
    return False


_DRAWS = re.compile(r"^(?:(?:get|next|sample|draw|fetch|load|make)(?:_\w*)?batch(?:es)?|next|__next__)$")


def _callee(node: ast.expr) -> str:
    return (path_of(node.func) or "").rpartition(".")[2] if isinstance(node, ast.Call) else ""


_CONSTANT_FACTORIES = words(
    """
    zeros ones full empty eye arange rand randn randint randperm
    """
)


def _is_made_here(node: ast.expr) -> bool:
    """A tensor that is built on the host only to be copied: factory-then-transfer reports it."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _CONSTANT_FACTORIES
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("torch", "th")
    )


def _without_cuda(code: Code, node: ast.AST) -> bool:
    """Whether the copy stands in the branch for machines without CUDA."""
    for block in code.flow.block[node].ancestry():
        if block.kind in ("then", "else") and isinstance(block.node, ast.If):
            test = ast.unparse(block.node.test)
            if "cuda" in test and "!=" not in test and " or " not in test:
                negated = test.startswith("not ")
                if (block.kind == "else") != negated:
                    return True
    return False


def _not_a_tensor(receiver: Value) -> str | None:
    if receiver.must(lambda a: isinstance(a, Tensor) or (isinstance(a, Batch) and a.default_collate)):
        return None
    if receiver.must(lambda a: isinstance(a, (Tensor, Batch))):
        return "the loader's `collate_fn` may return an object whose `to` takes no `non_blocking`"
    return "the receiver may be no tensor"


def _not_cuda(code: Code, call: ast.Call, target: Place) -> str | None:
    if target.is_cuda_or_host:
        return None
    given = argument(call, 0, "device")
    name = ast.unparse(given) if given is not None else "the device"
    return f"`{name}` may be neither a CUDA device nor the CPU"


def _may_be_on_device(receiver: Value) -> str | None:
    if receiver.must(lambda a: place_of(a) is Place.HOST):
        return None
    return "the tensor may be on a device already"


def _written_later(code: Code, node: ast.expr, call: ast.Call) -> str | None:
    """Whether the host memory that is being copied may be written to after the call."""
    root = node
    while isinstance(root, (ast.Subscript, ast.Attribute, ast.Call)):
        root = root.func if isinstance(root, ast.Call) else root.value
    if not isinstance(root, ast.Name):
        return None
    if root.id in code.flow.inner_names:
        return f"a function inside uses `{root.id}`"
    flow = code.flow
    statement = flow.statement(call)
    # behind `x = x.cuda()`, the host tensor is what `x` was only where the copy has not been made
    rebound = min(
        (d.order for d in flow.definitions_of(root.id) if d.kind == "assign" and _binds(flow, statement, d)), default=None
    )
    own = flow.reaching.get(root, frozenset())
    for definition in (*own, *_aliases(flow, own)):
        for use in flow.uses[definition]:
            if definition in own and rebound is not None:
                later = flow.order[call] < flow.order[use] < rebound
            else:
                later = flow.order[call] < flow.order[use] or _comes_again(flow, definition, call, use)
            if later and not _only_looked_at(code, use):
                return f"`{definition.name}` is used again on the host after the copy"
    return None


def _aliases(flow: Flow, definitions: frozenset[Definition]) -> set[Definition]:
    """Other variables that are bound to the same object, as in `y = x`."""
    found: set[Definition] = set()
    pending = list(definitions)
    while pending:
        definition = pending.pop()
        before = flow.reaching.get(definition.value, frozenset()) if _renames(definition) and definition.value else frozenset()
        after = (d for d in flow.definitions if _renames(d) and d.value and definition in flow.reaching.get(d.value, ()))
        for other in (*before, *after):
            if other not in found and other not in definitions:
                found.add(other)
                pending.append(other)
    return found


def _renames(definition: Definition) -> bool:
    return definition.kind == "assign" and not definition.index and isinstance(definition.value, ast.Name)


def _comes_again(flow: Flow, definition: Definition, call: ast.Call, use: ast.expr) -> bool:
    """Whether a use before the call runs again after it, on the same object: in a loop that does not make it anew."""
    loop = flow.loop(call)
    return loop is not None and any(
        flow.within(use, around.block) and not any(b is around.block for b in definition.block.ancestry())
        for around in loop.ancestry()
    )


def _binds(flow: Flow, statement: ast.stmt, definition: Definition) -> bool:
    """Whether an assignment binds a definition."""
    return isinstance(statement, ast.Assign) and definition.node in flow.order and flow.statement(definition.node) is statement


_LOOKED_AT = words(
    """
    to cuda size dim numel shape ndim dtype device float long type
    """
)


def _only_looked_at(code: Code, use: ast.expr) -> bool:
    parent = code.flow.parent.get(use)
    if isinstance(parent, ast.Assign) and parent.value is use and all(isinstance(t, ast.Name) for t in parent.targets):
        return True  # the new name's uses count
    while isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Load):
        parent = code.flow.parent.get(parent)
    if isinstance(parent, ast.Attribute):
        return parent.attr in _LOOKED_AT and isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        return parent.func.id in ("len", "isinstance", "type")
    if isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store):
        stored = code.flow.parent.get(parent)
        named = isinstance(parent.slice, ast.Constant) and isinstance(parent.slice.value, str)
        return named or (isinstance(stored, ast.Assign) and _is_transfer(stored.value))
    return False


def _is_transfer(node: ast.expr) -> bool:
    """`batch[key] = batch[key].to(device)` puts another object into a container; other stores write to a tensor."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda")


def _non_blocking(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "non_blocking", "True")
