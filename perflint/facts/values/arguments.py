"""The arguments of calls, and what some of them say: a type, a device, a target."""

from __future__ import annotations

import ast

from perflint.facts.values.derived_values import item_at
from perflint.facts.values.frames import Frame, Inferring
from perflint.facts.values.values import (
    NOTHING,
    Alternative,
    Batch,
    Device,
    External,
    Literal,
    Number,
    Output,
    Place,
    Tensor,
    Text,
    Value,
    device_place,
    one,
    place_of,
)

_FLOAT_DTYPES = frozenset(("float16", "float32", "float64", "bfloat16", "half", "double", "float"))
_DTYPE_ALIASES = {"half": "float16", "double": "float64", "float": "float32", "long": "int64", "int": "int32"}
LEGACY_DTYPES = {"FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16", "LongTensor": "int64"}
LEGACY_DTYPES |= {"IntTensor": "int32", "ByteTensor": "uint8", "BoolTensor": "bool", "Tensor": "float32"}


def argument(node: ast.Call, position: int | None, keyword: str) -> ast.expr | None:
    """The argument at a position or with a keyword, if it is written out."""
    for given in node.keywords:
        if given.arg == keyword:
            return given.value
    if position is not None and position < len(node.args):
        if not any(isinstance(a, ast.Starred) for a in node.args[: position + 1]):
            return node.args[position]
    return None


def dtype_of(value: Value) -> str:
    """The torch name of a dtype object, "" if the value is none."""
    only = value.single
    if isinstance(only, External) and only.qualname.startswith("torch."):
        name = only.qualname.removeprefix("torch.")
        if name in _FLOAT_DTYPES or name.startswith(("int", "uint", "bool", "long")):
            return _DTYPE_ALIASES.get(name, name)
    return ""


def asked_type(inference: Inferring, node: ast.Call, frame: Frame, position: int | None = None) -> str | None:
    """The type of elements that a call asks for, "" if it may ask for any; None when it asks for none."""
    given = argument(node, position, "dtype")
    if given is None:
        unseen = any(k.arg is None for k in node.keywords) or any(isinstance(a, ast.Starred) for a in node.args)
        return "" if unseen else None
    return None if isinstance(given, ast.Constant) and given.value is None else dtype_of(inference.infer(given, frame))


def type_of_target(inference: Inferring, node: ast.Call, frame: Frame) -> str | None:
    """The same of `.to(...)`, which takes a type in the place of a device, too: what is not known to be none may be one."""
    asked = asked_type(inference, node, frame)
    for given in node.args[:2] if asked is None else ():
        value = inference.infer(given, frame)
        if not value.must_be(Device, Literal, Text, Number, Tensor, Batch, Output):
            asked = dtype_of(value)
    return asked


def _is_dtype(alternative: Alternative) -> bool:
    return bool(dtype_of(one(alternative)))


def places(inference: Inferring, node: ast.expr, frame: Frame) -> list[Place]:
    """Where the tensors are that an expression may give."""
    return [place_of(a) for a in inference.infer(node, frame).alternatives if isinstance(a, (Tensor, Batch, Output))]


def transfer_target(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    """The device argument of a `.to(...)` call, also out of `**options`; `NOTHING` when the call only changes the dtype."""
    device = argument(node, 0, "device")
    if device is None:
        other = argument(node, 0, "other")
        if other is not None:
            return inference.infer(other, frame)
        held = (item_at(inference.infer(k.value, frame), "device") for k in node.keywords if k.arg is None)
        return next((found for found in held if found.alternatives), NOTHING)
    value = inference.infer(device, frame)
    if value.must(_is_dtype) or is_dtype_expression(device):
        return NOTHING
    return value


def is_dtype_expression(node: ast.expr) -> bool:
    """Whether an expression is spelled like a type of elements: `torch.float32`."""
    match node:
        case ast.Attribute(attr=attr):
            return attr == "dtype" or attr in _FLOAT_DTYPES or attr.startswith(("int", "uint", "bool", "float"))
        case ast.Name(id=name):
            return "dtype" in name
    return False


def works_in_place(call: ast.Call) -> bool:
    """Whether a call of a torch function or layer may ask for `inplace`, by keyword or, maybe, by position."""
    asked = [k.value for k in call.keywords if k.arg in ("inplace", None)]
    if any(not isinstance(a, ast.Constant) or a.value for a in asked):
        return True
    return any(isinstance(a, ast.Constant) and a.value is True for a in call.args)


def device_keyword(inference: Inferring, node: ast.Call, frame: Frame) -> Place | None:
    """The place that `device=` of a call names; None without it."""
    device = argument(node, None, "device")
    return device_place(inference.infer(device, frame)) if device is not None else None


def asks_for_gradient(node: ast.Call) -> bool:
    """Whether a constructor call may give a leaf of an autograd graph."""
    given = argument(node, None, "requires_grad")
    return given is not None and not (isinstance(given, ast.Constant) and given.value is False)
