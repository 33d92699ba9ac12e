"""Meters that are given reads, as objects of the runtime that count when somebody looks: no rule by itself."""

import ast

from perflint.api import Alternative, CannotRewrite, ClassRef, Code, External, FunctionRef, Literal, path_of


def is_new_meter(code: Code, made: ast.Call) -> bool:
    """Whether a call makes an object that nobody else holds yet: it calls a class."""
    return code.value(made.func).must(lambda a: isinstance(a, (ClassRef, External)))


def require_plain_look(code: Code, use: ast.expr) -> None:
    """That whoever looks at a meter asks for attributes of it, calls its methods, or shows it.

    Raises:
        CannotRewrite: the meter itself is handed on.

    """
    parent = code.flow.parent.get(use)
    around = code.flow.parent.get(parent) if parent is not None else None
    match parent:
        case ast.Attribute(attr=attr) if not attr.startswith("__") and _is_simple(code, parent):
            return
        case ast.FormattedValue() | ast.Delete():
            return
        case ast.Call(func=ast.Name(id="print" | "str" | "repr" | "format" as name)) if code.means_builtin(name):
            return
        case ast.keyword(arg=str()) if isinstance(around, ast.Call) and _formats(code, around):
            return
        case ast.Call() if _formats(code, parent):
            return
    raise CannotRewrite(f"`{path_of(use)}` is handed on")


def _is_simple(code: Code, attribute: ast.Attribute) -> bool:
    """Whether an attribute is looked at, written to, or a method that is called at once."""
    parent = code.flow.parent.get(attribute)
    if isinstance(parent, ast.Call) and parent.func is attribute:
        return True
    return not code.value(attribute).may_be(FunctionRef)


def _formats(code: Code, call: ast.Call) -> bool:
    """`"{meter.avg:.3f}".format(meter=meter)`"""
    match call.func:
        case ast.Attribute(value=text, attr="format"):
            return code.value(text).must(_is_plain_format)
    return False


def _is_plain_format(alternative: Alternative) -> bool:
    """Whether a text is known, and none of its fields reaches into what makes an object: `{0.__class__}`."""
    return isinstance(alternative, Literal) and type(alternative.value) is str and "__" not in alternative.value
