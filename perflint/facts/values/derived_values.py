"""What follows from values alone: arithmetic, items, slices, what a `with` gives, what a name suggests."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint.facts.values.names import hinted
from perflint.facts.values.values import (
    NOTHING,
    UNKNOWN,
    Alternative,
    Batch,
    Elements,
    Instance,
    Literal,
    Loader,
    Mapping,
    Number,
    Object,
    Output,
    Place,
    Sequence,
    Tensor,
    Text,
    Value,
    join,
    meeting_place,
    one,
    place_of,
)


def combined(operands: list[Value], dtype: str) -> Value:
    """Elementwise arithmetic on values: a tensor wins over a number."""
    opened = any(o.open for o in operands)
    tensors = [a for o in operands for a in o.alternatives if isinstance(a, (Tensor, Batch, Output))]
    if tensors:
        place = meeting_place(place_of(t) for t in tensors)
        scalar = all(
            o.must(lambda a: isinstance(a, (Number, Literal)) or (isinstance(a, Tensor) and a.ndim == 0)) for o in operands
        )
        exact = [t for t in tensors if isinstance(t, Tensor)]
        if not dtype and any(t.dtype.startswith(("float", "bfloat")) for t in exact):
            dtype = "" if any(isinstance(o.literal, complex) for o in operands) else "float"
        outside = len(exact) == len(tensors) and all(t.grad is False or t.dtype in ("int64", "bool") for t in exact)
        grad = None if opened else False if outside else any(t.grad for t in exact) or None
        copied = opened and all(map(is_copied_to_host, (o for o in operands if o.open)))
        guessed = len(exact) == len(tensors) and (copied or all(t.guessed for t in exact))
        result = one(Tensor(place, 0 if scalar else None, dtype, fresh=True, grad=grad, guessed=guessed))
        every = all(o.must_be(Tensor, Batch, Output, Number, Literal) for o in operands)
        some = any(o.must_be(Tensor, Batch, Output) for o in operands)
        return result if every and some else Value(result.alternatives, open=True)
    if any(o.may_be(Object) for o in operands):
        arrays = [a for o in operands for a in o.alternatives if isinstance(a, Object) and a.qualname.startswith("numpy")]
        return Value(frozenset(arrays[:1]), open=opened or not arrays)
    if all(o.must_be(Number, Literal) for o in operands):
        kinds = {number_kind(a) for o in operands for a in o.alternatives}
        whole = "int" if kinds <= {"int", "bool"} else "float" if kinds <= {"int", "bool", "float"} else ""
        return one(Number("bool" if dtype == "bool" else whole))
    if dtype == "bool":
        return Value(frozenset((Number("bool"),)), open=True)
    return UNKNOWN


def compared(operands: list[ast.expr], result: Value) -> Value:
    """What a comparison gives: no tensor where something is compared with a text."""
    if any(isinstance(operand, ast.Constant) and isinstance(operand.value, str) for operand in operands):
        return result.without(lambda a: isinstance(a, Tensor)).or_unknown
    return result


def added_to(old: Value, other: Value) -> Value:
    """What `a += b` leaves under the name `a`: a tensor stays the one that it was, and of its shape."""
    result = combined([old if old != NOTHING else UNKNOWN, other], "")
    if old == NOTHING or old.must(_is_new_or_number):
        is_number = old.must(lambda a: isinstance(a, Tensor) and a.ndim == 0)
        keeps_shape = is_number and not other.open and not other.may_be(Instance)
        return result.map(lambda a: one(replace(a, ndim=0)) if keeps_shape and isinstance(a, Tensor) else one(a))
    return result.map(lambda a: one(replace(a, fresh=False)) if isinstance(a, Tensor) else one(a))


def _is_new_or_number(alternative: Alternative) -> bool:
    return isinstance(alternative, (Number, Literal)) or (isinstance(alternative, Tensor) and alternative.fresh)


def is_mask(value: Value) -> bool:
    """Whether all that is known of a value are tensors of bools."""
    return bool(value.alternatives) and all(isinstance(a, Tensor) and a.dtype == "bool" for a in value.alternatives)


def type_of_bits(op: ast.operator, left: Value, right: Value) -> str:
    """What `&`, `|` and `^` of masks give: a mask."""
    masks = isinstance(op, (ast.BitAnd, ast.BitOr, ast.BitXor)) and is_mask(left) and is_mask(right)
    return "bool" if masks else ""


def is_one_index(value: Value) -> bool:
    """Whether a key takes one item of a dimension: an integer."""
    return value.must(
        lambda a: (isinstance(a, Number) and a.kind != "bool") or (isinstance(a, Literal) and type(a.value) is int)
    )


def quotient(alternative: Alternative) -> Value:
    """What `/` makes of the number that other arithmetic would give."""
    return one(Number("float")) if isinstance(alternative, Number) and alternative.kind else one(alternative)


def number_kind(alternative: Alternative) -> str:
    """Which kind of number something is: "int", "float", "bool", or "" when that is not known."""
    if isinstance(alternative, Number):
        return alternative.kind
    return type(alternative.value).__name__ if isinstance(alternative, Literal) else ""


def negated(alternative: Alternative, op: ast.unaryop) -> Value:
    """What a sign, `not` or `~` makes of a value."""
    match alternative:
        case Tensor():
            return one(replace(alternative, fresh=not isinstance(op, ast.UAdd), zeros=False, parameter=False))
        case Literal(int() | float() as number) if isinstance(op, ast.USub):
            return one(Literal(-number))
        case Batch(place=place) | Output(place=place):
            return one(Tensor(place, fresh=True))
        case Number():
            return one(alternative)
    return UNKNOWN


def entered(manager: Alternative) -> Value:
    """What `with manager as x` binds to `x`."""
    if isinstance(manager, (Instance, Elements, Loader)):
        return one(manager)
    if isinstance(manager, Object) and manager.qualname.startswith("tqdm"):
        return one(manager)
    return UNKNOWN


def sliced(alternative: Alternative) -> Value:
    """What `x[a:b]` gives."""
    match alternative:
        case Sequence(items):
            return one(Elements(join(items), "list"))
        case Tensor():
            return one(replace(alternative, fresh=False))
        case Elements() | Batch() | Output() | Text():
            return one(alternative)
        case Object("numpy.ndarray" | "pandas.DataFrame"):
            return one(alternative)
    return UNKNOWN


def part(alternative: Alternative) -> Value:
    """`value[i, j]`: of a tensor, a view with as many dimensions as may be."""
    return one(replace(alternative, ndim=None, fresh=False)) if isinstance(alternative, Tensor) else opaque(alternative)


def opaque(alternative: Alternative) -> Value:
    """What a part of a value is of which nothing but the whole is known."""
    return one(alternative) if isinstance(alternative, (Batch, Output, Object)) else UNKNOWN


def item_of(alternative: Alternative, key: object) -> Value:
    """What `x[key]` gives for an index or a name; a `key` of None is a slice."""
    match alternative:
        case Sequence(items):
            if isinstance(key, int) and -len(items) <= key < len(items):
                return items[key]
            return one(Elements(join(items), "list")) if key is None else join(items) if items else UNKNOWN
        case Elements(element, kind):
            return one(alternative) if key is None else element if kind not in ("set", "dict") else UNKNOWN
        case Mapping(items, rest):
            if isinstance(key, str):
                known = dict(items)
                return known.get(key, rest if rest != NOTHING else UNKNOWN)
            return join((*(v for _, v in items), rest)) if items or rest != NOTHING else UNKNOWN
        case Tensor(ndim=ndim):
            return one(replace(alternative, ndim=ndim - 1 if ndim else None, fresh=False, zeros=False))
        case Batch() | Output() | Object("numpy.ndarray"):
            return one(alternative)
    return UNKNOWN


def lacks(alternative: Alternative, key: object) -> bool:
    """Whether a value is a tuple that surely has no such item."""
    if not isinstance(alternative, Sequence) or alternative.mutable or not isinstance(key, int):
        return False
    return not -len(alternative.items) <= key < len(alternative.items)


def item_at(value: Value, key: object) -> Value:
    """`value[key]` for a constant key; `...` or None for one that is not known.

    A function may return more in one branch than in another: what takes the longer tuple apart raises for the shorter.
    """
    fitting = value.without(lambda alternative: lacks(alternative, key))
    return (fitting if fitting.alternatives else value).map(lambda alternative: item_of(alternative, key))


def settled(alternative: Alternative, place: Place) -> Alternative:
    """A tensor whose place was not known, at a place."""
    if isinstance(alternative, (Tensor, Output)) and alternative.place is Place.UNKNOWN:
        return replace(alternative, place=place)
    return alternative


def is_guess(alternative: Alternative) -> bool:
    """Whether nothing but the name of a method says that a value is a tensor."""
    return isinstance(alternative, Tensor) and alternative.guessed


def is_copied_to_host(value: Value) -> bool:
    """Whether what is not known of a value is on the host like the rest: it was copied there, whatever it is."""
    return value.may(lambda a: is_guess(a) and place_of(a) is Place.HOST) and all(
        place_of(a) is Place.HOST for a in value.alternatives
    )


def with_hint(value: Value, name: str) -> Value:
    """What the name suggests, where nothing better is known."""
    if not value.open:
        return value
    guesses = [a for a in value.alternatives if isinstance(a, Tensor) and is_guess(a)]
    if len(guesses) < len(value.alternatives):
        return value
    suggested = hinted(name)
    if not guesses or (not suggested.may_be(Tensor, Batch, Output) and suggested.alternatives):
        return suggested.map(lambda a: one(replace(a, place=guesses[0].place)) if guesses and isinstance(a, Object) else one(a))
    return value


def lists_bools(node: ast.expr) -> bool:
    """Whether `True` and `False` are written out as a list, at least one: `[False] * 20`, `[False for i in range(20)]`."""
    match node:
        case ast.List(elts=[_, *_] as parts):
            return all(isinstance(part, ast.Constant) and isinstance(part.value, bool) for part in parts)
        case ast.BinOp(left=ast.List() as once, op=ast.Mult(), right=ast.Constant(value=int(times))):
            return times > 0 and lists_bools(once)
        case ast.ListComp(elt=ast.Constant(value=bool()), generators=[ast.comprehension(iter=over, ifs=[])]):
            match over:
                case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(times))], keywords=[]):
                    return times > 0
    return False
