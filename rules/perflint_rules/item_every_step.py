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
not, and a bfloat16 counter stops at 256. A total that is shown now and then is read there:
```python
        running += loss.detach().double()
        if step % 100 == 99:
            running = float(running)
            print(running / 100)
            running = 0.0
```
Counts (`(pred == y).sum().item()`, from a literal `0` on) are added up as integers. No helper from `perflint_runtime` is
needed for any of this, so the fix is the same with `runtime = true`.

## When it stays silent
When the value decides what happens next (early stop, skipped step, an action for an environment, a size), under a guard
such as `step % 100 == 0`, once per epoch, on host tensors, and in programs that never name a device.

## Fix safety
Safe for a local total that starts at a literal 0, only grows by `loss.item()` (times a Python number) in the loop, and is
looked at after the loop or under a guard in it, when the tensor is a single number of known type, the device is CUDA or
the CPU (MPS has no float64), the loop reads no clock, no `try` in the loop handles an error of the read, no asynchronous
copy in the loop relies on the wait, and the program neither has a tensor class of its own nor switches `inference_mode` on
and off but by `with` and as a decorator. Integers must be counts: sums of others may not fit into 64
bits. Without these proofs the fix is unsafe; where the total is looked at in each step there is none.

The fix for a list that is filled in the loop and read behind it is always unsafe: `losses.append(loss.detach().clone())`,
and `losses = torch.stack(losses).tolist() if losses else []` after the loop. The numbers are the same, but each step's
scalar stays in device memory (at least 512 bytes in the caching allocator) until the loop ends. `clone` because the loss
may be a buffer that the next step writes to, as in a CUDA graph. Everything else is advice: log less often, or read one
step late.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    IDLE_SINKS,
    Block,
    CannotRewrite,
    Code,
    Cost,
    Definition,
    Edit,
    Finding,
    HostRead,
    Import,
    Kind,
    Literal,
    Loop,
    Number,
    Obligation,
    ReadKind,
    Severity,
    Sink,
    Tensor,
    implied,
    insert_after_block,
    insert_before,
    inspects_itself,
    is_guard,
    no_copy_in_flight,
    path_of,
    place_of,
    plain_tensors,
    replace,
    rule,
    suspends,
    untimed,
    written_out,
)

_SWITCHES_INFERENCE_MODE = re.compile(
    rb"(?<!@torch\.)(?<!with torch\.)\binference_mode\(|\binference_mode\((?!\)\s*(?::|$))|\binference_mode\b(?![(`])", re.M
)
"""Anything but `with torch.inference_mode():` and the like as a decorator."""

