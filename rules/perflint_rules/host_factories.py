"""Tensors that are computed on the host from nothing but numbers: `torch.exp(torch.arange(n) * 2)`."""

import ast

from perflint.api import (
    Alternative,
    Batch,
    Code,
    External,
    Kind,
    Literal,
    Number,
    Obligation,
    Tensor,
    argument,
    comes_from_host,
    dtype_of,
    is_built_constant,
    last_name,
    words,
)
from perflint_rules.host_fills import HOST_TYPES, fills, sets_constant

EXACT = words("zeros ones empty eye full arange")
RANDOM = words("rand randn randint randperm normal")
DRAWN_INTO = words("uniform_ normal_ random_ bernoulli_ exponential_ log_normal_ cauchy_ geometric_")
"""Methods that fill a tensor with random numbers."""
_ARRAYS = words("zeros ones eye identity full arange array")
_PLACES = frozenset(("device", "pin_memory", "out"))
_COMPUTED = EXACT | {"linspace"}
_ROUNDING = words("floor ceil round")
_ROUND = frozenset(("float32", "float64"))
"""Types whose numbers are no longer each integer from 2^24 or 2^53 on: the host adds to a base there, the device multiplies."""
_WIDE = frozenset(("int64", "int32")) | _ROUND
LAYOUT = words("expand view reshape repeat unsqueeze squeeze permute transpose")
_SAME_NUMBERS = words("expand_as view_as contiguous float half double requires_grad_")


