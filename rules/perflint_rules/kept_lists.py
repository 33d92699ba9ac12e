"""A list of reads that is kept on the device: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    Alternative,
    CannotRewrite,
    Code,
    Definition,
    Edit,
    HostRead,
    Import,
    Kind,
    Loop,
    Obligation,
    Tensor,
    replace,
)
from perflint_rules.kept_locals import Kept


class Listed(Kept):
    """A list that starts empty and takes a read in each step, and may start again where it was looked at every N steps."""

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
        starts = self._start()
        if not starts or not all(map(_is_empty, starts)):
            raise CannotRewrite("the list does not start empty")
        if not all(self.flow.binds_alone(d.node) for d in starts):
            raise CannotRewrite("the list has another name")
        again = {d for d in starts if self.is_inside(d.node)}
        if [self.flow.loop(d.node) for d in starts - again] != [self.flow.loop(self.after)]:
            raise CannotRewrite("the list is not new in each run of the loop")
        if any(self.flow.order[use] < self.flow.order[self.after] for use in self.uses()):
            raise CannotRewrite("the list is looked at before the loop ends")
        if any(not self.flow.reaching[use] <= starts for use in self.uses()):
            raise CannotRewrite("another list may be looked at behind the loop")
        inside = [use for use in self.uses() if self.is_inside(use)]
        if len({self._guarded(use) for use in inside}) > 1:
            raise CannotRewrite("the list is looked at in several places of the loop")
        if not all(self._starts_again(use, again) if self.is_inside(use) else not again for use in self.uses()):
            raise CannotRewrite("the list is looked at before the loop ends")
        if not self.value.must(lambda a: isinstance(a, Tensor) and a.ndim == 0):
            raise CannotRewrite("the tensors may be no single numbers")
        yield from super().parts()

    def _starts_again(self, use: ast.expr, again: set[Definition]) -> bool:
        """Whether an empty list takes the place of the one that is looked at, before the next step, whatever happens."""
        for definition in again:
            block = self.flow.block[definition.node]
            statement = self.flow.statement(definition.node)
            leaves = (ast.Continue, ast.Break, ast.Return, ast.Try)
            if (
                isinstance(block.node, ast.If)
                and self.flow.within(use, block)
                and self.flow.order[use] < self.flow.order[definition.node]
                and self.flow.top(definition.node, block) is statement
                and not any(isinstance(part, leaves) for part in ast.walk(block.node))
            ):
                return True
        return False

    def kept(self) -> Edit:
        return replace(self.code.source, self.read.node, f"{self.source()}.detach().clone()")

    def converted(self, at_guard: bool) -> tuple[str, tuple[Import, ...]]:
        torch, imports = self.code.name_for("torch")
        return f"{self.name} = {torch}.stack({self.name}).tolist() if {self.name} else []", imports


def _is_empty(definition: Definition) -> bool:
    """Whether a name is bound to an empty list of its own."""
    match definition:
        case Definition(kind="assign", value=ast.List(elts=[]), index=(), node=ast.Name()):
            return True
    return False


def _is_float(alternative: Alternative) -> bool:
    return isinstance(alternative, Tensor) and "float" in alternative.dtype


def _is_integer(alternative: Alternative) -> bool:
    return isinstance(alternative, Tensor) and alternative.dtype == "int64"


def _is_bool(alternative: Alternative) -> bool:
    return isinstance(alternative, Tensor) and alternative.dtype == "bool"
