"""Rewrites that keep a read's tensor on the device until somebody looks at what the step has made of it: no rule by itself."""

import ast
from collections.abc import Iterator, Sequence

from perflint.api import (
    BUILT_FROM_TEXT,
    COMPLEX,
    INFERENCE_SWITCHED,
    LOOKS_AT_FRAMES,
    OWN_TENSORS,
    Alternative,
    Block,
    CannotRewrite,
    Code,
    Definition,
    Edit,
    Flow,
    HostRead,
    Import,
    Kind,
    Literal,
    Loop,
    Number,
    Obligation,
    ReadKind,
    Tensor,
    insert_after_block,
    insert_before,
    inspects_itself,
    is_differentiated,
    is_guard,
    no_copy_in_flight,
    path_of,
    place_of,
    replace,
    replace_statement,
    suspends,
    untimed,
    without_effect,
)

_OPERATORS = {ast.Div: "/", ast.Mult: "*", ast.Sub: "-", ast.Add: "+"}


def kept(code: Code, read: HostRead) -> "Kept | None":
    """The local that takes the read, where it is one that can keep device values."""
    loop = code.step_loop(read.node)
    if loop is None or loop.statement is None or not _is_item(code, read):
        return None
    found = Total.find(code, read, loop, read.node)
    if code.options.runtime and (found is None or any(found.missing())):
        guarded = GuardedTotal.find(code, read, loop, read.node)
        if guarded is not None and not any(guarded.missing()):
            return guarded
    return found or Listed.find(code, read, loop, read.node) or Named.find(code, read, loop)


def _is_item(code: Code, read: HostRead) -> bool:
    """Whether a read gives what `.item()` gives."""
    if read.kind is not ReadKind.CONVERSION:
        return read.kind is ReadKind.ITEM
    floating = code.value(read.tensor).must(lambda a: isinstance(a, Tensor) and "float" in a.dtype)
    return floating and isinstance(read.node, ast.Call) and path_of(read.node.func) == "float"


class Kept:
    """A local that takes a read in each step, and could keep device values until somebody looks at it.

    taken: the expression that it takes, which is the read, or a name that the read is bound to.

    The rewrite keeps one promise: wherever the local is looked at, it holds what it held before. So it is converted behind
    the loop, and in front of the uses that stand under a guard in the loop.
    """

    def __init__(self, code: Code, read: HostRead, loop: Loop, taken: ast.expr, target: ast.Name) -> None:
        assert loop.statement is not None
        self.code, self.flow, self.read, self.loop, self.taken, self.target = code, code.flow, read, loop, taken, target
        self.name, self.after = target.id, loop.statement
        self.value = code.value(read.tensor)
        self.is_differentiated = is_differentiated(code.facts, code.scope, read.tensor)

    @property
    def cure(self) -> str | None:
        """What the rewrite does, where it is something else than the usual."""
        return None

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
        yield from code.feared(INFERENCE_SWITCHED, OWN_TENSORS, LOOKS_AT_FRAMES, BUILT_FROM_TEXT)
        if self.read.kind is ReadKind.CONVERSION and not self.value.must(lambda a: isinstance(a, Tensor) and a.grad is False):
            yield Obligation(Kind.GRADIENT, "`float` warns once of a tensor that belongs to a graph")
        calls = [call for call in flow.calls if flow.within(call, self.loop.block)]
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


class Total(Kept):
    """A running total: it starts at 0 and grows by a read, or by a read times a number, in each step."""

    def __init__(self, code: Code, read: HostRead, loop: Loop, taken: ast.expr, statement: ast.AugAssign) -> None:
        assert isinstance(statement.target, ast.Name)
        super().__init__(code, read, loop, taken, statement.target)
        self.statement = statement

    @classmethod
    def find(cls, code: Code, read: HostRead, loop: Loop, taken: ast.expr) -> "Total | None":
        match code.flow.statement(taken):
            case ast.AugAssign(target=ast.Name(), op=ast.Add(), value=value) as statement if value is taken or _is_product(
                code, value, taken
            ):
                return cls(code, read, loop, taken, statement)
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
        adds = self.statement.value is self.taken
        return adds and self._starts_as(int) and self.value.must(lambda a: isinstance(a, Tensor) and a.dtype == "int64")

    def _starts_as(self, kind: type) -> bool:
        starts = self._reaching() - self._own()
        return all(isinstance(d.value, ast.Constant) and type(d.value.value) is kind for d in starts)

    def unproven(self) -> Iterator[Obligation | None]:
        if not self.is_differentiated:  # what a backward pass begins with is real
            yield from self._unknown_number()
            yield from self.code.feared(COMPLEX)
        if not self.value.must(lambda a: place_of(a).is_cuda_or_host):
            yield Obligation(Kind.CUDA_OR_CPU, "the device may have no float64 (MPS), or is not known")
        if self.counts and not self.value.must(lambda a: isinstance(a, Tensor) and a.count):
            yield Obligation(Kind.NUMBERS, "the sum may be too large for an integer of 64 bits")

    def _unknown_number(self) -> Iterator[Obligation]:
        tensor = ast.unparse(self.read.tensor)
        if not self.value.must(lambda a: isinstance(a, Tensor) and a.ndim == 0):
            yield Obligation(Kind.VALUE, f"`{tensor}` may be no tensor with a single number")
        if not self.value.must(lambda a: isinstance(a, Tensor) and ("float" in a.dtype or a.dtype == "int64")):
            yield Obligation(Kind.VALUE, f"the type of `{tensor}` is not known")
        elif self.value.may(lambda a: isinstance(a, Tensor) and a.dtype == "int64") and not self.counts:
            if not self._starts_as(float):
                yield Obligation(Kind.VALUE, f"`{self.name}` may be an integer or a float")

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


