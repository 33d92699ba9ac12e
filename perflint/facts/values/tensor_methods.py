"""What methods and attributes of tensors give, by the table of operations."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint.facts.operations import operations
from perflint.facts.operations.api_tables import (
    LEGACY_TENSOR_CLASSES,
)
from perflint.facts.operations.operations import Dims, Memory, Operation, Result
from perflint.facts.values.arguments import (
    LEGACY_DTYPES,
    argument,
    dtype_of,
    is_dtype_expression,
    places,
    transfer_target,
    type_of_target,
    works_in_place,
)
from perflint.facts.values.array_methods import NDARRAY
from perflint.facts.values.derived_values import is_copied_to_host
from perflint.facts.values.frames import Frame, Inferring
from perflint.facts.values.values import (
    NONE,
    NOTHING,
    UNKNOWN,
    Alternative,
    Batch,
    Device,
    Elements,
    External,
    Literal,
    Number,
    Output,
    Place,
    Sequence,
    Tensor,
    Text,
    Value,
    device_place,
    join,
    meeting_place,
    one,
    place_of,
)
from perflint.source.words import words

_OF_TEXT = words("split rsplit partition replace decode encode startswith endswith")


def method_of_unknown(inference: Inferring, receiver: Value, name: str, node: ast.Call, frame: Frame) -> Value:
    """What a method with this name returns if what is not known of its receiver is a tensor."""
    if name == "format" or name in ("join", "strip", "lower", "upper"):
        return Value(frozenset((Text(""),)), open=True)
    if _is_of_text(name, node):
        return UNKNOWN
    on_host = name == "cpu" and not node.args
    place = Place.HOST if on_host or is_copied_to_host(receiver) else Place.UNKNOWN
    row = operations.method(name)
    if row is None or not (row.telling or on_host):
        return UNKNOWN
    if receiver.alternatives and all(a == NDARRAY for a in receiver.alternatives):
        return UNKNOWN  # where it is known it is an array, which has such methods, too
    return Value(operated(inference, Tensor(place, guessed=True), row, node, frame).alternatives, open=True)


def _is_of_text(name: str, node: ast.Call) -> bool:
    """Whether a method is one of texts and bytes: it is given a text, which none of tensors with its name takes."""
    match node.args:
        case [ast.Constant(value=str()), *_]:
            return name in _OF_TEXT
    return False


def tensor_method(inference: Inferring, receiver: Tensor, name: str, node: ast.Call, frame: Frame) -> Value:
    """What a method of a tensor gives."""
    if (name.startswith("_") and operations.method(name) is None) or _is_of_text(name, node):
        return UNKNOWN
    return operated(inference, receiver, operations.method(name) or unknown_operation(name), node, frame)


def unknown_operation(name: str) -> Operation:
    """The row of an operation that the table does not have: its result may be its receiver, of any type."""
    return Operation(name, memory=Memory.ALIAS, dtype="")


def operated(inference: Inferring, receiver: Tensor, row: Operation, node: ast.Call, frame: Frame) -> Value:
    """What an operation gives whose first tensor is `receiver`; the others are the arguments of `node`."""
    if not row.real:
        return UNKNOWN
    name = row.name
    match name:
        case "to":
            return _to(inference, receiver, node, frame)
        case "cuda":
            return one(replace(receiver, place=Place.CUDA, fresh=False))
        case "cpu":
            return one(replace(receiver, place=Place.HOST, fresh=False))
        case "type" | "type_as":
            return _type(inference, receiver, node, frame)
        case "clone":
            return one(replace(receiver, fresh=True, parameter=False))
        case "detach":
            return one(replace(receiver, fresh=receiver.fresh and _is_temporary(node), grad=False, parameter=False))
        case "requires_grad_":
            return one(replace(receiver, grad=not (node.args and inference.infer(node.args[0], frame).literal is False)))
        case "new" | "new_zeros" | "new_ones" | "new_full" | "new_empty" | "new_tensor":
            return one(Tensor(receiver.place, None, receiver.dtype, fresh=True, zeros=name == "new_zeros"))
    match row.result:
        case Result.NUMBER:
            return one(Number(_number_kind(receiver.dtype)))
        case Result.LIST:
            return one(Elements(join((one(Number(_number_kind(receiver.dtype))), UNKNOWN)), "list"))
        case Result.INTS:
            return one(Number("int")) if node.args else one(Elements(one(Number("int")), "tuple"))
        case Result.SEVERAL:
            return one(Elements(one(replace(receiver, fresh=not row.shares_memory, ndim=None)), "tuple"))
        case Result.PAIR:
            return _pair(receiver)
        case Result.PAIR_ALONG_DIM if _has_dimension(node) and not _tensor_argument(inference, node, frame):
            return _pair(receiver)
    if row.result.is_host:
        return _HOST_RESULTS.get(row.result, UNKNOWN)
    if name.endswith("_"):
        filled = (name == "detach_" and receiver.zeros) or name == "zero_"
        fresh = receiver.fresh and _is_temporary(node)
        return one(replace(receiver, zeros=filled, random=receiver.random or row.random, fresh=fresh, count=False))
    if row.converts:
        count = receiver.count or receiver.dtype == "bool"
        return one(replace(receiver, dtype=row.dtype, fresh=False, parameter=False, count=count))
    if row.memory is Memory.VIEW:
        if name == "view" and any(k.arg == "dtype" for k in node.keywords) | _asks_for_type(inference, node, frame):
            return one(replace(receiver, fresh=False, parameter=False, dtype="", count=False))  # other numbers
        ndim = 1 if _flattens(name, node) else _viewed_as(inference, node, frame) if name == "view_as" else None
        return one(replace(receiver, fresh=False, ndim=ndim, parameter=False))
    return one(_computed(inference, receiver, row, node, frame))


_HOST_RESULTS = {
    Result.ARRAY: one(NDARRAY),
    Result.INT: one(Number("int")),
    Result.FLOAT: one(Number("float")),
    Result.BOOL: one(Number("bool")),
    Result.TEXT: one(Text("")),
    Result.NOTHING: NONE,
}


def _pair(receiver: Tensor) -> Value:
    """Numbers, and where they stand."""
    values = replace(receiver, fresh=True, ndim=None)
    return one(Sequence((one(values), one(replace(values, dtype="int64")))))


def _asks_for_type(inference: Inferring, node: ast.Call, frame: Frame) -> bool:
    return any(is_dtype_expression(given) or dtype_of(inference.infer(given, frame)) for given in node.args[:1])


def _is_temporary(node: ast.Call) -> bool:
    """Whether a method's receiver is an intermediate result that has no other name."""
    return isinstance(node.func, ast.Attribute) and isinstance(node.func.value, (ast.Call, ast.BinOp))


