"""What running a module may do with the autograd graph, apart from handing it on in its result."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from perflint.facts.autograd.differentiated import calls_behind
from perflint.facts.autograd.graphless import differs_without_graph
from perflint.facts.autograd.networks import ASKS, LOOKS_AT_GRAPH, Network
from perflint.facts.autograd.without_graph import COMPUTES_NOTHING, NORMS, has_measured_order
from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.hidden import hidden_runs
from perflint.facts.proofs.unknown_objects import unknown_objects
from perflint.facts.training.training_objects import (
    is_foreign,
    is_neural_module,
    is_optimizer,
    is_understood,
    may_run_module,
    stands_for_layers,
)
from perflint.facts.values import classes
from perflint.facts.values.decorators import hands_on
from perflint.facts.values.values import (
    NOTHING,
    ClassRef,
    External,
    FunctionRef,
    Instance,
    Literal,
    Number,
    Object,
    Text,
    Value,
)
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import made

MAX_REACHED = 60
"""A network of more classes and functions than this is not looked through."""


def needs_graph(facts: Facts, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
    """Why a forward pass may need or keep the graph that it records, or compute otherwise without: one line for each kind."""
    name = ast.unparse(call.func)
    callee = facts.inference.value(scope, call.func)
    receiver = facts.inference.value(scope, call.func.value) if isinstance(call.func, ast.Attribute) else NOTHING
    yield from facts.graph_needs.get((name, callee, receiver), lambda: _graph_needs(facts, name, callee, receiver))


def _graph_needs(facts: Facts, name: str, callee: Value, receiver: Value) -> list[Obligation]:
    network = Network(facts, name, set())
    found = [*network.layers(callee, name)]
    for alternative in sorted(receiver.alternatives, key=str):
        if isinstance(alternative, Instance) and classes.is_module(facts.inference, alternative.cls):
            found += network.cls(alternative.cls)
    return list({obligation.kind: obligation for obligation in reversed(found)}.values())


def hidden_graphs(facts: Facts, scope: Scope, statement: ast.stmt | None = None) -> Iterator[Obligation]:
    """Why a function, or one statement of it, may need a graph or compute otherwise without one: a line for each reason.

    Followed are the functions of the project that the code names, calls or hands on, their callees, and all of each
    network that any of them names. A call of something that is not known counts if it may get a tensor or a network.
    """
    hidden = _Hidden(facts)
    yield from hidden.function(scope) if statement is None else hidden.code(scope, ast.walk(statement))


class _Hidden:
    def __init__(self, facts: Facts, is_aside: bool = False) -> None:
        """is_aside: about what may run as methods of unknown objects, whose obligations are not those of the proof."""
        self.facts, self.inference = facts, facts.inference
        self.seen: set[object] = set()
        self.aside = self if is_aside else _Hidden(facts, is_aside=True)

    def code(self, scope: Scope, nodes: Iterable[ast.AST]) -> Iterator[Obligation]:
        flow, nodes = flow_of(scope), list(nodes)
        if reason := differs_without_graph(self.facts, scope, nodes):
            yield Obligation(Kind.GRADIENT, f"the code {reason}")
        for function in hidden_runs(self.facts, scope, nodes):
            yield from self.function(function)
        yield from filter(None, (unknown_objects(self.facts, scope, nodes, self.is_harmless),))
        for node in nodes:
            match node:
                case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
                    yield Obligation(Kind.EVALUATION_ROUNDING, f"`{ast.unparse(node)}` rounds differently without autograd")
                case ast.Call():
                    yield from self.call(scope, node)
                case ast.Attribute(ctx=ast.Load()) | ast.Name(ctx=ast.Load()):
                    yield from self.value(scope, node)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if node in flow.inner:
                    yield from self.function(flow.inner_scope(node))

    def is_harmless(self, method: Scope) -> bool:
        """Whether nothing stands against a method, or it has been said already what does."""
        return not any(self.aside.function(method))

    def value(self, scope: Scope, node: ast.expr) -> Iterator[Obligation]:
        parent = flow_of(scope).parent.get(node)
        if isinstance(parent, ast.Attribute):
            return
        shown = ast.unparse(node)
        network = Network(self.facts, shown, self.seen)
        for alternative in sorted(self.inference.value(scope, node).alternatives, key=str):
            match alternative:
                case Object(qualname) if qualname.startswith("torch.nn.") and qualname != "torch.nn.Module":
                    yield from network.layer(alternative, shown)
                case External(qualname) if qualname in NORMS and isinstance(parent, ast.Call) and parent.func is node:
                    if not has_measured_order(self.inference, scope, parent, NORMS[qualname]):
                        yield network.rounds(shown)
                case External(qualname) if qualname.startswith("torch.") and not COMPUTES_NOTHING.match(qualname):
                    yield from network.external(qualname, shown)
                case ClassRef(cls) | Instance(cls) if classes.is_module(self.inference, cls):
                    yield from network.cls(cls)
                case ClassRef(cls):
                    yield from self.function(cls.methods.get("__init__"))

    def function(self, function: Scope | None) -> Iterator[Obligation]:
        """What a function of the project runs."""
        if function is None or function in self.seen:
            return
        self.seen.add(function)
        if len(self.seen) > MAX_REACHED:
            yield Obligation(Kind.UNKNOWN_CODE, "too much is called to be looked through")
        elif ASKS.search(function.text):
            yield Obligation(Kind.GRADIENT, f"`{function.name}` asks for gradients itself")
        elif LOOKS_AT_GRAPH.search(function.text):
            yield Obligation(Kind.GRADIENT, f"`{function.name}` looks at what requires gradients")
        elif not hands_on(self.inference.module_name, function):
            yield Obligation(Kind.UNKNOWN_CODE, f"`{function.name}` is wrapped by a decorator")
        else:
            try:
                flow = flow_of(function)
            except SyntaxProblem:
                yield Obligation(Kind.UNKNOWN_CODE, f"`{function.name}` cannot be parsed")
            else:
                yield from self.code(function, flow.order)

    def call(self, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
        """Whether a call of something that is not known may run a network."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        if isinstance(call.func, ast.Attribute):
            receiver = self.inference.value(scope, call.func.value)
            yield from Network(self.facts, ast.unparse(call.func), self.seen).method(scope, call, receiver)
        may_run = may_run_module(call) or self.inference.value(scope, owner).may(is_foreign)
        if not may_run or self.is_known(self.inference.value(scope, call.func)):
            return
        if isinstance(call.func, ast.Attribute):
            receiver = self.inference.value(scope, call.func.value)
            if classes.is_super_call(call.func.value) or self.is_known(receiver):
                return
        given = [*call.args, *(k.value for k in call.keywords)]
        if not all(self.inference.value(scope, g).must_be(Number, Literal, Text) for g in given):
            layers = stands_for_layers(self.inference, self.inference.value(scope, call.func))
            kind = Kind.KNOWN_LAYERS if layers else Kind.UNKNOWN_CODE
            yield Obligation(kind, f"`{ast.unparse(call.func)}` is not known, and may ask for gradients itself")

    def is_known(self, value: Value) -> bool:
        """Whether all that a value may be is known, and nothing of it is of a package that is not."""
        foreign = [a.qualname for a in value.alternatives if isinstance(a, (External, Object))]
        return not value.open and bool(value.alternatives) and all(map(is_understood, foreign))


