"""Pieces that have one number for each sample: no rule by itself."""

import ast

from perflint.api import Code, path_of, single_definition, words

_SAME_SHAPE = words("float double half int long bool to type cpu cuda detach numpy clone")


def is_number_a_row(code: Code, part: ast.expr) -> bool:
    """Whether a piece has one number for each sample, as it is written: `argmax(1)`, `x[:, 0]`, `y.squeeze()`."""
    match part:
        case ast.Call(func=ast.Attribute(value=inner, attr="argmax" | "argmin"), args=given, keywords=named):
            return bool(named) or len(given) > (path_of(inner) in ("torch", "np", "numpy"))
        case ast.Call(func=ast.Attribute(attr="squeeze")):
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in _SAME_SHAPE:
            return is_number_a_row(code, inner)
        case ast.Subscript(slice=ast.Tuple(elts=[*_, last])):
            return isinstance(getattr(last, "operand", last), ast.Constant)
        case ast.Subscript(value=made, slice=ast.Constant(value=1)):
            return _is_maximum(made)
        case ast.Name():
            definition = single_definition(code.flow, part)
            if definition is None or definition.value is None or definition.kind != "assign":
                return False
            if definition.index:
                return definition.index == (1,) and _is_maximum(definition.value)
            return is_number_a_row(code, definition.value)
    return False


def _is_maximum(node: ast.expr) -> bool:
    """`torch.max(x, 1)`: the maxima, and where they are."""
    return isinstance(node, ast.Call) and (path_of(node.func) or "").rpartition(".")[2] in ("max", "min")
