"""What methods and attributes of other objects give: modules, optimizers, losses, mappings, files, arrays."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from perflint.facts.operations import operations
from perflint.facts.operations.api_tables import (
    ALIASING_MODULES,
    OPTIMIZER_CLASSES,
    TYPE_KEEPING_MODULES,
)
from perflint.facts.values.arguments import argument, transfer_target, works_in_place
from perflint.facts.values.array_methods import array_attribute, array_method, is_array_or_frame
from perflint.facts.values.frames import Frame, Inferring
from perflint.facts.values.tensor_methods import operated, tensor_method
from perflint.facts.values.values import (
    NONE,
    NOTHING,
    UNKNOWN,
    Alternative,
    Batch,
    Device,
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
    device_place,
    join,
    meeting_place,
    moved,
    one,
)
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, words


def method(inference: Inferring, receiver: Alternative, name: str, node: ast.Call, frame: Frame) -> Value:
    """What `receiver.name(...)` returns for a receiver that is no class or function of the project."""
    match receiver:
        case Tensor():
            return tensor_method(inference, receiver, name, node, frame)
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
        return operated(inference, Tensor(receiver.place), row, node, frame)
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


PARAM_GROUPS = one(Elements(one(Mapping((("params", one(Elements(one(Tensor(parameter=True)), "list"))),), UNKNOWN)), "list"))
"""What an optimizer goes over: dicts with tensors that are trained, and settings."""


def module_method(inference: Inferring, receiver: Instance | Object, name: str, node: ast.Call, frame: Frame) -> Value:
    """A method that every `torch.nn.Module` has."""
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
    return moved_module(inference, receiver, name, node, frame)


def moved_module(inference: Inferring, receiver: Instance | Object, name: str, node: ast.Call, frame: Frame) -> Value:
    """A method of a `torch.nn.Module` that gives the module back: on another device, of another type or as it was."""
    match name:
        case "to":
            target = transfer_target(inference, node, frame)
            return one(receiver) if target == NOTHING else moved(receiver, device_place(target))
        case "cuda" | "cpu":
            return moved(receiver, Place.CUDA if name == "cuda" else Place.HOST)
    return one(receiver) if name in _MODULE_SELF_METHODS else UNKNOWN


def _object_method(inference: Inferring, receiver: Object, name: str, node: ast.Call, frame: Frame) -> Value:
    qualname = receiver.qualname
    if is_array_or_frame(receiver):
        return array_method(receiver, name, node)
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
    if qualname == "perflint_runtime.Trainer" and name == "steps":
        parts = Tensor(receiver.place, ndim=0), Output(receiver.place), Batch(place=receiver.place)
        return one(Elements(one(Sequence(tuple(one(part) for part in parts))), "generator"))
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
    if name == "param_groups" and is_optimizer_name(receiver.qualname):
        return PARAM_GROUPS
    if receiver.qualname in ("torch.finfo", "torch.iinfo") and name in ("max", "min", "eps", "tiny", "bits"):
        return one(Number())
    return array_attribute(receiver, name) if is_array_or_frame(receiver) else UNKNOWN


def call_object(inference: Inferring, callee: Object, node: ast.Call, frame: Frame) -> Value:
    """Calling an object from outside the project: nearly always a module."""
    if not is_module_name(callee.qualname):
        return UNKNOWN
    last = callee.qualname.rpartition(".")[2]
    place = meeting_place((callee.place, *inference.argument_places(node, frame)))
    if last.endswith("Loss"):
        reduction = dict(callee.keywords).get("reduction", "mean")
        built = callee.site[1] if isinstance(callee.site, tuple) else None
        one_number = reduction in ("mean", "sum") and isinstance(built, ast.Call) and reduces(built, 1)
        changed = one_number and inference.project.program_may_hold(frame.scope.module.source.path, _SETS_REDUCTION)
        dtype = loss_type(inference, _FUNCTION_OF.get(last, ""), node, frame)
        return one(Tensor(place, 0 if one_number and not changed else None, dtype, fresh=True))
    if last in ("LSTM", "GRU", "RNN", "LSTMCell"):
        return one(Sequence((one(Tensor(place, dtype="float", fresh=True)), one(Output(place)))))
    if callee.qualname in ("torch.nn.Module", "torch.nn.Sequential", "torch.nn.DataParallel") or "parallel" in callee.qualname:
        return one(Output(place))
    if callee.qualname.startswith("torch.nn."):
        built = callee.site[1] if isinstance(callee.site, tuple) else None
        if "MaxPool" in last and (not isinstance(built, ast.Call) or _may_give_indices(last, built)):
            return UNKNOWN
        fresh = last not in ALIASING_MODULES and isinstance(built, ast.Call) and not works_in_place(built)
        return one(Tensor(place, dtype=_layer_type(inference, last, node, frame), fresh=fresh))
    return one(Output(place))


def _layer_type(inference: Inferring, name: str, node: ast.Call, frame: Frame) -> str:
    """The type of what a layer gives: floating, but for those that keep the type of what they are given."""
    given = inference.infer(node.args[0], frame) if node.args else UNKNOWN
    floating = name not in TYPE_KEEPING_MODULES or given.must(lambda a: isinstance(a, Tensor) and "float" in a.dtype)
    return "float" if floating else ""


def _may_give_indices(name: str, built: ast.Call) -> bool:
    """Whether a layer of maxima may give their places, too."""
    place = 1 if name.startswith("Adaptive") else 3 if name.startswith("Fractional") else 4
    return len(built.args) > place or any(k.arg in ("return_indices", None) for k in built.keywords)


_TAKES_INTEGERS = words("l1_loss hinge_embedding_loss margin_ranking_loss")
_FUNCTION_OF = {"L1Loss": "l1_loss", "HingeEmbeddingLoss": "hinge_embedding_loss", "MarginRankingLoss": "margin_ranking_loss"}


def loss_type(inference: Inferring, name: str, node: ast.Call, frame: Frame) -> str:
    """The type of a loss: floating, but for the few that give an integer for integers."""
    if name not in _TAKES_INTEGERS:
        return "float"
    given = [a for part in node.args for a in inference.infer(part, frame).alternatives]
    return "float" if any(isinstance(a, Output) or (isinstance(a, Tensor) and "float" in a.dtype) for a in given) else ""


_SETS_REDUCTION = any_layout(
    rb"\. reduction =(?!=)|(?<!dest=)[\"']reduction[\"'] [],:)]|(?:__|\bdict|\bupdate) \( [^()]*\breduction ="
    rb"|(?:[Cc]rit|[Ll]oss)\w* \. __dict__|vars \( [\w.]*(?:[Cc]rit|[Ll]oss)"
    rb"|attr(?:__)? \( [\w.]*(?:[Cc]rit|[Ll]oss)\w* , (?!['\"])"
)


def reduces(call: ast.Call, tensors: int) -> bool:
    """Whether nothing but `reduction=` can make a loss, called or built with so many tensors, give more than one number."""
    if any(k.arg in ("reduce", None) for k in call.keywords):
        return False
    others = [a for a in call.args if isinstance(a, ast.Constant) and not isinstance(a.value, (int, float))]
    return len(call.args) <= tensors and not others and not any(isinstance(a, ast.Starred) for a in call.args)


def namespace_attribute(inference: Inferring, namespace: Object, name: str, depth: int) -> Value:
    """`args.name` for the result of `ArgumentParser.parse_args`: the declared default, and what a user may type."""
    from perflint.facts.dataflow.flow import flow_of

    if not isinstance(namespace.site, tuple):
        return UNKNOWN
    scope, _ = namespace.site
    found = [
        _option(inference, call, inference.frame(holder, (), max(depth - 1, 0)))
        for holder, call in declared_options(scope, name)
    ]
    flow = flow_of(scope)
    frame = inference.frame(scope, (), max(depth - 1, 0))
    for definition in flow.definitions:
        base, dot, attribute = definition.name.rpartition(".")
        if dot and attribute == name and base.isidentifier():
            owners = [d for d in flow.definitions_of(base) if d.value is not None]
            if any(inference.infer(d.value, frame).may(lambda a: a == namespace) for d in owners if d.value is not None):
                found.append(inference.definition(definition, frame, flow))
    return join(found) if found else UNKNOWN


def declared_options(scope: Scope, name: str) -> Iterator[tuple[Scope, ast.Call]]:
    """The calls of `add_argument` for `args.name`, in a scope that parses arguments and in the functions of its module."""
    from perflint.facts.dataflow.flow import flow_of

    wanted = {f"--{name}", f"--{name.replace('_', '-')}", name}
    for holder in (scope, scope.module.top, *scope.module.functions()):
        if b"add_argument" not in holder.text and holder is not scope:
            continue
        for call in flow_of(holder).calls_named["add_argument"]:
            flags = {a.value for a in call.args if isinstance(a, ast.Constant)}
            target = argument(call, None, "dest")
            if flags & wanted or (isinstance(target, ast.Constant) and target.value == name):
                yield holder, call


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
