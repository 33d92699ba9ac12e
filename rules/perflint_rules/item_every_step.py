"""A device value is read in every step, though nothing in the step needs it.

## What it does
Finds reads of device values (`.item()`, `.cpu()`, formatting) in each step that only feed a total, a list, a meter or a log.

## Why it is slow
Each read makes the CPU wait until the GPU has finished all that is queued; meanwhile it queues nothing, so the GPU runs dry.
Removing the step's *last* read gains at most the overlap that it restores: `min(CPU time, GPU time)` per step, up to half of
the step time in the reports we know. Removing one of several gains little; a `GradScaler` waits anyhow, unless Adam is fused.

## Example
```python
def train(model, loader, optimizer, criterion):
    total = 0.0
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)
```

## Use instead
```python
def train(model, loader, optimizer, criterion):
    total = 0.0
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        total += loss.detach().double()
    total = float(total)
    return total / len(loader)
```
A float64 sum on the device is the sum of Python floats to the bit; a float32 one is not. Where the device may have no float64:
`total += loss.detach().double() if loss.is_cuda else loss.item()`. A total shown now and then:
```python
        running += loss.detach().double()
        if step % 100 == 99:
            running = float(running)
            print(running / 100)
            running = 0.0
```
Counts (`(pred == y).sum().item()`, from a literal `0` on) are added up as integers. Where the type or the device is not known
and fixes may import the runtime (`runtime = true`), the total becomes an `ItemSum`, which looks at each value when the program
runs, and does what `.item()` does wherever a sum on the device would not be the same number:
```python
    total = ItemSum(0.0)
    for x, y in loader:
        ...
        total.add(loss)
    return total.value() / len(loader)
```
A list becomes a `HostList` (`losses.add_item(loss)`, `predictions.add_array(output.detach())`, `classes.extend_list(guess)`,
`losses.values()` where somebody looks), also where a copy has a name until then, and a name that is looked at under guards, or
added up, a `LateItem`: also in scripts, for what only code under `if __name__ == "__main__"` can see. A meter counts when
somebody looks at it: `losses = LateMeter(AverageMeter())` is given `losses.update(LateItem(loss), n)`. What is computed from
reads is a `LateItem(hits, seen, of=lambda a, b: a / b)`, also a row of a list (`[a.item(), b.item()]`), a dict is a `HostDict`,
what `np.append` makes grow a `HostArray`.

## When it stays silent
When the value decides what happens next, under a guard (`step % 100 == 0`), once per epoch, and in programs that never name a
device; a number that the device computes with again is reported. Repeats: duplicate-item-read. Each step's waits are counted by
the sync budget; select the rule to see them one by one.

## Fix safety
Safe for a local total that starts at a literal 0, only grows by `loss.item()` (times a Python number) in the loop, and is
looked at after it or under a guard in it, when the tensor is one number of known type (`loss.backward()` proves it), the loop
reads no clock, no `try` in it handles an error of the read, nothing in the program may need the wait (blocking-h2d-in-loop says
what), and it neither names several GPUs, nor has tensors of its own, nor switches `inference_mode` but by `with` and
decorators. Integers must be counts: other sums may not fit. Else the fix is unsafe, or an `ItemSum`, which needs neither type,
size nor device, divides, and takes any weight; where each step looks at the total there is none. A name for the number (`value
= loss.item()`) may stand in between, or be looked at under guards alone: it then names a copy on the device. The fix for a list
rests on memory to spare: `losses.append(loss.detach().clone())`, and `losses = torch.stack(losses).tolist() if losses else []`
behind the loop: each scalar takes at least 512 bytes in the caching allocator. `clone` because the next step may write to it. A
`HostList` keeps 4,096 numbers at most, and copies of larger tensors on the host; it must not be handed out while it still
grows. A meter must be a local of a class in sight, whose method only computes with numbers and keeps them; that its errors come
later is assumed (`errors-are-bugs`). It may stand in a list that an object of such a class only shows
(`ProgressMeter(len(loader), [losses])`), if nobody else has that object. What a `SummaryWriter` gets is written when it has
arrived: `late_scalar(writer, "loss", LateItem(loss), step)`. Other reads of a step are made with one wait by `items_together`,
also where they stand side by side: `print(*items_together(a, b))`; a writer's by `copies_together`. All else is advice.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Code,
    Cost,
    Finding,
    HostRead,
    Kind,
    Obligation,
    Rate,
    ReadKind,
    Severity,
    Sink,
    implied,
    rate_of,
    rule,
    upload_behind,
    written_out,
)
from perflint_rules.kept_locals import SeenInEachStep, fills_what_is_shown
from perflint_rules.kept_reads import can_wait, is_looked_at_in_step, kept, kept_over_parameters, may_come_late
from perflint_rules.late_writes import call_around, written_late
from perflint_rules.loader_use import collects, is_of_one_pass, waits_anyhow, writes_results
from perflint_rules.numbers_computed_with import computed_with
from perflint_rules.own_batches import is_every_so_often, runs_seldom
from perflint_rules.read_once import is_read_anyhow, is_read_with_others, is_taken
from perflint_rules.reads_together import joined
from perflint_rules.repeated_reads import groups

_CURES = {
    Sink.ACCUMULATE: "add it up on the device and read the sum when it is needed",
    Sink.COLLECT: "keep it on the device and read all of them after the loop",
    Sink.STORE: "keep it on the device and read all of them after the loop",
    Sink.METER: "let the meter keep a detached tensor, and read it where it is shown",
    Sink.METRIC: "compute the metric on the device, or after the loop",
    Sink.LOG: "log every N steps, or one step late",
    Sink.RETURN: "return the tensor, and read it where the numbers are needed",
}

_SEEN = "show it every N steps, and keep it on the device until then", ", but each step looks at it"


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[(".item(", ".cpu(", ".numpy(", ".tolist(", "float(", "backward(", "zero_grad", "oader", ".add_scalar(")],
    in_file=[("torch", "loss", "loader", "device", ".is_cuda")],
    fixes=True,
    steps=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each read of a device value that could wait, and those that can be made together."""
    yield from joined(code, list(_reads(code)))
    yield from computed_with(code)


