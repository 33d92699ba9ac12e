"""Whether all layers of a network are known: followed to where they are built, handed in, appended or inherited.

A list of what is harmless: a layer counts when it is one of torch's that were measured to give the same bits with and without
autograd, a container of such layers, or a class of the project that calls nothing but these and functions that are listed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from perflint.facts import classes, operations
from perflint.facts.decorators import is_plain, is_plain_class
from perflint.facts.definitions import Definition, path_of
from perflint.facts.facts import Facts
from perflint.facts.flow import Flow, flow_of
from perflint.facts.graphless import differs_without_graph, may_record
from perflint.facts.hidden import hidden_runs
from perflint.facts.values import (
    Alternative,
    ClassRef,
    Device,
    Elements,
    External,
    FunctionRef,
    Instance,
    Literal,
    Mapping,
    Number,
    Object,
    Sequence,
    Tensor,
    Text,
    Value,
)
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Class, Scope, SyntaxProblem
from perflint.source.words import NO_MEMBER, any_layout, words

ASKS: Final = any_layout(
    NO_MEMBER + rb"grad \(|autograd \. grad|\. backward \(|is_grad_enabled|set_grad_enabled|enable_grad|_hook \(|retain_grad|"
    rb"torch \. func\b|functorch|autograd \. functional|forward_ad"
)
"""What asks for gradients, or whether autograd is on, in a text."""
LOOKS_AT_GRAPH: Final = re.compile(rb"requires_grad|grad_fn|is_leaf|needs_input_grad")
"""What looks at whether a tensor belongs to a graph, in a text."""

MAX_REACHED = 80
"""A network of more classes and functions than this is not looked through."""

SAME_WITHOUT_GRAPH: Final = words(
    """
    Linear Bilinear Identity Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d
    BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d GroupNorm LayerNorm RMSNorm
    LocalResponseNorm MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d LPPool1d LPPool2d
    AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
    ConstantPad1d ConstantPad2d ConstantPad3d ZeroPad1d ZeroPad2d ZeroPad3d ReflectionPad1d ReflectionPad2d ReflectionPad3d
    ReplicationPad1d ReplicationPad2d ReplicationPad3d CircularPad1d CircularPad2d CircularPad3d
    Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout
    ELU Hardshrink Hardsigmoid Hardtanh Hardswish LeakyReLU LogSigmoid PReLU ReLU ReLU6 RReLU SELU CELU GELU Sigmoid SiLU
    Mish Softplus Softshrink Softsign Tanh Tanhshrink Threshold GLU Softmax LogSoftmax Softmin Softmax2d
    Embedding EmbeddingBag Flatten Unflatten PixelShuffle PixelUnshuffle ChannelShuffle Upsample UpsamplingNearest2d
    UpsamplingBilinear2d Fold Unfold CosineSimilarity PairwiseDistance
    MSELoss L1Loss SmoothL1Loss HuberLoss CrossEntropyLoss NLLLoss BCEWithLogitsLoss BCELoss KLDivLoss PoissonNLLLoss
    SoftMarginLoss HingeEmbeddingLoss MultiLabelSoftMarginLoss MultiMarginLoss MarginRankingLoss CosineEmbeddingLoss
    TripletMarginLoss GaussianNLLLoss
    """
)
"""Layers of `torch.nn` whose results were the same to the last bit with and without autograd, in training and evaluation mode,
for inputs of a graph and of none, in float32, float64 and bfloat16 (torch 2.13 on the CPU, 9,294 comparisons). Not among them:
LSTM, attention and transformer layers, which differ; GRU and RNN, which cuDNN runs in another mode on CUDA, where they were not
measured."""

CONTAINERS: Final = words("Sequential ModuleList ModuleDict")
_MODELS = any_layout(
    rb"torchvision\.models\.(?:\w+\.)?(?:resnet|resnext|wide_resnet|vgg|alexnet|mobilenet|squeezenet|shufflenet|mnasnet)\w*"
)
"""Networks of torchvision that consist of these layers."""

_MODULE_METHODS = words(
    """
    train eval to cuda cpu float double half bfloat16 type parameters named_parameters buffers named_buffers modules
    named_modules children named_children state_dict load_state_dict requires_grad_ register_buffer register_parameter
    zero_grad get_submodule get_parameter extra_repr
    """
)
"""What each module has from torch, and runs no layer."""
_FILLING = words("append extend insert add_module register_module update setdefault")
_RUNNING_METHODS = words("apply")
_SPECIAL = words("__init__ __len__ __repr__ __str__ __getitem__ __iter__ __enter__ __exit__ __contains__")
"""Special methods whose calls are seen, or that only give a text."""
_PARAMETERS = words("weight bias running_mean running_var weight_v weight_g in_proj_weight")

_METHODS = words(
    """
    norm softmax contiguous addcmul addcdiv bernoulli bernoulli_ clamp_min clamp_max masked_fill_ add_ sub_ mul_ div_ relu_
    sigmoid_ tanh_ clamp_ zero_ fill_ copy_ normal_ uniform_ exponential_ new_zeros silu nan_to_num index_add_ index_fill_
    scatter_ scatter_add_ unfold cumsum rot90 frac trunc round log2 exp2 erf sinh cosh asin acos atan atan2 lerp
    nansum diff logcumsumexp nanmean is_complex is_cuda ndimension index_select gather format join split strip items
    keys values get startswith endswith append extend insert copy update pop setdefault lower upper replace index count
    isdigit
    """
)
"""Methods of tensors, texts and containers that give the same with and without autograd, and have no row as an operation."""
_GRAPH_METHODS = words("backward register_hook retain_grad matmul requires_grad_ trace")

_GRAPH_FUNCTIONS = words(
    """
    matmul backward grad linear bilinear save cdist inner chain_matmul requires_grad_ trace dist load compile set_grad_enabled
    enable_grad scaled_dot_product_attention multi_head_attention_forward svd svdvals eigh eigvalsh eig qr pinverse
    """
)
_FUNCTIONS = words(
    """
    zeros ones full empty eye arange linspace logspace rand randn randint randperm normal bernoulli tensor as_tensor
    from_numpy zeros_like where cat stack split chunk cumsum meshgrid einsum bmm mm addmm mv dot outer norm relu gelu sigmoid
    tanh softmax log_softmax softplus dropout max_pool2d avg_pool2d conv1d conv2d conv3d batch_norm layer_norm group_norm
    instance_norm rms_norm embedding embedding_bag one_hot pad interpolate upsample adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d max_pool1d max_pool3d avg_pool1d avg_pool3d pixel_shuffle
    pixel_unshuffle glu hardswish hardsigmoid hardtanh relu6 selu celu prelu rrelu softsign softshrink hardshrink threshold
    normalize unfold fold grid_sample affine_grid conv_transpose1d conv_transpose2d conv_transpose3d dropout1d dropout2d
    dropout3d alpha_dropout feature_alpha_dropout local_response_norm lp_pool1d lp_pool2d gumbel_softmax device Size
    is_tensor broadcast_tensors polar atan2 maximum minimum fmod logical_and logical_or logical_not roll flip kron
    channel_shuffle Generator manual_seed no_grad inference_mode is_available current_device Tensor FloatTensor LongTensor
    argmax argmin topk sort finfo iinfo numel is_floating_point promote_types get_default_dtype xlogy
    """
)
"""Functions of torch and of `torch.nn.functional` that give the same with and without autograd, by their last names. Left out
are products of stacks of matrices, whose way torch chooses by what requires a gradient; `linear` is looked at on its own."""

_LINEAR = words("torch.nn.functional.linear torch._C._nn.linear")
_PACKAGES = ("math.", "typing.", "collections.", "itertools.", "operator.", "numpy.", "random.", "torch.nn.init.", "einops.")
_BUILTINS = words(
    """
    len range enumerate zip reversed sorted int float bool str list tuple dict set frozenset min max sum abs round any all
    isinstance issubclass map filter iter next slice divmod pow id type object ValueError TypeError RuntimeError super
    NotImplementedError AssertionError KeyError IndexError Exception property callable hasattr repr print format ord chr
    """
)
_OTHERS = words(
    "functools.partial functools.reduce copy.deepcopy copy.copy warnings.warn torch.nn.Parameter torch.nn.parameter.Parameter"
)


COMPUTES_NOTHING: Final = re.compile(
    r"torch\.(?:u?int\d*|b?float\d*|half|double|long|short|bool|strided|save|set_\w+|get_\w+|backends\.[\w.]+|utils\.data\.\w+"
    r"|cuda\.\w+|amp\.\w+|autocast|utils\.tensorboard\.\w+|optim\.\w+|nn\.utils\.rnn\.\w+|distributed\.\w+|version\.\w+|nn"
    r"|nn\.functional|cuda|optim|utils)$"
)
"""What of torch computes nothing for which autograd counts."""


def is_known_function(qualname: str) -> bool:
    """Whether a function or class of torch is known to keep nothing, and to give the same with and without autograd."""
    package, _, last = qualname.rpartition(".")
    if package in ("torch", "torch.nn.functional", "torch.cuda"):
        return last not in _GRAPH_FUNCTIONS and (
            last in _FUNCTIONS or last.removesuffix("_") in _FUNCTIONS or operations.tensor_function(last) is not None
        )
    if qualname == "torch.autograd.Variable":  # gives the tensor that it gets
        return True
    return package == "torch.nn" and last in SAME_WITHOUT_GRAPH | CONTAINERS | {"Parameter", "Module"}


class Network:
    """One proof: what is known of a network is seen once.

    records: whether it makes a difference that the network records no graph, and not only what its parts are.
    """

    def __init__(self, facts: Facts, name: str, seen: set[object], records: bool = True) -> None:
        self.facts, self.inference, self.name, self.seen, self.records = facts, facts.inference, name, seen, records

    def kinds(self, found: Iterator[Obligation]) -> Iterator[Obligation]:
        """What counts of some obligations."""
        return (o for o in found if self.records or o.kind is not Kind.EVALUATION_ROUNDING)

    # -- values ------------------------------------------------------------------------------------------------------

    def layers(self, value: Value, shown: str) -> Iterator[Obligation]:
        """Why what is called, or handed to a container, may be more than layers that are known."""
        if value.open or not value.alternatives:
            yield self.unknown(shown)
        for alternative in sorted(value.alternatives, key=str):
            yield from self.layer(alternative, shown)

    def unknown(self, shown: str) -> Obligation:
        """The obligation that a layer leaves open that is not followed."""
        of = f" of `{self.name}`" if shown != self.name else ""
        return Obligation(Kind.KNOWN_LAYERS, f"`{shown}`{of} may be any layer")

    def layer(self, alternative: Alternative, shown: str) -> Iterator[Obligation]:
        """The same of one alternative."""
        match alternative:
            case Instance(cls):
                yield from self.cls(cls)
            case FunctionRef(scope):
                yield from self.function(scope)
            case Object(qualname=qualname, site=site) if qualname.startswith("torch.nn."):
                last = qualname.removeprefix("torch.nn.")
                if last in CONTAINERS and isinstance(site, tuple):
                    yield from self.built(*site)
                elif last not in SAME_WITHOUT_GRAPH:
                    yield self.rounds(shown) if last in _ROUNDING else self.unknown(shown)
            case Object(qualname=qualname) if _MODELS.fullmatch(qualname.encode()):
                return
            case External(qualname):
                yield from self.external(qualname, shown)
            case Literal() | Number() | Text() | Tensor() | Device():
                return
            case _:
                yield self.unknown(shown)

    def rounds(self, shown: str) -> Obligation:
        """The obligation of a layer whose bits differ."""
        return Obligation(Kind.EVALUATION_ROUNDING, f"`{shown}` rounds differently without autograd")

    def built(self, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
        """The layers that a container is built with."""
        if call in self.seen:
            return
        self.seen.add(call)
        for given in (*call.args, *(k.value for k in call.keywords)):
            yield from self.held(scope, given, 6)

    def held(self, scope: Scope, node: ast.expr, depth: int) -> Iterator[Obligation]:
        """The layers of an expression that a container is filled with: a layer, or lists, pairs and dicts of layers."""
        if depth == 0:
            yield self.unknown(ast.unparse(node))
            return
        match node:
            case ast.Starred(value=inner) | ast.NamedExpr(value=inner) | ast.Await(value=inner):
                yield from self.held(scope, inner, depth - 1)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                for part in parts:
                    yield from self.held(scope, part, depth - 1)
            case ast.Dict(values=parts):
                for part in parts:
                    yield from self.held(scope, part, depth - 1)
            case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part) | ast.SetComp(elt=part) | ast.DictComp(value=part):
                yield from self.held(scope, part, depth - 1)
            case ast.IfExp(body=body, orelse=orelse):
                yield from self.held(scope, body, depth - 1)
                yield from self.held(scope, orelse, depth - 1)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                yield from self.held(scope, left, depth - 1)
                yield from self.held(scope, right, depth - 1)
            case ast.Constant():
                return
            case ast.Call(func=func, args=args, keywords=keywords) if self.is_list_of(scope, func):
                for given in (*args, *(k.value for k in keywords)):
                    yield from self.held(scope, given, depth - 1)
            case ast.Name() if (collected := self.collected(scope, node)) is not None:
                for where, part in collected:
                    yield from self.held(where, part, depth - 1)
            case _:
                value = self.inference.value(scope, node)
                if value.may(_may_be_filled):
                    yield self.unknown(ast.unparse(node))  # others may have put more layers into it
                yield from self.items(value, ast.unparse(node), depth)

    def items(self, value: Value, shown: str, depth: int) -> Iterator[Obligation]:
        """The layers in a value that may be a layer or hold some."""
        if value.open or not value.alternatives:
            yield self.unknown(shown)
            return
        for alternative in sorted(value.alternatives, key=str):
            match alternative:
                case Sequence(items):
                    for item in items:
                        yield from self.items(item, shown, depth - 1)
                case Elements(element):
                    yield from self.items(element, shown, depth - 1)
                case Mapping(items, rest):
                    for _, item in items:
                        yield from self.items(item, shown, depth - 1)
                    if rest.alternatives or rest.open:
                        yield from self.items(rest, shown, depth - 1)
                case _:
                    yield from self.layer(alternative, shown)

    def is_list_of(self, scope: Scope, func: ast.expr) -> bool:
        """Whether a call gives a list or a dict of what it is given."""
        return self.inference.value(scope, func).must(
            lambda a: (
                isinstance(a, External)
                and a.qualname
                in ("builtins.list", "builtins.tuple", "builtins.dict", "builtins.reversed", "collections.OrderedDict")
            )
        )

    def collected(self, scope: Scope, node: ast.Name) -> list[tuple[Scope, ast.expr]] | None:
        """What a local list or dict is built from and gets; None if that cannot be seen."""
        flow = flow_of(scope)
        definitions = flow.reaching.get(node, frozenset())
        if node.id in flow.inner_names | flow.outer_names or not definitions:
            return None
        if scope.is_module and any(node.id.encode() in function.text for function in scope.module.functions()):
            return None
        found: list[tuple[Scope, ast.expr]] = []
        for definition in flow.definitions_of(node.id):
            if definition.kind not in ("assign", "augmented") or definition.value is None or definition.index:
                return None
            displays = (ast.List, ast.Dict, ast.ListComp, ast.DictComp, ast.Tuple)
            made = isinstance(definition.value, displays) or (
                isinstance(definition.value, ast.Call) and self.is_list_of(scope, definition.value.func)
            )
            if not made:
                return None
            found.append((scope, definition.value))
            for use in flow.uses[definition]:
                parent = flow.parent.get(use)
                match parent:
                    case ast.Starred() | ast.AugAssign() | ast.Return():
                        continue
                    case ast.Call(args=args) if use in args and self.only_reads(scope, parent):
                        continue
                    case ast.Attribute(attr="append" | "extend" | "insert" | "update") if isinstance(
                        call := flow.parent.get(parent), ast.Call
                    ):
                        found += [(scope, given) for given in call.args if not isinstance(given, ast.Constant)]
                    case ast.Subscript(ctx=ast.Store()) if isinstance(assign := flow.parent.get(parent), ast.Assign):
                        found.append((scope, assign.value))
                    case ast.Subscript(ctx=ast.Load()):
                        continue
                    case _:
                        return None
        return found

    def only_reads(self, scope: Scope, call: ast.Call) -> bool:
        """Whether a call builds a container of a list, or reads it."""
        return self.inference.value(scope, call.func).must(
            lambda a: (
                isinstance(a, External)
                and (
                    a.qualname
                    in ("builtins.len", "builtins.list", "builtins.tuple", "builtins.print", "collections.OrderedDict")
                    or a.qualname.removeprefix("torch.nn.") in CONTAINERS
                )
            )
        )

    # -- classes and functions of the project --------------------------------------------------------------------------

    def cls(self, cls: Class) -> Iterator[Obligation]:
        """A network of a class of the project: its ancestors, its heirs where it may be one, and all of its methods."""
        if cls in self.seen:
            return
        self.seen.add(cls)
        if len(self.seen) > MAX_REACHED:
            yield Obligation(Kind.KNOWN_LAYERS, f"`{self.name}` is too large to be looked through")
            return
        for ancestor in classes.ancestors(self.inference, cls):
            if isinstance(ancestor, str):
                last = ancestor.removeprefix("torch.nn.")
                if last not in SAME_WITHOUT_GRAPH and ancestor not in _BASES:
                    yield (
                        self.rounds(cls.name)
                        if last in _ROUNDING
                        else Obligation(Kind.KNOWN_LAYERS, f"`{cls.name}` inherits from `{ancestor}`, which is not known")
                    )
            elif ancestor is not cls:
                yield from self.cls(ancestor)
        if not is_plain_class(self.inference.module_name, cls) or _has_twins(cls):
            yield Obligation(Kind.PLAIN_MODULES, f"the methods of `{cls.name}` may be others than its body shows")
        for method in cls.methods.values():
            if method.name.startswith("__") and method.name not in _SPECIAL:
                yield Obligation(Kind.PLAIN_MODULES, f"`{cls.name}` has a method `{method.name}` of its own")
            yield from self.function(method)
        strange = _PARAMETERS & (cls.methods.keys() | cls.variables)
        if strange:
            yield Obligation(Kind.EVALUATION_ROUNDING, f"`{min(strange)}` of `{cls.name}` is no parameter")

    def function(self, scope: Scope) -> Iterator[Obligation]:
        """A function that runs within the network."""
        if scope in self.seen:
            return
        self.seen.add(scope)
        if len(self.seen) > MAX_REACHED:
            yield Obligation(Kind.KNOWN_LAYERS, f"`{self.name}` is too large to be looked through")
            return
        if not is_plain(self.inference.module_name, scope):
            yield Obligation(Kind.UNKNOWN_CODE, f"`{scope.name}` is wrapped by a decorator")
        try:
            flow = flow_of(scope)
        except SyntaxProblem:
            yield Obligation(Kind.UNKNOWN_CODE, f"`{scope.name}` cannot be parsed")
            return
        if ASKS.search(scope.text):
            yield Obligation(Kind.GRADIENT, f"`{scope.name}` of `{self.name}` asks for gradients itself")
        elif self.records and scope.name != "__init__" and LOOKS_AT_GRAPH.search(scope.text):
            yield Obligation(Kind.GRADIENT, f"`{scope.name}` of `{self.name}` looks at what requires gradients")
        if self.records and scope.name != "__init__" and (reason := differs_without_graph(self.facts, scope, flow.order)):
            yield Obligation(Kind.GRADIENT, f"`{scope.name}` of `{self.name}` {reason}")
        for call in flow.calls:
            yield from self.call(scope, flow, call)
        for node in flow.order if self.records else ():
            yield from self.node(scope, node)
        for hidden in hidden_runs(self.facts, scope, flow.order):
            yield from self.function(hidden)

    def node(self, scope: Scope, node: ast.AST) -> Iterator[Obligation]:
        """What a piece of code does without a call."""
        match node:
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
                yield self.rounds(ast.unparse(node))
            case ast.Raise(exc=shown) | ast.Assert(msg=shown) if shown is not None:
                given = [part for part in ast.walk(shown) if isinstance(part, ast.expr)]
                if any(may_record(self.inference.value(scope, part)) for part in given):
                    yield Obligation(Kind.GRADIENT, f"`{scope.name}` raises an error with a tensor, whose `grad_fn` it shows")
            case ast.Delete(targets=targets) if any(isinstance(target, ast.Attribute) for target in targets):
                yield Obligation(Kind.PLAIN_MODULES, f"`{scope.name}` deletes an attribute")

    def call(self, scope: Scope, flow: Flow, call: ast.Call) -> Iterator[Obligation]:
        """Whether a call within the network runs what is known."""
        func = call.func
        shown = ast.unparse(func)
        if isinstance(func, ast.Attribute) and classes.is_super_call(func.value):
            yield from self.above(scope, call)
            return
        value = self.inference.value(scope, func)
        if isinstance(func, ast.Attribute):
            receiver = self.inference.value(scope, func.value)
            if func.attr in _FILLING and receiver.may(_is_container):
                for given in (*call.args, *(k.value for k in call.keywords)):
                    yield from self.held(scope, given, 6)
                return
            if func.attr in _MODULE_METHODS and self.has_method_of_torch(receiver, func.attr):
                return
            if _is_known_method(func.attr) and not receiver.may_be(Instance, Object, ClassRef, FunctionRef, External):
                return
            if receiver.must(lambda a: isinstance(a, Object) and a.qualname.startswith(_OBJECTS)):
                return
            if func.attr in ("items", "keys", "values", "pop", "get") and receiver.must(_is_container):
                return
        if value.open or not value.alternatives:
            if (inner := self.origin(scope, flow, func)) is not None:
                yield from self.held(*inner, 6)
            else:
                yield self.unknown(shown)
            return
        for alternative in sorted(value.alternatives, key=str):
            match alternative:
                case External(qualname) if qualname in _LINEAR:
                    weight = (
                        call.args[1]
                        if len(call.args) > 1
                        else next((k.value for k in call.keywords if k.arg == "weight"), None)
                    )
                    if weight is None or not self.is_parameter(scope, weight):
                        yield self.rounds(shown)
                case ClassRef(cls) if not classes.is_module(self.inference, cls):
                    yield from self.function_of(cls, "__init__")
                case ClassRef(cls):
                    yield from self.cls(cls)
                case External(qualname) if qualname.removeprefix("torch.nn.") in CONTAINERS:
                    yield from self.built(scope, call)
                case Instance(cls) if not classes.is_module(self.inference, cls):
                    yield from self.function_of(cls, "__call__")
                case _:
                    yield from self.layer(alternative, shown)

    def above(self, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
        """`super().__init__(...)`: what stands there is looked at with the ancestors, but not what a container gets."""
        assert isinstance(call.func, ast.Attribute)
        owner = scope.owner
        if owner is None or call.func.attr not in (
            "__init__",
            "forward",
            "train",
            "eval",
            "to",
            "extra_repr",
            "reset_parameters",
        ):
            yield self.unknown(ast.unparse(call.func))
        elif any(a in _CONTAINER_BASES for a in classes.ancestors(self.inference, owner)):
            for given in (*call.args, *(k.value for k in call.keywords)):
                yield from self.held(scope, given, 6)

    def function_of(self, cls: Class, name: str) -> Iterator[Obligation]:
        """A method of a class that is no network."""
        method = classes.find_method(self.inference, cls, name)
        if method is not None:
            yield from self.function(method)
        if not is_plain_class(self.inference.module_name, cls) or any(
            isinstance(a, str) and not a.startswith(("builtins.", "typing.", "abc.", "enum."))
            for a in classes.ancestors(self.inference, cls)
        ):
            yield Obligation(Kind.UNKNOWN_CODE, f"`{cls.name}` may run more than it shows")

    def external(self, qualname: str, shown: str) -> Iterator[Obligation]:
        """A function or class of a package."""
        package, _, last = qualname.rpartition(".")
        if package == "builtins":
            known = last in _BUILTINS
        else:
            known = (
                is_known_function(qualname)
                or qualname.startswith(_PACKAGES)
                or qualname in _OTHERS
                or _MODELS.fullmatch(qualname.encode()) is not None
            )
        if not known:
            rounds = last in _ROUNDING
            yield self.rounds(shown) if rounds else Obligation(Kind.UNKNOWN_CODE, f"`{shown}` of `{self.name}` is not known")

    def has_method_of_torch(self, receiver: Value, name: str) -> bool:
        """Whether a method of a module is the one that torch gives it."""
        return receiver.must(
            lambda a: (
                (isinstance(a, Object) and a.qualname.startswith("torch.nn."))
                or (
                    isinstance(a, Instance)
                    and classes.is_module(self.inference, a.cls)
                    and classes.find_method(self.inference, a.cls, name) is None
                )
            )
        )

    def is_parameter(self, scope: Scope, weight: ast.expr) -> bool:
        """Whether an expression is a parameter: `self.weight` of a class that makes it one, or the weight of a layer."""
        if not isinstance(weight, ast.Attribute):
            return False
        value = self.inference.value(scope, weight)
        if value.alternatives and value.must(_is_parameter):
            return True
        return weight.attr == "weight" and self.inference.value(scope, weight.value).must(
            lambda a: isinstance(a, Object) and a.qualname.removeprefix("torch.nn.") in SAME_WITHOUT_GRAPH
        )

    def origin(self, scope: Scope, flow: Flow, func: ast.expr) -> tuple[Scope, ast.expr] | None:
        """The container that a layer is taken from: `for layer in self.layers`, `self.layers[i]`."""
        match func:
            case ast.Subscript(value=base) if self.inference.value(scope, base).must(_is_container):
                return scope, base
            case ast.Name():
                definitions = flow.reaching.get(func, frozenset())
                if len(definitions) == 1:
                    (definition,) = definitions
                    return self.bound(scope, flow, definition)
        return None

    def bound(self, scope: Scope, flow: Flow, definition: Definition) -> tuple[Scope, ast.expr] | None:
        """The container that a definition takes a layer from."""
        node = definition.value
        if node is None:
            return None
        if definition.kind in ("assign", "walrus") and not definition.index:
            return self.origin(scope, flow, node)
        if definition.kind != "for":
            return None
        index = definition.index
        while isinstance(node, ast.Call):
            name = path_of(node.func)
            if name in ("enumerate", "zip", "reversed") and self.is_builtin(scope, node.func):
                if name == "enumerate":
                    place = 0 if index[:1] == (1,) else None
                    index = index[1:]
                elif name == "zip":
                    place, index = (index[0], index[1:]) if index else (None, index)
                else:
                    place = 0
                if place is None or place >= len(node.args):
                    return None
                node = node.args[place]
            elif isinstance(node.func, ast.Attribute) and node.func.attr in ("values", "items", "children", "named_children"):
                paired = node.func.attr in ("items", "named_children")
                if paired and index[:1] != (1,):
                    return None
                index = index[1:] if paired else index
                node = node.func.value
            else:
                return None
        if not index and self.inference.value(scope, node).must(_is_container):
            return scope, node
        return None

    def is_builtin(self, scope: Scope, func: ast.expr) -> bool:
        """Whether a name is Python's own."""
        return self.inference.value(scope, func).must(lambda a: isinstance(a, External) and a.qualname.startswith("builtins."))


