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
Safe when the receiver is a tensor without doubt, comes from host memory that nobody writes to, the target is a CUDA
device or the CPU, and the program uses no CUDA stream of its own: only a blocking copy is over before another stream
reads. Unsafe when a batch may be an object of another kind (a `collate_fn`, `batch_size=None`, samples with a method
`to`): its `to` may not take the keyword; and when the device may be another one: asynchronous copies are safe for CUDA
only. With `runtime = true` such a copy becomes `moved(x, device)`, which looks at the tensor and the device when the program
runs, and does what `x.to(device)` does unless a plain tensor goes from pinned memory to a CUDA device; that nobody writes to
the memory, and that no other stream reads the result, must be proved for it, too.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    Batch,
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Finding,
    Heat,
    Import,
    Kind,
    Literal,
    Obligation,
    Output,
    Place,
    Severity,
    Tensor,
    Value,
    add_keyword,
    any_layout,
    argument,
    device_place,
    is_neural_module,
    keyword,
    path_of,
    place_of,
    replace,
    rule,
    stays_as_is,
    transfer_target,
    words,
)

_TO_DEVICE = any_layout(rb"\. to \((?! (?:torch \.|dtype\b|\w+ \. dtype))")

_BUILDS_ON_HOST = any_layout(rb"from_numpy|ensor \(|as_tensor|[lL]oader")


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.WARNING,
    needs=[
        (_TO_DEVICE, ".cuda(", ".type("),
        ("oader", "backward", "zero_grad", *keyword("for"), *keyword("while"), "from_numpy", "ensor(", "batch"),
    ],
    in_file=[("torch", "loader", "device")],
    fixes=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each blocking copy of batch data to a device."""
    calls = [call for call in code.calls("to", "cuda", "type") if _may_move(call)]
    if not (any(code.flow.loop(call) is not None for call in calls) and code.step_loops()):
        heat = code.heat if calls else None
        quiet = heat is Heat.FORWARD and not _BUILDS_ON_HOST.search(code.scope.text) and not code.step_loops()
        if heat is None or quiet:
            return  # the inputs of a forward pass are where the network is
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        if not code.is_hot(call):
            continue
        target = _target(code, call)
        if target is None or target is Place.HOST:
            continue
        receiver = code.value(call.func.value)
        if not _comes_from_host(code, call.func.value, receiver) or _without_cuda(code, call):
            continue
        spread = any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)
        positional = any(code.value(a).may(lambda v: isinstance(v, Literal) and isinstance(v.value, bool)) for a in call.args)
        missing = [
            _not_a_tensor(receiver),
            _not_cuda(code, call, target),
            _may_be_on_device(receiver),
            stays_as_is(code.facts, code.scope, call.func.value),
            _other_stream(code),
        ]
        fix = None
        if code.options.runtime and not any(_open_at_run_time(missing)) and _is_plain_move(call) and any(missing):
            fix = code.fix("let `moved` look whether the copy needs a wait", _guarded(code, call))
            missing = []
        elif not spread and not positional:
            fix = code.fix(
                "pass `non_blocking=True`",
                _non_blocking(code, call),
                unless=missing,
            )
        pinned = any(isinstance(a, Batch) and a.pinned is False for a in receiver.alternatives)
        hint = " (the loader does not pin its batches, so little is gained before it does)" if pinned else ""
        message = f"the CPU waits for this copy to the device; pass `non_blocking=True`{hint}"
        yield code.finding(call, message, fix, missing, waits=[call])


def _may_move(call: ast.Call) -> bool:
    """Whether a call may be a blocking copy to a device, by itself."""
    if not isinstance(call.func, ast.Attribute) or argument(call, None, "non_blocking") is not None:
        return False
    if call.func.attr == "to":
        first = call.args[0] if call.args else argument(call, None, "device")
        if first is None or (isinstance(first, ast.Constant) and first.value == "cpu"):
            return False
    return not _is_made_here(call.func.value)


def _target(code: Code, call: ast.Call) -> Place | None:
    """Where the call puts its receiver; None when it moves nothing."""
    assert isinstance(call.func, ast.Attribute)
    inference = code.facts.inference
    frame = inference.frame(code.scope)
    match call.func.attr:
        case "to":
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
    while isinstance(root, (ast.Subscript, ast.Attribute, ast.Call)):
        if isinstance(root, ast.Call):
            if not isinstance(root.func, ast.Attribute) or root.func.attr not in _SAME_DATA:
                return False
            root = root.func
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


_SAME_DATA = words(
    """
    unsqueeze squeeze view reshape flatten transpose permute contiguous float double half long int
    """
)
"""Methods that hand on a batch as it is, but for shape and type."""


def _is_made_here(node: ast.expr) -> bool:
    """A tensor that is built on the host only to be copied: factory-then-transfer and tensor-const-to-device report it."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch" | "th"), attr=name), args=args):
            return name in _CONSTANT_FACTORIES or (name == "tensor" and len(args) == 1 and _is_number(args[0]))
    return False


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and type(inner.value) in (int, float, bool)


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


def _not_a_tensor(receiver: Value) -> Obligation | None:
    if receiver.must(lambda a: isinstance(a, Tensor) or (isinstance(a, Batch) and a.default_collate)):
        return None
    if receiver.must(lambda a: isinstance(a, (Tensor, Batch))):
        return Obligation(Kind.PLAIN_BATCHES, "a batch may be an object whose `to` takes no `non_blocking`")
    return Obligation(Kind.VALUE, "the receiver may be no tensor")


def _not_cuda(code: Code, call: ast.Call, target: Place) -> Obligation | None:
    if target.is_cuda_or_host:
        return None
    given = argument(call, 0, "device")
    name = ast.unparse(given) if given is not None else "the device"
    return Obligation(Kind.CUDA_OR_CPU, f"`{name}` may be neither a CUDA device nor the CPU")


def _may_be_on_device(receiver: Value) -> Obligation | None:
    if receiver.must(lambda a: place_of(a) is Place.HOST):
        return None
    return Obligation(Kind.VALUE, "the tensor may be on a device already")


_SIDE_STREAM = any_layout(rb"\bcuda \. (?:stream|Stream|set_stream) \(|\btorch \. Stream \(|[^_\w]StreamContext \(")


def _other_stream(code: Code) -> Obligation | None:
    """Whether another stream than the copy's may read the result: only a blocking copy is over before that."""
    if code.facts.project.program_may_hold(code.source.path, _SIDE_STREAM):
        return Obligation(
            Kind.ONE_STREAM, "the program works with several streams, and another one may read before the copy is done"
        )
    return None


def _open_at_run_time(missing: list[Obligation | None]) -> Iterator[Obligation]:
    """The obligations that nobody can look at when the program runs: who else writes to, or reads, the memory."""
    looked_at = (Kind.VALUE, Kind.PLAIN_BATCHES, Kind.CUDA_OR_CPU)
    yield from (obligation for obligation in missing if obligation is not None and obligation.kind not in looked_at)


def _is_plain_move(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "to" and len(call.args) == 1 and not call.keywords


def _guarded(code: Code, call: ast.Call) -> Iterator[Edit | Import]:
    assert isinstance(call.func, ast.Attribute)
    text = code.text(call)
    if "#" in text:
        raise CannotRewrite("a comment would be lost")
    yield Import("perflint_runtime", "moved")
    yield replace(code.source, call, f"moved({code.text(call.func.value)}, {code.text(call.args[0])})")


def _non_blocking(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "non_blocking", "True")