def _reads(code: Code) -> Iterator[tuple[HostRead, Finding, bool]]:
    if not any(may_come_late(code.sinks(call)) for call, _ in written_out(code.flow)):
        hot = code.step_loops() or (code.calls("float", "add_scalar") and code.heat is not None)
        if not hot or not any(may_come_late(code.sinks(node)) for node, _ in implied(code.flow)):
            return
    fixed, reads = set[HostRead](), {read.node: read for read in code.reads()}
    for read in code.reads():
        if not code.is_hot(read.node) or runs_seldom(code, read.node):
            continue
        sinks = code.sinks(read.node)
        if not may_come_late(sinks) or (sinks == {Sink.RETURN} and code.heat is None) or writes_results(code, read, sinks):
            continue
        upload = upload_behind(code.facts, code.scope, read.tensor) if read.kind is ReadKind.COPY else None
        if upload is not None and upload.exact and not can_wait(code, read):
            continue  # host-roundtrip has a better cure
        first = next((sink for sink in _CURES if sink in sinks), Sink.LOG)
        fix, missing = None, list[Obligation | None]()
        copied = read.kind is ReadKind.COPY and isinstance(code.flow.statement(read.node), ast.Return)
        cure, seen = _CURES[Sink.RETURN if copied else first], ""
        local, summed = kept(code, read), kept_over_parameters(code, read) is not None
        if summed or (local is None and rate_of(code.facts, code.scope, read.node) is Rate.PER_PARAMETER):
            continue  # per-parameter-read has a better cure
        if (first is Sink.COLLECT and is_read_anyhow(code, read)) or is_read_with_others(code, read.node):
            fixed.add(read)  # by duplicate-item-read or item-in-python-loop
            continue
        if local is not None:
            missing = list(local.missing())
            cure = local.cure or cure
            try:
                fix = code.fix(cure, list(local.parts()), unless=missing)
            except CannotRewrite as reason:
                missing.append(Obligation(Kind.REWRITE, str(reason)))
                cure, seen = _SEEN if isinstance(reason, SeenInEachStep) else (_CURES[first], "")
        elif (call := call_around(code, reads, read.node)) is not None:
            fix, missing = written_late(code, reads, call)
            cure = fix.message if fix is not None else cure
        if fix is None and first is Sink.COLLECT and fills_what_is_shown(code, read.node):
            cure, seen = _SEEN
        if read.kind is ReadKind.COPY and first in (Sink.COLLECT, Sink.STORE) and fix is None:
            cure = cure.replace("keep it on the device", "keep it on the device, if there is room,")
        if fix is None and any(read in later and (seen or early not in fixed) for early, *later in groups(code)):
            continue  # duplicate-item-read has a better cure
        uses = " and ".join(sink.value for sink in Sink if sink in sinks) + seen
        message = f"the CPU waits for `{ast.unparse(read.tensor)}` in every step, and the value is only {uses}; {cure}"
        little = waits_anyhow(code, read.node) or is_of_one_pass(code, read.node) or (fix is None and collects(code, read))
        little = little or is_every_so_often(code, read.node) or bool(code.flow.calls_named["elapsed_time"])  # it needs a wait
        little = little or (fix is not None and local is not None and is_looked_at_in_step(code, read))
        fixed |= {read} if fix is not None else set()
        can_join = not little and not is_taken(fix)
        yield read, code.finding(read.node, message, fix, missing, waits=[read.node]), can_join