_BASES = words(
    "torch.nn.Module torch.nn.Sequential torch.nn.ModuleList torch.nn.ModuleDict builtins.object abc.ABC typing.Generic"
)
_CONTAINER_BASES = frozenset(("torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict"))
_OBJECTS = ("torch.distributions.", "logging.", "collections.")
_ROUNDING = words(
    """
    LSTM GRU RNN LSTMCell MultiheadAttention Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer
    TransformerDecoderLayer matmul scaled_dot_product_attention multi_head_attention_forward
    """
)


def _may_be_filled(alternative: Alternative) -> bool:
    """Whether a value is a list or a dict."""
    return isinstance(alternative, (Elements, Mapping)) or (isinstance(alternative, Sequence) and alternative.mutable)


def _is_known_method(name: str) -> bool:
    """Whether a method of tensors, texts or containers is known, and gives the same without autograd."""
    row = operations.method(name)
    return name in _METHODS or (row is not None and not row.gradients and name not in _GRAPH_METHODS)


def _is_container(alternative: Alternative) -> bool:
    return isinstance(alternative, Object) and alternative.qualname.removeprefix("torch.nn.") in CONTAINERS


def _is_parameter(alternative: Alternative) -> bool:
    match alternative:
        case Object("torch.nn.Parameter" | "torch.nn.parameter.Parameter"):
            return True
    return isinstance(alternative, Tensor) and alternative.parameter


def _has_twins(cls: Class) -> bool:
    """Whether a method stands twice in a class, and is no property with a setter or an overload."""
    scopes = cls.module.scopes
    twins = [scopes[key] for name in cls.methods if (key := f"{cls.qualname}.{name}'1") in scopes]
    return any(not twin.decorators or not cls.methods[twin.name].decorators for twin in twins)