class GuardedTotal(Total):
    """A running total as an `ItemSum` of the runtime, which decides when it runs what can be added up on the device."""

    @classmethod
    def find(cls, code: Code, read: HostRead, loop: Loop, taken: ast.expr) -> "GuardedTotal | None":
        match code.flow.statement(taken):
            case ast.AugAssign(target=ast.Name(), op=ast.Add(), value=value) as statement if (
                value is taken
                or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and value.left is taken)
                or _is_product(code, value, taken)
            ):
                return cls(code, read, loop, taken, statement)
        return None

    def _tracked(self) -> frozenset[Definition]:
        """What makes the local an `ItemSum`: its literal starts, and the addition itself."""
        return self._reaching() | self._own()

    def uses(self) -> list[ast.expr]:
        found = {use: None for d in self._tracked() for use in self.flow.uses[d] if use is not self.target}
        return list(found)

    def missing(self) -> Iterator[Obligation | None]:
        code = self.code
        if any(b.kind == "try" and getattr(b.node, "handlers", None) for b in self._blocks_in_loop(self.read.node)):
            yield Obligation(Kind.ERRORS_ARE_BUGS, "an error of the device would no longer be handled where it is now")
        calls = [call for call in self.flow.calls if self.is_inside(call)]
        yield from code.feared(OWN_TENSORS)
        yield untimed(calls)
        yield no_copy_in_flight(code.facts, code.scope, calls)
        weight = self._weight()
        if weight is not None:
            yield without_effect(code.facts, code.scope, weight)

    def parts(self) -> Iterator[Edit | Import]:
        source, flow = self.code.source, self.flow
        if self.code.scope.is_module or self.name in flow.inner_names | flow.outer_names or inspects_itself(flow):
            raise CannotRewrite("the total is no variable of this function alone")
        tracked = self._tracked()
        starts = tracked - self._own()
        if not starts or not all(isinstance(d.value, ast.Constant) and type(d.value.value) in (int, float) for d in starts):
            raise CannotRewrite("the total has no literal start")
        if not all(d.kind == "assign" and _is_only_name(flow, d.node) for d in starts):
            raise CannotRewrite("the start is given to something else, too")
        if any(d.index for d in starts) or any(self.is_inside(d.node) for d in {*flow.definitions_of(self.name)} - tracked):
            raise CannotRewrite("the loop may leave something else in the total")
        uses = self.uses()
        for use in uses:
            if not flow.reaching[use] <= tracked:
                raise CannotRewrite("something else than the total may stand there")
            if self.is_inside(use):
                self._guarded(use)
        yield Import("perflint_runtime", "ItemSum")
        for literal in sorted((d.value for d in starts if d.value is not None), key=flow.order.__getitem__):
            yield replace(source, literal, f"ItemSum({self.code.text(literal)})")
        weight = self._weight()
        given = self.source() if weight is None else f"{self.source()}, {self.code.text(weight)}"
        yield replace_statement(source, self.statement, f"{self.name}.add({given})")
        for use in uses:
            statement = flow.statement(use)
            if isinstance(statement, ast.AugAssign) and statement.target is use:
                operator = _OPERATORS.get(type(statement.op))
                if operator is None:
                    raise CannotRewrite("the operator has no other spelling")
                value = self.code.text(statement.value)
                yield replace_statement(source, statement, f"{self.name} = {self.name}.value() {operator} ({value})")
            else:
                yield replace(source, use, f"{self.name}.value()")

    def _weight(self) -> ast.expr | None:
        """The number that each read is multiplied by."""
        value = self.statement.value
        if value is self.taken:
            return None
        assert isinstance(value, ast.BinOp)
        return value.right if value.left is self.taken else value.left