def is_factory(code: Code, call: ast.Call, names: frozenset[str] = EXACT) -> bool:
    """Whether a call makes a tensor of numbers: `torch.zeros(3)`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in names and code.is_external(call.func, f"torch.{name}")


def draws_behind(code: Code, moved: ast.expr) -> list[ast.Call]:
    """What draws the random numbers that are copied, in whatever layout; a `Variable` or a name that nothing else looks at may
    stand between.
    """
    if isinstance(moved, ast.Name):
        made = _bound_before(code, moved, moved)
        return draws_behind(code, made) if isinstance(made, (ast.Call, ast.BinOp, ast.Compare)) else []
    match moved:
        case ast.Call(func=ast.Attribute(value=filled, attr=name)) if name in DRAWN_INTO:
            made = _bound_before(code, filled, filled) if isinstance(filled, ast.Name) else filled
            return [moved] if isinstance(made, ast.Call) and _is_made_on_host(code, made) else []
        case ast.Call(func=ast.Attribute(value=made, attr=name)) if name in LAYOUT | _SAME_NUMBERS:
            return draws_behind(code, made)
        case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
            drawn = [draws_behind(code, a) for a, other in ((left, right), (right, left)) if _is_no_tensor(code, other)]
            return next(filter(None, drawn), [])
        case ast.Call(func=func, args=[made]) if last_name(func) in _ROUNDING and code.is_external(
            func, f"torch.{last_name(func)}"
        ):
            return draws_behind(code, made)
        case ast.Call(func=func, args=[made, *_]) if code.is_external(func, "torch.autograd.Variable"):
            moved = made
    if not isinstance(moved, ast.Call) or any(k.arg in _PLACES | {None, "generator"} for k in moved.keywords):
        return []
    return [moved] if is_factory(code, moved, RANDOM) else []


def _is_made_on_host(code: Code, made: ast.Call) -> bool:
    """`torch.FloatTensor(3, 4)`, `torch.empty(3, 4)`."""
    if any(k.arg in _PLACES | {None} for k in made.keywords):
        return False
    of_type = code.value(made.func).must(lambda a: isinstance(a, External) and a.qualname in HOST_TYPES)
    return of_type or is_factory(code, made)


def _is_no_tensor(code: Code, node: ast.expr) -> bool:
    """Whether random numbers are scaled, moved or compared by a number, as far as one can see."""
    on_host = comes_from_host(code.facts.inference, code.facts.loops, code.scope, node)
    return not on_host and not code.value(node).may_be(Tensor, Batch)


def _bound_before(code: Code, name: ast.Name, inside: ast.expr, constants: bool = False) -> ast.expr | None:
    """What a name is bound to in the same round, if nothing outside of an expression looks at it before, and may fill it.

    constants: it may be filled with numbers that are written out, `mask[:, 0] = 1`.
    """
    bound = code.flow.reaching.get(name, frozenset())
    only = next(iter(bound)) if len(bound) == 1 else None
    if only is None or only.kind != "assign" or only.index or only.value is None:
        return None
    order, within = code.flow.order, set(ast.walk(inside))
    before = (use for use in code.flow.uses[only] if order[use] < order[name] and use not in within)
    if not all(constants and sets_constant(code, use) for use in before):
        return None
    return only.value if code.flow.loop(only.value) is code.flow.loop(name) else None


def is_made_there(code: Code, moved: ast.expr) -> bool:
    """Whether what is copied could be made on the device."""
    made = factories_behind(code, moved) or draws_behind(code, moved)
    return bool(made) or is_built_constant(code.facts.inference, code.scope, moved)


def factories_behind(code: Code, node: ast.expr) -> list[ast.Call]:
    """The factories from which a tensor on the host is computed; none if anything else but numbers goes into it."""
    value = code.value(node)
    if not value.must_be_if_known(Tensor) or value.may(lambda a: isinstance(a, Tensor) and a.place.may_be_device):
        return []
    found = _factories(code, node)
    return found if found != [node] or fills(code, found[0]) else []


def _factories(code: Code, node: ast.expr, depth: int = 3) -> list[ast.Call]:
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    found = [call for call in calls if is_factory(code, call, _COMPUTED) or fills(code, call) or _is_constant_array(code, call)]
    if any(last_name(call.func) in RANDOM | DRAWN_INTO for call in calls):
        return []
    filled = [part for call in found for part in ast.walk(call.func)]
    sizes = [call for call in calls if _changes_layout(call) or last_name(call.func) in ("range", "len") or call in filled]
    given = {part for call in (*found, *sizes) for argument in call.args for part in ast.walk(argument)}
    keywords = {part for call in found for keyword in call.keywords for part in ast.walk(keyword)}
    for name in [part for part in ast.walk(node) if isinstance(part, ast.Name) and part not in given | keywords]:
        if isinstance(name.ctx, ast.Load) and not _is_number(code, name):
            made = _bound_before(code, name, node, constants=True) if depth else None
            behind = _factories(code, made, depth - 1) if made is not None else []
            if not behind:
                return []
            found += behind
    return found


def _is_constant_array(code: Code, call: ast.Call) -> bool:
    """`np.eye(3)`, `np.array([1, 0, 0])`."""
    name = last_name(call.func)
    if name not in _ARRAYS or not code.is_external(call.func, f"numpy.{name}"):
        return False
    literal = (ast.List, ast.Tuple, ast.Constant, ast.UnaryOp, ast.Load, ast.USub)
    return name != "array" or (bool(call.args) and all(isinstance(part, literal) for part in ast.walk(call.args[0])))


def _changes_layout(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in LAYOUT


def _is_number(code: Code, name: ast.Name) -> bool:
    """Whether a name is a number or a module; a loop's variable of which nothing is known is a number here."""
    value = code.value(name)
    if value.may_be(External) or value.must_be_if_known(Number, Literal):
        return True
    bound = code.flow.reaching.get(name, frozenset())
    return not value.alternatives and bool(bound) and all(definition.kind == "for" for definition in bound)


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
    if dtype is not None and dtype_of(code.value(dtype)) in _ROUND and not _counts_from_zero(code, start, step):
        return Obligation(Kind.NUMBERS, "`arange` of large floats may round differently on the device")
    return None


def _counts_from_zero(code: Code, start: ast.expr | None, step: ast.expr | None) -> bool:
    return (start is None or code.value(start).literal == 0) and (step is None or code.value(step).literal == 1)


def _is_integer(alternative: Alternative) -> bool:
    if isinstance(alternative, Literal):
        return type(alternative.value) is int
    return isinstance(alternative, Number) and alternative.kind == "int"


def is_used_on_host(code: Code, moved: ast.expr) -> bool:
    """Whether the host goes on with the numbers of a variable that is copied, too."""
    flow, made = code.flow, code.flow.reaching.get(moved, frozenset())
    return any(
        isinstance(flow.parent[use], (ast.Subscript, ast.Compare, ast.For, ast.comprehension))
        and flow.reaching[use] <= made
        and not sets_constant(code, use)
        for definition in made
        for use in flow.uses[definition]
    )