def _computed(inference: Inferring, receiver: Tensor, row: Operation, node: ast.Call, frame: Frame) -> Tensor:
    """The result of an operation that allocates its result."""
    others = node.args
    place = meeting_place((receiver.place, *(p for o in others for p in places(inference, o, frame))))
    ndim = None
    if row.dims is Dims.SCALAR or (row.dims is Dims.REDUCES and not _has_dimension(node)):
        ndim = 0
    elif row.dims is Dims.ELEMENTWISE and receiver.ndim == 0:
        if all(_scalar(inference, o, frame) for o in others):
            ndim = 0
    elif _flattens(row.name, node):
        ndim = 1
    given = argument(node, None, "dtype")
    if given is not None:
        dtype = dtype_of(inference.infer(given, frame))
    else:
        dtype = _computed_dtype(inference, receiver, row, node, frame)
    fresh = not row.shares_memory and not works_in_place(node)
    grad = receiver.grad
    operands = [*others, *(k.value for k in node.keywords if k.arg not in ("dtype", "dim", "axis", "keepdim"))]
    if grad is False and not all(inference.infer(part, frame).must(_is_outside_graph) for part in operands):
        grad = None
    counted = row.name == "count_nonzero" or (row.name == "sum" and (receiver.count or receiver.dtype == "bool"))
    return Tensor(place, ndim, dtype, fresh=fresh, grad=grad, count=counted, guessed=receiver.guessed)


def _computed_dtype(inference: Inferring, receiver: Tensor, row: Operation, node: ast.Call, frame: Frame) -> str:
    """The type of an operation's result, by its row and by what goes in."""
    match row.dtype:
        case "sums":
            return "int64" if receiver.dtype in ("bool", "int64", "int32") else receiver.dtype
        case "float":
            return receiver.dtype if "float" in receiver.dtype else "float"
        case "same":
            return receiver.dtype
        case "widest":
            operands = [inference.infer(o, frame) for o in node.args]
            if any(isinstance(o.literal, complex) for o in operands):
                return ""
            alike = all(o.must(lambda a: _same_integers(a, receiver.dtype)) for o in operands)
            return receiver.dtype if "float" in receiver.dtype or (alike and "div" not in row.name) else ""
    return row.dtype


def _is_outside_graph(alternative: Alternative) -> bool:
    return not isinstance(alternative, (Tensor, Output)) or (isinstance(alternative, Tensor) and alternative.grad is False)


def _same_integers(alternative: Alternative, dtype: str) -> bool:
    match alternative:
        case Tensor():
            return alternative.dtype == dtype
        case Literal(value):
            return type(value) is int and dtype != "bool"
        case Number(kind):
            return kind == "int" and dtype != "bool"
    return False


