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
                if not self.flow.binds_alone(start):
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


def _is_float(alternative: Alternative) -> bool:
    return isinstance(alternative, Tensor) and "float" in alternative.dtype


def _is_integer(alternative: Alternative) -> bool:
    return isinstance(alternative, Tensor) and alternative.dtype == "int64"


def _is_bool(alternative: Alternative) -> bool:
    return isinstance(alternative, Tensor) and alternative.dtype == "bool"
