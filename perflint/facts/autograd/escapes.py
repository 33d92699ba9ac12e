"""How tensors get out of a region that runs without autograd, or carry something of it along."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.facts.autograd.gradflow import GradUse, backward_in, stored_for_training, tensor_ends
from perflint.facts.autograd.keeps_nothing import holds_numbers
from perflint.facts.autograd.lasting import makes_lasting
from perflint.facts.autograd.meetings import meetings
from perflint.facts.autograd.retention import kept_by
from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import Region, flow_of
from perflint.facts.dataflow.uses import functions_see, is_changed_in_place
from perflint.facts.facts import Facts
from perflint.facts.proofs.fears import INFERENCE_TENSORS, feared
from perflint.facts.proofs.hidden import hidden_runs
from perflint.facts.proofs.proofs import suspends
from perflint.facts.proofs.reach import called_from, can_be_parsed
from perflint.facts.proofs.tampering import untouched
from perflint.facts.training.training_objects import is_neural_module
from perflint.facts.values.classes import ancestors
from perflint.facts.values.values import (
    Batch,
    ClassRef,
    Elements,
    FunctionRef,
    Instance,
    Literal,
    Mapping,
    Number,
    Output,
    Sequence,
    Tensor,
    Value,
)
from perflint.rule.obligations import Kind, Obligation, is_refuted
from perflint.source.syntax import Class, Scope
from perflint.source.words import made


def stays_inside(facts: Facts, scope: Scope, body: list[ast.stmt], *, whole: bool) -> list[Obligation] | None:
    """What stands against it that no tensor of a region, nor a trace of how it was made, is met by autograd later.

    None: a tensor of the region reaches autograd without doubt. whole: the region is the whole function.
    """
    inside = Region(flow_of(scope), body)
    missing: list[Obligation] = []
    for reason in _escapes(facts, scope, inside):
        if reason is None:
            return None
        missing.append(reason)
    missing += [reason for call in inside.calls for reason in makes_lasting(facts, scope, call)]
    modes = facts.grad_mode
    kind = modes.may_be_called_in_autocast(scope) if whole else modes.may_autocast(scope, body[0])
    if kind is not None:
        words = "an autocast region around it may remember weights that it converts here, and train with them"
        missing.append(Obligation(kind, words))
    if not is_refuted(missing):
        seeing = [call for call in inside.calls if _sees_tensors(facts, scope, call)]
        missing += kept_by(facts, scope, seeing, inside.nodes, batches=True)
        missing += _switched_on(facts, scope, inside)
        missing += feared(facts.project, scope.module.source.path, INFERENCE_TENSORS)
    if suspends(flow_of(scope)):
        missing.append(Obligation(Kind.CONTROL_FLOW, "the function yields or awaits"))
    return missing


_MAX_FUNCTIONS = 60
"""A region that may run more functions than this is not looked through."""
_SWITCHES_ON = made(rb"enable_grad|set_grad_enabled")


def _switched_on(facts: Facts, scope: Scope, inside: Region) -> Iterator[Obligation]:
    """Functions that may run in a region and switch autograd on, which has no effect under `inference_mode`."""
    called = (function for call in inside.calls for function in facts.loops.targets(scope, call))
    starts = (*hidden_runs(facts, scope, inside.nodes), *called)
    for count, function in enumerate(called_from(facts, *starts, depth=None, hidden=True)):
        if _SWITCHES_ON.search(function.text) or count >= _MAX_FUNCTIONS:
            yield Obligation(Kind.GRADIENT, f"`{function.name}` may run inside, and switch autograd on, in vain then")
            return
        if not can_be_parsed(function):
            yield Obligation(Kind.UNKNOWN_CODE, f"`{function.name}` cannot be parsed")
            return


def _bound(facts: Facts, scope: Scope, definition: Definition) -> Value:
    return facts.inference.definition(definition, facts.inference.frame(scope), flow_of(scope))


def _escapes(facts: Facts, scope: Scope, inside: Region) -> Iterator[Obligation | None]:
    """How tensors get out of the region: a reason each, or None for one that reaches autograd."""
    flow = flow_of(scope)
    trains = backward_in(facts, scope) or _is_part_of_network(facts, scope)
    for definition in inside.definitions:
        if definition.value is None or definition.kind in ("function", "class"):
            continue
        if definition.name in flow.outer_names and _may_be_tensor(facts, scope, definition.value):
            yield Obligation(Kind.NAMES, f"`{definition.name}` is a variable of an outer scope")
        if definition.kind == "augmented" and _extends_given(facts, scope, definition):
            yield Obligation(Kind.RETENTION, f"`{definition.name}` is extended, which its owner sees")
        outside = [u for u in flow.uses[definition] if u not in inside]
        added = definition.kind == "augmented"
        bound = facts.inference.value(scope, definition.value) if added else _bound(facts, scope, definition)
        if not (outside or scope.is_module) or not (_holds_tensor(bound) or _makes_object(facts, scope, definition.value)):
            continue
        if scope.is_module and facts.project.importers(scope.module.source.path):
            yield Obligation(Kind.RETENTION, f"a file that imports this one may read `{definition.name}`")
        if scope.is_module and functions_see(scope.module, definition.name):
            yield Obligation(Kind.NAMES, f"a function may read the global `{definition.name}`")
        if any(is_changed_in_place(flow, use) for use in outside) or (trains and tensor_ends(facts, scope, outside)):
            yield None
        elif outside and (reason := untouched(facts, scope, definition)) is not None:
            yield Obligation(Kind.MUTATION, f"inference tensors cannot be written to outside: {reason}")
    made = [d.value for d in inside.definitions if d.value is not None and d.kind in ("assign", "walrus")]
    tensors = [
        root
        for root in dict.fromkeys([*made, *inside.calls])
        if _may_be_tensor(facts, scope, root) or _makes_object(facts, scope, root)
    ]
    yield from (Obligation(Kind.GRADIENT, end.note) for end in meetings(facts, scope, inside, tensors))
    for end in tensor_ends(facts, scope, tensors):
        if not (isinstance(end.node, ast.Return) and end.node in inside):
            read = end.use is GradUse.BACKWARD or stored_for_training(facts, scope, end) is not None
            kind = Kind.KNOWN_LAYERS if end.is_layer else Kind.RETENTION
            yield None if read else Obligation(kind, f"the result may outlive the evaluation: {end.note}")
    for store in inside.stores:
        yield from _stored(facts, scope, store, inside, trains)
    for statement in inside.returns:
        given = statement.value
        if given is not None and (_is_tensor(facts, scope, given) or _makes_object(facts, scope, given)):
            if _caller_differentiates(facts, scope):
                yield None  # also by way of an attribute that training reads
            else:
                yield Obligation(Kind.RETENTION, "a tensor is returned")


def _makes_object(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    """Whether a call may make an object of the project whose methods make tensors: it may hold some of the region."""
    return isinstance(node, ast.Call) and facts.inference.value(scope, node).may(
        lambda a: isinstance(a, Instance) and not is_neural_module(facts.inference, a) and _makes_tensors(facts, a.cls)
    )


def _makes_tensors(facts: Facts, cls: Class) -> bool:
    methods = [m for above in ancestors(facts.inference, cls) if isinstance(above, Class) for m in above.methods.values()]
    if not all(map(can_be_parsed, methods)):
        return True
    return any(_may_be_tensor(facts, method, call) for method in methods for call in flow_of(method).calls)


def _extends_given(facts: Facts, scope: Scope, definition: Definition) -> bool:
    """Whether `+=` may put a tensor into a container that was there before."""
    if definition.value is None or not _may_be_tensor(facts, scope, definition.value):
        return False
    before = flow_of(scope).reaching.get(definition.node, frozenset())
    return not before or any(
        d.kind == "parameter" and not _bound(facts, scope, d).must_be(Tensor, Number, Literal) for d in before
    )


def _is_part_of_network(facts: Facts, scope: Scope) -> bool:
    """Whether the scope is a module's `forward`: what it computes behind the region, training differentiates."""
    owner = scope.owner
    return scope.name == "forward" and owner is not None and is_neural_module(facts.inference, Instance(owner))


