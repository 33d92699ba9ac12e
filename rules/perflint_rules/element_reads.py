"""Reads of a tensor's elements one by one: what one read of them all would change, how it is written: no rule by itself."""

import ast
from collections.abc import Iterable

from perflint.api import (
    Alternative,
    Code,
    Elements,
    Kind,
    Obligation,
    Tensor,
    Value,
    is_known_tensor,
    place_of,
)


def no_row(value: Value) -> Obligation | None:
    """What stands against one list of numbers, element by element."""
    if value.must(_is_row):
        return None
    if value.must(lambda a: isinstance(a, Tensor)):
        return Obligation(Kind.ERRORS_ARE_BUGS, "it would not be noticed that an element is no single number")
    return Obligation(Kind.VALUE, "it may be something else than a tensor")


def _is_row(alternative: Alternative) -> bool:
    return isinstance(alternative, Tensor) and alternative.ndim == 1


def numbers(code: Code, tensor: ast.expr) -> str:
    """The text that reads all numbers of a tensor; of shape `[n, 1]`, too, each element is a number and no list."""
    text = code.text(tensor)
    held = text if isinstance(tensor, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) else f"({text})"
    return f"{held}.tolist()" if code.value(tensor).must(_is_row) else f"{held}.flatten().tolist()"


def read_name(element: ast.expr) -> ast.expr:
    """What `x.item()`, `float(x)` or `int(x)` reads; any other expression is given back."""
    match element:
        case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[]):
            return inner
        case ast.Call(func=ast.Name(id="float" | "int"), args=[inner]):
            return inner
    return element


def may_be_copied_before(code: Code, read: ast.Call) -> bool:
    """Whether an evaluation may have copied to the host what `t[i].item()` reads: no step runs here, and no place is known."""
    item = read_name(read)
    assert isinstance(item, ast.Subscript)
    return not (code.is_hot(read) or code.value(item.value).may(lambda a: place_of(a).may_be_device))


def may_be_no_tensor(code: Code, reads: Iterable[ast.expr], gone_over: ast.expr) -> bool:
    """Whether nothing says that there are tensors to read: neither the reads, as `.item()` does, nor what is known of them."""
    value = code.value(gone_over)
    listed = (a.element for a in value.alternatives if isinstance(a, Elements))
    return not (
        any(isinstance(r, ast.Call) and isinstance(r.func, ast.Attribute) and r.func.attr == "item" for r in reads)
        or is_known_tensor(value)
        or any(map(is_known_tensor, listed))
    )


def keeps_type(code: Code, element: ast.expr, value: Value) -> bool:
    """Whether an element read gives the number that `tolist()` gives."""
    match element:
        case ast.Call(func=ast.Name(id=("float" | "int") as kind) as func):
            if not code.is_external(func, f"builtins.{kind}"):
                return False
            return value.must(
                lambda a: isinstance(a, Tensor) and ("float" in a.dtype if kind == "float" else a.dtype == "int64")
            )
    return True
