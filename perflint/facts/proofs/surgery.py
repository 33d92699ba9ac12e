"""What a program does to its networks, classes and packages from outside: other layers, other methods, wrappers.

All that gets a network or sets a part of one counts, in any file of the program, unless it is known to leave it as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from perflint.facts.autograd.fills import FILLING
from perflint.facts.autograd.without_graph import SAME_WITHOUT_GRAPH, is_known_function
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.operations import operations
from perflint.facts.values import classes
from perflint.facts.values.object_methods import is_module_name
from perflint.facts.values.values import (
    Alternative,
    ClassRef,
    Elements,
    External,
    FunctionRef,
    Instance,
    Literal,
    Mapping,
    ModuleRef,
    Number,
    Object,
    Sequence,
    Tensor,
    Text,
    Value,
)
from perflint.rule.obligations import Kind, Obligation
from perflint.source.scopes import every_scope
from perflint.source.syntax import Module, Scope, SyntaxProblem
from perflint.source.texts import last_name
from perflint.source.words import any_layout, words

MAX_SCOPES: Final = 600
"""A program of more functions than this is not looked through."""

_LEAVES_AS_IS: Final = words(
    """
    builtins.isinstance builtins.issubclass builtins.len builtins.print builtins.id builtins.type builtins.repr builtins.str
    builtins.hasattr builtins.getattr builtins.callable builtins.list builtins.tuple builtins.dict builtins.enumerate
    builtins.zip builtins.iter builtins.next builtins.sum builtins.max builtins.min builtins.any builtins.all builtins.super
    builtins.reversed builtins.sorted builtins.set builtins.int builtins.float builtins.bool builtins.range builtins.round
    builtins.abs builtins.format torch.save copy.deepcopy copy.copy collections.OrderedDict
    torch.nn.utils.clip_grad_norm_ torch.nn.utils.clip_grad_value_ torch.nn.utils.parameters_to_vector
    """
)
_LEAVING_PACKAGES: Final = ("torch.nn.init.", "math.", "numpy.", "torch.optim.", "logging.", "torch.utils.data.")
_METHODS: Final = words(
    """
    train eval to cuda cpu float double half bfloat16 type parameters named_parameters buffers named_buffers modules
    named_modules children named_children state_dict load_state_dict requires_grad_ zero_grad forward get_submodule
    get_parameter get_buffer keys values items register_buffer share_memory __len__ __class__
    """
)
"""Methods of a module that leave its layers and methods as they are."""
_PARTS: Final = words("modules named_modules children named_children values items")
_COLLECTING: Final = words("append extend insert add update setdefault put appendleft")
_DATA: Final = words("data grad requires_grad")
_OPTIONS: Final = (
    "torch.backends.",
    "torch._dynamo.config",
    "os.",
    "sys.",
    "matplotlib.",
    "warnings.",
    "logging.",
    "PIL.",
    "cv2.",
)


def surgery(facts: Facts, path: str, found: Iterable[Obligation] = ()) -> Iterator[Obligation]:
    """What the program of a file does to networks from outside, or to what torch and its own classes offer.

    found: what speaks against the program already. If networks are changed as it is, nobody looks for a further change.
    """
    members = facts.project.members(path)
    changed = any(obligation.kind is Kind.PLAIN_MODULES for obligation in found)
    if members is None and not changed:
        yield Obligation(Kind.PLAIN_MODULES, "the program is too large to be looked through for changes of its networks")
    for file in members or ():
        if changed and facts.project.parses(file):
            continue
        module = facts.project.module(file)
        if module is not None:
            scan = partial(_unparsed if changed else _Scan(facts).module, module)
            yield from facts.surgery.get((file, changed), lambda scan=scan: [*scan()])  # type: ignore[misc]


def _unparsed(module: Module) -> Iterator[Obligation]:
    for scope in every_scope(module):
        try:
            _ = scope.node
        except SyntaxProblem:
            yield _not_parsed(scope)
            return


def _not_parsed(scope: Scope) -> Obligation:
    return Obligation(Kind.UNKNOWN_CODE, f"`{scope.name}` cannot be parsed")


class _Scan:
    def __init__(self, facts: Facts) -> None:
        self.facts, self.inference = facts, facts.inference
        self.scopes = 0
        self.found: dict[Kind, Obligation] = {}
        """The first obligation of each kind; one that is there is not looked for again."""

    def module(self, module: Module) -> Iterator[Obligation]:
        for scope in every_scope(module):
            for obligation in self.scope(scope):
                self.found.setdefault(obligation.kind, obligation)
        yield from self.found.values()

    def scope(self, scope: Scope) -> Iterator[Obligation]:
        self.scopes += 1
        if self.scopes > MAX_SCOPES:
            yield Obligation(Kind.PLAIN_MODULES, f"{scope.module.name} is too large to be looked through")
            return
        try:
            flow = flow_of(scope)
        except SyntaxProblem:
            yield _not_parsed(scope)
            return
        yield from islice(self.changes(scope, flow), 0 if Kind.PLAIN_MODULES in self.found else 1)
        for inner in flow.parts():
            yield from self.scope(inner)

    def changes(self, scope: Scope, flow: Flow) -> Iterator[Obligation]:
        """What a scope's own code changes."""
        for call in flow.calls:
            yield from self.call(scope, flow, call)
        for store in flow.stores:
            yield from self.store(scope, flow, store)
        for node in flow.order:
            for keyword in node.keywords if isinstance(node, ast.ClassDef) else ():
                if self.is_network(scope, flow, keyword.value):
                    yield self.changed(scope, keyword.value)  # what makes the class gets it
            if isinstance(node, ast.Delete):
                for target in node.targets:
                    if isinstance(target, (ast.Attribute, ast.Subscript)) and self.is_network(scope, flow, target.value):
                        yield self.changed(scope, target)

    def changed(self, scope: Scope, target: ast.expr) -> Obligation:
        path = scope.module.source.path
        return Obligation(Kind.PLAIN_MODULES, f"`{ast.unparse(target)}` of a network is set in {scope.module.name}", path)

    def call(self, scope: Scope, flow: Flow, call: ast.Call) -> Iterator[Obligation]:
        func = call.func
        match call:
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, name, *_]) if not isinstance(name, ast.Constant):
                if self.is_network(scope, flow, owner) and not self.is_own(scope, owner):
                    words = f"`{ast.unparse(call)}` in {scope.module.name} may be any method of a network, and register a hook"
                    yield Obligation(Kind.NO_HOOKS, words, scope.module.source.path)
        is_method = isinstance(func, ast.Attribute) and not classes.is_super_call(func.value)
        if isinstance(func, ast.Attribute) and _is_of_tensors(func.attr):
            return
        given = [*call.args, *(k.value for k in call.keywords)]
        may_get = [g for g in given if isinstance(g, _MAY_BE_NETWORK)]
        filling = isinstance(func, ast.Attribute) and func.attr in (*FILLING, "apply")
        leaves = not may_get or self.leaves_as_is(scope, call)
        is_spread = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
        if leaves and may_get and not (filling or is_spread) and self.inference.value(scope, func).may_be(FunctionRef):
            return  # looked at where it stands, whatever its receiver is
        if isinstance(func, ast.Attribute) and is_method and func.attr not in _METHODS:
            if self.is_network(scope, flow, func.value) and not self.is_own(scope, func.value):
                yield from self.method(scope, func, given)
                return
        looked_at: list[ast.expr] = [*may_get]
        if leaves:  # a function of the program is looked at where it stands, but not with what it gets by a star
            is_own = is_spread and self.inference.value(scope, func).may_be(FunctionRef, ClassRef, Instance)
            stars = [a for a in call.args if isinstance(a, ast.Starred)]
            looked_at = [*stars, *(k.value for k in call.keywords if k.arg is None)] if is_own else []
        network = next((g for g in looked_at if self.gives_network(scope, flow, g)), None)
        if network is not None:
            words = f"`{ast.unparse(func)}` gets `{ast.unparse(network)}` in {scope.module.name}, and may change it"
            yield Obligation(Kind.PLAIN_MODULES, words, scope.module.source.path)

    def method(self, scope: Scope, func: ast.Attribute, given: list[ast.expr]) -> Iterator[Obligation]:
        """A method of a network that is none of those that are known."""
        if func.attr in FILLING:
            if not all(self.is_plain_layer(scope, g) for g in given):
                yield self.changed(scope, func)
            return
        if func.attr == "apply":
            for applied in given:
                for alternative in self.inference.value(scope, applied).alternatives:
                    if isinstance(alternative, FunctionRef) and self.is_initialiser(alternative.scope):
                        continue
                    yield self.changed(scope, func)
            return
        value = self.inference.value(scope, func)
        if value.must(
            lambda a: isinstance(a, (FunctionRef, Instance)) or (isinstance(a, Object) and is_module_name(a.qualname))
        ):
            return  # a method or a layer of the project's own: looked at where it stands
        if any(isinstance(a, FunctionRef) for a in value.alternatives):
            return
        receiver = self.inference.value(scope, func.value)
        if not receiver.must(lambda a: isinstance(a, (Instance, Object)) and not _is_guess(a)):
            return  # nobody knows that network, so nothing is proved with it
        yield self.changed(scope, func)

    def is_initialiser(self, function: Scope) -> bool:
        """Whether a function that is applied to all layers calls nothing but `torch.nn.init` and what reads."""
        flow = flow_of(function)
        for call in flow.calls:
            value = self.inference.value(function, call.func)
            harmless = value.must(
                lambda a: isinstance(a, External) and (a.qualname in _LEAVES_AS_IS or a.qualname.startswith(_LEAVING_PACKAGES))
            )
            in_place = isinstance(call.func, ast.Attribute) and call.func.attr in _TENSOR_FILLS
            if not harmless and not in_place:
                return False
        return not any(isinstance(store, ast.Attribute) and store.attr not in _DATA for store in flow.stores)

    def leaves_as_is(self, scope: Scope, call: ast.Call) -> bool:
        """Whether a call that gets a network leaves it as it is, as far as the called code is not looked at itself."""
        if classes.is_super_call(call.func) or (
            isinstance(call.func, ast.Attribute) and classes.is_super_call(call.func.value)
        ):
            return True
        value = self.inference.value(scope, call.func)
        if isinstance(call.func, ast.Attribute) and call.func.attr in _COLLECTING and not value.alternatives:
            return not self.is_defined_inside(scope, call.func.attr)
        if not value.alternatives:
            return False
        if value.open and not value.may_be(FunctionRef, ClassRef):
            return False
        return all(self.is_harmless(a) and self.knows_of(a, call) for a in value.alternatives)

    def is_defined_inside(self, scope: Scope, name: str) -> bool:
        """Whether a class that is written in a function may have a method of a name: no value tells of those."""
        path = scope.module.source.path
        return self.facts.project.program_may_hold(
            path, any_layout(rb"^[\t\x20]{4,}class\b(?s:.)*?\bdef %b \(" % name.encode(), re.M)
        )

    def knows_of(self, callee: Alternative, call: ast.Call) -> bool:
        """Whether what a call runs is looked at with what it gets: not every call by another name is found from there."""
        if not isinstance(callee, FunctionRef):
            return True
        is_method = callee.scope.owner is not None
        if last_name(call.func) == callee.scope.name and (not is_method or isinstance(call.func, ast.Attribute)):
            return True
        return any(site.node is call for site in self.inference.callers.sites(callee.scope).sites)

    def is_harmless(self, callee: Alternative) -> bool:
        match callee:
            case FunctionRef() | ClassRef() | Instance():
                return True
            case External(qualname):
                if qualname in _LEAVES_AS_IS or qualname.startswith(_LEAVING_PACKAGES) or is_known_function(qualname):
                    return True
                package, _, last = qualname.rpartition(".")
                return package == "torch.nn" and (
                    last in SAME_WITHOUT_GRAPH or last in ("Sequential", "ModuleList", "ModuleDict")
                )
            case Object(qualname):
                return is_module_name(qualname)
        return False

    def store(self, scope: Scope, flow: Flow, store: ast.expr) -> Iterator[Obligation]:
        """An attribute or an item that is set."""
        if not isinstance(store, (ast.Attribute, ast.Subscript)):
            return
        if isinstance(store, ast.Attribute) and (store.attr in _DATA or self.is_own(scope, store.value)):
            return
        if isinstance(store, ast.Subscript) and self.is_own(scope, store.value):
            return
        definitions = flow.definitions_at(store)
        values = [self.inference.value(scope, d.value) for d in definitions if d.value is not None and not d.index]
        if values and len(values) == len(definitions) and all(v.must_be(Number, Literal, Text) for v in values):
            return
        if self.is_network(scope, flow, store.value):
            plain = all(d.value is not None and not d.index and self.is_plain_layer(scope, d.value) for d in definitions)
            if not (definitions and plain):
                yield self.changed(scope, store)
            return
        base = self.inference.value(scope, store.value)
        known = [a for a in base.alternatives if not (_is_guess(a) or (isinstance(a, Tensor) and a.guessed))]
        if base.open and not known and any(v.may(self.is_part_of_network) for v in values):
            words = f"`{ast.unparse(store)}` is set to a network or a function in {scope.module.name}, perhaps of a network"
            yield Obligation(Kind.PLAIN_MODULES, words, scope.module.source.path)
            return
        if isinstance(store, ast.Attribute) and base.may(_is_patchable):
            words = f"`{ast.unparse(store)}` is put in the place of another in {scope.module.name}"
            yield Obligation(Kind.PLAIN_MODULES, words, scope.module.source.path)

    def is_plain_layer(self, scope: Scope, node: ast.expr) -> bool:
        """Whether an expression is one of torch's layers that are known, or no layer."""
        return self.inference.value(scope, node).must(
            lambda a: (
                isinstance(a, (Number, Literal, Text, Tensor))
                or (isinstance(a, Object) and a.qualname.removeprefix("torch.nn.") in SAME_WITHOUT_GRAPH)
            )
        )

    def is_own(self, scope: Scope, node: ast.expr) -> bool:
        """Whether an expression is `self` or a part of it, in a class of networks: looked at with the class."""
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        owner = scope.owner
        if owner is None or not isinstance(node, ast.Name) or not scope.parameters or scope.parameters[0].arg != node.id:
            return False
        return classes.is_module(self.inference, owner)

    def is_network(self, scope: Scope, flow: Flow, node: ast.expr, depth: int = 4) -> bool:
        """Whether an expression may be a network, a part of one or the class of one."""
        if depth == 0 or not isinstance(node, _MAY_BE_NETWORK):
            return False
        if isinstance(node, (ast.List, ast.Tuple)):
            return any(self.is_network(scope, flow, part, depth - 1) for part in node.elts)
        if isinstance(node, ast.Starred):
            return self.is_network(scope, flow, node.value, depth - 1)
        value = self.inference.value(scope, node)
        if value.may(self.is_network_value):
            return True
        if value.alternatives and not _is_all_guessed(value):
            return False
        match node:
            case ast.Attribute(value=base) if self.inference.value(scope, base).must(_has_no_layers):
                return False
            case ast.Attribute(value=base) | ast.Subscript(value=base):
                return self.is_network(scope, flow, base, depth - 1)
            case ast.Call(func=ast.Attribute(value=base, attr=name)) if name in _PARTS or name in _METHODS - _NO_PART:
                return self.is_network(scope, flow, base, depth - 1)
            case ast.Call(func=ast.Name(id="getattr"), args=[base, *_]):
                return self.is_network(scope, flow, base, depth - 1)
            case ast.Call(func=ast.Name(id="list" | "tuple" | "enumerate" | "reversed" | "zip"), args=args):
                return any(self.is_network(scope, flow, base, depth - 1) for base in args)
            case ast.Name():
                return any(
                    d.kind in ("for", "assign", "walrus")
                    and d.value is not None
                    and self.is_network(scope, flow, d.value, depth - 1)
                    for d in flow.reaching.get(node, ())
                )
        return False

    def is_part_of_network(self, alternative: Alternative) -> bool:
        """Whether what an object that is not known gets may be what a network runs, if the object is one."""
        if isinstance(alternative, Object) and alternative.qualname.removeprefix("torch.nn.") in SAME_WITHOUT_GRAPH:
            return False
        return isinstance(alternative, FunctionRef) or self.is_network_value(alternative)

    def gives_network(self, scope: Scope, flow: Flow, node: ast.expr) -> bool:
        """Whether an argument may be a network, or a container of some."""
        return self.is_network(scope, flow, node) or self.inference.value(scope, _spread(node)).may(self.holds_network)

    def holds_network(self, alternative: Alternative, depth: int = 2) -> bool:
        match alternative:
            case Sequence(items):
                held = [*items]
            case Elements(element):
                held = [element]
            case Mapping(items, rest):
                held = [*(item for _, item in items), rest]
            case _:
                return False
        inner = (a for value in held for a in value.alternatives)
        return any(self.is_network_value(a) or (depth > 0 and self.holds_network(a, depth - 1)) for a in inner)

    def is_network_value(self, alternative: Alternative) -> bool:
        match alternative:
            case Instance(cls) | ClassRef(cls):
                return classes.is_module(self.inference, cls)
            case Object(qualname):
                return is_module_name(qualname) and not qualname.endswith(("Loss", ".Module", ".Parameter", ".Buffer"))
        return False


