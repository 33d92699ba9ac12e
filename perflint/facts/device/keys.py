"""What an index of a tensor may be: a mask, data of the host, a list that is built there."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.values.values import Alternative, Elements, Literal, Number, Place, Sequence, Tensor, Value, is_none
from perflint.source.syntax import Scope
from perflint.source.words import made


def as_key(value: Value) -> Value:
    """What a key is where it is one of a tensor's: `None` is the default of what another branch does without."""
    return value.without(is_none) if len(value.alternatives) > 1 else value


def indexes_from_host(alternative: Alternative) -> bool:
    """Whether an index is data of the host, which is copied to the device."""
    match alternative:
        case Tensor(place=Place.HOST, ndim=ndim):
            return ndim != 0
        case Elements(element=element, kind="list") | Sequence(items=(element, *_), mutable=True):
            return element.must_be(Number, Literal)
    return False


def fills_from_host(alternative: Alternative) -> bool:
    """Whether what is stored is a tensor of the host, and no number."""
    return isinstance(alternative, Tensor) and alternative.place is Place.HOST and alternative.ndim != 0


def is_guess(alternative: Alternative) -> bool:
    """Whether nothing but the name of a method says that this is a tensor."""
    return isinstance(alternative, Tensor) and alternative.guessed


def is_bools(alternative: Alternative) -> bool:
    """Whether this is a tensor of bools."""
    return isinstance(alternative, Tensor) and alternative.dtype == "bool" and alternative.ndim != 0


def may_hold_bools(alternative: Alternative) -> bool:
    """Whether this may be a tensor of bools."""
    return not isinstance(alternative, Tensor) or not alternative.dtype or is_bools(alternative)


def is_built_list(made: ast.expr, scope: Scope) -> bool:
    """Whether Python makes a list or a range of numbers here, or an empty list that numbers are put into."""
    match made:
        case ast.Call(func=ast.Name(id="range"), args=[_, *_]):
            return not flow_of(scope).definitions_of("range")
        case ast.Call(func=ast.Name(id="list" | "sorted" as name), args=[_, *_]):
            return not flow_of(scope).definitions_of(name) and _SLICES.search(scope.text) is None
        case ast.Call(func=ast.Attribute(value=ast.Name(id="random"), attr="sample" | "choices"), args=[held, *_]):
            return isinstance(held, ast.Call) and is_built_list(held, scope)
        case ast.List(elts=[]) | ast.Call(func=ast.Name(id="list"), args=[], keywords=[]):
            return _SLICES.search(scope.text) is None
    return False


_SLICES = made(rb"\bslice\b|\bEllipsis\b")
"""What makes a list an index of several dimensions, which copies nothing."""
