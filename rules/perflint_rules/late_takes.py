"""Statements by which a local variable takes a read: into a total, a list, a meter or a name: no rule by itself."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal as OneOf

from perflint.api import (
    Code,
    Edit,
    Flow,
    Literal,
    Number,
    may_run_later,
    path_of,
    replace_statement,
)
from perflint_rules.kept_totals import is_product
from perflint_rules.late_numbers import Reads, number_around, row_around

Way = OneOf["sum", "list", "array", "meter", "item", "dict"]
OBJECTS: dict[Way, str] = {
    "sum": "ItemSum",
    "list": "HostList",
    "array": "HostArray",
    "meter": "LateMeter",
    "item": "LateItem",
    "dict": "HostDict",
}
"""What of the runtime takes the place of a local."""
LOOKS: dict[Way, str] = {"sum": "value", "list": "values", "array": "value", "item": "item", "dict": "read"}
"""By which method of it somebody looks."""


@dataclass(frozen=True, eq=False)
class Take:
    """A statement by which a local takes a read.

    taken: the expression that it takes: the read, or a name that the read is bound to. weight, divisor: what it is multiplied
    and divided by on its way into a total, power: what it is raised to, times: what it is multiplied by that stands first and
    may be no number, which then says itself what the product is. before: the name in `total = total + value`, and in
    `rows = np.append(rows, value)`. key:
    where a dict takes it. method: by which method of the runtime a dict takes it, or whether a list does by `extend`.
    """

    way: Way
    statement: ast.stmt
    target: ast.Name
    taken: ast.expr
    weight: ast.expr | None = None
    divisor: ast.expr | None = None
    power: ast.expr | None = None
    times: ast.expr | None = None
    before: ast.Name | None = None
    key: ast.expr | None = None
    method: str = ""

    @property
    def use(self) -> ast.Name:
        """Where the statement looks at what the local holds."""
        return self.target if self.before is None else self.before

    @property
    def name(self) -> str:
        return self.target.id

    def before_taken(self, flow: Flow) -> list[ast.expr]:
        """What the statement evaluates before the number that is taken, and the runtime is given behind it."""
        parts = [
            part
            for part in (self.weight, self.times, self.key)
            if part is not None and flow.order[part] < flow.order[self.taken]
        ]
        shown = any(isinstance(part, ast.Name) and part.id == self.name for part in ast.walk(self.taken))
        return [*parts, ast.Subscript(self.target, self.key)] if parts and self.key is not None and shown else parts


def take_of(code: Code, taken: ast.expr) -> Take | None:
    """What takes an expression: a total, a list, a meter or a name."""
    statement = code.flow.statement(taken)
    match statement:
        case ast.Assign(targets=[ast.Subscript(slice=ast.Slice())]) | ast.AugAssign(target=ast.Subscript(slice=ast.Slice())):
            return None
        case ast.Assign(targets=[ast.Subscript(value=ast.Name() as target, slice=key)], value=value) if value is taken:
            return Take("dict", statement, target, taken, key=key, method="set_item")
        case ast.AugAssign(target=ast.Subscript(value=ast.Name() as target, slice=key), op=ast.Add(), value=value) if (
            value is taken
        ):
            return Take("dict", statement, target, taken, key=key, method="add_item")
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Subscript(value=ast.Name() as target, slice=key), attr="append"),
                args=[given],
                keywords=[],
            )
        ) if given is taken:
            return Take("dict", statement, target, taken, key=key, method="append_item")
        case ast.AugAssign(target=ast.Name() as target, op=ast.Add(), value=ast.List(elts=[element])) if element is taken:
            return Take("list", statement, target, taken)
        case ast.AugAssign(
            target=ast.Name() as target, op=ast.Add(), value=ast.Call(func=ast.Attribute(attr="tolist")) as value
        ) if value is taken:
            return Take("list", statement, target, taken, method="extend")
        case ast.AugAssign(target=ast.Name() as target, op=ast.Add(), value=value):
            return _sum(code, statement, target, taken, value)
        case ast.Assign(targets=[ast.Name() as target], value=ast.BinOp(left=ast.Name() as before, op=ast.Add(), right=value)):
            return _sum(code, statement, target, taken, value, before) if before.id == target.id else None
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Name() as target, attr="append" | "extend" as method), args=[given], keywords=[]
            )
        ):
            return Take("list", statement, target, taken, method=method) if given is taken else None
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name() as target, attr=method), args=args, keywords=named)):
            if taken in (*args, *(keyword.value for keyword in named)) and may_run_later(
                code.facts, code.value(target), method
            ):
                return Take("meter", statement, target, taken)
        case ast.Assign(targets=[ast.Name() as target], value=value) if value is taken:
            return Take("item", statement, target, taken)
        case ast.Assign(
            targets=[ast.Name() as target],
            value=ast.Call(func=ast.Attribute() as func, args=[ast.Name() as before, given], keywords=[]),
        ) if given is taken and before.id == target.id and code.is_external(func, "numpy.append"):
            return Take("array", statement, target, taken, before=before)
    return None


def is_empty_array(code: Code, made: ast.Call) -> bool:
    """Whether an array of numpy begins as `np.array([])` or `np.empty(0)`, of any type."""
    match made:
        case ast.Call(func=func, args=[ast.List(elts=[])], keywords=named):
            is_empty = code.is_external(func, "numpy.array")
        case ast.Call(func=func, args=[ast.Constant(value=0)], keywords=named):
            is_empty = code.is_external(func, "numpy.empty", "numpy.zeros")
        case _:
            return False
    return is_empty and all(k.arg == "dtype" and path_of(k.value) is not None for k in named)


def taken_with(code: Code, reads: Reads, read: ast.expr) -> ast.expr:
    """What is taken of a read: the read itself, a number that is computed from it, or the row of a list that it is part of."""
    if take_of(code, read) is not None:
        return read
    row = row_around(code, reads, read)
    take = take_of(code, row) if row is not None else None
    if row is not None and take is not None and take.way == "list" and take.method != "extend":
        return row
    return number_around(code, reads, read)


def _sum(
    code: Code, statement: ast.stmt, target: ast.Name, taken: ast.expr, value: ast.expr, before: ast.Name | None = None
) -> Take | None:
    """How a statement adds a number to a total, perhaps times a weight, divided, or raised to a power."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Pow) and value.left is taken:
        take = Take("sum", statement, target, taken, power=value.right, before=before)
    elif (factors := _factors(code, value, taken)) is not None:
        take = Take("sum", statement, target, taken, *factors[:2], times=factors[2], before=before)
    else:
        return None
    # an array would grow in place by `total += value`, and not by `total = total + value`
    given = filter(None, (take.weight, take.divisor, take.power, take.times) if before is not None else ())
    return take if all(code.value(factor).must_be(Number, Literal) for factor in given) else None


