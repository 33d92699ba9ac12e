"""What a loop does with each parameter of a model, where it moves one towards another: no rule by itself."""

import ast
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from perflint.api import words

_BLENDS = words("add_ lerp_ sub_")
_SAME_TENSOR = words("data detach clone")
_MOVES = words("to cpu cuda numpy tolist")


class WorkOnParameter:
    """What a loop does with one parameter. `updates`: it updates it, and does nothing else; `blends`: by a moving average."""

    def __init__(self, statements: Iterable[ast.stmt]) -> None:
        work = list(statements)
        self._named = {
            target.id: part.value
            for part in work
            if isinstance(part, ast.Assign)
            for target in part.targets
            if _is_name(target)
        }
        operators = {type(getattr(part, "op", None)) for part in work}
        blends = [part for part in work if self._blends(part)]
        self.blends = bool(blends) or {ast.Mult, ast.Add} <= operators
        computed = {node.id for part in blends for node in ast.walk(part) if isinstance(node, ast.Name)}
        self.updates = (self.blends or any(map(_copies, work))) and all(
            _copies(part) or part in blends or _is_beside(part, computed) for part in work
        )

    def _blends(self, statement: ast.stmt) -> bool:
        """`p.mul_(d).add_(q)`, `p.copy_(d * p + (1 - d) * q)`, `p -= (1 - d) * (p - q)`, `mean[k] = d * mean[k] + ...`."""
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr="copy_"), args=[value, *_])):
                return self._is_blend(target, value)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
                return name in _BLENDS
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target], value=value):
                return self._is_blend(target, value)
            case ast.AugAssign(target=target, op=ast.Sub(), value=value):
                return self._is_blend(target, value)
        return False

    def _is_blend(self, target: ast.expr, value: ast.expr) -> bool:
        """Whether a value is a sum of products that the target is part of, perhaps by names for its parts."""
        parts = list(self._parts(value, 2))
        operators = {type(part.op) for part in parts if isinstance(part, ast.BinOp)}
        if ast.Mult not in operators or operators.isdisjoint((ast.Add, ast.Sub)):
            return False
        return ast.unparse(_tensor(target)) in {ast.unparse(_tensor(part)) for part in parts}

    def _parts(self, value: ast.expr, depth: int) -> Iterator[ast.expr]:
        for node in ast.walk(value):
            if isinstance(node, ast.expr):
                yield node
            if depth and isinstance(node, ast.Name) and node.id in self._named:
                yield from self._parts(self._named[node.id], depth - 1)


def _is_name(node: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name)


def _copies(statement: ast.stmt) -> bool:
    """`p.copy_(q)`, `p.data = q`, on one device, but not `p.data = p.clamp(0)`."""
    if any(isinstance(node, ast.Attribute) and node.attr in _MOVES for node in ast.walk(statement)):
        return False
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr="copy_"), args=[value, *_])):
            pass
        case ast.Assign(targets=[ast.Attribute(attr="data") as target], value=value):
            pass
        case _:
            return False
    return ast.unparse(_tensor(target)) not in {ast.unparse(n) for n in ast.walk(value) if isinstance(n, ast.expr)}


def _is_beside(statement: ast.stmt, computed: set[str]) -> bool:
    """What may stand beside an update: `p *= d`, another name for a tensor (`q = msd[name].detach()`), a part of an average."""
    match statement:
        case ast.AugAssign(op=ast.Add() | ast.Sub() | ast.Mult()) | ast.Expr(value=ast.Call(func=ast.Attribute(attr="mul_"))):
            return True
    if not isinstance(statement, ast.Assign):
        return False
    part = all(_is_name(target) and target.id in computed for target in statement.targets)
    computes = [node for node in ast.walk(statement) if isinstance(node, (ast.BinOp, ast.Await))]
    if not part and not all(
        isinstance(node, ast.BinOp) and isinstance(getattr(node.left, "value", None), str) for node in computes
    ):
        return False  # `name = "module." + name` is a name yet
    calls = [node for node in ast.walk(statement.value) if isinstance(node, ast.Call)]
    return all(isinstance(call.func, ast.Attribute) for call in calls)


def _tensor(node: ast.expr) -> ast.expr:
    """What holds the numbers: `p` of `p.data` and of `p.detach()`."""
    match node:
        case ast.Attribute(value=inner, attr="data"):
            return _tensor(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=[]) if name in _SAME_TENSOR:
            return _tensor(inner)
    return node
