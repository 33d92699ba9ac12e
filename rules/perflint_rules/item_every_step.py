"""A device value is read in every step, though nothing in the step needs it.

## What it does
Finds reads of device values (`.item()`, `.cpu()`, `.numpy()`, `.tolist()`, `float(t)`, formatting, `print`) that run each
step and only feed a running total, a list, a meter or a log line.

## Why it is slow
Each read makes the CPU wait until the GPU has finished everything that is queued; meanwhile it queues nothing, so the
GPU runs dry. The gain of removing the step's *last* read is at most the overlap that it restores: `min(CPU time, GPU
time)` per step, between nothing and half of the step time in the reports we know. Removing one of several reads gains
next to nothing, and with a `GradScaler` whose optimizer is not fused, one wait per step stays in any case.

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
A float64 sum on the device is bit-identical to the sum of Python floats (checked over 20,000 steps); a float32 one is
not, and a bfloat16 counter stops at 256. With the runtime: `meter = LossMeter()`, `meter.add(loss)`, `meter.value()`.

## When it stays silent
When the value decides what happens next (early stop, skipped step, an action for an environment, a size), under a guard
such as `step % 100 == 0`, once per epoch, on host tensors, and in programs that never name a device.

## Fix safety
Safe for a local total that starts at a literal 0, only grows by `loss.item()` (times a number) in the loop and is read
after it, when the tensor is new memory and a single number, and the device is CUDA or the CPU (MPS has no float64).
Also safe for a list that is filled with `.item()` in the loop and read after it. Everything else is advice: log less
often, or read one step late.
"""

import ast
from collections.abc import Iterable, Iterator

from perflint.api import (
    IDLE_SINKS,
    CannotRewrite,
    Category,
    Code,
    Definition,
    Edit,
    Finding,
    HostRead,
    Import,
    Loop,
    ReadKind,
    Severity,
    Sink,
    Tensor,
    insert_after_block,
    place_of,
    replace,
    rule,
    suspends,
    written_out,
)

_CURES = {
    Sink.ACCUMULATE: "add it up on the device and read the sum after the loop",
    Sink.COLLECT: "keep it on the device and read all of them after the loop",
    Sink.STORE: "keep it on the device and read all of them after the loop",
    Sink.METER: "give the meter a detached tensor and read it when it is shown",
    Sink.METRIC: "compute the metric on the device, or after the loop",
    Sink.LOG: "log every N steps, or one step late",
}