_CURES = {
    Sink.ACCUMULATE: "add it up on the device and read the sum when it is needed",
    Sink.COLLECT: "keep it on the device and read all of them after the loop",
    Sink.STORE: "keep it on the device and read all of them after the loop",
    Sink.METER: "give the meter a detached tensor and read it when it is shown",
    Sink.METRIC: "compute the metric on the device, or after the loop",
    Sink.LOG: "log every N steps, or one step late",
}


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[(".item(", ".cpu(", ".numpy(", ".tolist(", "backward(", "zero_grad", "oader")],
    in_file=[("torch", "loss", "loader", "device")],
    fixes=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each read of a device value that could wait."""
    if not any(_may_wait(code.sinks(call)) for call, _ in written_out(code.flow)):
        if not (any(_may_wait(code.sinks(node)) for node, _ in implied(code.flow)) and code.step_loops()):
            return
    for read in code.reads():
        if not code.is_hot(read.node):
            continue
        sinks = code.sinks(read.node)
        if not _may_wait(sinks):
            continue
        if sinks == {Sink.RETURN} and code.heat is None:
            continue
        first = next((sink for sink in _CURES if sink in sinks), Sink.LOG)
        missing: list[Obligation | None] = []
        fix = None
        kept = _kept(code, read)
        if kept is not None:
            missing = list(kept.missing())
            try:
                fix = code.fix(_CURES[first], list(kept.parts()), unless=missing)
            except CannotRewrite as reason:
                missing.append(Obligation(Kind.REWRITE, str(reason)))
        waited = f"the CPU waits for `{ast.unparse(read.tensor)}` in every step"
        message = f"{waited}, and the value is only {_uses(sinks)}; {_CURES[first]}"
        yield code.finding(read.node, message, fix, missing, waits=[read.node])


def _may_wait(sinks: frozenset[Sink]) -> bool:
    """Whether nothing that becomes of a value needs it within the step."""
    return bool(sinks) and sinks <= IDLE_SINKS | {Sink.RETURN}


def _uses(sinks: frozenset[Sink]) -> str:
    return " and ".join(sink.value for sink in Sink if sink in sinks)


def _kept(code: Code, read: HostRead) -> "_Kept | None":
    """The local that takes the read, where it is one that can keep device values."""
    loop = code.step_loop(read.node)
    if loop is None or loop.statement is None or not _is_item(code, read):
        return None
    return _Total.find(code, read, loop) or _Listed.find(code, read, loop)


def _is_item(code: Code, read: HostRead) -> bool:
    """Whether a read gives what `.item()` gives."""
    if read.kind is not ReadKind.CONVERSION:
        return read.kind is ReadKind.ITEM
    floating = code.value(read.tensor).must(lambda a: isinstance(a, Tensor) and "float" in a.dtype)
    return floating and isinstance(read.node, ast.Call) and path_of(read.node.func) == "float"


class _Kept:
    """A local that takes a read in each step, and could keep device values until somebody looks at it.

    The rewrite keeps one promise: wherever the local is looked at, it holds what it held before. So it is converted behind
    the loop, and in front of the uses that stand under a guard in the loop.
    """

    def __init__(self, code: Code, read: HostRead, loop: Loop, target: ast.Name) -> None:
        assert loop.statement is not None
        self.code, self.flow, self.read, self.loop, self.target = code, code.flow, read, loop, target
        self.name, self.after = target.id, loop.statement
        self.value = code.value(read.tensor)

    def uses(self) -> list[ast.expr]:
        """The places that may see what a step has added."""
        raise NotImplementedError

    def unproven(self) -> Iterator[Obligation | None]:
        """The proofs that only this form needs and that do not hold."""
        raise NotImplementedError

    def converted(self, at_guard: bool) -> tuple[str, tuple[Import, ...]]:
        """The statement that turns device values into what the local held."""
        raise NotImplementedError

    def kept(self) -> Edit:
        """The step's statement without its read."""
        raise NotImplementedError

    def missing(self) -> Iterator[Obligation | None]:
        """The proofs that a safe fix needs and that do not hold."""
        code, flow = self.code, self.flow
        if not self.value.must(lambda a: isinstance(a, Tensor) and a.ndim == 0):
            yield Obligation(Kind.VALUE, f"`{ast.unparse(self.read.tensor)}` may be no tensor with a single number")
        if suspends(flow):
            yield Obligation(Kind.CONTROL_FLOW, "the function yields or awaits")
        if code.scope.is_module:
            yield Obligation(Kind.NAMES, f"`{self.name}` is a global variable")
        if self.name in flow.inner_names | flow.outer_names:
            yield Obligation(Kind.NAMES, f"`{self.name}` is used outside of the function")
        if not all(map(code.means_builtin, ("float", "int"))):
            yield Obligation(Kind.NAMES, "`float` or `int` means something else here")
        if inspects_itself(flow):
            yield Obligation(Kind.NAMES, "the function looks at its own variables")
        if any(b.kind == "try" and getattr(b.node, "handlers", None) for b in self._blocks_in_loop(self.read.node)):
            yield Obligation(Kind.ERRORS_ARE_BUGS, "an error of the device would no longer be handled where it is now")
        if code.facts.project.program_may_hold(code.source.path, _SWITCHES_INFERENCE_MODE):
            yield Obligation(
                Kind.GRADIENT,
                "`inference_mode` may be switched on and off, and an inference tensor cannot be added to outside of it",
            )
        calls = [call for call in flow.calls if flow.within(call, self.loop.block)]
        yield plain_tensors(code.facts, code.scope)
        yield untimed(calls)
        yield no_copy_in_flight(code.facts, code.scope, calls)
        yield from self.unproven()

    def is_inside(self, node: ast.AST) -> bool:
        """Whether a node runs in the loop."""
        return self.flow.within(node, self.loop.block)

    def _blocks_in_loop(self, node: ast.AST) -> Iterator[Block]:
        for block in self.flow.block[node].ancestry():
            if block is self.loop.block:
                return
            yield block

    def parts(self) -> Iterator[Edit | Import]:
        """The edits.

        Raises:
            CannotRewrite: the local is looked at where it cannot be converted first.

        """
        flow = self.flow
        source = self.code.source
        home = flow.home(flow.block[self.after])
        inside = [use for use in self.uses() if self.is_inside(use)]
        outside = [use for use in self.uses() if not self.is_inside(use)]
        if not inside and not outside:
            raise CannotRewrite("nothing looks at it")
        if self.after.orelse or not all(flow.within(use, home) for use in outside):
            raise CannotRewrite("it may be looked at when the loop was left early")
        yield self.kept()
        for statement in dict.fromkeys(self._guarded(use) for use in inside):
            line, imports = self.converted(at_guard=True)
            yield from imports
            yield insert_before(source, statement, line)
        if outside:
            line, imports = self.converted(at_guard=False)
            yield from imports
            yield insert_after_block(source, self.after, line)

    def _guarded(self, use: ast.expr) -> ast.stmt:
        """The first statement that looks at the local in the guarded block around a use."""
        for block in self._blocks_in_loop(use):
            if block.kind in ("then", "else") and isinstance(block.node, ast.If) and is_guard(self.flow, block):
                tops = [self.flow.top(u, block) for u in self.uses() if self.flow.within(u, block)]
                first = min((top for top in tops if top is not None), key=self.flow.order.__getitem__)
                if isinstance(first, ast.If) and block.node.orelse == [first]:
                    raise CannotRewrite("there is no place in an `elif`")
                return first
        raise CannotRewrite("each step looks at it")

    def source(self) -> str:
        """The text of the tensor, to be followed by a method call."""
        text = self.code.text(self.read.tensor)
        return text if isinstance(self.read.tensor, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) else f"({text})"


