"""A batch is copied to the GPU while the CPU waits.

## What it does
Finds `.to(device)`, `.cuda()` and `.type(torch.cuda.FloatTensor)` on host tensors, and `kept.copy_(x)` of one into a tensor
on the device, in code that runs once per batch.

## Why it is slow
A blocking copy ends with a stream synchronisation: the CPU waits until the copy and all work queued before it are done.
`non_blocking=True` drops that wait, one per tensor. The copy still runs in stream order: it overlaps with kernels only on
another stream. From pinned memory the call returns at once; from ordinary memory it returns once the bytes are staged, for
which the driver may wait, too: what the step makes of arrays is better made in the loader, which pins it, and a table that
stays the same is better kept on the device.

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
When the tensor is on the device already (a second `.to` is a no-op), where a function returns what it reads from the device
(`return net(x.to(device)).cpu()`: the read waits anyhow), in code that does not run per batch, under a guard such as `step %
100 == 0`, for a change of dtype only, for modules, and for copies to the host (non-blocking-d2h-read). Each step's waits are
counted by the sync budget; select the rule to see them one by one.

## Fix safety
Safe when the receiver is a tensor without doubt, comes from host memory that nobody writes to, the target is a CUDA device or
the CPU, the program has no tensor class or method of its own, and nothing in it may need the wait: streams, memory that is
pinned by hand, copies to the host that nobody waits for, CUDA graphs, timed events, other libraries that read the memory, and
loaders that are not known (timm's copies ahead on a stream). Unsafe when a batch may be an object of another kind (a
`collate_fn`, `batch_size=None`, samples with a method `to`), whose `to` may not take the keyword. Asynchronous copies are safe
for CUDA only: where a device may be another, the copy asks it, `x.to(device, non_blocking=device.type == "cuda")`; where it may
be no device at all, the fix rests on `cuda-or-cpu`. With `runtime = true` such a copy becomes `moved(x, device)`, which looks
at tensor and device when the program runs, and differs from `x.to(device)` only where a plain tensor goes from pinned memory to
a CUDA device. Where somebody may write to it, or nothing pins it, it becomes `moved_copy(x, device)`, which first copies it
into pinned memory, without a wait; that no other stream reads the result must be proved.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    OWN_TENSORS,
    Batch,
    Code,
    Cost,
    Edit,
    Finding,
    Heat,
    Kind,
    Literal,
    Obligation,
    Place,
    Severity,
    Tensor,
    Value,
    add_keyword,
    any_layout,
    comes_from_host,
    is_blocking,
    is_made_of_constants,
    is_neural_module,
    is_one_of_many,
    is_read_back,
    is_refuted,
    is_set_once,
    keyword,
    place_of,
    rule,
    stays_as_is,
    target_of,
    without_cuda,
)
from perflint_rules.copies_into_place import COPIES, copies_into_place
from perflint_rules.cuda_targets import asks_device, not_cuda, scripted
from perflint_rules.guarded_copies import guarded, helper_of
from perflint_rules.host_factories import is_made_there
from perflint_rules.pageable import hint_at_memory, is_ordinary

_TO_DEVICE = any_layout(rb"\. to \((?:(?! (?:torch \.|dtype\b|\w+ \. dtype))|[^()]*\bdevice\b)")
_KEPT = any_layout(rb"self \. \w+ (?:= \w+(?:\[[^]\n]*\])? )?\. (?:to|cuda) \(")
_HELPS = any_layout(rb"\w = \w+ (?:\[[^]]*\] )?\. (?:to|cuda) \(|return (?:\w+ \. (?:to|cuda) \(|(?:\w+ \. )*Variable \()")
_LOOPS = (*keyword("for"), *keyword("while"))
_BUILDS_ON_HOST = any_layout(
    rb"from_numpy|ensor \(|as_tensor|[lL]oader|torch \. (?:zeros|ones|empty|full|eye|arange|linspace|rand\w*) \("
)


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.WARNING,
    needs=[
        (_TO_DEVICE, ".cuda(", ".type(", ".copy_("),
        ("oader", "backward", "zero_grad", *_LOOPS, "from_numpy", "ensor(", "batch", _KEPT, _HELPS, COPIES),
    ],
    in_file=[("torch", "loader", "device")],
    fixes=True,
    in_budget=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each blocking copy of batch data to a device."""
    yield from copies_into_place(code)
    calls = [call for call in code.calls("to", "cuda", "type") if is_blocking(call)]
    if not (any(code.flow.loop(call) is not None for call in calls) and code.step_loops()):
        heat = code.heat if calls else None
        quiet = heat is Heat.FORWARD and not _BUILDS_ON_HOST.search(code.scope.text) and not code.step_loops()
        if heat is None or quiet:
            return  # the inputs of a forward pass are where the network is
    inference = code.facts.inference
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        if not code.is_hot(call) or is_made_there(code, call.func.value) or is_read_back(inference, code.scope, call):
            continue
        target, receiver = target_of(inference, code.scope, call), code.value(call.func.value)
        if target is None or target is Place.HOST or without_cuda(code.scope, call):
            continue
        if not comes_from_host(inference, code.facts.loops, code.scope, call.func.value):
            continue
        spread = any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)
        positional = any(code.value(a).may(lambda v: isinstance(v, Literal) and isinstance(v.value, bool)) for a in call.args)
        network = receiver.may(lambda a: is_neural_module(inference, a))  # whose `to` takes no `non_blocking`
        written = stays_as_is(code.facts, code.scope, call.func.value)
        asked = asks_device(code, call, target)
        other = None if asked is not None else not_cuda(code, call, target)
        looked_at = [_not_a_tensor(receiver), other, *scripted(code, call), _may_be_on_device(receiver), written]
        missing = list(code.needs_wait())
        fix, cure, copies = None, "pass `non_blocking=True`", written is not None or is_ordinary(code, call.func.value)
        if network:
            cure = "copy batches apart from networks, with `non_blocking=True`"
        elif code.offers_runtime and (
            any((asked, *looked_at)) if code.may_use_runtime else is_refuted(filter(None, looked_at))
        ):
            helper = helper_of(call, copies=copies)
            fix = code.fix(f"use `{helper}` of the runtime", guarded(code, call, helper), unless=missing) if helper else None
        if fix is not None:
            cure = fix.message
        else:
            missing += [*filter(None, looked_at), *code.feared(OWN_TENSORS)]
            if not (spread or positional or network):
                fix = code.fix(cure, _non_blocking(code, call, asked), unless=missing)
        hint = hint_at_memory(code, call.func.value)
        if is_one_of_many(code.flow, call):
            cure, hint = "stack them on the host and copy once", ""
        if is_made_of_constants(call.func.value) or is_set_once(code.scope, call.func.value):
            hint = ", or, as it is always the same, make it once and keep it there"
        message = f"the CPU waits for this copy to the device; {cure}{hint}"
        yield code.finding(call, message, fix, missing, waits=[call])


def _not_a_tensor(receiver: Value) -> Obligation | None:
    if receiver.must(lambda a: isinstance(a, Tensor) or (isinstance(a, Batch) and a.default_collate)):
        return None
    if receiver.must(lambda a: isinstance(a, (Tensor, Batch))):
        return Obligation(Kind.PLAIN_BATCHES, "a batch may be an object whose `to` takes no `non_blocking`")
    return Obligation(Kind.VALUE, "the receiver may be no tensor")


def _may_be_on_device(receiver: Value) -> Obligation | None:
    on_host = receiver.must(lambda a: place_of(a) is Place.HOST)
    return None if on_host else Obligation(Kind.VALUE, "the tensor may be on a device already")


def _non_blocking(code: Code, call: ast.Call, asked: str | None) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "non_blocking", asked or "True")