_MAY_BE_NETWORK: Final = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Starred, ast.List, ast.Tuple)
_TENSOR_FILLS: Final = words(
    "fill_ zero_ normal_ uniform_ copy_ mul_ add_ size dim numel items keys values startswith endswith sqrt find lower split"
)
_NO_PART: Final = words(
    """
    parameters named_parameters buffers named_buffers state_dict load_state_dict zero_grad forward get_parameter get_buffer
    __len__
    """
)


def _spread(argument: ast.expr) -> ast.expr:
    return argument.value if isinstance(argument, ast.Starred) else argument


def _is_of_tensors(method: str) -> bool:
    """Whether nothing but tensors has a method of a name: it is none of a network, and gets none."""
    row = operations.method(method)
    return row is not None and row.telling and method not in _METHODS | FILLING | _COLLECTING


def _has_no_layers(alternative: Alternative) -> bool:
    return isinstance(alternative, Object) and alternative.qualname.removeprefix("torch.nn.") in SAME_WITHOUT_GRAPH


def _is_guess(alternative: Alternative) -> bool:
    return isinstance(alternative, Object) and alternative.qualname == "torch.nn.Module"


def _is_all_guessed(value: Value) -> bool:
    return value.open and all(isinstance(a, Tensor) and a.guessed for a in value.alternatives)


def _is_patchable(alternative: Alternative) -> bool:
    """Whether something is a class, a function or a module, whose attributes are its code."""
    match alternative:
        case ClassRef() | ModuleRef() | FunctionRef():
            return True
        case External(qualname):
            return not f"{qualname}.".startswith(_OPTIONS)
    return False
