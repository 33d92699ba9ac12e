"""A running total of reads that is kept on the device: no rule by itself."""

import ast
from collections.abc import Iterator
from functools import cached_property

from perflint.api import (
    COMPLEX,
    CannotRewrite,
    Code,
    Definition,
    Edit,
    HostRead,
    Import,
    Kind,
    Literal,
    Loop,
    Number,
    Obligation,
    Place,
    ReadKind,
    Tensor,
    free_name,
    insert_before,
    path_of,
    place_of,
    replace,
    without_effect,
    written_out_addition,
)
from perflint_rules.kept_locals import Kept
from perflint_rules.late_order import out_of_order


class Total(Kept):
    """A running total: it starts at 0 and grows by a read, or by a read times a number, in each step."""

    def __init__(self, code: Code, read: HostRead, loop: Loop, taken: ast.expr, statement: ast.AugAssign) -> None:
        assert isinstance(statement.target, ast.Name)
        super().__init__(code, read, loop, taken, statement.target)
        self.statement = statement

    @classmethod
    def find(cls, code: Code, read: HostRead, loop: Loop, taken: ast.expr) -> "Total | None":
        match code.flow.statement(taken):
            case ast.AugAssign(target=ast.Name(), op=ast.Add(), value=value) as statement if value is taken or is_product(
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
        if not self._is_scalar and len(self._places) > 1:
            yield Obligation(Kind.VALUE, f"`{ast.unparse(self.read.tensor)}` may be on another device in another step")
        if not self._has_float64 and not self.asks:
            yield Obligation(Kind.CUDA_OR_CPU, "the device may have no float64 (MPS), or is not known")
        if self.counts and not self.value.must(lambda a: isinstance(a, Tensor) and a.count):
            yield Obligation(Kind.NUMBERS, "the sum may be too large for an integer of 64 bits")

    @property
    def _places(self) -> set[Place]:
        return {place_of(a) for a in self.value.alternatives}

    @property
    def _is_scalar(self) -> bool:
        """Whether all that is added is of no dimensions: one number may be of shape [1], too, and a backward pass takes it."""
        return self.value.must(lambda a: isinstance(a, Tensor) and a.ndim == 0)

    @property
    def _grows_in_place(self) -> bool:
        """Whether what is added can be added to what the first step has left: of the same shape, on the same device."""
        return self._is_scalar and len(self._places) == 1

    @cached_property
    def _has_float64(self) -> bool:
        return self.value.must(lambda a: place_of(a).is_cuda_or_host)

    @cached_property
    def asks(self) -> bool:
        """Whether each tensor is asked for its device, and read as it was unless that is CUDA: another may have no float64."""
        if self._has_float64 or self.taken is not self.read.node:
            return False
        return self._is_at_hand() or self._named() is not None

    def _is_at_hand(self) -> bool:
        """Whether the tensor is a name, or attributes of one, and can be evaluated more than once."""
        tensor = self.read.tensor
        return path_of(tensor) is not None and without_effect(self.code.facts, self.code.scope, tensor) is None

    def _named(self) -> str | None:
        """A name for the tensor in a statement of its own, where nothing else comes first, and it holds no other memory."""
        match self.statement.value:
            case ast.BinOp(left=first) if first is not self.taken:
                is_first = not any(out_of_order(self.code, [first], [self.read.tensor]))
            case _:
                is_first = True
        holds_itself = self.value.must(lambda a: isinstance(a, Tensor) and a.fresh)
        return free_name(self.code.scope, f"{self.name}_added") if is_first and holds_itself else None

    def _unknown_number(self) -> Iterator[Obligation]:
        tensor = ast.unparse(self.read.tensor)
        if not self._is_scalar:
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
        if self.asks and not self._is_at_hand():
            has_graph = not (self.counts or self.value.must(lambda a: isinstance(a, Tensor) and a.grad is False))
            made = f"{self._named()} = {self.source()}{'.detach()' if has_graph else ''}"
            yield insert_before(self.code.source, self.statement, made)
        if not self._grows_in_place:
            yield written_out_addition(self.code.source, self.statement)
        yield from super().parts()

    def kept(self) -> Edit:
        source, read, is_at_hand = self.code.source, self.read.node, not self.asks or self._is_at_hand()
        text = self.source() if is_at_hand else f"{self._named()}"
        kept = text if self.counts else f"{text}{'.detach()' if is_at_hand else ''}.double()"
        if not self.asks:
            return replace(source, read, kept)
        plain = f"{text}.item()" if self.read.kind is ReadKind.ITEM else f"float({text})"
        asked = f"{kept} if {text}.is_cuda else {plain}"
        is_whole = self.statement.value is self.taken and self._grows_in_place
        return replace(source, read, asked if is_whole else f"({asked})")

    def converted(self, at_guard: bool) -> tuple[str, tuple[Import, ...]]:
        if self.counts:
            return f"{self.name} = int({self.name})", ()
        grown = at_guard and all(self.flow.dominates(self.target, use) for use in self.uses() if self.is_inside(use))
        if grown or self._starts_as(float):
            return f"{self.name} = float({self.name})", ()
        torch, imports = self.code.name_for("torch")
        return f"{self.name} = {self.name}.item() if {torch}.is_tensor({self.name}) else {self.name}", imports


def is_product(code: Code, value: ast.expr, read: ast.expr) -> bool:
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