_LOSS = made(r"crit(?!ic)|loss", re.I)
_NO_FORWARD = made(r"^(?:parameters|zero_grad|train|eval|to|cuda|cpu|state_dict|size|backward|_*(?:init|reset)\w*)$")


def calls_network(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether a call may run a network: a module, or a method of one that computes something."""
    inference = facts.inference
    callee = inference.value(scope, call.func)
    if isinstance(call.func, ast.Attribute) and not _NO_FORWARD.search(call.func.attr):
        if inference.value(scope, call.func.value).may(lambda a: isinstance(a, Instance) and is_neural_module(inference, a)):
            return callee.may(lambda a: isinstance(a, (FunctionRef, Instance, Object)) and not is_optimizer(a))
    return callee.may(lambda a: is_neural_module(inference, a))


def runs_network(facts: Facts, scope: Scope, call: ast.Call, depth: int = 2) -> bool:
    """Whether a call may run a network, itself or by the functions of the project that it calls."""
    if calls_network(facts, scope, call) or facts.loops.is_forward(scope, call):
        return True
    return (
        depth > 0
        and may_run_module(call)
        and any(
            any(runs_network(facts, target, inner, depth - 1) for inner in flow_of(target).calls)
            for target in facts.loops.targets(scope, call)
        )
    )


def forward_before(facts: Facts, scope: Scope, call: ast.Call, backward: ast.Call) -> ast.stmt | None:
    """The first statement of the forward pass that a backward pass belongs to, if it stands before a call in its block."""
    flow = flow_of(scope)
    block, end = flow.block[call], flow.order[call]
    passes = [c for c in flow.calls if flow.order[c] < end and flow.within(c, block) and _names_backward(c)]
    since = max((flow.order[c] for c in passes), default=0)
    behind = [c for c in calls_behind(flow, backward) if since < flow.order[c] < end]
    networks = [c for c in behind if runs_network(facts, scope, c)]
    inside = [c for c in networks if flow.within(c, block)]
    if not inside or (len(inside) < len(networks) and all(map(_names_loss, inside))):
        return None  # the network has run before the block
    if any(facts.loops.training_acts(scope, c)[0] for c in networks):
        return None  # it adds to the gradients that it makes itself
    return flow.top(min(inside, key=flow.order.__getitem__), block)


def _names_loss(call: ast.Call) -> bool:
    return _LOSS.search((path_of(call.func) or "").rpartition(".")[2]) is not None


def _names_backward(call: ast.Call) -> bool:
    return "backward" in (path_of(call.func) or getattr(call.func, "attr", "") or "")