def _flattens(name: str, node: ast.Call) -> bool:
    """Whether a method of a tensor with at least one element gives a one-dimensional one: `x.flatten()`, `x.view(-1)`."""
    if name in ("view", "reshape") and len(node.args) == 1 and not node.keywords:
        return isinstance(node.args[0], ast.UnaryOp) and ast.unparse(node.args[0]) == "-1"
    return name in ("flatten", "ravel") and not node.args and not node.keywords


def _viewed_as(inference: Inferring, node: ast.Call, frame: Frame) -> int | None:
    """The number of dimensions that `x.view_as(other)` takes from the other tensor."""
    other = inference.infer(node.args[0], frame).single if node.args else None
    return other.ndim if isinstance(other, Tensor) else None


def _has_dimension(node: ast.Call) -> bool:
    return bool(node.args) or any(k.arg in ("dim", "axis", "keepdim", "other", None) for k in node.keywords)


def _tensor_argument(inference: Inferring, node: ast.Call, frame: Frame) -> bool:
    return bool(node.args) and inference.infer(node.args[0], frame).may_be(Tensor, Batch, Output)


def _scalar(inference: Inferring, node: ast.expr, frame: Frame) -> bool:
    value = inference.infer(node, frame)
    return value.must(lambda a: isinstance(a, (Number, Literal)) or (isinstance(a, Tensor) and a.ndim == 0))


def _number_kind(dtype: str) -> str:
    if "float" in dtype:
        return "float"
    return "bool" if dtype == "bool" else "int" if "int" in dtype else ""


def _to(inference: Inferring, receiver: Tensor, node: ast.Call, frame: Frame) -> Value:
    target = transfer_target(inference, node, frame)
    result = replace(receiver, fresh=False, parameter=False)
    if (asked := type_of_target(inference, node, frame)) is not None:
        result = replace(result, dtype=asked)
    if target == NOTHING:
        return one(result)
    others = [a for a in target.alternatives if isinstance(a, (Tensor, Batch, Output))]
    if others:
        place = meeting_place(place_of(a) for a in others)
        return one(replace(result, place=place, dtype=others[0].dtype if isinstance(others[0], Tensor) else ""))
    return one(replace(result, place=device_place(target)))


def _type(inference: Inferring, receiver: Tensor, node: ast.Call, frame: Frame) -> Value:
    if not node.args:
        return one(Text("")) if not node.keywords else one(replace(receiver, fresh=False))
    results = []
    target = inference.infer(node.args[0], frame)
    for alternative in target.alternatives:
        match alternative:
            case Literal(str(name)) | External(name) if name.rpartition(".")[2] in LEGACY_TENSOR_CLASSES:
                on_device = name.startswith("torch.cuda.")
                dtype = LEGACY_DTYPES.get(name.rpartition(".")[2], "")
                results.append(Tensor(Place.CUDA if on_device else Place.HOST, receiver.ndim, dtype))
            case Tensor():
                results.append(replace(receiver, place=alternative.place, dtype=alternative.dtype, fresh=False))
            case Batch() | Output():
                results.append(replace(receiver, place=alternative.place, dtype="", fresh=False))
            case _:
                results.append(replace(receiver, dtype=dtype_of(one(alternative)), fresh=False))
    if {r.place for r in results} == {Place.CUDA, Place.HOST}:
        results = [replace(r, place=Place.CUDA_OR_HOST) for r in results]
    other = replace(receiver, dtype="", fresh=False)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "type_as":
        other = replace(other, place=Place.UNKNOWN)  # it goes where the other tensor is
    return join([*map(one, results), *([one(other)] if target.open else [])])


HOST_ATTRIBUTES = words(
    """
    shape device dtype ndim is_cuda requires_grad is_leaf nbytes itemsize
    """
)
"""Attributes that give Python objects without looking at the tensor's numbers."""


def tensor_attribute(receiver: Tensor, name: str) -> Value:
    """An attribute of a tensor."""
    match name:
        case "data":
            return one(replace(receiver, fresh=False, grad=False, parameter=False))
        case "grad":
            return Value(frozenset((replace(receiver, fresh=False, grad=False, parameter=False),)), open=True)
        case "T" | "mT" | "H" | "real" | "imag":
            return one(replace(receiver, fresh=False))
        case "device":
            return one(Device(receiver.place))
        case "shape":
            return one(Elements(one(Number("int")), "tuple"))
        case "ndim" | "itemsize" | "nbytes":
            return one(Number("int"))
        case "is_cuda" | "requires_grad" | "is_leaf":
            return one(Number("bool"))
    return UNKNOWN