class _Total(_Kept):
    """A running total: it starts at 0 and grows by a read, or by a read times a number, in each step."""

    def __init__(self, code: Code, read: HostRead, loop: Loop, statement: ast.AugAssign) -> None:
        assert isinstance(statement.target, ast.Name)
        super().__init__(code, read, loop, statement.target)
        self.statement = statement

    @classmethod
    def find(cls, code: Code, read: HostRead, loop: Loop) -> "_Total | None":
        match code.flow.statement(read.node):
            case ast.AugAssign(target=ast.Name(), op=ast.Add(), value=value) as statement if value is read.node or _is_product(
                code, value, read.node
            ):
                return cls(code, read, loop, statement)
        return None

    def _reaching(self) -> frozenset[Definition]:
        return self.flow.reaching.get(self.target, frozenset())

    def _own(self) -> set[Definition]:
        return {d for d in self.flow.definitions_of(self.name) if d.node is self.target}

    def uses(self) -> list[ast.expr]:
        return [use for d in self._own() for use in self.flow.uses[d] if use is not self.target]

    @property
    def counts(self) -> bool:
        """Whether the total is an integer: it starts at 0, not at 0.0, and integers are added."""
        adds = self.statement.value is self.read.node
        return adds and self._starts_as(int) and self.value.must(lambda a: isinstance(a, Tensor) and a.dtype == "int64")

    def _starts_as(self, kind: type) -> bool:
        starts = self._reaching() - self._own()
        return all(isinstance(d.value, ast.Constant) and type(d.value.value) is kind for d in starts)

    def unproven(self) -> Iterator[Obligation | None]:
        if not self.value.must(lambda a: isinstance(a, Tensor) and ("float" in a.dtype or a.dtype == "int64")):
            yield Obligation(Kind.VALUE, f"the type of `{ast.unparse(self.read.tensor)}` is not known")
        elif self.value.may(lambda a: isinstance(a, Tensor) and a.dtype == "int64") and not self.counts:
            if not self._starts_as(float):
                yield Obligation(Kind.VALUE, f"`{self.name}` may be an integer or a float")
        if not self.value.must(lambda a: place_of(a).is_cuda_or_host):
            yield Obligation(Kind.CUDA_OR_CPU, "the device may have no float64 (MPS), or is not known")

        if self.counts and not self.value.must(lambda a: isinstance(a, Tensor) and a.count):
            yield Obligation(Kind.NUMBERS, "the sum may be too large for an integer of 64 bits")

    def parts(self) -> Iterator[Edit | Import]:
        starts = self._reaching() - self._own()
        if not starts or not all(isinstance(d.value, ast.Constant) and d.value.value == 0 and not d.index for d in starts):
            raise CannotRewrite("the total has no literal start")
        if any(self.is_inside(d.node) for d in {*self.flow.definitions_of(self.name)} - self._own() - self._reaching()):
            raise CannotRewrite("the loop may leave something else in the total")
        yield from super().parts()

    def kept(self) -> Edit:
        text = self.source()
        return replace(self.code.source, self.read.node, text if self.counts else f"{text}.detach().double()")

    def converted(self, at_guard: bool) -> tuple[str, tuple[Import, ...]]:
        if self.counts:
            return f"{self.name} = int({self.name})", ()
        grown = at_guard and all(self.flow.dominates(self.target, use) for use in self.uses() if self.is_inside(use))
        if grown or self._starts_as(float):
            return f"{self.name} = float({self.name})", ()
        torch, imports = self.code.name_for("torch")
        return f"{self.name} = {self.name}.item() if {torch}.is_tensor({self.name}) else {self.name}", imports


