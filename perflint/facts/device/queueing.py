"""Whether code queues work for the device and waits for none of it: a list of what is known not to wait.

What a network runs is looked through to its layers. What is not understood may wait, and so may a network of which a layer is
not in sight.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from perflint.facts.autograd.networks import Network
from perflint.facts.autograd.without_graph import (
    BUILTINS,
    CONTAINERS,
    MODULE_METHODS,
    PACKAGES,
    SAME_WITHOUT_GRAPH,
    is_known_method,
)
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.device.uploads import target_of
from perflint.facts.device.waiting_places import is_host_scalar, keys_of, places
from perflint.facts.facts import Facts
from perflint.facts.operations import operations
from perflint.facts.operations.operations import Result, Road
from perflint.facts.proofs.hidden import hidden_runs
from perflint.facts.values import classes
from perflint.facts.values.arguments import argument, transfer_target
from perflint.facts.values.decorators import hands_on
from perflint.facts.values.heirs import subclasses
from perflint.facts.values.held_modules import modules
from perflint.facts.values.layer_containers import origin
from perflint.facts.values.names import canonical
from perflint.facts.values.values import (
    NOTHING,
    Alternative,
    Batch,
    ClassRef,
    External,
    FunctionRef,
    Instance,
    Literal,
    Number,
    Object,
    Output,
    Place,
    Tensor,
    Text,
    Value,
    held_by,
    place_of,
)
from perflint.rule.obligations import Kind, Obligation
from perflint.source.nodes import defaults_of
from perflint.source.syntax import Class, Scope, SyntaxProblem
from perflint.source.texts import last_name
from perflint.source.words import any_layout, words

_LAYERS: Final = SAME_WITHOUT_GRAPH | words(
    """
    LSTM GRU RNN LSTMCell GRUCell RNNCell MultiheadAttention TransformerEncoderLayer TransformerDecoderLayer
    TransformerDecoder Parameter ParameterList
    """
)
"""Layers of torch that read nothing back. Not among them: `TransformerEncoder`, which looks at a padding mask."""
_MODELS: Final = any_layout(
    rb"torchvision\.models\.(?!detection)(?:\w+\.)*(?:resnet|resnext|wide_resnet|vgg|alexnet|mobilenet|squeezenet|shufflenet"
    rb"|mnasnet|densenet|efficientnet|convnext|regnet|vit_|swin_|inception|googlenet|deeplabv3|fcn_|lraspp"
    rb"|ResNet|VGG|AlexNet|MobileNet|DenseNet|EfficientNet|ConvNeXt|VisionTransformer|SwinTransformer)\w*"
    rb"|timm\.(?:models\.\w+\.|models\.)?create_model"
)
"""Networks of packages that read nothing back: what detects objects counts what it has found."""
_LAYERS_ELSEWHERE: Final = ("timm.models.layers.", "timm.layers.", "apex.normalization.")
_HARMLESS: Final = (
    *_LAYERS_ELSEWHERE,
    "torch.nn.init.",
    "torch.jit.is_",
    "torch.autocast",
    "torch.amp.autocast",
    "torch.cuda.amp.autocast",
    "torch.cuda.is_available",
    "torch.no_grad",
    "torch.inference_mode",
    "torch.set_grad_enabled",
    "torch.enable_grad",
    "torch.utils.checkpoint.checkpoint",
    "torch.is_",
    "torch.finfo",
    "torch.device",
    "torch.get_",
    "torch.Size",
    "torch.nn.Parameter",
    "functools.partial",
    "warnings.warn",
    "contextlib.nullcontext",
    "torchvision.transforms.",
    *(package for package in PACKAGES if not package.startswith("torch")),
)
_QUERIED: Final = ("arguments", "each", "mixed", "pairs")
"""Of which parts of a call the host may need the numbers: not of the tensor that it is about."""
_LOOK: Final = words("int float bool str complex min max sum round any all sorted print format repr divmod pow hash")
"""Functions of Python that need the numbers of what they get."""
MAX_REACHED: Final = 400
"""A network of more classes and functions than this is not looked through."""
_TENSORS: Final = (Tensor, Output, Batch)


class Queueing(Network):
    """One look: why code may wait for the device, an obligation for each reason; what it runs is seen once."""

    def __init__(self, facts: Facts, name: str) -> None:
        super().__init__(facts, name, set(), records=False)
        self._roads: dict[Scope, dict[ast.AST, frozenset[Road]]] = {}

    def may_wait(self, shown: str) -> Obligation:
        """The obligation of what may wait, or is not known."""
        return Obligation(Kind.UNKNOWN_CODE, f"`{shown}` may wait for the device")

    # -- networks ------------------------------------------------------------------------------------------------------

    def items(self, value: Value, shown: str, depth: int) -> Iterator[Obligation]:
        """Why layers may wait that a value holds: those that are known stand for the others."""
        yield from super().items(Value(value.alternatives) if value.alternatives else value, shown, depth)

    def layer(self, alternative: Alternative, shown: str) -> Iterator[Obligation]:
        """Why a layer may wait."""
        match alternative:
            case Object("torch.nn.DataParallel", site=(Scope() as scope, ast.Call(args=[inner, *_]))):
                yield from self.held(scope, inner, 6)
            case Object(qualname) if qualname.removeprefix("torch.nn.") in _LAYERS or _is_model(qualname):
                return
            case Object("torch.nn.Module", site=(Scope() as scope, ast.Call(func=maker))):
                for made in self.inference.value(scope, maker).alternatives or (None,):
                    match made:
                        case ClassRef(cls):
                            yield from self.cls(cls)
                        case External(qualname) if _is_model(qualname) or qualname.removeprefix("torch.nn.") in _LAYERS:
                            pass
                        case _:
                            yield self.unknown(shown)
            case Object(qualname) if qualname.startswith(_LAYERS_ELSEWHERE):
                return
            case _:
                yield from super().layer(alternative, shown)

    def cls(self, cls: Class) -> Iterator[Obligation]:
        """Why a forward pass of a class of the project may wait."""
        if not self._is_new(cls):
            return
        forward = next((m for name in ("__call__", "forward") if (m := classes.find_method(self.inference, cls, name))), None)
        if forward is not None:
            yield from self.function(forward)
            return
        ancestors = classes.ancestors(self.inference, cls)
        for ancestor in ancestors:
            if isinstance(ancestor, str):
                known = ancestor.removeprefix("torch.nn.") in _LAYERS | CONTAINERS | {"Module"} or ancestor == "builtins.object"
                yield from [] if known else [self.may_wait(cls.name)]
            elif "__init__" in ancestor.methods:
                made = ancestor.methods["__init__"]
                for call in flow_of(made).calls:
                    if isinstance(call.func, ast.Attribute) and classes.is_super_call(call.func.value):
                        yield from self.above(made, call)

    def function(self, scope: Scope) -> Iterator[Obligation]:
        """Why a function of the project may wait."""
        if not self._is_new(scope):
            return
        try:
            flow = flow_of(scope)
        except SyntaxProblem:
            yield self.may_wait(scope.name)
            return
        if len(self.seen) > MAX_REACHED or flow.yields or not hands_on(self.inference.module_name, scope):
            yield self.may_wait(scope.name)
            return
        yield from self.code(scope, flow.order)

    def _is_new(self, part: object) -> bool:
        found = part not in self.seen
        self.seen.add(part)
        return found

    # -- code ----------------------------------------------------------------------------------------------------------

    def code(self, scope: Scope, nodes: Iterable[ast.AST], *, uploads: bool = False) -> Iterator[Obligation]:
        """Why a piece of a function may wait; uploads: what is copied to the device does not count."""
        flow = flow_of(scope)
        nodes = [node for node in nodes if not isinstance(_statement(flow, node), ast.Raise) and not _is_message(flow, node)]
        for node in nodes:
            match node:
                case ast.Call():
                    yield from self._called(scope, flow, node, uploads)
                case ast.Subscript() if roads := self._may(flow, node):
                    yield from self._item(scope, flow, node, roads)
                case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
                    yield from self._test(scope, flow, test)
                case ast.comprehension(ifs=tests):
                    for test in tests:
                        yield from self._test(scope, flow, test)
                case ast.BoolOp(values=[*tests, _]):
                    for test in tests:
                        yield from self._test(scope, flow, test)
                case ast.UnaryOp(op=ast.Not(), operand=test):
                    yield from self._test(scope, flow, test)
                case ast.FormattedValue(value=shown) | ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod(), right=shown):
                    if not self._is_host(scope, flow, shown):
                        yield self.may_wait(ast.unparse(shown))
                case ast.Compare(ops=[ast.In() | ast.NotIn()]) if self._may(flow, node):
                    if not self._is_host(scope, flow, node.left):
                        yield self.may_wait(ast.unparse(node))
        for hidden in hidden_runs(self.facts, scope, nodes):
            yield from self.function(hidden)

    def _may(self, flow: Flow, node: ast.AST) -> frozenset[Road]:
        """By which roads a node may wait, as far as the syntax shows."""
        if flow.scope not in self._roads:
            places(flow)
            self._roads[flow.scope] = dict(flow.waiting or ())
        return self._roads[flow.scope].get(node, frozenset())

    def _is_host(self, scope: Scope, flow: Flow, node: ast.expr) -> bool:
        """Whether an expression is known to be no tensor on a device."""
        if is_host_scalar(flow, node):
            return True
        value = self.inference.value(scope, node)
        return bool(value.alternatives) and not _holds_tensor(value, 3)

    def _test(self, scope: Scope, flow: Flow, test: ast.expr) -> Iterator[Obligation]:
        match test:
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return  # whose parts are asked for themselves
            case ast.Compare(ops=ops) if all(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in ops):
                return
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                if any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides):
                    return
                if all(self._is_setting(scope, side) or self._is_host(scope, flow, side) for side in sides):
                    return
            case ast.Name() | ast.Attribute() if not self.inference.value(scope, test).may_be(*_TENSORS):
                return
            case ast.Name() if _is_option(scope, flow, test):
                return
            case _ if self._is_host(scope, flow, test):
                return
        yield self.may_wait(ast.unparse(test))

    def _is_setting(self, scope: Scope, node: ast.expr) -> bool:
        """Whether something is computed of attributes of which nothing says that they are tensors: `self.depth`."""
        match node:
            case ast.BinOp(left=left, right=right):
                sized = any(self._is_host(scope, flow_of(scope), side) for side in (left, right))
                return all(
                    self._is_setting(scope, side) or (sized and self._is_no_tensor(scope, side)) for side in (left, right)
                )
            case ast.Subscript(value=held):
                return self._is_setting(scope, held)
            case ast.Name():
                bound = flow_of(scope).reaching.get(node, frozenset())
                if bound and all(d.kind == "assign" and isinstance(d.value, ast.Attribute) for d in bound):
                    return not self.inference.value(scope, node).may_be(*_TENSORS)
                return is_host_scalar(flow_of(scope), node)
            case ast.Attribute():
                return self._is_no_tensor(scope, node)
        return is_host_scalar(flow_of(scope), node)

    def _is_no_tensor(self, scope: Scope, node: ast.expr) -> bool:
        """Whether nothing says that a name or an attribute is a tensor."""
        return isinstance(node, (ast.Name, ast.Attribute)) and not self.inference.value(scope, node).may_be(*_TENSORS)

    def _item(self, scope: Scope, flow: Flow, node: ast.Subscript, roads: frozenset[Road]) -> Iterator[Obligation]:
        if self.facts.waits.at(scope, node):
            yield self.may_wait(ast.unparse(node))
            return
        held = self.inference.value(scope, node.value)
        if held.alternatives and not held.may_be(*_TENSORS) and not held.open:
            return
        for key in keys_of(node.slice):
            bounds = [key.lower, key.upper, key.step] if isinstance(key, ast.Slice) else [key]
            for bound in filter(None, bounds):
                value = self.inference.value(scope, bound)
                known = value.alternatives and value.must(_is_harmless_key)
                number = Road.SHAPE not in roads and not value.may_be(*_TENSORS) and isinstance(key, ast.Slice)
                if not (known or number or is_host_scalar(flow, bound)):
                    yield self.may_wait(ast.unparse(node))

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _called(self, scope: Scope, flow: Flow, call: ast.Call, uploads: bool) -> Iterator[Obligation]:
        func, shown = call.func, ast.unparse(call.func)
        if self._may(flow, call):
            yield from self._waiting(scope, flow, call, uploads)
        if isinstance(func, ast.Attribute) and classes.is_super_call(func.value):
            targets = self.facts.loops.targets(scope, call)
            for target in targets:
                yield from self.function(target)
            if not targets:
                yield from self.above(scope, call)
            return
        value = self.inference.value(scope, func)
        if isinstance(func, ast.Attribute):
            receiver = self.inference.value(scope, func.value)
            if func.attr in MODULE_METHODS and self.has_method_of_torch(receiver, func.attr):
                return
            if func.attr in ("format", "join") and not all(self._is_host(scope, flow, part) for part in call.args):
                yield self.may_wait(shown)
            known = is_known_method(func.attr) or operations.method(func.attr) is not None
            if known and not receiver.may_be(Instance, ClassRef, FunctionRef, External):
                return
            if func.attr in ("append", "extend", "update", "items", "keys", "values", "get") and not receiver.may_be(Instance):
                return
            heirs = [heir for a in receiver.alternatives if isinstance(a, Instance) for heir in self._heirs(a.cls)]
            overriding = [heir.methods[func.attr] for heir in heirs if func.attr in heir.methods]
            for method in overriding if receiver.open else ():
                yield from self.function(method)
            if receiver.alternatives and all(map(self._is_ready_made, receiver.alternatives)):
                return  # a part of it
        if not value.alternatives:
            if (inner := origin(self.inference, scope, flow, func)) is not None:
                yield from self.held(*inner, 6)
                return
            value = Value(frozenset(modules(self.inference, scope, func)))
        if not value.alternatives:
            yield self.may_wait(shown)
        for alternative in sorted(value.alternatives, key=str):
            match alternative:
                case External(qualname) if qualname.removeprefix("builtins.") in _LOOK:
                    given = (*call.args, *(k.value for k in call.keywords))
                    if not all(self._is_host(scope, flow, part) or self._is_setting(scope, part) for part in given):
                        yield self.may_wait(shown)
                case ClassRef(cls):
                    made = classes.find_method(self.inference, cls, "__init__")
                    yield from self.function(made) if made is not None else ()
                case External(qualname) if qualname.startswith("torch.nn.") and qualname.removeprefix("torch.nn.") in _LAYERS:
                    return
                case _:
                    yield from self.layer(alternative, shown)

    def _is_ready_made(self, alternative: Alternative) -> bool:
        """Whether an object is a network of a package that reads nothing back."""
        match alternative:
            case Object("torch.nn.Module", site=(Scope() as scope, ast.Call(func=maker))):
                return self.inference.value(scope, maker).must(lambda a: isinstance(a, External) and _is_model(a.qualname))
            case Object(qualname):
                return _is_model(qualname)
        return False

    def _heirs(self, cls: Class) -> list[Class]:
        return subclasses(self.inference, cls) or []

    def external(self, qualname: str, shown: str) -> Iterator[Obligation]:
        """Why a function of a package may wait, but for what its arguments are."""
        package, _, last = qualname.rpartition(".")
        if package == "builtins":
            known = last in BUILTINS
        else:
            row = operations.function(canonical(qualname))  # what gives nothing hands on what it gets: `torch.save`
            known = (row is not None and row.result is not Result.NOTHING) or qualname.startswith(_HARMLESS)
            known = known or _is_model(qualname)
        if not known:
            yield self.may_wait(shown)

    def _waiting(self, scope: Scope, flow: Flow, call: ast.Call, uploads: bool) -> Iterator[Obligation]:
        """Why a call may wait whose name is that of an operation which does."""
        if self.facts.waits.at(scope, call) and not uploads:
            yield self.may_wait(ast.unparse(call))
            return
        name = last_name(call.func)
        if name == "type" and isinstance(call.func, ast.Name):
            return
        given = [*call.args, *(k.value for k in call.keywords)]
        receiver = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        roads = self._may(flow, call)
        if name in ("to", "cuda", "type", "type_as", "copy_"):
            if self._is_on_device(scope, call) or self._converts(scope, call):
                return
            place = target_of(self.inference, scope, call)
            if uploads and place is not None and place.may_be_device:
                return
            yield self.may_wait(ast.unparse(call))
            return
        if Road.UPLOAD in roads and uploads:
            return
        callee = self.inference.value(scope, call.func).single
        is_function = isinstance(callee, External) or isinstance(call.func, ast.Name)
        row = operations.function(canonical(callee.qualname)) if isinstance(callee, External) else operations.method(name)
        if row is None or row.wait is None:
            return  # it shares its name with what waits; whether it is known is asked elsewhere
        asked = receiver if receiver and not is_function else given
        if row.wait.of not in _QUERIED and not (asked and all(self._is_host(scope, flow, part) for part in asked)):
            yield self.may_wait(ast.unparse(call))

    def _is_on_device(self, scope: Scope, call: ast.Call) -> bool:
        """Whether what a call copies to a device is there already."""
        held = self.inference.value(scope, call.func.value) if isinstance(call.func, ast.Attribute) else NOTHING
        return held.must(lambda a: isinstance(a, _TENSORS) and place_of(a) in (Place.CUDA, Place.CUDA_OR_HOST))

    def _converts(self, scope: Scope, call: ast.Call) -> bool:
        """Whether `x.to(...)` names a type alone."""
        if last_name(call.func) != "to" or argument(call, None, "device") is not None:
            return last_name(call.func) == "type_as"
        return transfer_target(self.inference, call, self.inference.frame(scope)) == NOTHING


def _holds_tensor(value: Value, depth: int) -> bool:
    """Whether a value may be a tensor on a device, or a container that holds one."""
    for alternative in value.alternatives:
        if isinstance(alternative, _TENSORS) and place_of(alternative) is not Place.HOST:
            return True
        if depth and any(_holds_tensor(part, depth - 1) for part in held_by(alternative)):
            return True
    return False


def _is_option(scope: Scope, flow: Flow, name: ast.Name) -> bool:
    """Whether a name is a parameter that is True or False by default, whatever torch may be thought to give it."""
    bound = flow.reaching.get(name, frozenset())
    default = defaults_of(scope.node).get(name.id)
    is_switch = isinstance(default, ast.Constant) and isinstance(default.value, bool)
    return is_switch and bool(bound) and all(d.kind == "parameter" for d in bound)


def _is_model(qualname: str) -> bool:
    return _MODELS.fullmatch(qualname.encode()) is not None


def _is_harmless_key(key: Alternative) -> bool:
    """Whether an index is a number, or positions on the device."""
    if isinstance(key, Tensor):
        return key.dtype in ("int64", "int32") and place_of(key) is not Place.HOST
    return isinstance(key, (Number, Literal, Text))


def _statement(flow: Flow, node: ast.AST) -> ast.AST:
    while not isinstance(node, ast.stmt) and node in flow.parent:
        node = flow.parent[node]
    return node


def _is_message(flow: Flow, node: ast.AST) -> bool:
    return any(block.kind == "message" for block in flow.block[node].ancestry()) if node in flow.block else False