class Listed(Kept):
    """A list that starts empty and takes a read in each step."""

    @classmethod
    def find(cls, code: Code, read: HostRead, loop: Loop, taken: ast.expr) -> "Listed | None":
        match code.flow.parent.get(taken):
            case ast.Call(func=ast.Attribute(value=ast.Name() as target, attr="append"), args=[_], keywords=[]) as call:
                if isinstance(code.flow.parent.get(call), ast.Expr):
                    return cls(code, read, loop, taken, target)
        return None

    def _start(self) -> frozenset[Definition]:
        return self.flow.reaching.get(self.target, frozenset())

    def uses(self) -> list[ast.expr]:
        return [use for d in self._start() for use in self.flow.uses[d] if use is not self.target]

    def unproven(self) -> Iterator[Obligation | None]:
        if not self.is_differentiated and not any(self.value.must(kind) for kind in (_is_float, _is_integer, _is_bool)):
            tensor = ast.unparse(self.read.tensor)
            yield Obligation(Kind.VALUE, f"`{tensor}` may be a float in one step and an integer in another")
        yield Obligation(Kind.MEMORY_TO_SPARE, "the list keeps one tensor on the device for each step until the loop ends")

    def parts(self) -> Iterator[Edit | Import]:
        match list(self._start()):
            case [Definition(kind="assign", value=ast.List(elts=[]), index=(), node=ast.Name() as start)]:
                if not _is_only_name(self.flow, start):
                    raise CannotRewrite("the list has another name")
                if self.flow.loop(start) is not self.flow.loop(self.after):
                    raise CannotRewrite("the list is not new in each run of the loop")
            case _:
                raise CannotRewrite("the list does not start empty")
        if any(self.flow.order[use] < self.flow.order[self.after] or self.is_inside(use) for use in self.uses()):
            raise CannotRewrite("the list is looked at before the loop ends")
        if any(len(self.flow.reaching[use]) > 1 for use in self.uses()):
            raise CannotRewrite("another list may be looked at behind the loop")
        if not self.value.must(lambda a: isinstance(a, Tensor) and a.ndim == 0):
            raise CannotRewrite("the tensors may be no single numbers")
        yield from super().parts()

    def kept(self) -> Edit:
        return replace(self.code.source, self.read.node, f"{self.source()}.detach().clone()")

    def converted(self, at_guard: bool) -> tuple[str, tuple[Import, ...]]:
        torch, imports = self.code.name_for("torch")
        return f"{self.name} = {torch}.stack({self.name}).tolist() if {self.name} else []", imports


