"""Whether what a call runs may keep a tensor beyond the call: in an attribute, a cache, a global or a caller's container.

The proof goes through everything that the project's own code may run from there. What is not known keeps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import chain

from perflint.facts.autograd.keeps_nothing import (
    COLLECTING,
    changes,
    given_again,
    goes_on,
    holds_numbers,
    is_abstract,
    is_distribution_of,
    is_made_here,
    is_of_pure_package,
    is_of_torch,
    keeps_nothing,
    reads_attribute,
    remembers,
)
from perflint.facts.autograd.lasting import changes_lasting
from perflint.facts.autograd.networks import Network, rebound
from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.fears import OTHER_NETWORK, READS_VARIABLES, feared
from perflint.facts.proofs.hidden import hidden_runs
from perflint.facts.proofs.reach import can_be_parsed
from perflint.facts.proofs.surgery import surgery
from perflint.facts.proofs.unknown_objects import methods_found, unknown_objects
from perflint.facts.training.datasets import DIVIDING, divides
from perflint.facts.training.training_objects import is_foreign, is_neural_module, stands_for_layers
from perflint.facts.values.arguments import argument
from perflint.facts.values.callers import is_self
from perflint.facts.values.classes import ancestors, find_method, is_module
from perflint.facts.values.decorators import caches, is_plain
from perflint.facts.values.layer_containers import origin
from perflint.facts.values.values import (
    UNKNOWN,
    Alternative,
    Batch,
    ClassRef,
    Device,
    Elements,
    External,
    FunctionRef,
    Instance,
    Literal,
    Loader,
    Number,
    Object,
    Output,
    Sequence,
    Tensor,
    Text,
    Value,
    one,
)
from perflint.rule.obligations import Kind, Obligation, one_of_each_kind
from perflint.source.syntax import Class, Scope, SyntaxProblem
from perflint.source.words import any_layout, words

MAX_SCOPES = 80
"""How many functions one proof may go through; a larger model counts as unknown."""

_PURE_OBJECTS = ("torch.nn.", "torchvision.transforms.", "numpy.", "pandas.")
_KEEPING_TORCH = words(
    """
    torch.compile torch.jit.trace torch.jit.script torch.load torch.hub.load torch.set_grad_enabled torch.enable_grad
    """
)
_LOOKS = any_layout(rb"is_inference|\. _version\b")
_MODULE_METHODS = words(
    "eval train parameters named_parameters buffers modules named_modules children named_children zero_grad"
)


def kept_by(
    facts: Facts, scope: Scope, calls: list[ast.Call], nodes: Iterable[ast.AST], batches: bool = False
) -> list[Obligation]:
    """Why some code may keep a tensor that it sees or makes.

    calls: those of the code that tensors take part in. nodes: all of the code, for what runs without a call: properties,
    operators of the project's classes, and functions that are handed on. batches: whether it counts, too, who else may keep
    the batches that a loader hands out.
    """
    proof = _Proof(facts)
    nodes = list(nodes)
    return one_of_each_kind(
        chain(proof.looks(scope), proof.calls(scope, calls), proof.hidden(scope, nodes), proof.samples(scope, nodes, batches))
    )


class _Proof:
    def __init__(self, facts: Facts, is_aside: bool = False) -> None:
        """is_aside: about what may run as methods of unknown objects, whose obligations are not those of the proof."""
        self.facts, self.inference = facts, facts.inference
        self.seen: set[object] = set()
        self.aside = self if is_aside else _Proof(facts, is_aside=True)

    def is_harmless(self, method: Scope) -> bool:
        """Whether nothing stands against a method, or it has been said already what does."""
        return not any(self.aside.scope(method))

    def calls(self, scope: Scope, calls: list[ast.Call]) -> Iterator[Obligation]:
        path = scope.module.source.path
        fears = [*feared(self.facts.project, path, *OTHER_NETWORK, READS_VARIABLES)]
        yield from fears
        yield from surgery(self.facts, path, fears)
        for call in calls:
            yield from self.call(scope, call)

    def call(self, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
        if self._is_method_of_torch(scope, call.func) or reads_attribute(flow_of(scope), call):
            return
        callee = self.inference.value(scope, call.func)
        for alternative in callee.alternatives:
            if not callee.open or isinstance(alternative, (FunctionRef, Instance, ClassRef)):
                yield from self.runs(alternative, ast.unparse(call.func))
        if callee.alternatives and not callee.open:
            return
        if (container := origin(self.inference, scope, flow_of(scope), call.func)) is not None:
            proof = Network(self.facts, ast.unparse(call.func), set(), records=False)
            yield from proof.kinds(proof.held(*container, 6))
            yield from self.reached(proof)
        elif not self._is_value_method(scope, call) and not self._fills_local(scope, call.func):
            layers = stands_for_layers(self.inference, callee) or self._is_part(scope, call.func, callee)
            kind = Kind.KNOWN_LAYERS if layers else Kind.UNKNOWN_CODE
            yield Obligation(kind, f"`{ast.unparse(call.func)}` is not known")

    def _is_part(self, scope: Scope, func: ast.expr, callee: Value) -> bool:
        """Whether a network calls an attribute of its own of which no more is known than that it may be None."""
        if scope.owner is None or not is_neural_module(self.inference, Instance(scope.owner)) or not scope.parameters:
            return False
        path = path_of(func) or ""
        return path.rpartition(".")[0] == scope.parameters[0].arg and all(isinstance(a, Literal) for a in callee.alternatives)

    def hidden(self, scope: Scope, nodes: Iterable[ast.AST]) -> Iterator[Obligation]:
        """What code of the project runs without calling it."""
        nodes = [*nodes]
        for node in nodes:
            yield from given_again(self.facts, scope, node)
            if isinstance(node, ast.ClassDef):
                yield Obligation(Kind.RETENTION, f"the body of the class `{node.name}` may keep what it makes")
            if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Load):
                if remembers(self.facts, scope, node):
                    yield Obligation(Kind.RETENTION, f"`{ast.unparse(node.value)}` keeps what `{ast.unparse(node)}` makes")
        for function in hidden_runs(self.facts, scope, nodes):
            yield from self.scope(function, constructor=function.name != "__init__" and self._constructs(function))
        yield from filter(None, (unknown_objects(self.facts, scope, nodes, self.is_harmless),))

    def runs(self, callee: Alternative, name: str) -> Iterator[Obligation]:
        """What happens when something is called."""
        match callee:
            case FunctionRef(target):
                yield from self.changes(target)
                yield from self.scope(target)
                if is_abstract(target):
                    yield Obligation(Kind.UNKNOWN_CODE, f"`{name}` is abstract")
            case Instance(cls) | ClassRef(cls):
                if is_module(self.inference, cls):
                    yield from self.network(Instance(cls), name)
                else:
                    yield from self.cls(cls)
            case External(qualname) | Object(qualname) if "Lazy" in qualname:
                yield Obligation(Kind.NO_LAZY_MODULES, f"`{name}` makes its parameters when it runs first")
            case External(qualname):
                if (
                    not is_of_pure_package(qualname)
                    or qualname in _KEEPING_TORCH
                    or qualname.endswith("__setattr__")
                    or changes(qualname)
                    or (qualname.startswith("torch.") and not is_of_torch(qualname))
                ):
                    yield Obligation(Kind.UNKNOWN_CODE, f"`{name}` is not known")
            case Object(qualname):
                if not qualname.startswith(_PURE_OBJECTS) or qualname == "torch.nn.Module":
                    yield Obligation(Kind.KNOWN_LAYERS, f"`{name}` may be any module")
                elif qualname.startswith("torch.nn."):
                    yield from self.network(callee, name)
            case Tensor() | Number() | Literal() | Text() | Device():
                pass
            case _:
                yield Obligation(Kind.UNKNOWN_CODE, f"`{name}` is not known")

    def changes(self, scope: Scope) -> Iterator[Obligation]:
        """What a function that runs changes in networks: other methods of their classes may do so when they are set up."""
        if ("changes", scope) not in self.seen and can_be_parsed(scope):
            self.seen.add(("changes", scope))
            for call in flow_of(scope).calls:
                yield from changes_lasting(self.facts, scope, call)

    def samples(self, scope: Scope, nodes: Iterable[ast.AST], batches: bool) -> Iterator[Obligation]:
        """The loaders that some code iterates over: what makes their batches may keep what it makes."""
        nodes = [*nodes]
        inside = frozenset(nodes)
        for node in nodes:
            if batches and (begun := goes_on(self.facts, scope, node, inside)) is not None:
                yield begun
            if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                value = self.inference.value(scope, node.iter)
                for alternative in value.alternatives:
                    if isinstance(alternative, Loader) and isinstance(alternative.site, tuple):
                        inner, call = alternative.site
                        yield from self.dataset(inner, argument(call, 0, "dataset"), 5)
                        yield from self.makers(inner, call) if batches else ()
                    elif batches and self.inference.element(one(alternative)).may(_is_shared):
                        yield self.keeping(scope, f"`{ast.unparse(node.iter)}` may hand out tensors that its dataset keeps")

    def makers(self, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
        """A loader: its class, and what makes batches of samples."""
        if not self.inference.value(scope, call.func).must(lambda a: isinstance(a, External)):
            yield self.keeping(scope, f"`{ast.unparse(call.func)}` may keep the batches that it gives")
        if argument(call, 0, "dataset") is None:
            yield self.keeping(scope, f"`{ast.unparse(call)}` may have any dataset")
        collate = argument(call, 6, "collate_fn")
        if collate is not None:
            value = self.inference.value(scope, collate)
            for alternative in value.alternatives:
                yield from self.runs(alternative, ast.unparse(collate)) if alternative != Literal(None) else ()
            if value.open or not value.alternatives:
                yield self.keeping(scope, f"`{ast.unparse(collate)}` may keep the batches that it makes")
        elif not self.inference.value(scope, call).must(lambda a: isinstance(a, Loader) and a.default_collate):
            yield self.keeping(scope, f"`{ast.unparse(call.func)}` may have a function of its own that makes batches")

    def keeping(self, scope: Scope, words: str) -> Obligation:
        """The obligation of samples and batches that something unknown makes: items of objects that only give values.

        Where code of the program that makes items keeps what it makes, nobody can declare that.
        """
        keeps = makers_keep(self.facts, scope.module.source.path)
        return Obligation(Kind.RETENTION if keeps else Kind.PLAIN_OBJECTS, words)

    def dataset(self, scope: Scope, node: ast.expr | None, depth: int) -> Iterator[Obligation]:
        if node is None:
            return
        unknown = self.keeping(scope, f"`{ast.unparse(node)}` may be any dataset, and keep what it makes")
        value = self.inference.value(scope, node)
        if depth and (value.open or not value.alternatives):
            inner: ast.expr | None = None
            match node:
                case ast.Subscript(value=inner):
                    pass
                case ast.Call(args=[inner, *_]) if self.inference.value(scope, node.func).must(divides):
                    pass
                case ast.Name():
                    definitions = flow_of(scope).reaching.get(node, frozenset())
                    if len(definitions) == 1:
                        inner = next(iter(definitions)).value
            if inner is not None:
                yield from self.dataset(scope, inner, depth - 1)
                return
        if value.open or not value.alternatives:
            yield unknown
        for alternative in value.alternatives:
            match alternative:
                case Instance(cls):
                    yield from self.cls(cls)
                case Object(qualname, site=site) if qualname in DIVIDING and isinstance(site, tuple) and depth:
                    parts = site[1].args[0] if site[1].args else None
                    for part in getattr(parts, "elts", [parts]) if parts is not None else ():
                        yield from self.dataset(site[0], part, depth - 1)
                case Object(qualname) if qualname == "torch.utils.data.TensorDataset" or qualname.startswith(
                    "torchvision.datasets."
                ):
                    pass
                case Sequence() | Elements() | Literal() | Tensor():
                    pass
                case _:
                    yield unknown

    def network(self, network: Alternative, name: str) -> Iterator[Obligation]:
        """A network: all its layers are known, and none of the project's own keeps anything."""
        proof = Network(self.facts, name, set(), records=False)
        yield from proof.kinds(proof.layer(network, name))
        yield from self.reached(proof)

    def reached(self, proof: Network) -> Iterator[Obligation]:
        """The classes and functions of the project that a network consists of: what they keep."""
        for reached in list(proof.seen):
            if isinstance(reached, Class):
                yield from self.cls(reached)
            elif isinstance(reached, Scope) and reached.owner is None:
                yield from self.scope(reached)

    def cls(self, cls: Class) -> Iterator[Obligation]:
        """Everything that the methods of a class may run, its constructor included: it builds the parts."""
        if cls in self.seen:
            return
        self.seen.add(cls)
        for ancestor in ancestors(self.inference, cls):
            if isinstance(ancestor, str):
                if not ancestor.startswith(("torch.nn.", "torch.utils.data.", "builtins.", "typing.", "abc.")):
                    yield Obligation(Kind.KNOWN_LAYERS, f"`{cls.name}` inherits from `{ancestor}`, which is not known")
            else:
                yield from rebound(ancestor)
                for method in ancestor.methods.values():
                    yield from self.scope(method, constructor=self._constructs(method))

    def _constructs(self, method: Scope, depth: int = 3) -> bool:
        """Whether a method runs only while its object is made: it is the constructor, or nothing but that calls it."""
        if method.name == "__init__" or method.owner is None:
            return method.name == "__init__"
        found = self.inference.callers.sites(method)
        return (
            depth > 0
            and found.complete
            and bool(found.sites)
            and all(
                _is_of_self(site.node, site.scope) and site.scope.owner is not None and self._constructs(site.scope, depth - 1)
                for site in found.sites
            )
        )

    def scope(self, scope: Scope, constructor: bool = False) -> Iterator[Obligation]:
        """What running a function stores, and what it calls."""
        if (scope, constructor) in self.seen:
            return
        self.seen.add((scope, constructor))
        if len(self.seen) > MAX_SCOPES:
            yield Obligation(Kind.UNKNOWN_CODE, "the model is too large to follow")
            return
        if caches(self.inference.module_name, scope):
            yield Obligation(Kind.RETENTION, f"`{scope.name}` caches its results")
        elif not is_plain(self.inference.module_name, scope):
            yield Obligation(Kind.UNKNOWN_CODE, f"`{scope.name}` is wrapped by a decorator")
        try:
            flow = flow_of(scope)
        except SyntaxProblem:
            yield Obligation(Kind.UNKNOWN_CODE, f"`{scope.name}` cannot be parsed")
            return
        if flow.outer_names:
            yield Obligation(Kind.RETENTION, f"`{scope.name}` assigns global variables")
        if not constructor:
            for store in flow.stores:
                if not isinstance(store, (ast.Attribute, ast.Subscript)) or self._takes_number(scope, flow, store):
                    continue
                if not self._stays_inside(scope, flow, store):
                    yield Obligation(Kind.RETENTION, f"`{scope.name}` assigns `{ast.unparse(store)}`")
        for definition in flow.definitions:
            if definition.kind == "augmented" and self._extends_given(scope, flow, definition):
                yield Obligation(Kind.RETENTION, f"`{scope.name}` may extend `{definition.name}`")
        yield from self.looks(scope)
        yield from self.changes(scope) if scope.name == "forward" else ()
        for call in flow.calls:
            yield from self._nested_call(scope, flow, call, constructor)
        yield from self.hidden(scope, flow.order)
        for inner in flow.inner:
            yield from self.scope(flow.inner_scope(inner))

    def looks(self, scope: Scope) -> Iterator[Obligation]:
        if _LOOKS.search(scope.text):
            yield Obligation(Kind.VALUE, f"`{scope.name}` looks at how tensors were made")

    def _nested_call(self, scope: Scope, flow: Flow, call: ast.Call, constructor: bool) -> Iterator[Obligation]:
        func = call.func
        if isinstance(func, ast.Attribute):
            if isinstance(func.value, ast.Call) and path_of(func.value.func) == "super":
                return  # the ancestors' methods are looked at on their own
            if func.attr in COLLECTING and not constructor:
                if not self._is_local(flow, func.value):
                    yield Obligation(Kind.RETENTION, f"`{scope.name}` calls `{ast.unparse(func)}`")
                return
        if constructor:
            callee = self.inference.value(scope, func)
            for alternative in callee.alternatives:
                if isinstance(alternative, FunctionRef) and self._constructs(alternative.scope):
                    yield from self.scope(alternative.scope, constructor=True)
                elif isinstance(alternative, (ClassRef, FunctionRef)):
                    yield from self.runs(alternative, ast.unparse(func))
                elif isinstance(alternative, External) and not is_of_pure_package(alternative.qualname):
                    yield Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(func)}` is not known")
            if callee.open and not isinstance(func, ast.Attribute):
                yield Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(func)}` is not known")
            return
        yield from self.call(scope, call)

    def _is_method_of_torch(self, scope: Scope, func: ast.expr) -> bool:
        """Whether a function is a method that tensors or networks have from torch, and that keeps nothing."""
        if not isinstance(func, ast.Attribute):
            return False
        receiver = self.inference.value(scope, func.value)
        if keeps_nothing(func.attr) and receiver.must_be(Tensor, Batch, Output):
            return True
        if receiver.must(lambda a: is_distribution_of(a, scope) or (isinstance(a, Object) and a.qualname.startswith("PIL."))):
            return True
        return func.attr in _MODULE_METHODS and receiver.must(
            lambda a: (
                (isinstance(a, Object) and a.qualname.startswith("torch.nn."))
                or (
                    isinstance(a, Instance)
                    and is_module(self.inference, a.cls)
                    and find_method(self.inference, a.cls, func.attr) is None
                )
            )
        )

    def _is_value_method(self, scope: Scope, call: ast.Call) -> bool:
        """A method that tensors, strings and containers have, called on something unknown: it keeps nothing."""
        func = call.func
        if not isinstance(func, ast.Attribute):
            return False
        receiver = self.inference.value(scope, func.value)
        if keeps_nothing(func.attr) and not receiver.may(is_foreign):
            return True
        return receiver.must(lambda a: isinstance(a, (Tensor, Number, Literal, Text)))

    def _fills_local(self, scope: Scope, func: ast.expr) -> bool:
        """Whether something is put into a container of the function."""
        return isinstance(func, ast.Attribute) and func.attr in COLLECTING and self._is_local(flow_of(scope), func.value)

    def _takes_number(self, scope: Scope, flow: Flow, store: ast.expr) -> bool:
        """Whether nothing but a number or a text is put there, which holds no tensor."""
        statement = flow.parent.get(store)
        stored = [definition.value for definition in flow.definitions_at(store)]
        if not stored and isinstance(statement, ast.Assign) and store in statement.targets:
            stored = [statement.value]
        return bool(stored) and all(
            value is not None and self.inference.value(scope, value).must_be(Number, Literal, Text) for value in stored
        )

    def _stays_inside(self, scope: Scope, flow: Flow, store: ast.Attribute | ast.Subscript) -> bool:
        """An item of a local tensor or of a local container."""
        if isinstance(store, ast.Attribute):
            return False
        if self._is_local(flow, store.value) or holds_numbers(self.inference, scope, store.value):
            return True
        base: Value = self.inference.value(scope, store.value)
        return base.must(lambda a: isinstance(a, Tensor) and not a.guessed)

    def _extends_given(self, scope: Scope, flow: Flow, definition: Definition) -> bool:
        """Whether `+=` may put something into a container that the function has not made."""
        added = self.inference.value(scope, definition.value) if definition.value is not None else UNKNOWN
        if not isinstance(definition.node, ast.Name) or added.must_be(Tensor, Output, Batch, Number, Literal, Text):
            return False
        return not self._is_local(flow, definition.node) and not self.inference.value(scope, definition.node).must_be(
            Tensor, Output, Batch, Number, Literal, Text
        )

    def _is_local(self, flow: Flow, node: ast.expr) -> bool:
        """Whether a name is bound to nothing but displays, comprehensions and calls of this function."""
        if not isinstance(node, ast.Name) or node.id in flow.outer_names or node.id in flow.inner_names:
            return False
        definitions = flow.reaching.get(node, frozenset())
        return bool(definitions) and all(is_made_here(flow, d) for d in definitions)


_MAKES_ITEMS = any_layout(rb"\bdef (?:__getitem__|__getitems__|__iter__|__next__|\w*collate\w*|__call__) \(")


def makers_keep(facts: Facts, path: str) -> bool:
    """Whether code of a program that makes items, or batches of them, may keep what it makes."""

    def keep() -> bool:
        methods = methods_found(facts, path, _MAKES_ITEMS)
        return methods is None or any(
            o.kind is Kind.RETENTION for method in methods for o in _Proof(facts, is_aside=True).scope(method)
        )

    return facts.inference.solver.solve(("makers keep", path), keep, True)


def _is_shared(alternative: Alternative) -> bool:
    """Whether a batch may hold the tensors of its dataset themselves."""
    return isinstance(alternative, Batch) and not alternative.default_collate


def _is_of_self(call: ast.Call, scope: Scope) -> bool:
    """Whether a call runs a method of the object that the method around it belongs to."""
    callee = call.func
    if not isinstance(callee, ast.Attribute) or not is_self(scope, callee.value):
        return False
    return len(flow_of(scope).definitions_of(scope.parameters[0].arg)) == 1
