"""What calls into torch, numpy, pandas and Python's builtins return."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.operations import operations
from perflint.facts.operations.api_tables import (
    LEGACY_TENSOR_CLASSES,
    LOADER_CLASSES,
    PASSING_ITERATORS,
    PLAIN_LOADER_CLASSES,
)
from perflint.facts.operations.operations import TORCH_PACKAGES, Dims, Operation, Result
from perflint.facts.values.arguments import LEGACY_DTYPES, argument, asked_type, asks_for_gradient, device_keyword, places
from perflint.facts.values.array_methods import array_function, frame_from
from perflint.facts.values.derived_values import combined, is_copied_to_host, lists_bools, number_kind
from perflint.facts.values.frames import Frame, Inferring
from perflint.facts.values.names import canonical
from perflint.facts.values.object_methods import is_optimizer_name, loss_type, reduces
from perflint.facts.values.runtime_calls import KNOWN, of_runtime
from perflint.facts.values.tensor_methods import operated, unknown_operation
from perflint.facts.values.values import (
    NONE,
    NOTHING,
    UNKNOWN,
    Alternative,
    Batch,
    Device,
    Elements,
    FunctionRef,
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
    is_none,
    join,
    meeting_place,
    one,
    place_of,
)
from perflint.source.words import any_layout


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
    if package.split(".")[0] == "numpy":
        row = operations.function(qualname)
        whole = row is not None and row.result is Result.NUMBER and not _has_dimension_keyword(node)
        if whole:
            return one(Number(""))
        return array_function(qualname, node, lambda part: inference.infer(part, frame))
    if package == "math":
        return one(Number(_MATH_KINDS.get(last, "float"))) if last not in ("modf", "frexp") else UNKNOWN
    if package.startswith("pandas"):
        return frame_from(last, node)
    if qualname == "argparse.ArgumentParser" or is_optimizer_name(qualname):
        return one(Object(qualname, site=(frame.scope, node)))
    if package == "perflint_runtime" and last in KNOWN:
        return of_runtime(inference, last, node, frame)
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


_MATH_KINDS = dict.fromkeys(("ceil", "comb", "factorial", "floor", "gcd", "isqrt", "lcm", "perm", "trunc"), "int")
_MATH_KINDS |= dict.fromkeys(("isclose", "isfinite", "isinf", "isnan"), "bool") | {"prod": "", "sumprod": ""}
"""What functions of `math` give, where that is no float: integers, or what objects of another kind make of themselves."""


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
    rb"|\bdefault_collate_fn_map\b|\bdef __getattr__\b|^[\t\f\x20]+(?:to|cuda) =(?!=)|transformers\b",
    re.M,
)
"""Where samples may come from that `default_collate` rebuilds in their own class, a dict with a method `to`, say."""


_OTHER_BATCHES = any_layout(rb"collate|batch_size\W{1,4}None|\b(?:json|yaml|toml|hydra|omegaconf)\b")
"""What may stand behind `**options` of a loader whose batches are not torch's own."""


def _batches_as_usual(inference: Inferring, node: ast.Call, frame: Frame) -> bool:
    """Whether `**options` of a loader are written out in the function, in a program that names no other way to make batches."""
    flow = flow_of(frame.scope)
    for options in (k.value for k in node.keywords if k.arg is None):
        definitions = flow.reaching.get(options, frozenset())
        if not _is_written_out(flow, options):
            return False
        given = [update.args for update in flow.calls_named["update"] if _method_of(update) in {d.name for d in definitions}]
        if not all(_is_written_out(flow, other) for others in given for other in others):
            return False
    return not inference.project.program_may_hold(frame.scope.module.source.path, _OTHER_BATCHES)


def _method_of(call: ast.Call) -> str | None:
    """The name of the variable that a method is called on."""
    return call.func.value.id if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) else None


def _is_written_out(flow: Flow, node: ast.expr) -> bool:
    """Whether an expression is a dict display, one of two, or a name for some."""
    if isinstance(node, ast.IfExp):
        return _is_written_out(flow, node.body) and _is_written_out(flow, node.orelse)
    if isinstance(node, ast.Dict):
        return None not in node.keys
    definitions = flow.reaching.get(node, frozenset())
    return bool(definitions) and all(
        d.kind == "assign" and not d.index and isinstance(d.value, (ast.Dict, ast.IfExp)) and _is_written_out(flow, d.value)
        for d in definitions
    )


