"""A name for a read that is kept on the device: no rule by itself."""

import ast
from collections.abc import Iterator, Sequence

from perflint.api import (
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
    insert_before,
    replace,
)
from perflint_rules.kept_lists import Listed
from perflint_rules.kept_locals import Kept
from perflint_rules.kept_totals import Total


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
