"""Whether code may run without autograd: what stands against it for a forward pass, a statement, a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.facts.autograd.forward import hidden_graphs, needs_graph
from perflint.facts.autograd.gradflow import GradEnd, GradUse, graph_ends
from perflint.facts.autograd.graphs_of_parameters import computes_graph, may_record
from perflint.facts.autograd.retention import kept_by
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.fears import INFERENCE_TENSORS, OTHER_NETWORK, WATCHES_WARNINGS, feared
from perflint.facts.proofs.proofs import suspends
from perflint.facts.proofs.surgery import surgery
from perflint.facts.training.training_objects import is_neural_module
from perflint.facts.values.values import External, FunctionRef, Text
from perflint.rule.obligations import Kind, Obligation, is_refuted
from perflint.source.syntax import Scope
from perflint.source.words import made

_GRAD_SWITCH = made(rb"is_grad_enabled|set_grad_enabled|enable_grad|requires_grad")


def _remembered(kind: Kind | None) -> list[Obligation]:
    words = "an autocast region around it may remember weights without their graph and train with them"
    return [Obligation(kind, words)] if kind is not None else []


def function_without_graph(
    facts: Facts, scope: Scope, forward: ast.Call, forwards: list[ast.Call], ends: list[GradEnd]
) -> list[Obligation]:
    """What stands against it that a whole function runs without autograd.

    forward: the pass that was looked at, with the ends of its graph; forwards: all passes of the function.
    """
    missing = [*_wanted(facts, scope, ends, [other for other in forwards if other is not forward])]
    missing += [reason for other in forwards for reason in _forward_without_graph(facts, scope, other)]
    missing += _other_graphs(facts, scope, forward)
    missing += _remembered(facts.grad_mode.may_be_called_in_autocast(scope))
    flow = flow_of(scope)
    missing += [] if is_refuted(missing) else hidden_graphs(facts, scope)
    return missing if is_refuted(missing) else [*missing, *kept_by(facts, scope, flow.calls, flow.order)]


def _wanted(facts: Facts, scope: Scope, ends: list[GradEnd], layers: list[ast.Call]) -> Iterator[Obligation]:
    """Who may want the graph that ends somewhere, or goes through one of the other layers that are called: `head(net(x))`."""
    for end in ends:
        through = end.use is GradUse.UNKNOWN and end.node in layers
        kind = Kind.KNOWN_LAYERS if end.is_layer or through else Kind.GRADIENT
        yield Obligation(kind, f"somebody may want the graph of the result: {end.note}")
        if through and isinstance(end.node, ast.Call):
            further = [other for other in layers if other is not end.node]
            yield from _wanted(facts, scope, graph_ends(facts, scope, end.node), further)


def statement_without_graph(facts: Facts, scope: Scope, forward: ast.Call) -> list[Obligation]:
    """What stands against it that the statement of a forward pass runs without autograd."""
    statement = flow_of(scope).statement(forward)
    missing = [*_forward_without_graph(facts, scope, forward), *_open_about_rest(facts, scope, forward)]
    missing += _remembered(facts.grad_mode.may_autocast(scope, forward))
    missing += [] if is_refuted(missing) else hidden_graphs(facts, scope, statement)
    nodes = [*ast.walk(statement)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return missing if is_refuted(missing) else [*missing, *kept_by(facts, scope, calls, nodes)]


def _forward_without_graph(facts: Facts, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
    if suspends(flow_of(scope)):
        yield Obligation(Kind.CONTROL_FLOW, "the function is a generator or a coroutine")
    targets = facts.loops.targets(scope, call)
    yield from needs_graph(facts, scope, call)
    path = scope.module.source.path
    fears = [*feared(facts.project, path, *OTHER_NETWORK)]
    yield from fears
    yield from surgery(facts, path, fears)
    yield from feared(facts.project, path, WATCHES_WARNINGS, INFERENCE_TENSORS)  # `float` warns about a tensor with a graph
    callee = facts.inference.value(scope, call.func)
    if callee.open or not (targets or callee.must(lambda a: is_neural_module(facts.inference, a))):
        yield Obligation(Kind.KNOWN_LAYERS, f"`{ast.unparse(call.func)}` is not known, and may ask for gradients itself")


def _other_graphs(facts: Facts, scope: Scope, looked_at: ast.Call) -> Iterator[Obligation]:
    """Tensors that another call computes, but that leave the function and may belong to a graph."""
    flow, inference = flow_of(scope), facts.inference
    for call in flow.calls:
        value = inference.value(scope, call)
        unknown = value.open and not value.alternatives and not inference.value(scope, call.func).must_be(External)
        if call is not looked_at and (unknown or may_record(value)):
            for end in graph_ends(facts, scope, call):
                if end.use is not GradUse.UNKNOWN or _is_handed_out(facts, scope, end):
                    yield Obligation(Kind.GRADIENT, f"`{ast.unparse(call.func)}`: {end.note} with its graph")
    for statement in flow.returns:
        if statement.value is not None and computes_graph(facts, scope, statement.value):
            yield Obligation(Kind.GRADIENT, "a tensor is returned with its graph")
    for store in flow.stores:
        stored = [d.value for d in flow.definitions_at(store) if d.value is not None]
        if any(computes_graph(facts, scope, value) for value in stored):
            yield Obligation(Kind.GRADIENT, f"a tensor is stored in `{ast.unparse(store)}` with its graph")
    if _GRAD_SWITCH.search(scope.text):
        yield Obligation(Kind.GRADIENT, "the function looks at what requires gradients")


def _is_handed_out(facts: Facts, scope: Scope, end: GradEnd) -> bool:
    """Whether a function of a package gets a tensor that computes nothing: it may show it, and `grad_fn` with it."""
    if not isinstance(end.node, ast.Call):
        return False
    if facts.inference.value(scope, end.node).may_be(Text):
        return True
    callee = facts.inference.value(scope, end.node.func)
    return callee.may(lambda a: isinstance(a, External) and not a.qualname.startswith(("torch.", "builtins.", "tqdm.")))


def _open_about_rest(facts: Facts, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
    """What stands against it that what else a statement computes belongs to no graph: somebody may want the graph of that."""
    statement = flow_of(scope).statement(call)
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Return)) else None
    if _is_made_of(value, call):
        return
    parts = list(ast.walk(value)) if value is not None else []
    others = [part for part in parts if isinstance(part, ast.Call) and part is not call]
    if value is None or not all(isinstance(part, _COMPUTING) for part in parts):
        yield Obligation(Kind.GRADIENT, "the statement computes something else, too")
        return
    for computed in (value, *others):
        for end in () if _drops_graph(facts, scope, computed) else graph_ends(facts, scope, computed):
            yield Obligation(Kind.GRADIENT, f"somebody may want the graph of `{ast.unparse(computed)}`: {end.note}")
    for other in others:
        if facts.loops.targets(scope, other) or facts.inference.value(scope, other.func).may(
            lambda a: is_neural_module(facts.inference, a)
        ):
            yield from _forward_without_graph(facts, scope, other)


def _drops_graph(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    """Whether what an expression gives belongs to no graph: numbers, or `x.detach()`."""
    value = facts.inference.value(scope, node)
    if value.alternatives and not value.open and not may_record(value):
        return True
    match node:
        case ast.Call(func=ast.Attribute(attr="detach" | "item" | "tolist" | "argmax") as method):
            return not facts.inference.value(scope, method).may_be(FunctionRef)
    return False


_COMPUTING = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp, ast.Slice),
    *(ast.expr_context, ast.operator, ast.unaryop),
)


def _is_made_of(node: ast.expr | None, call: ast.Call) -> bool:
    """Whether an expression is a call, or what is made of its result alone."""
    while node is not None and node is not call:
        match node:
            case ast.Attribute(value=inner):
                node = inner
            case ast.Subscript(value=inner, slice=index):
                node = inner if _is_constant(index) else None
            case ast.BinOp(left=inner, right=ast.Constant()) | ast.BinOp(left=ast.Constant(), right=inner):
                node = inner
            case ast.UnaryOp(operand=inner):
                node = inner
            case ast.Call(func=ast.Attribute(value=inner), args=args, keywords=keywords):
                given = [*args, *(k.value for k in keywords)]
                node = inner if all(isinstance(g, (ast.Constant, ast.UnaryOp)) for g in given) else None
            case _:
                node = None
    return node is call


def _is_constant(index: ast.expr | None) -> bool:
    """Whether an index consists of constants: `0`, `:16`, `0, ..., 1:`."""
    match index:
        case ast.Tuple(elts=parts):
            return all(map(_is_constant, parts))
        case ast.Slice(lower=lower, upper=upper, step=step):
            return all(map(_is_constant, (lower, upper, step)))
        case ast.UnaryOp(operand=operand):
            return _is_constant(operand)
    return index is None or isinstance(index, ast.Constant)
