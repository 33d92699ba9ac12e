"""A running total of reads as an `ItemSum` of the runtime: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    OWN_TENSORS,
    CannotRewrite,
    Code,
    Definition,
    Edit,
    HostRead,
    Import,
    Kind,
    Loop,
    Obligation,
    inspects_itself,
    no_copy_in_flight,
    replace,
    replace_statement,
    untimed,
    without_effect,
)
from perflint_rules.kept_locals import is_only_name
from perflint_rules.kept_totals import Total, is_product

_OPERATORS = {ast.Div: "/", ast.Mult: "*", ast.Sub: "-", ast.Add: "+"}


class GuardedTotal(Total):
    """A running total as an `ItemSum` of the runtime, which decides when it runs what can be added up on the device."""

    @classmethod
    def find(cls, code: Code, read: HostRead, loop: Loop, taken: ast.expr) -> "GuardedTotal | None":
        match code.flow.statement(taken):
            case ast.AugAssign(target=ast.Name(), op=ast.Add(), value=value) as statement if (
                value is taken
                or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and value.left is taken)
                or is_product(code, value, taken)
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
        if not all(d.kind == "assign" and is_only_name(flow, d.node) for d in starts):
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