@rule(
    category=Category.SYNC,
    severity=Severity.WARNING,
    needs=[(".item()", ".cpu()", ".numpy()", ".tolist()", "backward(", "zero_grad", "oader")],
    in_file=[("torch", "loss", "loader", "device")],
    fixes=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each read of a device value that could wait."""
    if not code.step_loops() and not any(_may_wait(code.sinks(call)) for call, _ in written_out(code.flow)):
        return
    for read in code.reads():
        if read.kind is ReadKind.TRUTH or not code.is_hot(read.node):
            continue
        sinks = code.sinks(read.node)
        if not _may_wait(sinks):
            continue
        if sinks == {Sink.RETURN} and code.heat is None:
            continue
        first = next((sink for sink in _CURES if sink in sinks), Sink.LOG)
        missing: list[str | None] = []
        fix = None
        total = _Total.find(code, read)
        if total is not None:
            missing = list(total.missing())
            fix = code.fix("add up on the device and read the sum after the loop", total.parts(), unless=missing)
        waited = f"the CPU waits for `{ast.unparse(read.tensor)}` in every step"
        message = f"{waited}, and the value is only {_uses(sinks)}; {_CURES[first]}"
        yield code.finding(read.node, message, fix, missing, waits=[read.node])


def _may_wait(sinks: frozenset[Sink]) -> bool:
    """Whether nothing that becomes of a value needs it within the step."""
    return bool(sinks) and sinks <= IDLE_SINKS | {Sink.RETURN}


def _uses(sinks: frozenset[Sink]) -> str:
    return " and ".join(sink.value for sink in Sink if sink in sinks)


class _Total:
    """The accumulator form: a local that starts at 0 and grows by a read in each step."""

    def __init__(self, code: Code, read: HostRead, statement: ast.AugAssign, loop: Loop) -> None:
        self.code, self.read, self.statement, self.loop = code, read, statement, loop
        assert isinstance(statement.target, ast.Name)
        self.name = statement.target.id

    @classmethod
    def find(cls, code: Code, read: HostRead) -> "_Total | None":
        statement = code.flow.statement(read.node)
        loop = code.step_loop(read.node)
        if read.kind is not ReadKind.ITEM or loop is None or loop.statement is None:
            return None
        match statement:
            case ast.AugAssign(target=ast.Name(), op=ast.Add(), value=value) if _is_product(value, read.node):
                return cls(code, read, statement, loop)
        return None

    def missing(self) -> Iterable[str | None]:
        code, flow = self.code, self.code.flow
        tensor = self.read.tensor
        value = code.value(tensor)
        if not value.must(lambda a: isinstance(a, Tensor) and a.ndim == 0):
            yield f"`{ast.unparse(tensor)}` may be no tensor with a single number"
        elif not value.must(lambda a: isinstance(a, Tensor) and ("float" in a.dtype or a.dtype == "int64")):
            yield f"the type of `{ast.unparse(tensor)}` is not known"
        elif self._is_integer() and not isinstance(self.statement.value, ast.Call):
            yield f"`{ast.unparse(tensor)}` is an integer that is multiplied"
        if not value.must(lambda a: place_of(a).is_cuda_or_host):
            yield "the device may have no float64 (MPS), or is not known"
        if suspends(flow):
            yield "the function yields or awaits"
        if code.scope.is_module:
            yield f"`{self.name}` is a global variable"
        if self.name in flow.inner_names or self.name in flow.outer_names:
            yield f"`{self.name}` is used outside of the function"
        yield from self._uses()

    def _is_integer(self) -> bool:
        return self.code.value(self.read.tensor).must(lambda a: isinstance(a, Tensor) and a.dtype == "int64")

    def _start(self) -> ast.Constant | None:
        """The literal 0 that the total starts at, directly before the loop."""
        starts = [d for d in self._definitions() if d.node is not self.statement.target]
        if len(starts) != 1 or not isinstance(starts[0].value, ast.Constant) or starts[0].index:
            return None
        start = starts[0].value
        return start if type(start.value) in (int, float) and start.value == 0 else None

    def _definitions(self) -> set[Definition]:
        """The definitions that reach the addition."""
        return set(self.code.flow.reaching.get(self.statement.target, frozenset()))

    def _uses(self) -> Iterator[str | None]:
        _code, flow = self.code, self.code.flow
        if self._start() is None:
            yield f"`{self.name}` does not start at a literal 0"
            return
        own = {d for d in flow.definitions_of(self.name) if d.node is self.statement.target}
        start = next(d for d in self._definitions() if d.node is not self.statement.target)
        if flow.within(start.node, self.loop.block):
            yield f"`{self.name}` is reset in the loop"
        after = self.loop.statement
        assert after is not None
        block = flow.always(flow.block[after])
        for definition in (*own, start):
            for use in flow.uses[definition]:
                if use is self.statement.target:
                    continue
                if flow.within(use, self.loop.block):
                    yield f"`{self.name}` is used in the loop"
                elif flow.order[use] < flow.order[after]:
                    continue
                elif not flow.within(use, block):
                    yield f"`{self.name}` may be used without the loop having run"
                reaching = flow.reaching.get(use, frozenset())
                if any(d.node is not self.statement.target and d is not start for d in reaching):
                    yield f"`{self.name}` may come from somewhere else after the loop"
        if getattr(after, "orelse", None):
            yield "the loop has an `else`"
        if any(isinstance(n, ast.Return) and flow.within(n, self.loop.block) for n in flow.returns):
            yield None
        outer = flow.loop(after)
        if outer is not None and not flow.within(start.node, outer.block):
            yield f"`{self.name}` is not reset before each run of the loop"

    def parts(self) -> Iterator[Edit | Import]:
        code = self.code
        tensor = self.read.tensor
        start = self._start()
        if start is None or self.loop.statement is None:
            raise CannotRewrite("the total has no literal start")
        source = code.text(tensor)
        simple = isinstance(tensor, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        source = source if simple else f"({source})"
        if self._is_integer():
            yield replace(code.source, self.read.node, source)
            yield insert_after_block(code.source, self.loop.statement, f"{self.name} = int({self.name})")
            return
        yield replace(code.source, self.read.node, f"{source}.detach().double()")
        if isinstance(start.value, float):
            yield insert_after_block(code.source, self.loop.statement, f"{self.name} = float({self.name})")
            return
        torch, imports = code.name_for("torch")
        yield from imports
        line = f"{self.name} = {self.name}.item() if {torch}.is_tensor({self.name}) else {self.name}"
        yield insert_after_block(code.source, self.loop.statement, line)


def _is_product(value: ast.expr, read: ast.expr) -> bool:
    """`read`, or a product of `read` and something that is no read."""
    if value is read:
        return True
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and (value.left is read or value.right is read)
