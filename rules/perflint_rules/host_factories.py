"""Tensors that are computed on the host from nothing but numbers: `torch.exp(torch.arange(n) * 2)`."""

import ast

from perflint.api import (
    Alternative,
    Code,
    External,
    Kind,
    Literal,
    Number,
    Obligation,
    Tensor,
    argument,
    dtype_of,
    operations,
    words,
)

EXACT = words("zeros ones empty eye full arange")
RANDOM = words("rand randn randint randperm normal")
_TYPES = frozenset(f"torch.{name}Tensor" for name in ("", "Float", "Double", "Half", "Long", "Int", "Byte", "Bool"))
"""Types of the host."""
_COMPUTED = EXACT | {"linspace"}
_WIDE = frozenset(("int64", "int32", "float32", "float64"))
_LAYOUT = words("expand view reshape repeat unsqueeze squeeze permute transpose")


def is_factory(code: Code, call: ast.Call, names: frozenset[str] = EXACT) -> bool:
    """Whether a call makes a tensor of numbers: `torch.zeros(3)`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in names and code.is_external(call.func, f"torch.{name}")


def made_before(code: Code, moved: ast.expr, names: frozenset[str] = EXACT) -> list[ast.Call]:
    """The factory of what is copied, of which a `Variable` or a name is made before, and nothing else; none if there is none.

    A name has to be bound in the same round, and copied before anything else becomes of it: what is filled by hand is data.
    """
    match moved:
        case ast.Call(func=func, args=[made, *_]) if code.is_external(func, "torch.autograd.Variable"):
            moved = made
        case ast.Name():
            bound = code.flow.reaching.get(moved, frozenset())
            only = next(iter(bound)) if len(bound) == 1 else None
            if only is None or only.kind != "assign" or only.index or not isinstance(only.value, ast.Call):
                return []
            order = code.flow.order
            if any(order[use] < order[moved] for use in code.flow.uses[only]):
                return []
            if code.flow.loop(only.value) is not code.flow.loop(moved):
                return []
            return made_before(code, only.value, names)
    if not isinstance(moved, ast.Call) or any(
        k.arg in (None, "device", "pin_memory", "out", "generator") for k in moved.keywords
    ):
        return []
    return [moved] if is_factory(code, moved, names) or (names == EXACT and _is_filled(code, moved)) else []


def _is_filled(code: Code, call: ast.Call) -> bool:
    """Whether a call makes a tensor by its type and fills it at once: `torch.FloatTensor(3).zero_()`."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Call(args=[_, *_]) as made, attr="zero_" | "fill_"), args=given):
            of_host = code.value(made.func).must(lambda a: isinstance(a, External) and a.qualname in _TYPES)
            return of_host and all(isinstance(number, ast.Constant) for number in given)
    return False


def factories_behind(code: Code, node: ast.expr) -> list[ast.Call]:
    """The factories from which a tensor on the host is computed; none if anything else but numbers goes into it."""
    found = [part for part in ast.walk(node) if isinstance(part, ast.Call) and is_factory(code, part, _COMPUTED)]
    value = code.value(node)
    on_host = value.must_be_if_known(Tensor) and not value.may(lambda a: isinstance(a, Tensor) and a.place.may_be_device)
    if not found or found == [node] or not on_host:
        return []
    shaped = [part for part in ast.walk(node) if isinstance(part, ast.Call) and _changes_layout(part)]
    given = {part for call in (*found, *shaped) for argument in call.args for part in ast.walk(argument)}
    keywords = {part for call in found for keyword in call.keywords for part in ast.walk(keyword)}
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name) and part not in given | keywords]
    return found if all(_is_number(code, name) for name in names) else []


def _changes_layout(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _LAYOUT


def _is_number(code: Code, name: ast.Name) -> bool:
    """Whether a name is a number or a module; a loop's variable of which nothing is known is a number here."""
    value = code.value(name)
    if value.may_be(External) or value.must_be_if_known(Number, Literal):
        return True
    bound = code.flow.reaching.get(name, frozenset())
    return not value.alternatives and bool(bound) and all(definition.kind == "for" for definition in bound)


def laid_out(code: Code, moved: ast.Call) -> list[ast.Call]:
    """The factory of `torch.arange(n).unsqueeze(0).repeat(b, 1).to(device)`, of which layouts are made and nothing else.

    None where the copy would be memory of its own and what is made on the device a view that somebody may write to.
    """
    assert isinstance(moved.func, ast.Attribute)
    node, last = moved.func.value, ""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LAYOUT - {"expand"}:
        last = last or node.func.attr
        node = node.func.value
    if not isinstance(node, ast.Call) or not is_factory(code, node) or not last:
        return []
    return [node] if last == "repeat" or _is_only_read(code, moved) else []


def _is_only_read(code: Code, node: ast.expr) -> bool:
    """Whether what looks at a value computes something from it, and does not keep it."""
    match code.flow.parent.get(node):
        case ast.BinOp() | ast.Compare():
            return True
        case ast.Call(func=func, args=args, keywords=[]) if node in args:
            function = code.value(func).single
            row = operations.function(function.qualname) if isinstance(function, External) else None
            return row is not None and not row.writes and not row.shares_memory
    return False


def inexact(code: Code, factory: ast.Call) -> Obligation | None:
    """Whether the device may compute other numbers than the host."""
    if not (isinstance(factory.func, ast.Attribute) and factory.func.attr == "arange"):
        return None
    start = argument(factory, 0 if len(factory.args) > 1 else None, "start")
    step = argument(factory, 2, "step")
    spread = any(isinstance(a, ast.Starred) for a in factory.args)
    if spread or not all(given is None or code.value(given).must(_is_integer) for given in (start, step)):
        return Obligation(Kind.NUMBERS, "`arange` with a start or step that is no integer may round differently on the device")
    dtype = argument(factory, None, "dtype")
    if dtype is not None and dtype_of(code.value(dtype)) not in _WIDE:
        return Obligation(Kind.NUMBERS, "`arange` in a narrow type may round differently on the device")
    return None


def _is_integer(alternative: Alternative) -> bool:
    if isinstance(alternative, Literal):
        return type(alternative.value) is int
    return isinstance(alternative, Number) and alternative.kind == "int"
