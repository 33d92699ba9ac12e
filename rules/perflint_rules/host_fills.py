"""Tensors of the host that are made by their type, made by a helper, or filled with written numbers: no rule by itself."""

import ast

from perflint.api import Code, External, FunctionRef, Literal, Number, Place, Tensor, any_layout, brief

HOST_TYPES = frozenset(f"torch.{name}Tensor" for name in ("", "Float", "Double", "Half", "Long", "Int", "Byte", "Bool"))
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
            of_host = code.value(call.func).must(lambda a: isinstance(a, External) and a.qualname in HOST_TYPES)
            return of_host and all(code.value(size).must_be_if_known(Number, Literal) for size in sizes)
        case ast.Call(func=ast.Attribute(value=ast.Call(args=[_, *_]) as made, attr="zero_" | "fill_"), args=given):
            of_host = code.value(made.func).must(lambda a: isinstance(a, External) and a.qualname in HOST_TYPES)
            return of_host and all(isinstance(number, ast.Constant) for number in given)
    return False


def made_by_helper(code: Code, moved: ast.expr, computed: bool) -> str | None:
    """What a function of the project has done on the host whose result is copied, in words: drawn it, or computed it anew.

    computed: whether what is computed counts, too.
    """
    if not isinstance(moved, ast.Call) or not code.value(moved.func).must(lambda a: isinstance(a, FunctionRef)):
        return None
    text = f"`{brief(moved)}`"
    if code.value(moved).must(lambda a: isinstance(a, Tensor) and a.random and a.place is Place.HOST):
        return f"{text} draws on the host, and its numbers are copied to the device in every step; let it draw them there"
    if computed and _is_of_numbers(code, moved):
        return f"{text} computes the same on the host in every step, to be copied to the device; keep the result there"
    return None


def _is_of_numbers(code: Code, call: ast.Call) -> bool:
    """Whether a function computes a tensor on the host, each time from nothing but numbers that are sizes or settings."""
    held, given = code.value(call).alternatives, [*call.args, *(keyword.value for keyword in call.keywords)]
    functions = [a for a in code.value(call.func).alternatives if isinstance(a, FunctionRef)]
    return (
        bool(held)
        and all(isinstance(a, Tensor) and a.place is Place.HOST and not (a.random or a.parameter or a.guessed) for a in held)
        and all(code.value(value).must_be_if_known(Number, Literal) for value in given)
        and all(f.receiver is None and not f.scope.decorators and not _READS.search(f.scope.text) for f in functions)
    )


_READS = any_layout(rb"\b(?:open|next|_*(?:load|read|rand|sampl|shuffl)\w*) \(|\bglobal\b|\bself\b")
"""What makes a function give something else each time."""
