"""What calls into torch, numpy, pandas and Python's builtins return."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace

from perflint.facts import operations
from perflint.facts.api_tables import (
    ALIASING_MODULES,
    LEGACY_TENSOR_CLASSES,
    LOADER_CLASSES,
    OPTIMIZER_CLASSES,
    PASSING_ITERATORS,
    PLAIN_LOADER_CLASSES,
)
from perflint.facts.frames import Frame, Inferring
from perflint.facts.names import canonical
from perflint.facts.operations import TORCH_PACKAGES, Dims, Memory, Operation, Result
from perflint.facts.values import (
    NONE,
    NOTHING,
    UNKNOWN,
    Alternative,
    Batch,
    Device,
    Elements,
    External,
    FunctionRef,
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
    device_place,
    join,
    meeting_place,
    moved,
    one,
    place_of,
)
from perflint.source.words import any_layout, words

_NDARRAY = Object("numpy.ndarray")
_FLOAT_DTYPES = frozenset(("float16", "float32", "float64", "bfloat16", "half", "double", "float"))
_DTYPE_ALIASES = {"half": "float16", "double": "float64", "float": "float32", "long": "int64", "int": "int32"}
_LEGACY_DTYPES = {"FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16", "LongTensor": "int64"}
_LEGACY_DTYPES |= {"IntTensor": "int32", "ByteTensor": "uint8", "BoolTensor": "bool", "Tensor": "float32"}


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


# -- methods -------------------------------------------------------------------------------------------------------------


def method(inference: Inferring, receiver: Alternative, name: str, node: ast.Call, frame: Frame) -> Value:
    """What `receiver.name(...)` returns for a receiver that is no class or function of the project."""
    match receiver:
        case Tensor():
            return _tensor_method(inference, receiver, name, node, frame)
        case Batch() | Output():
            return _data_method(inference, receiver, name, node, frame)
        case Object():
            return _object_method(inference, receiver, name, node, frame)
        case Device():
            return UNKNOWN
        case Literal(str(text)) | Text(text):
            if name == "format":
                return one(Text(text.partition("{")[0]))
            return one(Text(""))
        case Mapping(items, rest):
            return _mapping_method(inference, items, rest, name, node, frame)
        case Sequence(items):
            if name == "pop":
                return join(items) if items else UNKNOWN
            return NONE if name in ("append", "extend", "insert", "sort", "clear") else UNKNOWN
        case Elements(element):
            if name in ("pop", "popleft"):
                return element
            return NONE if name in ("append", "extend", "insert", "sort", "clear") else UNKNOWN
        case Loader():
            return UNKNOWN
    return UNKNOWN


def method_of_unknown(inference: Inferring, receiver: Value, name: str, node: ast.Call, frame: Frame) -> Value:
    """What a method with this name returns if what is not known of its receiver is a tensor."""
    if name == "format" or name in ("join", "strip", "lower", "upper"):
        return Value(frozenset((Text(""),)), open=True)
    on_host = name == "cpu" and not node.args
    if on_host or (receiver.may(_is_guessed_on_host) and all(place_of(a) is Place.HOST for a in receiver.alternatives)):
        place = Place.HOST  # it was copied there, whatever it is
    else:
        place = Place.UNKNOWN
    row = operations.method(name)
    if row is None or not (row.telling or on_host):
        return UNKNOWN
    return Value(_operated(inference, Tensor(place, guessed=True), row, node, frame).alternatives, open=True)


def _is_guessed_on_host(alternative: Alternative) -> bool:
    return isinstance(alternative, Tensor) and alternative.guessed and alternative.place is Place.HOST


def _tensor_method(inference: Inferring, receiver: Tensor, name: str, node: ast.Call, frame: Frame) -> Value:
    if name.startswith("_") and operations.method(name) is None:
        return UNKNOWN
    return _operated(inference, receiver, operations.method(name) or _unknown_operation(name), node, frame)


def _unknown_operation(name: str) -> Operation:
    return Operation(name, memory=Memory.ALIAS, dtype="")


def _operated(inference: Inferring, receiver: Tensor, row: Operation, node: ast.Call, frame: Frame) -> Value:
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
        keeps = name == "view_as" or (name == "view" and receiver.ndim == 0)
        ndim = 1 if _flattens(name, node) else receiver.ndim if keeps else None
        if name == "view" and any(k.arg == "dtype" for k in node.keywords) | _asks_for_type(inference, node, frame):
            return one(replace(receiver, fresh=False, ndim=ndim, parameter=False, dtype="", count=False))  # other numbers
        return one(replace(receiver, fresh=False, ndim=ndim, parameter=False))
    return one(_computed(inference, receiver, row, node, frame))


_HOST_RESULTS = {
    Result.ARRAY: one(_NDARRAY),
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
    return any(_is_dtype_expression(given) or dtype_of(inference.infer(given, frame)) for given in node.args[:1])


def _is_temporary(node: ast.Call) -> bool:
    """Whether a method's receiver is an intermediate result that has no other name."""
    return isinstance(node.func, ast.Attribute) and isinstance(node.func.value, (ast.Call, ast.BinOp))


