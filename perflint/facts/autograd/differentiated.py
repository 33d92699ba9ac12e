"""What `backward()` proves about a value: a real floating-point tensor with a graph and a single element."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.unknown_objects import methods_found
from perflint.facts.training.training_objects import is_scaler
from perflint.facts.values.classes import ancestors
from perflint.facts.values.values import Alternative, Instance, Object, Tensor
from perflint.source.syntax import Scope
from perflint.source.words import any_layout

_OWN = any_layout(rb"\bdef (?:backward|__getattr(?:ibute)?__) \(")
"""Methods that may run where `loss.backward()` stands."""


def is_differentiated(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    """Whether whoever evaluates a name has run a backward pass from the very value that it holds before.

    torch starts one without a gradient from a real floating-point tensor of one element only, of whatever shape, and raises for
    anything else ("grad can be implicitly created only for scalar outputs"). A pass that comes later proves nothing: the step
    may be left before it. Nor does a `backward` of the program's own, which may belong to an object of which nothing is known.
    """
    if not isinstance(node, ast.Name):
        return False
    flow = flow_of(scope)
    definitions = flow.reaching.get(node, frozenset())
    if not definitions or facts.inference.value(scope, node).may_be(Instance):
        return False
    if not all(_starts_backward(facts, scope, flow, definition, node) for definition in definitions):
        return False
    if facts.inference.value(scope, node).must_be(Tensor):
        return True
    methods = methods_found(facts, scope.module.source.path, _OWN)
    return methods is not None and all(_is_harmless(facts, method) for method in methods)


def _is_harmless(facts: Facts, method: Scope) -> bool:
    """Whether a method gives nobody a `backward` that is called without arguments."""
    if method.name == "backward" and method.function is not None:
        arguments = method.function.args
        required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
        return required > 1 or any(path_of(decorator) == "staticmethod" for decorator in method.decorators)
    inherited = ancestors(facts.inference, method.owner) if method.owner is not None else []
    return any(isinstance(cls, str) and cls.startswith("torch.nn.") for cls in inherited)


def _starts_backward(facts: Facts, scope: Scope, flow: Flow, definition: Definition, node: ast.expr) -> bool:
    calls = (_backward(facts, scope, flow, use) for use in flow.uses[definition])
    return any(call is not None and flow.dominates(call, node) for call in calls)


def _backward(facts: Facts, scope: Scope, flow: Flow, use: ast.expr) -> ast.Call | None:
    """The call that starts a backward pass from a use of a value, or from a scaler's multiple of it."""
    parent = flow.parent.get(use)
    match parent:
        case ast.Attribute(attr="backward"):
            call = flow.parent.get(parent)
            if isinstance(call, ast.Call) and call.func is parent and _is_implicit(call):
                return call
        case ast.Call(func=ast.Attribute(value=owner, attr="scale"), args=[_]):
            if facts.inference.value(scope, owner).may(is_scaler):
                return _backward(facts, scope, flow, parent)
        case ast.Call(func=ast.Attribute(value=owner, attr="backward"), args=[first]) if first is use:
            if facts.inference.value(scope, owner).must(_is_accelerator) and _is_implicit(parent, 1):
                return parent
    return None


def _is_implicit(call: ast.Call, positional: int = 0) -> bool:
    """Whether a backward pass begins with the gradient that torch makes itself."""
    return len(call.args) == positional and all(k.arg in ("retain_graph", "create_graph") for k in call.keywords)


def _is_accelerator(alternative: Alternative) -> bool:
    return isinstance(alternative, Object) and alternative.qualname == "accelerate.Accelerator"


def calls_behind(flow: Flow, backward: ast.Call) -> Iterator[ast.Call]:
    """The calls whose results flow into what a backward pass starts from, in the same iteration; some of them twice."""
    pending: list[ast.AST] = [*backward.args]
    if isinstance(backward.func, ast.Attribute):
        pending.append(backward.func.value)
    seen: set[Definition] = set()
    while pending:
        for part in ast.walk(pending.pop()):
            if isinstance(part, ast.Call) and part in flow.order:
                yield part
            for definition in flow.reaching.get(part, frozenset()) - seen:
                seen.add(definition)
                if definition.kind in ("assign", "augmented", "walrus", "with") and definition.order < flow.order[backward]:
                    pending += filter(None, [definition.value])
                    if definition.kind == "augmented":
                        pending.append(definition.node)