def _loader(inference: Inferring, qualname: str, node: ast.Call, frame: Frame) -> Loader:
    names = {k.arg for k in node.keywords}
    collate = argument(node, 6, "collate_fn")
    default_collate = qualname in PLAIN_LOADER_CLASSES and (None not in names or _batches_as_usual(inference, node, frame))
    if collate is not None and inference.infer(collate, frame).literal is not None:
        default_collate = False
    size = argument(node, 1, "batch_size")
    if size is not None and inference.infer(size, frame).may(is_none):
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
                found = inference.known(node.args[0], frame).map(lambda a: inference.member(a, key, frame.depth))
                default = inference.infer(node.args[2], frame) if found.open and len(node.args) == 3 else NOTHING
                return join((found, default)) if type(default.literal) in (int, float) else found
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
        given = join(values).map(lambda a: one(replace(a, fresh=False)) if isinstance(a, Tensor) else one(a))
        if name in ("max", "min"):
            return given  # it is one of them
        tensors = [a for a in given.alternatives if isinstance(a, Tensor)]
        if len(tensors) > 1 or name == "pow":
            return combined(values, "")
        result = one(replace(tensors[0], fresh=name != "round"))
        return result if given.must_be(Tensor, Number, Literal) else Value(result.alternatives, True)
    if all(v.must_be(Number, Literal) for v in values):
        return one(Number(""))
    return UNKNOWN


_ASKS = ("is_", "are_", "get_", "set_", "use_")
"""How functions of torch begin that look at torch's own state or change it: `torch.is_autocast_enabled`."""


def _torch(inference: Inferring, qualname: str, package: str, last: str, node: ast.Call, frame: Frame) -> Value:
    special = _TORCH_FUNCTIONS.get(qualname)
    if special is not None:
        return special(inference, node, frame)
    if package in TORCH_PACKAGES or (package == "torch.sparse" and last in LEGACY_TENSOR_CLASSES):
        if last in LEGACY_TENSOR_CLASSES:
            place = default_place(inference, frame) if qualname == "torch.Tensor" else Place.HOST
            place = Place.CUDA if package == "torch.cuda" else place
            # given a tensor, the constructor shares its memory
            fresh = not any(v.open or v.may_be(Tensor, Batch, Output) for v in (inference.infer(a, frame) for a in node.args))
            return one(Tensor(place, None, LEGACY_DTYPES.get(last, ""), fresh=fresh, grad=False))
        row = operations.tensor_function(last)
        if package == "torch" and row is not None and row.factory:
            return one(_factory(inference, row, node, frame))
        if last.endswith("_like") and row is not None and node.args:
            place = device_keyword(inference, node, frame) or meeting_place(places(inference, node.args[0], frame))
            return one(Tensor(place, None, "", True, asks_for_gradient(node), last == "zeros_like", random=row.random))
        if row is not None and row.dims is Dims.LOSS:
            reduction = argument(node, None, "reduction")
            known = inference.infer(reduction, frame).literal if reduction is not None else "mean"
            place = meeting_place(inference.argument_places(node, frame))
            one_number = known in ("mean", "sum") and reduces(node, 3)
            return one(Tensor(place, 0 if one_number else None, loss_type(inference, last, node, frame), fresh=True))
        if last in ("Stream", "Event", "finfo", "iinfo"):
            return one(Object(qualname, site=(frame.scope, node)))
        if package == "torch.cuda" and last in ("current_stream", "default_stream"):
            return one(Object("torch.cuda.Stream", site=(frame.scope, node)))
        if package == "torch.cuda" or last in ("manual_seed", "save", "set_grad_enabled", "compile", "load", "Generator"):
            return UNKNOWN
        if row is None and (last.startswith(_ASKS) or not (node.args or node.keywords)):
            return UNKNOWN
        return _function(inference, row or unknown_operation(last), node, frame)
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
    place = meeting_place(p for a in tensors for p in places(inference, a, frame))
    if last in ("cat", "stack", "concat", "vstack", "hstack") and node.args:
        parts = inference.element(inference.known(node.args[0], frame), frame.depth)
        held = [a for a in parts.alternatives if isinstance(a, (Tensor, Batch, Output))]
        dtypes = {a.dtype for a in held if isinstance(a, Tensor)}
        if not parts.must_be(Tensor):  # the others may give it a wider type
            dtypes = {"float" if any("float" in dtype for dtype in dtypes) else ""}
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
        given = inference.infer(node.args[0], frame)
        result = given.map(
            lambda a: (
                operated(inference, _as_tensor(a), row, rest, frame) if isinstance(a, (Tensor, Batch, Output)) else UNKNOWN
            )
        )
        if not result.alternatives:
            return one(Tensor(place, fresh=not row.shares_memory))
        if given.open:  # a tensor all the same; of what was not seen, it may be any
            places_seen = (place_of(a) for a in result.alternatives)
            copied = is_copied_to_host(given)
            unseen = dict.fromkeys(Place.UNKNOWN if where is Place.HOST and not copied else where for where in places_seen)
            result = join((result, *(operated(inference, Tensor(w, guessed=copied), row, rest, frame) for w in unseen)))
            return Value(result.alternatives, open=copied)  # that it was copied there is a guess, and no proof
        return Value(result.alternatives)
    return operated(inference, Tensor(place), row, rest, frame)


