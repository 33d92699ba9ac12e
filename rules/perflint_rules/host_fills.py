"""Tensors of the host that are made by their type, drawn by a helper, or filled with written numbers: no rule by itself."""

import ast

from perflint.api import Code, External, FunctionRef, Literal, Number, Place, Tensor

_TYPES = frozenset(f"torch.{name}Tensor" for name in ("", "Float", "Double", "Half", "Long", "Int", "Byte", "Bool"))
"""Types of the host."""


def sets_constant(code: Code, use: ast.AST) -> bool:
    """Whether a use is `x[:, 0] = 1`: in no round of a loop of its own, and no tensor says where."""
    item = code.flow.parent.get(use)
    match item, code.flow.parent.get(item) if item is not None else None:
        case ast.Subscript(value=filled, slice=where), ast.Assign(targets=[target], value=ast.Constant()):
            places = (part for part in ast.walk(where) if isinstance(part, ast.Name))
            return (
                filled is use
                and target is item
                and all(code.value(place).must_be_if_known(Number, Literal) for place in places)
            )
    return False


def fills(code: Code, call: ast.Call) -> bool:
    """`torch.LongTensor(n, 3)`, `torch.FloatTensor(3).zero_()`: made by its type, of a size, and maybe filled at once."""
    match call:
        case ast.Call(func=ast.Attribute(attr=name), args=[_, _, *_] as sizes, keywords=[]) if name.endswith("Tensor"):
            of_host = code.value(call.func).must(lambda a: isinstance(a, External) and a.qualname in _TYPES)
            return of_host and all(code.value(size).must_be_if_known(Number, Literal) for size in sizes)
        case ast.Call(func=ast.Attribute(value=ast.Call(args=[_, *_]) as made, attr="zero_" | "fill_"), args=given):
            of_host = code.value(made.func).must(lambda a: isinstance(a, External) and a.qualname in _TYPES)
            return of_host and all(isinstance(number, ast.Constant) for number in given)
    return False


def is_drawn_by_helper(code: Code, moved: ast.expr) -> bool:
    """Whether a function of the project has drawn what is copied, on the host: `self.sample_steps(n).to(device)`."""
    if not isinstance(moved, ast.Call) or not code.value(moved.func).must(lambda a: isinstance(a, FunctionRef)):
        return False
    return code.value(moved).must(lambda a: isinstance(a, Tensor) and a.random and a.place is Place.HOST)