def _computed(inference: Inferring, receiver: Tensor, row: Operation, node: ast.Call, frame: Frame) -> Tensor:
    """The result of an operation that allocates its result."""
    others = node.args
    place = meeting_place((receiver.place, *(p for o in others for p in _places(inference, o, frame))))
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


def _has_dimension(node: ast.Call) -> bool:
    return bool(node.args) or any(k.arg in ("dim", "axis", "keepdim", "other", None) for k in node.keywords)


def _tensor_argument(inference: Inferring, node: ast.Call, frame: Frame) -> bool:
    return bool(node.args) and inference.infer(node.args[0], frame).may_be(Tensor, Batch, Output)


def _places(inference: Inferring, node: ast.expr, frame: Frame) -> list[Place]:
    return [place_of(a) for a in inference.infer(node, frame).alternatives if isinstance(a, (Tensor, Batch, Output))]


def _scalar(inference: Inferring, node: ast.expr, frame: Frame) -> bool:
    value = inference.infer(node, frame)
    return value.must(lambda a: isinstance(a, (Number, Literal)) or (isinstance(a, Tensor) and a.ndim == 0))


def _number_kind(dtype: str) -> str:
    if "float" in dtype:
        return "float"
    return "bool" if dtype == "bool" else "int" if "int" in dtype else ""