class Named(Kept):
    """A name for the read: totals or lists take it in each step, if anything; what else looks at it stands under a guard."""

    def __init__(
        self, code: Code, read: HostRead, loop: Loop, definition: Definition, takers: "Sequence[Total | Listed]"
    ) -> None:
        assert isinstance(definition.node, ast.Name)
        super().__init__(code, read, loop, read.node, definition.node)
        self.definition, self.takers = definition, takers

    @classmethod
    def find(cls, code: Code, read: HostRead, loop: Loop) -> "Named | None":
        bound = [d for d in code.flow.definitions if d.kind == "assign" and d.value is read.node and not d.index]
        if (
            len(bound) != 1
            or not isinstance(bound[0].node, ast.Name)
            or not isinstance(code.flow.statement(read.node), ast.Assign)
        ):
            return None
        takers: list[Total | Listed] = []
        for use in code.flow.uses[bound[0]]:
            taker = Total.find(code, read, loop, use) or Listed.find(code, read, loop, use)
            if taker is not None and code.step_loop(use) is loop:
                takers.append(taker)
        return cls(code, read, loop, bound[0], takers)

    def uses(self) -> list[ast.expr]:
        taken = [taker.taken for taker in self.takers]
        return [use for use in self.flow.uses[self.definition] if use not in taken]

    def missing(self) -> Iterator[Obligation | None]:
        for taker in self.takers:
            yield from taker.missing()
        yield from super().missing()

    def unproven(self) -> Iterator[Obligation | None]:
        tensor = ast.unparse(self.read.tensor)
        is_float = self.value.must(lambda a: isinstance(a, Tensor) and "float" in a.dtype)
        if self.takers:
            if self.uses() and not self._counts and not is_float:
                yield Obligation(Kind.VALUE, f"the type of `{tensor}` is not known")
        elif not self.is_differentiated and not self.value.must(lambda a: isinstance(a, Tensor)):
            yield Obligation(Kind.VALUE, f"`{tensor}` may be no tensor")
        elif not self.is_differentiated and not self.value.must(lambda a: isinstance(a, Tensor) and a.ndim == 0):
            yield Obligation(Kind.ERRORS_ARE_BUGS, f"that `{tensor}` is no single number would be noticed later")

    @property
    def cure(self) -> str | None:
        return None if self.takers else "keep it on the device and read it where it is looked at"

    @property
    def _counts(self) -> bool:
        return bool(self.takers) and all(isinstance(taker, Total) and taker.counts for taker in self.takers)

    def kept(self) -> Edit:
        """New memory, because the tensor may be written to before somebody looks at the name."""
        is_total = bool(self.takers) and all(isinstance(taker, Total) for taker in self.takers)
        copy = ".clone()" if self._counts else ".detach().clone().double()" if is_total else ".detach().clone()"
        return replace(self.code.source, self.read.node, f"{self.source()}{copy}")

    def parts(self) -> Iterator[Edit | Import]:
        flow = self.flow
        direct = {taker.kept() for taker in self.takers}
        if len(direct) > 1:
            raise CannotRewrite("a list and a total would keep different tensors")
        if not flow.uses[self.definition]:
            raise CannotRewrite("nothing looks at it")
        last = max((flow.order[taker.taken] for taker in self.takers), default=0)
        for use in flow.uses[self.definition]:
            if flow.reaching[use] != {self.definition} or not flow.dominates(self.target, use):
                raise CannotRewrite(f"`{self.name}` may be something else where it is looked at")
        for use in self.uses():
            if not self.is_inside(use):
                raise CannotRewrite(f"`{self.name}` is looked at behind the loop")
            if flow.order[use] < last:
                raise CannotRewrite(f"`{self.name}` is looked at before it is added")
        yield self.kept()
        for taker in self.takers:
            yield from (part for part in taker.parts() if part not in direct)
        guarded = list(dict.fromkeys(self._guarded(use) for use in self.uses()))
        number = f"{self.name}.item()"
        if len(guarded) > 1 or any(
            flow.loop(statement) is not self.loop for statement in guarded
        ):  # it may be a number already
            torch, imports = self.code.name_for("torch")
            yield from imports
            number += f" if {torch}.is_tensor({self.name}) else {self.name}"
        for statement in guarded:
            yield insert_before(self.code.source, statement, f"{self.name} = {number}")


def _is_float(alternative: Alternative) -> bool:
    return isinstance(alternative, Tensor) and "float" in alternative.dtype


def _is_integer(alternative: Alternative) -> bool:
    return isinstance(alternative, Tensor) and alternative.dtype == "int64"


def _is_bool(alternative: Alternative) -> bool:
    return isinstance(alternative, Tensor) and alternative.dtype == "bool"


def _is_only_name(flow: Flow, node: ast.AST) -> bool:
    """Whether nothing else is bound to what a name is assigned: no `self.history = losses = []`."""
    parent = flow.parent.get(node)
    if isinstance(parent, (ast.Tuple, ast.List)):
        node, parent = parent, flow.parent.get(parent)
    match parent:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            return target is node
    return False


def _is_product(code: Code, value: ast.expr, read: ast.expr) -> bool:
    """Whether `value` is `read` times a Python number."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult) or read not in (value.left, value.right):
        return False
    other = code.value(value.right if value.left is read else value.left)
    if other.must(lambda a: (isinstance(a, Number) and a.kind == "float") or (isinstance(a, Literal) and _fits(a.value))):
        return True
    return _is_size(code, value.right if value.left is read else value.left) and other.must_be(Number)


def _is_size(code: Code, node: ast.expr, depth: int = 3) -> bool:
    """Whether an integer is a length or a size, and so one of 64 bits."""
    match node:
        case ast.Call(func=ast.Name(id="len")) | ast.Call(func=ast.Attribute(attr="size" | "numel" | "dim")):
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
        case ast.Name():
            definitions = code.flow.reaching.get(node, frozenset())
            return (
                depth > 0
                and bool(definitions)
                and all(
                    d.kind == "assign" and not d.index and d.value is not None and _is_size(code, d.value, depth - 1)
                    for d in definitions
                )
            )
    return False


def _fits(number: object) -> bool:
    """Whether torch multiplies by a number: a float, or an integer of 64 bits."""
    return type(number) is float or (type(number) is int and abs(number) < 2**63)
