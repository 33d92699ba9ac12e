"""Where the host may wait for the device, as far as the syntax shows: what the sync budget looks at."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import Flow
from perflint.facts.device.library_waits import numbers_of
from perflint.facts.operations import operations
from perflint.facts.operations.operations import Road, Wait
from perflint.facts.values.tensor_methods import HOST_ATTRIBUTES
from perflint.source.nodes import walk
from perflint.source.texts import last_name
from perflint.source.words import any_layout, made, words

_TERM = rb"(?:- )?[\w.]+(?: (?:[-+*%]|//?) [\w.]+)*"
_PLAIN_KEY = (
    rb"(?:(?:- )?\d[\w.]*|None|\.\.\.|\"[^\"\n\\]*\"|'[^'\n\\]*'"
    rb"|(?:" + _TERM + rb" )?:(?: " + _TERM + rb")?(?: :(?: " + _TERM + rb")?)?"
    rb"|[\w.]+(?: (?:[-+*%]|//?) [\w.]+)+)"
)
_TYPES = "Optional Union List Tuple Dict Set Type Callable Literal Unpack Iterable Iterator Sequence Generator Mapping Final"
_BUILTIN_TYPES = "list tuple dict set type frozenset"
_TYPE_NAMES = frozenset((*_TYPES.split(), *_BUILTIN_TYPES.split()))
MASKED: Final = any_layout(
    rb"\[(?<![=(,:{|+`]\[)(?<![=(,:{|+]\x20\[)(?<!\bin\x20\[)(?<!return\x20\[)"
    + b"".join(rb"(?<!" + name.encode() + rb"\[)" for name in _TYPES.split())
    + b"".join(rb"(?<!\b" + name.encode() + rb"\[)" for name in _BUILTIN_TYPES.split())
    + rb"(?! `| "
    + _PLAIN_KEY
    + rb"(?: , "
    + _PLAIN_KEY
    + rb")*(?: ,)? \])"
)
"""What may be a mask in brackets, in a text: anything but numbers, strings, slices, lists and types."""


def places(flow: Flow, *roads: Road) -> list[ast.expr]:
    """Where the host may wait by one of some roads, or by any, as far as the syntax shows, in evaluation order."""
    if flow.waiting is None:
        flow.waiting = [(node, _roads_at(flow, node)) for node in flow.order if isinstance(node, _PLACES)]
    return [node for node, found in flow.waiting if (not found.isdisjoint(roads) if roads else found)]


_PLACES = (ast.Call, ast.Subscript, ast.Compare)
_NO_ROAD: frozenset[Road] = frozenset()
_COPIES = frozenset((Road.UPLOAD, Road.COPY))
"""Which way something is copied depends on the arguments."""
_MODULE_ROADS = frozenset((Road.NUMBER, Road.COPY))
"""By what the functions of `math` and `numpy` wait."""


def _roads_at(flow: Flow, node: ast.AST) -> frozenset[Road]:
    match node:
        case ast.Call(func=func):
            roads = _roads_of_call(flow, node)
            if _may_be_of_module(flow, func):
                roads |= _NO_ROAD if _takes_host_scalars(flow, node) else _MODULE_ROADS
            return roads if all(is_host_scalar(flow, factor) for factor in numbers_of(node)) else roads | {Road.NUMBER}
        case ast.Subscript(value=ast.Name(id=name)) if name in _TYPE_NAMES and not flow.definitions_of(name):
            return _NO_ROAD
        case ast.Subscript(slice=ast.Constant(value=str())):
            return _NO_ROAD  # no tensor has such keys
        case ast.Subscript(value=base, slice=index):
            roads = _NO_ROAD.union(*(_roads_of_key(flow, key) for key in keys_of(index)))
            if made_on_host(flow, node) is not None:
                roads |= {Road.UPLOAD}
            if roads and not _may_be_tensor(flow, base):  # of a list, only an index may wait
                return roads & {Road.NUMBER} if not isinstance(index, ast.Slice) else _NO_ROAD
            return roads
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[held]):
            plain = _is_text(held) or (isinstance(held, (ast.List, ast.Tuple, ast.Set)) and all(map(_is_text, held.elts)))
            return _NO_ROAD if plain or is_host_scalar(flow, left) else frozenset((Road.TRUTH,))
    return _NO_ROAD


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _may_be_of_module(flow: Flow, func: ast.expr) -> bool:
    """Whether a function may be one of `math` or `numpy`: `math.log10`, or `log10` where a file imports that."""
    match func:
        case ast.Attribute(value=ast.Name(id=name)):
            return _may_be_module(flow, name)
        case ast.Name(id=name) if not flow.definitions_of(name):
            return name.encode() in _named_functions(flow.scope.module.source.body)
    return False


def _may_be_module(flow: Flow, name: str) -> bool:
    """Whether a name may be that of `math` or `numpy`, or of a module of numpy, as far as the text of the file tells."""
    if flow.definitions_of(name):
        return False
    return name in _USUAL_NAMES or name.encode() in _named_modules(flow.scope.module.source.body)


@lru_cache(maxsize=4)
def _named_modules(text: bytes) -> frozenset[bytes]:
    return frozenset(_NAMED_MODULE.findall(text))


@lru_cache(maxsize=4)
def _named_functions(text: bytes) -> frozenset[bytes]:
    return frozenset(name for names in _NAMED_FUNCTIONS.findall(text) for name in _NAME.findall(names))


_NAMED_FUNCTIONS = any_layout(rb"from math import \(? ([\w\s,]+)")
_NAME = made(rb"\w+")
_USUAL_NAMES = frozenset(("math", "np", "numpy", "random", "linalg"))
_NAMED_MODULE = any_layout(rb"(?:numpy|math|numpy \. [\w.]+|numpy import \w+) as (?<=\sas)(?=\s) ([\w\x80-\xff]+)")
"""How an import gives another name to one of them."""


def made_on_host(flow: Flow, place: ast.Subscript) -> ast.expr | None:
    """What `x[key] = torch.tensor(...)` stores, if it is made of numbers or an array there."""
    parent = flow.parent.get(place)
    if not isinstance(place.ctx, ast.Store) or not isinstance(parent, ast.Assign):
        return None
    made = any(isinstance(part, ast.Call) and last_name(part.func) in _MAKERS for part in walk(parent.value))
    return parent.value if made else None


_MAKERS = words("tensor from_numpy as_tensor Tensor FloatTensor LongTensor")


def _roads_of_call(flow: Flow, call: ast.Call) -> frozenset[Road]:
    roads = _NO_ROAD
    name = last_name(call.func)
    waits = _waits_named(name)
    if not waits:
        return frozenset((Road.TRUTH,)) if name == "backward" else roads
    of_numbers = _takes_host_scalars(flow, call)
    for wait in waits:
        others = len(call.args) + len(call.keywords) > 1
        if (wait.unless == "others" and others) or any(k.arg == wait.unless for k in call.keywords):
            continue
        if of_numbers and wait.of in _OF_ARGUMENTS:
            continue
        roads |= _COPIES if wait.road in (Road.UPLOAD, Road.TRANSFER) else {wait.road}
    return roads


_OF_ARGUMENTS = frozenset(("arguments", "each", "mixed", "pairs"))


def _takes_host_scalars(flow: Flow, call: ast.Call) -> bool:
    given = (*call.args, *(k.value for k in call.keywords if k.arg not in _NO_NUMBERS))
    return all(_holds_host_scalars(flow, argument) for argument in given)


_NO_NUMBERS = words("out dtype device requires_grad layout pin_memory memory_format generator key")
"""Arguments for which nobody gives a number."""


def _holds_host_scalars(flow: Flow, argument: ast.expr) -> bool:
    """Whether it is seen that an argument is a number or a text of Python, or a display of them."""
    if isinstance(argument, (ast.List, ast.Tuple)):
        return all(_holds_host_scalars(flow, part) for part in argument.elts)
    return is_host_scalar(flow, argument)


def is_host_scalar(flow: Flow, node: ast.expr, depth: int = 4) -> bool:
    """Whether it is seen that an expression is a number or a text of Python, whichever way the program came there."""
    if depth == 0:
        return False
    match node:
        case ast.Constant() | ast.JoinedStr():
            return True
        case ast.UnaryOp(operand=operand):
            return is_host_scalar(flow, operand, depth - 1)
        case ast.BinOp(left=left, right=right):
            return is_host_scalar(flow, left, depth - 1) and is_host_scalar(flow, right, depth - 1)
        case ast.IfExp(body=body, orelse=orelse):
            return is_host_scalar(flow, body, depth - 1) and is_host_scalar(flow, orelse, depth - 1)
        case ast.Attribute(attr="ndim" | "dtype" | "device") | ast.Attribute(value=ast.Name(id="torch" | "math")):
            return True
        case ast.Subscript(value=held, slice=key):
            return isinstance(held, ast.Attribute) and held.attr == "shape" and not isinstance(key, ast.Slice)
        case ast.Call(func=ast.Name(id="len" | "int" | "float" | "str" | "ord" as name)):
            return not flow.definitions_of(name)
        case ast.Call(func=ast.Attribute(attr="size"), args=[_]) | ast.Call(func=ast.Attribute(attr="dim"), args=[]):
            return True
        case ast.Name():
            bound = flow.reaching.get(node, frozenset())
            return bool(bound) and all(_binds_host_scalar(flow, d, depth - 1) for d in bound)
    return False


def _binds_host_scalar(flow: Flow, definition: Definition, depth: int) -> bool:
    match definition.kind, definition.value:
        case "assign" | "walrus", ast.Attribute(attr="shape"):
            return len(definition.index) == 1 and definition.index[0] is not None
        case "assign" | "walrus", ast.Call(func=ast.Attribute(attr="size"), args=[]):
            return len(definition.index) == 1 and definition.index[0] is not None
        case "assign" | "walrus", ast.expr() as value:
            return not definition.index and is_host_scalar(flow, value, depth)
        case "for", ast.Call(func=ast.Name(id="range")):
            return not definition.index
        case "for", ast.Call(func=ast.Name(id="enumerate")):
            return definition.index == (0,)
    return False


@cache
def _waits_named(name: str) -> tuple[Wait, ...]:
    return tuple(wait for other, wait in operations.waits() if other == name)


def _roads_of_key(flow: Flow, key: ast.expr) -> frozenset[Road]:
    match key:
        case ast.Constant() | ast.UnaryOp(operand=ast.Constant()):
            return _NO_ROAD
        case ast.Slice():
            return _NO_ROAD if all(is_host_scalar(flow, bound) for bound in bounds_of(key)) else frozenset((Road.NUMBER,))
    if is_host_scalar(flow, key):
        return _NO_ROAD
    return frozenset((Road.NUMBER, Road.UPLOAD, Road.SHAPE) if _may_be_mask(flow, key) else (Road.NUMBER, Road.UPLOAD))


def _may_be_mask(flow: Flow, node: ast.expr, depth: int = 4) -> bool:
    """Whether it may be seen that an expression is a tensor of bools, whichever way the program came there."""
    if depth == 0:
        return True
    match node:
        case ast.Name(id=name):
            bound = flow.reaching.get(node)
            return all(_may_bind_mask(flow, d, depth - 1) for d in bound) if bound else not hasattr(builtins, name)
        case ast.UnaryOp(op=op, operand=operand):
            return not isinstance(op, ast.Not) and _may_be_mask(flow, operand, depth - 1)
        case ast.Compare(left=left, ops=ops, comparators=others):
            plain = not any(isinstance(op, (ast.In, ast.NotIn, ast.Is, ast.IsNot)) for op in ops)
            return plain and not any(isinstance(o, ast.Constant) and isinstance(o.value, str) for o in (left, *others))
        case ast.BinOp(left=left, op=ast.Mult() | ast.BitAnd() | ast.BitOr() | ast.BitXor(), right=right):
            return _may_be_mask(flow, left, depth - 1) and _may_be_mask(flow, right, depth - 1)
        case ast.IfExp(body=body, orelse=orelse):
            return _may_be_mask(flow, body, depth - 1) and _may_be_mask(flow, orelse, depth - 1)
        case ast.BoolOp(values=values):
            return all(_may_be_mask(flow, value, depth - 1) for value in values)
        case ast.NamedExpr(value=value):
            return _may_be_mask(flow, value, depth - 1)
        case ast.Attribute(attr=name):
            return name not in HOST_ATTRIBUTES
        case ast.Subscript(value=base):
            return not isinstance(base, ast.Attribute) or base.attr not in HOST_ATTRIBUTES
        case ast.Call(func=ast.Name(id=name)) if hasattr(builtins, name) and not flow.definitions_of(name):
            return False
        case ast.Call(func=func):
            row = operations.method(last_name(func)) or operations.tensor_function(last_name(func))
            return row is None or (not row.result.is_host and row.dtype in _TYPES_OF_MASKS)
    return False


MASK: Final = made(r"mask(?!\w*(?:idx|ind(?:ex|ices|s)?(?:_|$)|_ids?$|pos))", re.I)
"""What a forward pass is given by such a name selects."""
_TYPES_OF_MASKS = frozenset(("bool", "same", "widest", ""))


def _may_bind_mask(flow: Flow, definition: Definition, depth: int) -> bool:
    match definition.kind, definition.value:
        case "parameter", _:
            return flow.scope.name != "forward" or MASK.search(definition.name) is not None
        case "assign" | "walrus", ast.expr() as value:
            return bool(definition.index) or _may_be_mask(flow, value, depth)
        case "for", ast.Call(func=ast.Name(id="range") | ast.Attribute(attr="keys")):
            return False
        case "for", ast.Call(func=ast.Name(id="enumerate") | ast.Attribute(attr="items")):
            return definition.index != (0,)
    return definition.kind == "for"


def _may_be_tensor(flow: Flow, node: ast.expr) -> bool:
    """Whether it may be seen that an expression is a tensor, whichever way the program came there."""
    return not any(map(_binds_container, flow.reaching.get(node, ())))


def _binds_container(definition: Definition) -> bool:
    """Whether a definition binds a list, a dict or the like, as it is written out."""
    value = definition.value
    return definition.kind in ("assign", "walrus") and not definition.index and isinstance(value, _CONTAINERS)


_CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.DictComp, ast.SetComp, ast.JoinedStr, ast.Constant)


def keys_of(index: ast.expr) -> list[ast.expr]:
    """The keys of a subscript, one for each dimension."""
    return list(index.elts) if isinstance(index, ast.Tuple) else [index]


def counts_sizes(node: ast.expr) -> bool:
    """Whether an expression is arithmetic with sizes, such as `x.shape[1] - 1`: a number of Python's, whatever `x` is."""
    match node:
        case ast.BinOp(left=left, right=right):
            return counts_sizes(left) and counts_sizes(right)
        case (
            ast.Subscript(value=ast.Attribute(attr="shape")) | ast.Attribute(attr="ndim") | ast.Constant(value=int() | float())
        ):
            return True
        case ast.Call(func=ast.Name(id="len")) | ast.Call(func=ast.Attribute(attr="size"), args=[_]):
            return True
    return False


def bounds_of(key: ast.expr) -> Iterable[ast.expr]:
    """The bounds and the step that a slice is given."""
    return [bound for bound in (key.lower, key.upper, key.step) if bound is not None] if isinstance(key, ast.Slice) else []