def transfer_target(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    """The device argument of a `.to(...)` call; `NOTHING` when the call only changes the dtype."""
    device = argument(node, 0, "device")
    if device is None:
        other = argument(node, 0, "other")
        return NOTHING if other is None else inference.infer(other, frame)
    value = inference.infer(device, frame)
    if dtype_of(value) or _is_dtype_expression(device):
        return NOTHING
    return value


def _is_dtype_expression(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr=attr):
            return attr == "dtype" or attr in _FLOAT_DTYPES or attr.startswith(("int", "uint", "bool", "float"))
        case ast.Name(id=name):
            return "dtype" in name
    return False


def _to(inference: Inferring, receiver: Tensor, node: ast.Call, frame: Frame) -> Value:
    target = transfer_target(inference, node, frame)
    result = replace(receiver, fresh=False, parameter=False)
    for given in (*node.args[:2], *(k.value for k in node.keywords if k.arg == "dtype")):
        name = dtype_of(inference.infer(given, frame))
        if name or _is_dtype_expression(given):
            result = replace(result, dtype=name)
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
                dtype = _LEGACY_DTYPES.get(name.rpartition(".")[2], "")
                results.append(Tensor(Place.CUDA if on_device else Place.HOST, receiver.ndim, dtype))
            case Tensor():
                results.append(replace(receiver, place=alternative.place, dtype=alternative.dtype, fresh=False))
            case _:
                results.append(replace(receiver, dtype=dtype_of(one(alternative)), fresh=False))
    if {r.place for r in results} == {Place.CUDA, Place.HOST}:
        results = [replace(r, place=Place.CUDA_OR_HOST) for r in results]
    return join([*map(one, results), *([one(replace(receiver, dtype="", fresh=False))] if target.open else [])])


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


def _data_method(inference: Inferring, receiver: Batch | Output, name: str, node: ast.Call, frame: Frame) -> Value:
    match name:
        case "to":
            target = transfer_target(inference, node, frame)
            return one(receiver) if target == NOTHING else moved(receiver, device_place(target))
        case "cuda":
            return moved(receiver, Place.CUDA)
        case "cpu":
            return moved(receiver, Place.HOST)
        case "items":
            return one(Elements(one(Sequence((one(Text("")), one(receiver)))), "items"))
        case "keys":
            return one(Elements(one(Text("")), "keys"))
        case "values" | "get" | "pop" | "copy" | "pin_memory" | "get_data":
            return one(Elements(one(receiver), "values")) if name == "values" else one(receiver)
    row = operations.method(name)
    if row is not None:
        return _operated(inference, Tensor(receiver.place), row, node, frame)
    return one(receiver) if name not in ("append", "update") else NONE


def _mapping_method(
    inference: Inferring, items: tuple[tuple[str, Value], ...], rest: Value, name: str, node: ast.Call, frame: Frame
) -> Value:
    held = join((*(v for _, v in items), rest))
    match name:
        case "items":
            return one(Elements(one(Sequence((one(Text("")), held))), "items"))
        case "values":
            return one(Elements(held, "values"))
        case "keys":
            return one(Elements(one(Text("")), "keys"))
        case "get" | "pop" if node.args:
            key = inference.infer(node.args[0], frame).literal
            return dict(items).get(key, held) if isinstance(key, str) else held
    return UNKNOWN


_NUMBER_METHODS = words(
    """
    item mean sum max min get_scale get_last_lr value
    """
)
_MODULE_SELF_METHODS = words(
    """
    to cuda cpu eval train float half double bfloat16 requires_grad_ share_memory apply
    """
)


def is_module_name(qualname: str) -> bool:
    """Whether an `Object` of this class is a `torch.nn.Module`."""
    last = qualname.rpartition(".")[2]
    return qualname.startswith(("torch.nn.", "torchvision.models.", "timm.")) and last[:1].isupper()


def is_optimizer_name(qualname: str) -> bool:
    """Whether an `Object` of this class is an optimizer."""
    return qualname == "torch.optim.Optimizer" or qualname.rpartition(".")[2] in OPTIMIZER_CLASSES


def module_method(inference: Inferring, receiver: Instance | Object, name: str, node: ast.Call, frame: Frame) -> Value:
    """A method that every `torch.nn.Module` has."""
    if name in _MODULE_SELF_METHODS:
        if name == "to":
            target = transfer_target(inference, node, frame)
            return one(receiver) if target == NOTHING else moved(receiver, device_place(target))
        if name in ("cuda", "cpu"):
            return moved(receiver, Place.CUDA if name == "cuda" else Place.HOST)
        return one(receiver)
    match name:
        case "parameters" | "buffers":
            return one(Elements(one(Tensor(receiver.place, parameter=True)), "generator"))
        case "named_parameters" | "named_buffers":
            pair = one(Sequence((one(Text("")), one(Tensor(receiver.place, parameter=True)))))
            return one(Elements(pair, "generator"))
        case "forward" | "__call__":
            return one(Output(meeting_place((receiver.place, *inference.argument_places(node, frame)))))
        case "zero_grad":
            return NONE
        case "state_dict":
            return one(Mapping((), one(Tensor(receiver.place))))
    return UNKNOWN


def _object_method(inference: Inferring, receiver: Object, name: str, node: ast.Call, frame: Frame) -> Value:
    qualname = receiver.qualname
    if qualname == "numpy.ndarray" or qualname.startswith("pandas."):
        if name in _NUMBER_METHODS:
            return one(Number("")) if not node.args and not node.keywords else Value(frozenset((receiver,)), open=True)
        return one(receiver) if name not in ("tolist", "size") else UNKNOWN
    if is_module_name(qualname):
        return module_method(inference, receiver, name, node, frame)
    if qualname == "torch.amp.GradScaler":
        if name == "scale" and node.args:
            return inference.infer(node.args[0], frame).map(_scaled)
        return one(Number("float")) if name == "get_scale" else NONE
    if qualname in ("accelerate.Accelerator", "lightning.fabric.Fabric", "lightning.Fabric"):
        return _launcher_method(inference, name, node, frame)
    if qualname == "argparse.ArgumentParser" and name in ("parse_args", "parse_known_args"):
        namespace = one(Object("argparse.Namespace", site=(frame.scope, node)))
        return namespace if name == "parse_args" else one(Sequence((namespace, UNKNOWN)))
    if is_optimizer_name(qualname):
        return NONE if name == "zero_grad" else UNKNOWN
    if qualname.startswith("tqdm"):
        return NONE
    return one(receiver) if qualname == "PIL.Image.Image" and name in _IMAGE_METHODS else UNKNOWN


_IMAGE_METHODS = words("convert crop resize rotate transpose copy filter thumbnail paste point")
"""Methods of a picture that give a picture, or nothing that is looked at."""


def _scaled(alternative: Alternative) -> Value:
    """A scaler that is not enabled hands back the tensor that it is given."""
    if isinstance(alternative, Tensor):
        return one(replace(alternative, fresh=False))
    return one(alternative) if isinstance(alternative, (Output, Sequence, Elements)) else UNKNOWN


def _launcher_method(inference: Inferring, name: str, node: ast.Call, frame: Frame) -> Value:
    """`Accelerator.prepare` and Fabric's `setup*` hand back what they are given, placed on their device."""
    if name in ("prepare", "setup", "setup_module", "setup_dataloaders", "setup_optimizers", "prepare_data_loader"):
        values = [inference.infer(a, frame).map(_placed_elsewhere) for a in node.args]
        return values[0] if len(values) == 1 else one(Sequence(tuple(values)))
    if name in ("gather", "gather_for_metrics", "reduce", "all_gather", "all_reduce") and node.args:
        return inference.infer(node.args[0], frame).map(
            lambda a: one(replace(a, fresh=False)) if isinstance(a, Tensor) else one(a)  # one process gets its own back
        )
    return NONE if name in ("backward", "print", "log", "wait_for_everyone") else UNKNOWN


def _placed_elsewhere(alternative: Alternative) -> Value:
    if isinstance(alternative, Loader):
        return one(replace(alternative, place=Place.ELSEWHERE))
    return moved(alternative, Place.ELSEWHERE)


def object_attribute(receiver: Object, name: str) -> Value:
    """An attribute of an object from outside the project."""
    if name == "device":
        return one(Device(Place.ELSEWHERE))
    if receiver.qualname == "numpy.ndarray" or receiver.qualname.startswith("pandas."):
        if name in ("shape", "columns", "index"):
            return UNKNOWN
        return one(_NDARRAY if name == "values" else receiver)
    return UNKNOWN


def call_object(inference: Inferring, callee: Object, node: ast.Call, frame: Frame) -> Value:
    """Calling an object from outside the project: nearly always a module."""
    if not is_module_name(callee.qualname):
        return UNKNOWN
    last = callee.qualname.rpartition(".")[2]
    place = meeting_place((callee.place, *inference.argument_places(node, frame)))
    if last.endswith("Loss"):
        reduction = dict(callee.keywords).get("reduction", "mean")
        built = callee.site[1] if isinstance(callee.site, tuple) else None
        one_number = reduction in ("mean", "sum") and isinstance(built, ast.Call) and _reduces(built, 1)
        changed = one_number and inference.project.program_may_hold(frame.scope.module.source.path, _SETS_REDUCTION)
        dtype = _loss_type(inference, _FUNCTION_OF.get(last, ""), node, frame)
        return one(Tensor(place, 0 if one_number and not changed else None, dtype, fresh=True))
    if last in ("LSTM", "GRU", "RNN", "LSTMCell"):
        return one(Sequence((one(Tensor(place, dtype="float", fresh=True)), one(Output(place)))))
    if callee.qualname in ("torch.nn.Module", "torch.nn.Sequential", "torch.nn.DataParallel") or "parallel" in callee.qualname:
        return one(Output(place))
    if callee.qualname.startswith("torch.nn."):
        built = callee.site[1] if isinstance(callee.site, tuple) else None
        fresh = last not in ALIASING_MODULES and isinstance(built, ast.Call) and not works_in_place(built)
        return one(Tensor(place, dtype="float", fresh=fresh))
    return one(Output(place))


_TAKES_INTEGERS = words("l1_loss hinge_embedding_loss margin_ranking_loss")
_FUNCTION_OF = {"L1Loss": "l1_loss", "HingeEmbeddingLoss": "hinge_embedding_loss", "MarginRankingLoss": "margin_ranking_loss"}


def _loss_type(inference: Inferring, name: str, node: ast.Call, frame: Frame) -> str:
    """The type of a loss: floating, but for the few that give an integer for integers."""
    if name not in _TAKES_INTEGERS:
        return "float"
    given = [a for part in node.args for a in inference.infer(part, frame).alternatives]
    return "float" if any(isinstance(a, Output) or (isinstance(a, Tensor) and "float" in a.dtype) for a in given) else ""


_SETS_REDUCTION = any_layout(rb"\. reduction =(?!=)|[\"']reduction[\"'] ,")


def _reduces(call: ast.Call, tensors: int) -> bool:
    """Whether nothing but `reduction=` can make a loss, called or built with so many tensors, give more than one number."""
    if any(k.arg in ("reduce", None) for k in call.keywords):
        return False
    others = [a for a in call.args if isinstance(a, ast.Constant) and not isinstance(a.value, (int, float))]
    return len(call.args) <= tensors and not others and not any(isinstance(a, ast.Starred) for a in call.args)


def works_in_place(call: ast.Call) -> bool:
    """Whether a call of a torch function or layer may ask for `inplace`, by keyword or, maybe, by position."""
    asked = [k.value for k in call.keywords if k.arg in ("inplace", None)]
    if any(not isinstance(a, ast.Constant) or a.value for a in asked):
        return True
    return any(isinstance(a, ast.Constant) and a.value is True for a in call.args)


# -- functions -----------------------------------------------------------------------------------------------------------


def external(inference: Inferring, qualname: str, node: ast.Call, frame: Frame) -> Value:
    """What calling a function or class from outside the project returns."""
    qualname = canonical(qualname)
    if qualname in PASSING_ITERATORS and node.args:
        return _passed(inference, qualname, node, frame)
    if qualname in LOADER_CLASSES:
        return one(_loader(inference, qualname, node, frame))
    package, _, last = qualname.rpartition(".")
    if package == "builtins":
        return _builtin(inference, last, node, frame)
    if package.startswith("torch") or package.startswith("torchvision.models") or package == "timm":
        return _torch(inference, qualname, package, last, node, frame)
    if package.startswith("numpy"):
        row = operations.function(qualname)
        whole = row is not None and row.result is Result.NUMBER and not _has_dimension_keyword(node)
        return one(Number("")) if whole else one(_NDARRAY)
    if package.startswith("pandas"):
        return one(Object("pandas.DataFrame")) if last.startswith("read_") or last == "DataFrame" else UNKNOWN
    if qualname == "argparse.ArgumentParser" or is_optimizer_name(qualname):
        return one(Object(qualname, site=(frame.scope, node)))
    if package == "PIL.Image" and last in ("open", "new", "fromarray"):
        return one(Object("PIL.Image.Image", site=(frame.scope, node)))
    if last in ("Accelerator", "Fabric"):
        return one(Object("accelerate.Accelerator", site=(frame.scope, node)))
    if last == "from_pretrained" or last == "from_config":
        if "Model" in package.rpartition(".")[2]:
            return one(Object("torch.nn.Module", site=(frame.scope, node)))
    if last in ("copy", "deepcopy") and package == "copy" and node.args:
        return inference.infer(node.args[0], frame)
    if last[:1].isupper():
        return one(Object(qualname, site=(frame.scope, node)))
    return UNKNOWN


def _has_dimension_keyword(node: ast.Call) -> bool:
    return len(node.args) > 1 or any(k.arg == "axis" for k in node.keywords)


def _passed(inference: Inferring, qualname: str, node: ast.Call, frame: Frame) -> Value:
    value = inference.known(node.args[0], frame)
    if value.may_be(Loader) and not qualname.startswith(("builtins.list", "builtins.tuple")):
        return value
    element = inference.element(value, frame.depth)
    runs = iterating_runs(value)
    return one(Elements(element, qualname.rpartition(".")[2], runs)) if element != UNKNOWN or runs else UNKNOWN


def iterating_runs(*values: Value) -> tuple[object, ...]:
    """What iterating over values runs: functions as their scopes, and loaders."""
    found: dict[object, None] = {}
    for alternative in (a for value in values for a in value.alternatives):
        match alternative:
            case Elements(runs=runs):
                found |= dict.fromkeys(runs)
            case Loader():
                found[alternative] = None
    return tuple(found)


_MOVABLE_SAMPLES = any_layout(
    rb"^[\t\f\x20]+def (?:to|cuda) \( \w|\b(?:to|cuda|collate_fn) = lambda\b|\. (?:to|cuda|collate_fn) =(?!=)"
    rb"|\bdefault_collate_fn_map\b|\bdef __getattr__\b|^[\t\f\x20]*(?:from|import) transformers\b",
    re.M,
)
"""Where samples may come from that `default_collate` rebuilds in their own class, a dict with a method `to`, say."""


def _loader(inference: Inferring, qualname: str, node: ast.Call, frame: Frame) -> Loader:
    names = {k.arg for k in node.keywords}
    collate = argument(node, 6, "collate_fn")
    default_collate = qualname in PLAIN_LOADER_CLASSES and None not in names
    if collate is not None and inference.infer(collate, frame).literal is not None:
        default_collate = False
    size = argument(node, 1, "batch_size")
    if size is not None and inference.infer(size, frame).may(lambda a: a == Literal(None)):
        default_collate = False  # samples are handed on as they are
    if default_collate and inference.project.program_may_hold(frame.scope.module.source.path, _MOVABLE_SAMPLES):
        default_collate = False
    given = argument(node, 7, "pin_memory")
    pinned: bool | None = None if None in names else False
    if given is not None:
        literal = inference.infer(given, frame).literal
        pinned = literal if isinstance(literal, bool) else None
    return Loader(default_collate, pinned, (frame.scope, node))


def _builtin(inference: Inferring, name: str, node: ast.Call, frame: Frame) -> Value:
    first = node.args[0] if node.args and not isinstance(node.args[0], ast.Starred) else None
    match name:
        case "enumerate" if first is not None:
            value = inference.known(first, frame)
            pair = Sequence((one(Number("int")), inference.element(value, frame.depth)))
            return one(Elements(one(pair), "enumerate", iterating_runs(value)))
        case "zip":
            values = [inference.known(a, frame) for a in node.args]
            parts, runs = [inference.element(v, frame.depth) for v in values], iterating_runs(*values)
            if any(isinstance(a, ast.Starred) for a in node.args):
                return one(Elements(join(parts), "zip", runs))
            return one(Elements(one(Sequence(tuple(parts))), "zip", runs))
        case "next" if first is not None:
            return inference.element(inference.known(first, frame), frame.depth)
        case "map" | "filter" if len(node.args) == 2:
            callee, value = inference.infer(node.args[0], frame), inference.known(node.args[1], frame)
            runs = (*(a.scope for a in callee.alternatives if isinstance(a, FunctionRef)), *iterating_runs(value))
            element = _mapped(inference, node, frame) if name == "map" else inference.element(value, frame.depth)
            return one(Elements(element, name, runs))
        case "range":
            return one(Object("builtins.range"))
        case "len" | "ord" | "hash" | "id":
            return one(Number("int"))
        case "int" | "float" | "bool":
            return one(Number(name))
        case "round" | "abs" | "sum" | "max" | "min" | "pow" if first is not None:
            return _arithmetic(inference, name, node, frame)
        case "str" | "repr" | "format" | "chr":
            return one(Text(""))
        case "isinstance" | "hasattr" | "callable" | "all" | "any" | "issubclass":
            return one(Number("bool"))
        case "print" | "setattr" | "delattr":
            return NONE
        case "dict":
            given = {k.arg: inference.infer(k.value, frame) for k in node.keywords if k.arg is not None}
            opened = bool(node.args) or any(k.arg is None for k in node.keywords)
            return one(Mapping(tuple(given.items()), UNKNOWN if opened else NOTHING))
        case "list" | "tuple" | "set":
            return one(Elements(UNKNOWN, name))
        case "getattr" if len(node.args) >= 2:
            key = inference.infer(node.args[1], frame).literal
            if isinstance(key, str):
                base = inference.known(node.args[0], frame)
                return base.map(lambda a: inference.member(a, key, frame.depth))
        case "super" | "object" | "type":
            return UNKNOWN
    return one(Object(f"builtins.{name}")) if name.endswith(("Error", "Exception")) else UNKNOWN


def _mapped(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    element = inference.element(inference.known(node.args[1], frame), frame.depth)
    callee = inference.infer(node.args[0], frame).single
    if isinstance(callee, FunctionRef) and frame.depth > 0 and callee.receiver is None:
        parameters = callee.scope.parameters
        if len(parameters) == 1:
            return inference.returned(inference.frame(callee.scope, ((parameters[0].arg, element),), frame.depth - 1))
    return UNKNOWN


def _arithmetic(inference: Inferring, name: str, node: ast.Call, frame: Frame) -> Value:
    values = [inference.known(a, frame) for a in node.args]
    if name in ("sum", "max", "min") and len(values) == 1:
        values = [inference.element(values[0], frame.depth)]
    if any(v.may_be(Tensor) for v in values):
        tensors = [a for v in values for a in v.alternatives if isinstance(a, Tensor)]
        result = one(replace(tensors[0], fresh=name in ("sum", "abs", "pow")))
        return result if all(v.must_be(Tensor, Number, Literal) for v in values) else Value(result.alternatives, True)
    if all(v.must_be(Number, Literal) for v in values):
        return one(Number(""))
    return UNKNOWN


# -- torch ---------------------------------------------------------------------------------------------------------------


def _torch(inference: Inferring, qualname: str, package: str, last: str, node: ast.Call, frame: Frame) -> Value:
    if package in TORCH_PACKAGES:
        if last in LEGACY_TENSOR_CLASSES:
            place = Place.CUDA if package == "torch.cuda" else Place.HOST
            # given a tensor, the constructor shares its memory
            fresh = not any(v.open or v.may_be(Tensor, Batch, Output) for v in (inference.infer(a, frame) for a in node.args))
            return one(Tensor(place, None, _LEGACY_DTYPES.get(last, ""), fresh=fresh, grad=False))
        special = _TORCH_FUNCTIONS.get(qualname)
        if special is not None:
            return special(inference, node, frame)
        row = operations.tensor_function(last)
        if package == "torch" and row is not None and row.factory:
            return one(_factory(inference, row, node, frame))
        if last.endswith("_like") and row is not None and node.args:
            place = _device_keyword(inference, node, frame) or meeting_place(_places(inference, node.args[0], frame))
            return one(Tensor(place, None, "", True, _asks_for_gradient(node), last == "zeros_like", random=row.random))
        if row is not None and row.dims is Dims.LOSS:
            reduction = argument(node, None, "reduction")
            known = inference.infer(reduction, frame).literal if reduction is not None else "mean"
            place = meeting_place(inference.argument_places(node, frame))
            one_number = known in ("mean", "sum") and _reduces(node, 3)
            return one(Tensor(place, 0 if one_number else None, _loss_type(inference, last, node, frame), fresh=True))
        if last in ("Stream", "Event"):
            return one(Object(qualname, site=(frame.scope, node)))
        if package == "torch.cuda" and last in ("current_stream", "default_stream"):
            return one(Object("torch.cuda.Stream", site=(frame.scope, node)))
        if package == "torch.cuda" or last in ("manual_seed", "save", "set_grad_enabled", "compile", "load", "Generator"):
            return UNKNOWN
        return _function(inference, row or _unknown_operation(last), node, frame)
    if package.startswith("torch.nn.utils"):
        if last in ("clip_grad_norm_", "clip_grad_norm", "get_total_norm") and node.args:
            parts = inference.element(inference.infer(node.args[0], frame), frame.depth)
            place = meeting_place(place_of(a) for a in parts.alternatives if isinstance(a, Tensor))
            return one(Tensor(place, 0, "float", fresh=True, grad=False))
        return UNKNOWN
    if package.startswith(("torch.nn", "torchvision.models", "timm")):
        keywords = [(k.arg, inference.infer(k.value, frame).literal) for k in node.keywords if k.arg is not None]
        plain = frozenset((n, v) for n, v in keywords if isinstance(v, (str, int, float, bool, type(None))))
        if package != "torch.nn" or not last[:1].isupper():
            return one(Object("torch.nn.Module", site=(frame.scope, node)))
        unknown = {n for n, v in keywords if v is ...}
        return one(Object(qualname, keywords=plain | frozenset((n, ...) for n in unknown), site=(frame.scope, node)))
    if qualname == "torch.amp.GradScaler" or is_optimizer_name(qualname):
        return one(Object(qualname, site=(frame.scope, node)))
    if qualname == "torch.autograd.Variable" and node.args:
        return inference.infer(node.args[0], frame).map(
            lambda a: one(replace(a, fresh=False)) if isinstance(a, Tensor) else one(a)
        )
    if qualname == "torch.autograd.grad":
        return one(Elements(one(Tensor()), "tuple"))
    if last[:1].isupper():
        return one(Object(qualname, site=(frame.scope, node)))
    return UNKNOWN


def _function(inference: Inferring, row: Operation, node: ast.Call, frame: Frame) -> Value:
    """A torch function of tensors: the first tensor argument is the receiver."""
    last = row.name
    if not row.real:
        return UNKNOWN
    tensors = [a for a in node.args if inference.infer(a, frame).may_be(Tensor, Batch, Output)]
    place = meeting_place(p for a in tensors for p in _places(inference, a, frame))
    if last in ("cat", "stack", "concat", "vstack", "hstack") and node.args:
        parts = inference.element(inference.known(node.args[0], frame), frame.depth)
        held = [a for a in parts.alternatives if isinstance(a, (Tensor, Batch, Output))]
        dtypes = {a.dtype for a in held if isinstance(a, Tensor)}
        place = meeting_place(place_of(a) for a in held) if not parts.open else Place.UNKNOWN
        if parts.open and any(place_of(a).may_be_device for a in held):
            place = meeting_place(place_of(a) for a in held)
        scalars = last == "stack" and len(node.args) == 1 and parts.must(lambda a: isinstance(a, Tensor) and a.ndim == 0)
        ndim = 1 if scalars and not node.keywords else None
        return one(Tensor(place, ndim, dtypes.pop() if len(dtypes) == 1 else "", fresh=True))
    if last == "where" and len(node.args) == 1 and not node.keywords:
        return one(Elements(one(Tensor(place, 1, "int64", fresh=True)), "tuple"))  # indices, one tensor for each dimension
    if last == "where" and len(node.args) == 3:
        # the condition gives no type; it is where the values are
        chosen = [a for o in node.args[1:] for a in inference.infer(o, frame).alternatives if isinstance(a, Tensor)]
        known = all(inference.infer(o, frame).must_be(Tensor) for o in node.args[1:])
        dtypes = {a.dtype for a in chosen}
        floating = known and any("float" in a.dtype and a.ndim != 0 for a in chosen) and all(dtypes)
        dtype = dtypes.pop() if known and len(dtypes) == 1 else "float" if floating else ""
        return one(Tensor(place, None, dtype, fresh=True))
    rest = ast.Call(node.func, node.args[1:], node.keywords)
    if tensors and node.args and tensors[0] is node.args[0]:
        result = inference.infer(node.args[0], frame).map(
            lambda a: (
                _operated(inference, _as_tensor(a), row, rest, frame) if isinstance(a, (Tensor, Batch, Output)) else UNKNOWN
            )
        )
        return Value(result.alternatives) if result.alternatives else one(Tensor(place, fresh=not row.shares_memory))
    return _operated(inference, Tensor(place), row, rest, frame)


def _as_tensor(alternative: Alternative) -> Tensor:
    return alternative if isinstance(alternative, Tensor) else Tensor(place_of(alternative))


def _device_keyword(inference: Inferring, node: ast.Call, frame: Frame) -> Place | None:
    device = argument(node, None, "device")
    return device_place(inference.infer(device, frame)) if device is not None else None


def _factory(inference: Inferring, row: Operation, node: ast.Call, frame: Frame) -> Tensor:
    last = row.name
    place = _device_keyword(inference, node, frame) or Place.HOST
    given = argument(node, None, "dtype")
    dtype = dtype_of(inference.infer(given, frame)) if given is not None else ""
    if not dtype and given is None:
        dtype = "float" if last in ("zeros", "ones", "empty", "rand", "randn", "eye", "linspace") else ""
        dtype = "int64" if last in ("randint", "randperm") else dtype
    ndim = 0 if last == "full" and node.args and isinstance(node.args[0], ast.Tuple) and not node.args[0].elts else None
    fresh = not any(k.arg in ("out", None) for k in node.keywords)
    return Tensor(place, ndim, dtype, fresh, _asks_for_gradient(node), last == "zeros", random=row.random)


def _asks_for_gradient(node: ast.Call) -> bool:
    """Whether a constructor call may give a leaf of an autograd graph."""
    given = argument(node, None, "requires_grad")
    return given is not None and not (isinstance(given, ast.Constant) and given.value is False)


def _tensor_from_data(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    place = _device_keyword(inference, node, frame) or Place.HOST
    given = argument(node, None, "dtype")
    dtype = dtype_of(inference.infer(given, frame)) if given is not None else ""
    ndim = None
    if node.args:
        data = inference.infer(node.args[0], frame)
        if data.must_be(Number, Literal) and not data.may(lambda a: isinstance(a, Literal) and isinstance(a.value, str)):
            ndim = 0
            kind = {_kind_of(a) for a in data.alternatives}
            dtype = dtype or ("float" if kind == {"float"} else "int64" if kind == {"int"} else "")
    return one(Tensor(place, ndim, dtype, fresh=True, grad=False))


def _kind_of(alternative: Alternative) -> str:
    if isinstance(alternative, Number):
        return alternative.kind
    return type(alternative.value).__name__ if isinstance(alternative, Literal) else ""


def _from_numpy(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    if node.args:
        data = inference.infer(node.args[0], frame)
        tensors = [a for a in data.alternatives if isinstance(a, Tensor)]
        if tensors:
            return one(replace(tensors[0], fresh=False))
    return one(Tensor(_device_keyword(inference, node, frame) or Place.HOST, fresh=False, from_numpy=True))


def _device(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    if not node.args and not node.keywords:
        return UNKNOWN
    given = argument(node, 0, "device") or argument(node, 0, "type")
    if given is None:
        return one(Device(Place.ELSEWHERE))
    value = inference.infer(given, frame)
    places = [one(Device(device_place(one(a)))) for a in value.alternatives]
    return join([*places, *([one(Device(Place.ELSEWHERE))] if value.open or not places else [])])


def _accelerator_device(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    return one(Device(Place.ELSEWHERE))


def _parameter(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    if not node.args:
        return one(Tensor(parameter=True))
    return inference.infer(node.args[0], frame).map(
        lambda a: one(replace(a, parameter=True, fresh=False)) if isinstance(a, Tensor) else UNKNOWN
    )


def _compiled(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    return inference.infer(node.args[0], frame) if node.args else UNKNOWN


def _unknown(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    return UNKNOWN


def _boolean(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    return one(Number("bool"))


_TORCH_FUNCTIONS: dict[str, Callable[[Inferring, ast.Call, Frame], Value]] = {
    "torch.tensor": _tensor_from_data,
    "torch.scalar_tensor": _tensor_from_data,
    "torch.as_tensor": _from_numpy,
    "torch.asarray": _from_numpy,
    "torch.from_numpy": _from_numpy,
    "torch.device": _device,
    "torch.accelerator.current_accelerator": _accelerator_device,
    "torch.compile": _compiled,
    "torch.is_tensor": _boolean,
    "torch.is_grad_enabled": _boolean,
    "torch.equal": _boolean,
    "torch.allclose": _boolean,
    "torch.no_grad": _unknown,
    "torch.enable_grad": _unknown,
    "torch.inference_mode": _unknown,
    "torch.load": _unknown,
    "torch.nn.Parameter": _parameter,
}


# -- command lines -------------------------------------------------------------------------------------------------------


def namespace_attribute(inference: Inferring, namespace: Object, name: str, depth: int) -> Value:
    """`args.name` for the result of `ArgumentParser.parse_args`: the declared default, and what a user may type."""
    from perflint.facts.flow import flow_of

    if not isinstance(namespace.site, tuple):
        return UNKNOWN
    scope, _ = namespace.site
    found: list[Value] = []
    module = scope.module
    wanted = {f"--{name}", f"--{name.replace('_', '-')}", name}
    for holder in (scope, module.top, *module.functions()):
        if b"add_argument" not in holder.text and holder is not scope:
            continue
        flow = flow_of(holder)
        frame = inference.frame(holder, (), max(depth - 1, 0))
        for call in flow.calls_named["add_argument"]:
            flags = {a.value for a in call.args if isinstance(a, ast.Constant)}
            target = argument(call, None, "dest")
            if flags & wanted or (isinstance(target, ast.Constant) and target.value == name):
                found.append(_option(inference, call, frame))
    flow = flow_of(scope)
    frame = inference.frame(scope, (), max(depth - 1, 0))
    for definition in flow.definitions:
        base, dot, attribute = definition.name.rpartition(".")
        if dot and attribute == name and base.isidentifier():
            owners = [d for d in flow.definitions_of(base) if d.value is not None]
            if any(inference.infer(d.value, frame).may(lambda a: a == namespace) for d in owners if d.value is not None):
                found.append(inference.definition(definition, frame, flow))
    return join(found) if found else UNKNOWN


def _option(inference: Inferring, call: ast.Call, frame: Frame) -> Value:
    action = argument(call, None, "action")
    kind = argument(call, None, "type")
    default = argument(call, None, "default")
    value = inference.infer(default, frame) if default is not None else NONE
    if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
        return join((one(Literal(False)), one(Literal(True))))
    if isinstance(kind, ast.Name) and kind.id in ("int", "float", "bool"):
        return join((value, one(Number(kind.id))))
    return join((value, one(Text(""))))