class _Listed(_Kept):
    """A list that starts empty and takes a read in each step."""

    @classmethod
    def find(cls, code: Code, read: HostRead, loop: Loop) -> "_Listed | None":
        match code.flow.parent.get(read.node):
            case ast.Call(func=ast.Attribute(value=ast.Name() as target, attr="append"), args=[_], keywords=[]) as call:
                if isinstance(code.flow.parent.get(call), ast.Expr):
                    return cls(code, read, loop, target)
        return None

    def uses(self) -> list[ast.expr]:
        return [use for d in self.flow.definitions_of(self.name) for use in self.flow.uses[d] if use is not self.target]

    def unproven(self) -> Iterator[Obligation | None]:
        yield Obligation(Kind.MEMORY_TO_SPARE, "the list keeps one tensor on the device for each step until the loop ends")

    def parts(self) -> Iterator[Edit | Import]:
        definitions = self.flow.definitions_of(self.name)
        match definitions:
            case [Definition(kind="assign", value=ast.List(elts=[]), index=(), node=ast.Name() as start)]:
                if self.flow.loop(start) is not self.flow.loop(self.after):
                    raise CannotRewrite("the list is not new in each run of the loop")
            case _:
                raise CannotRewrite("the list does not start empty")
        if any(self.flow.order[use] < self.flow.order[self.after] or self.is_inside(use) for use in self.uses()):
            raise CannotRewrite("the list is looked at before the loop ends")
        if not self.value.must(lambda a: isinstance(a, Tensor) and a.ndim == 0):
            raise CannotRewrite("the tensors may be no single numbers")
        yield from super().parts()

    def kept(self) -> Edit:
        return replace(self.code.source, self.read.node, f"{self.source()}.detach().clone()")

    def converted(self, at_guard: bool) -> tuple[str, tuple[Import, ...]]:
        torch, imports = self.code.name_for("torch")
        return f"{self.name} = {torch}.stack({self.name}).tolist() if {self.name} else []", imports


def _is_product(code: Code, value: ast.expr, read: ast.expr) -> bool:
    """Whether `value` is `read` times a Python number."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult) or read not in (value.left, value.right):
        return False
    other = code.value(value.right if value.left is read else value.left)
    return other.must(lambda a: (isinstance(a, Number) and a.kind != "") or (isinstance(a, Literal) and _fits(a.value)))


def _fits(number: object) -> bool:
    """Whether torch multiplies by a number: a float, or an integer of 64 bits."""
    return type(number) is float or (type(number) is int and abs(number) < 2**63)
