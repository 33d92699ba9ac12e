"""Whether all layers of a network are known: followed to where they are built, handed in, appended or inherited.

A list of what is harmless: a layer counts when it is one of torch's that were measured to give the same bits with and without
autograd, a container of such layers, or a class of the project that calls nothing but these and functions that are listed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from perflint.facts.autograd.fills import FILLING, fills
from perflint.facts.autograd.graphless import differs_without_graph
from perflint.facts.autograd.graphs_of_parameters import is_parameter, may_record
from perflint.facts.autograd.without_graph import (
    BUILTINS,
    COMPUTES_NOTHING,
    CONTAINERS,
    LINEAR,
    MODELS,
    MODULE_METHODS,
    NORMS,
    OTHERS,
    PACKAGES,
    PARAMETERS,
    ROUNDING,
    SAME_WITHOUT_GRAPH,
    has_measured_order,
    is_known_function,
    is_known_method,
)
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.hidden import hidden_runs
from perflint.facts.proofs.unknown_objects import unknown_objects
from perflint.facts.values import classes
from perflint.facts.values.decorators import is_plain, is_plain_class
from perflint.facts.values.layer_containers import collected, is_container, is_list_of, origin
from perflint.facts.values.values import (
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
from perflint.source.words import NO_MEMBER, any_layout, made, words

ASKS: Final = any_layout(
    NO_MEMBER + rb"grad \(|autograd \. grad|\. backward \(|is_grad_enabled|set_grad_enabled|enable_grad|_hook \(|retain_grad|"
    rb"torch \. func\b|functorch|autograd \. functional|forward_ad"
)
"""What asks for gradients, or whether autograd is on, in a text."""
LOOKS_AT_GRAPH: Final = made(rb"requires_grad|grad_fn|is_leaf|needs_input_grad")
"""What looks at whether a tensor belongs to a graph, in a text."""
MAX_REACHED = 80
"""A network of more classes and functions than this is not looked through."""
_SPECIAL = words("__init__ __len__ __repr__ __str__ __getitem__ __iter__ __enter__ __exit__ __contains__")
"""Special methods whose calls are seen, or that only give a text."""


def rebound(cls: Class) -> Iterator[Obligation]:
    """Whether a class binds the name of one of its methods to something else, too: `forward = wrapped(forward)`."""
    if names := cls.methods.keys() & cls.variables:
        yield Obligation(Kind.UNKNOWN_CODE, f"`{min(names)}` of `{cls.name}` is bound to something else, too")


class Network:
    """One proof: what is known of a network is seen once.

    records: whether it makes a difference that the network records no graph, and not only what its parts are.
    """

    def __init__(self, facts: Facts, name: str, seen: set[object], records: bool = True) -> None:
        self.facts, self.inference, self.name, self.seen, self.records = facts, facts.inference, name, seen, records
        self.aside: Network | None = None

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
                    yield self.rounds(shown) if last in ROUNDING else self.unknown(shown)
            case Object(qualname=qualname) if MODELS.fullmatch(qualname.encode()):
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
        """The layers that a container is built with, and those that it gets later."""
        if call in self.seen:
            return
        self.seen.add(call)
        for given in (*call.args, *(k.value for k in call.keywords)):
            yield from self.held(scope, given, 6)
        for where, given in fills(self.facts, scope, call):
            yield from self.held(where, given, 6)

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
            case ast.Call(func=func, args=args, keywords=keywords) if is_list_of(self.inference, scope, func):
                for given in (*args, *(k.value for k in keywords)):
                    yield from self.held(scope, given, depth - 1)
            case ast.Name() if (found := collected(self.inference, scope, node)) is not None:
                for where, part in found:
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
                        if last in ROUNDING
                        else Obligation(Kind.KNOWN_LAYERS, f"`{cls.name}` inherits from `{ancestor}`, which is not known")
                    )
            elif ancestor is not cls:
                yield from self.cls(ancestor)
        if not is_plain_class(self.inference.module_name, cls) or _has_twins(cls):
            yield Obligation(Kind.PLAIN_MODULES, f"the methods of `{cls.name}` may be others than its body shows")
        yield from rebound(cls)
        for method in cls.methods.values():
            if method.name.startswith("__") and method.name not in _SPECIAL:
                yield Obligation(Kind.PLAIN_MODULES, f"`{cls.name}` has a method `{method.name}` of its own")
            yield from self.function(method)
        strange = PARAMETERS & (cls.methods.keys() | cls.variables)
        if strange:
            yield Obligation(Kind.EVALUATION_ROUNDING, f"`{min(strange)}` of `{cls.name}` is no parameter")

    def is_harmless(self, method: Scope) -> bool:
        """Whether nothing stands against a method of an unknown object, or it has been said already what does."""
        if self.aside is None:
            self.aside = Network(self.facts, self.name, set(), self.records)
            self.aside.aside = self.aside
        return not any(self.aside.function(method))

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
        yield from filter(None, (unknown_objects(self.facts, scope, flow.order, self.is_harmless),))

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
        if self.records:
            yield from self.handed(scope, call)
        if isinstance(func, ast.Attribute) and classes.is_super_call(func.value):
            yield from self.above(scope, call)
            return
        value = self.inference.value(scope, func)
        if isinstance(func, ast.Attribute):
            receiver = self.inference.value(scope, func.value)
            if func.attr in FILLING and receiver.may(self.is_container):
                for given in (*call.args, *(k.value for k in call.keywords)):
                    yield from self.held(scope, given, 6)
                return
            if func.attr in MODULE_METHODS and self.has_method_of_torch(receiver, func.attr):
                if func.attr in _SETTING and scope.name != "__init__":
                    yield Obligation(Kind.RETENTION, f"`{scope.name}` of `{self.name}` sets a part of it by `{func.attr}`")
                return
            yield from self.method(scope, call, receiver)
            other = receiver.without(is_parameter)
            if is_known_method(func.attr) and not other.may_be(Instance, Object, ClassRef, FunctionRef, External):
                return
            if receiver.must(lambda a: isinstance(a, Object) and a.qualname.startswith(_OBJECTS)):
                return
            if func.attr in ("items", "keys", "values", "pop", "get") and receiver.must(is_container):
                return
        if value.open or not value.alternatives:
            if (inner := origin(self.inference, scope, flow, func)) is not None:
                yield from self.held(*inner, 6)
                return
            yield self.unknown(shown)
        for alternative in sorted(value.alternatives, key=str):
            match alternative:
                case External(qualname) if qualname in LINEAR:
                    weight = (
                        call.args[1]
                        if len(call.args) > 1
                        else next((k.value for k in call.keywords if k.arg == "weight"), None)
                    )
                    if weight is None or not self.is_parameter(scope, weight):
                        yield self.rounds(shown)
                case External(qualname) if qualname in NORMS:
                    if not has_measured_order(self.inference, scope, call, NORMS[qualname]):
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

    def handed(self, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
        """Whether functions of torch that a call hands on give the same bits without autograd: `map(torch.mul, a, b)`."""
        for given in (*call.args, *(k.value for k in call.keywords)):
            if isinstance(given, (ast.Attribute, ast.Name)):
                for alternative in self.inference.value(scope, given).alternatives:
                    if isinstance(alternative, External) and alternative.qualname.startswith("torch."):
                        if not COMPUTES_NOTHING.match(alternative.qualname):
                            yield from self.external(alternative.qualname, ast.unparse(given))

    def method(self, scope: Scope, call: ast.Call, receiver: Value) -> Iterator[Obligation]:
        """Whether a method that a tensor may have gives the same bits without autograd."""
        assert isinstance(call.func, ast.Attribute)
        name, shown = call.func.attr, ast.unparse(call.func)
        if receiver.open or receiver.may_be(Tensor):
            if name.strip("_") in ROUNDING or (name == "norm" and not has_measured_order(self.inference, scope, call, 0)):
                yield self.rounds(shown)
            elif receiver.may_be(Tensor) and not is_known_method(name):
                yield Obligation(Kind.UNKNOWN_CODE, f"`{shown}` was not measured without autograd")

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

    def is_container(self, alternative: Alternative) -> bool:
        """Whether a value is a container of torch, or of a class of the project that inherits from one."""
        if isinstance(alternative, Instance):
            return any(a in _CONTAINER_BASES for a in classes.ancestors(self.inference, alternative.cls))
        return is_container(alternative)

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
            known = last in BUILTINS
        elif qualname in NORMS:
            yield self.rounds(shown)  # the order that it is called with is not in sight
            return
        else:
            known = (
                is_known_function(qualname)
                or qualname.startswith(PACKAGES)
                or qualname in OTHERS
                or MODELS.fullmatch(qualname.encode()) is not None
            )
        if not known:
            rounds = last in ROUNDING
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
        if value.alternatives and value.must(is_parameter):
            return True
        return weight.attr == "weight" and self.inference.value(scope, weight.value).must(
            lambda a: isinstance(a, Object) and a.qualname.removeprefix("torch.nn.") in SAME_WITHOUT_GRAPH
        )


_SETTING = words("register_buffer register_parameter load_state_dict")
"""Methods of a module that give it tensors: while it is built, nobody has computed any."""
_BASES = words(
    "torch.nn.Module torch.nn.Sequential torch.nn.ModuleList torch.nn.ModuleDict builtins.object abc.ABC typing.Generic"
)
_CONTAINER_BASES = frozenset(("torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict"))
_OBJECTS = ("torch.distributions.", "logging.", "collections.")


def _may_be_filled(alternative: Alternative) -> bool:
    """Whether a value is a list or a dict."""
    return isinstance(alternative, (Elements, Mapping)) or (isinstance(alternative, Sequence) and alternative.mutable)


def _has_twins(cls: Class) -> bool:
    """Whether a method stands twice in a class, and is no property with a setter or an overload."""
    scopes = cls.module.scopes
    twins = [scopes[key] for name in cls.methods if (key := f"{cls.qualname}.{name}'1") in scopes]
    return any(not twin.decorators or not cls.methods[twin.name].decorators for twin in twins)