def _as_tensor(alternative: Alternative) -> Tensor:
    return alternative if isinstance(alternative, Tensor) else Tensor(place_of(alternative))


def _factory(inference: Inferring, row: Operation, node: ast.Call, frame: Frame) -> Tensor:
    last = row.name
    place = device_keyword(inference, node, frame) or default_place(inference, frame)
    dtype = asked_type(inference, node, frame)
    if dtype is None:
        dtype = "float" if last in ("zeros", "ones", "empty", "rand", "randn", "eye", "linspace") else ""
        dtype = "int64" if last in ("randint", "randperm") else dtype
    ndim = 0 if last == "full" and node.args and isinstance(node.args[0], ast.Tuple) and not node.args[0].elts else None
    fresh = not any(k.arg in ("out", None) for k in node.keywords)
    return Tensor(place, ndim, dtype, fresh, asks_for_gradient(node), last == "zeros", random=row.random)


_DEFAULT_DEVICE: Final = any_layout(
    rb"\bset_default_device \( (?![\"']cpu[\"'])"
    rb"|\bset_default_tensor_type \([^()]*\bcuda\b"
)


def default_place(inference: Inferring, frame: Frame) -> Place:
    """Where a tensor is made that is told no device: on the host, unless the program sets a default device somewhere."""
    path = frame.scope.module.source.path
    return Place.ELSEWHERE if inference.project.program_holds(path, _DEFAULT_DEVICE) else Place.HOST


def _tensor_from_data(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    place = device_keyword(inference, node, frame) or default_place(inference, frame)
    asked = asked_type(inference, node, frame)
    dtype, ndim = asked or "", None
    if node.args:
        data = inference.infer(node.args[0], frame)
        if data.must_be(Number, Literal) and not data.may(lambda a: isinstance(a, Literal) and isinstance(a.value, str)):
            ndim = 0
            kind = {number_kind(a) for a in data.alternatives}
            if asked is None:
                dtype = "float" if kind == {"float"} else "int64" if kind == {"int"} else ""
        elif asked is None and lists_bools(node.args[0]):
            dtype = "bool"
    return one(Tensor(place, ndim, dtype, fresh=True, grad=False))


def _as_tensor_on_device(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    made = _from_numpy(inference, node, frame)
    if default_place(inference, frame) is Place.HOST or device_keyword(inference, node, frame) is not None:
        return made
    return made.map(lambda a: one(replace(a, place=Place.ELSEWHERE)) if isinstance(a, Tensor) else UNKNOWN)


def _shared_with_numpy(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    """`torch.from_numpy(a)`: `a` is an array, whatever else it seemed to be, and the result lies where it lies."""
    return _from_numpy(inference, node, frame).map(
        lambda a: one(replace(a, place=Place.HOST, from_numpy=True)) if isinstance(a, Tensor) else UNKNOWN
    )


def _from_numpy(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    if node.args:
        data = inference.infer(node.args[0], frame)
        tensors = [a for a in data.alternatives if isinstance(a, Tensor)]
        if tensors:
            asked = asked_type(inference, node, frame, 1)
            dtype = tensors[0].dtype if asked is None and data.single is not None else asked or ""
            place = device_keyword(inference, node, frame) or tensors[0].place
            return one(replace(tensors[0], place=place, dtype=dtype, fresh=False))
    return one(Tensor(device_keyword(inference, node, frame) or Place.HOST, fresh=False, from_numpy=True))


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
    return join((one(Device(Place.ELSEWHERE)), one(Literal(None))))  # None where there is no accelerator


def _compiled(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    return inference.infer(node.args[0], frame) if node.args else UNKNOWN


def _unknown(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    return UNKNOWN


def _boolean(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    return one(Number("bool"))


_TORCH_FUNCTIONS: dict[str, Callable[[Inferring, ast.Call, Frame], Value]] = {
    "torch.tensor": _tensor_from_data,
    "torch.scalar_tensor": _tensor_from_data,
    "torch.as_tensor": _as_tensor_on_device,
    "torch.asarray": _as_tensor_on_device,
    "torch.from_numpy": _shared_with_numpy,
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
}