def _may_be_tensor(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item":
        return bool(facts.loops.targets(scope, node))  # a number, or nothing that has to do with tensors
    return facts.inference.value(scope, node).open or _is_tensor(facts, scope, node)


def _is_tensor(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    return _holds_tensor(facts.inference.value(scope, node))


def _holds_tensor(value: Value, depth: int = 3) -> bool:
    """Whether a value may be a tensor or hold one, as far as is known."""
    if value.open and not value.alternatives:
        return True
    for alternative in value.alternatives:
        match alternative:
            case Tensor() | Batch() | Output():
                return True
            case Sequence(items) if depth:
                if any(_holds_tensor(i, depth - 1) for i in items):
                    return True
            case Elements(element) if depth:
                if _holds_tensor(element, depth - 1):
                    return True
            case Mapping(items, rest) if depth:
                if any(_holds_tensor(v, depth - 1) for _, v in items) or (rest.alternatives and _holds_tensor(rest, depth - 1)):
                    return True
    return False


def _stored(
    facts: Facts, scope: Scope, store: ast.Attribute | ast.Subscript, inside: Region, trains: bool
) -> Iterator[Obligation | None]:
    root: ast.expr = store
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if isinstance(root, ast.Name):
        definitions = flow_of(scope).reaching.get(root, frozenset())
        if definitions and all(d.node in inside for d in definitions):
            return
        if holds_numbers(facts.inference, scope, store.value):
            return
        if isinstance(store, ast.Subscript) and definitions and not trains:
            if all(d.kind != "parameter" for d in definitions):
                return  # a local container: copied into a normal tensor, or followed through its own uses
    if trains:
        yield None
    else:
        yield Obligation(Kind.RETENTION, f"`{ast.unparse(store)}` is assigned")


def _caller_differentiates(facts: Facts, scope: Scope) -> bool:
    for site in facts.inference.callers.sites(scope).sites:
        for end in tensor_ends(facts, site.scope, [site.node]):
            if end.use is GradUse.BACKWARD or stored_for_training(facts, site.scope, end) is not None:
                return True
    return False


def _sees_tensors(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether a call may keep a tensor of the region: it gets one, or the project's own code makes one."""
    if any(_may_be_tensor(facts, scope, a) for a in [*call.args, *(k.value for k in call.keywords)]):
        return True
    return facts.inference.value(scope, call.func).may(lambda a: isinstance(a, (FunctionRef, Instance, ClassRef)))