def _factors(code: Code, value: ast.expr, taken: ast.expr) -> tuple[ast.expr | None, ast.expr | None, ast.expr | None] | None:
    """What a number is multiplied by, divided by, and multiplied by from the left; None if something else is done to it."""
    match value:
        case _ if value is taken:
            return None, None, None
        case ast.BinOp(left=left, op=ast.Div(), right=divisor):
            inner = _factors(code, left, taken)
            return (inner[0], divisor, inner[2]) if inner is not None and inner[1] is None else None
        case ast.BinOp(left=left, op=ast.Mult(), right=weight) if left is taken:
            return weight, None, None
        case ast.BinOp(left=weight, op=ast.Mult(), right=right) if right is taken:
            return (weight, None, None) if is_product(code, value, taken) else (None, None, weight)
    return None


def chained_names(statement: ast.stmt) -> list[str]:
    """The names in `a = b = 0`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return names if len(names) == len(targets) == len({*names}) else []


def unchained(code: Code, statement: ast.stmt, starts: Mapping[str, str]) -> Edit:
    """`a = b = 0` with a start of its own for some of the names."""
    assert isinstance(statement, ast.Assign)
    names = chained_names(statement)
    given = [starts.get(name, code.text(statement.value)) for name in names]
    return replace_statement(code.source, statement, f"{', '.join(names)} = {', '.join(given)}")
