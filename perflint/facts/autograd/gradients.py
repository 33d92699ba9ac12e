"""Whether code works with gradients: runs a backward pass, reads, writes or clears them, or steps an optimizer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from perflint.facts.autograd.fills import fills
from perflint.facts.autograd.networks import Network
from perflint.facts.autograd.without_graph import is_known_function
from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.displays import is_display
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.operations import operations
from perflint.facts.proofs.fears import RUNS_UNCALLED, feared
from perflint.facts.proofs.hidden import hidden_runs
from perflint.facts.proofs.unknown_objects import unknown_objects
from perflint.facts.training.training_objects import is_neural_module, is_optimizer, stands_for_layers
from perflint.facts.values.classes import find_method
from perflint.facts.values.layer_containers import origin
from perflint.facts.values.object_methods import is_module_name
from perflint.facts.values.values import (
    Alternative,
    Batch,
    Elements,
    External,
    Instance,
    Literal,
    Mapping,
    Number,
    Object,
    Output,
    Sequence,
    Tensor,
    Text,
)
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Class, Scope
from perflint.source.words import any_layout, made, words

_HELD = rb"(?:\b(?!autograd\b)\w+|[\])'\"]) \. _?grad\b|['\"]_?grad['\"]|clip_grad|grad_norm"
READS_GRADIENTS = any_layout(_HELD + rb"|get_total_norm")
"""What names the gradients that tensors hold; `autograd.grad` gives others and leaves them alone."""
USES_GRADIENTS = any_layout(_HELD + rb"|\. (?:zero_grad|step) \(|backward \(|_hook \(|['\"]params['\"]|add_param_group")
"""What uses gradients, or says whose an optimizer clears."""
_HOUSEKEEPING = words("parameters named_parameters buffers modules children train eval state_dict")
_PACKAGES = (
    "math.",
    "numpy.",
    "random.",
    "time.",
    "logging.",
    "tqdm.",
    "torch.utils.data.",
    "torch.nn.init.",
    "torch.distributions.",
    "collections.",
    "itertools.",
    "os.path.",
    "os.environ",
    "librosa.",
    "scipy.",
)
_SEES = words("builtins.eval builtins.exec builtins.vars builtins.dir builtins.globals builtins.locals builtins.setattr")
_CONTAINERS = words(
    """
    torch.nn.Module torch.nn.Sequential torch.nn.ModuleList torch.nn.ModuleDict torch.nn.DataParallel
    """
)
_MANAGERS = words(
    """
    torch.amp.autocast torch.autocast torch.cuda.amp.autocast torch.profiler.record_function
    torch.autograd.profiler.record_function
    torch.device torch.cuda.device tqdm.tqdm torch.enable_grad torch.autograd.set_detect_anomaly
    """
)


def gradients_untouched(facts: Facts, scope: Scope, low: int, high: int) -> Iterator[Obligation]:
    """What stands against it that nothing between two positions of a scope's order looks at gradients or changes them."""
    flow = flow_of(scope)
    between = [node for node in flow.order if low <= flow.order[node] < high]
    for call in between:
        if not isinstance(call, ast.Call):
            continue
        name = (path_of(call.func) or getattr(call.func, "attr", "") or "").rpartition(".")[2]
        if facts.inference.value(scope, call.func).must(_differentiates_apart):
            continue
        if "grad" in name and name not in ("no_grad", "enable_grad", "set_grad_enabled"):
            yield Obligation(Kind.GRADIENT, f"`{ast.unparse(call.func)}` works on gradients in between")
        elif name in ("backward", "step", "closure", "unscale_"):
            yield Obligation(Kind.CONTROL_FLOW, f"`{ast.unparse(call.func)}` stands in between")
        elif (kind := works_with_gradients(facts, scope, call)) is not None:
            yield Obligation(kind, f"`{ast.unparse(call.func)}` may run a backward pass or read gradients")
    for store in flow.stores:
        if low <= flow.order[store] < high and isinstance(store, ast.Subscript) and _may_set_parameters(facts, scope, store):
            yield Obligation(Kind.GRADIENT, f"`{ast.unparse(store)}` may say whose gradients are cleared")
    yield from feared(facts.project, scope.module.source.path, RUNS_UNCALLED)
    if any(isinstance(node, ast.ClassDef) for node in between):
        yield Obligation(Kind.GRADIENT, "a class is defined in between, and its body may read gradients")
    for function in dict.fromkeys(hidden_runs(facts, scope, between)):
        if (kind := reaches_gradients(facts, function)) is not None:
            yield Obligation(kind, f"`{function.name}` may run in between, and run a backward pass or read gradients")
    unknown = unknown_objects(facts, scope, between, lambda method: reaches_gradients(facts, method) is None)
    yield from filter(None, (unknown,))


def _may_set_parameters(facts: Facts, scope: Scope, store: ast.Subscript) -> bool:
    """Whether an item that is set may be the parameters of a group of an optimizer."""
    key = facts.inference.value(scope, store.slice)
    if key.must(lambda a: isinstance(a, Literal) and a.value != "params") or is_display(flow_of(scope), store.value):
        return False
    return not facts.inference.value(scope, store.value).must_be(Tensor, Sequence, Elements, Mapping)


def works_with_gradients(facts: Facts, scope: Scope, call: ast.Call, depth: int = 4) -> Kind | None:
    """What is open about a call that must not run a backward pass, read gradients or clear them.

    A layer that cannot be followed is a matter of `known-layers`; what else is not known may do anything.
    """
    inference = facts.inference
    targets = facts.loops.targets(scope, call)
    found = _worst(reaches_gradients(facts, target, depth) for target in targets)
    if found is Kind.GRADIENT:
        return found
    if isinstance(call.func, ast.Attribute):
        row, owner = operations.method(call.func.attr), inference.value(scope, call.func.value)
        may_be_tensor = not owner.may(lambda a: isinstance(a, Object) and not _is_of_known_package(a))
        if may_be_tensor and row and not row.gradients and not facts.project.backward_helpers((call.func.attr,)):
            return found
        if owner.must_be(Tensor, Batch, Output, Number, Text, Literal, Sequence, Elements, Mapping):
            return found
        if call.func.attr in _OF_CONTAINERS and is_display(flow_of(scope), call.func.value):
            return found
        if not targets and call.func.attr in _HOUSEKEEPING and owner.must(lambda a: is_neural_module(inference, a)):
            return None
        if owner.must(lambda a: _is_of_known_package(a) and not is_optimizer(a)):
            return _worst([found, *(_of_module(facts, a, depth) for a in owner.alternatives)])
    callee = inference.value(scope, call.func).without(_cannot_be_called)
    if callee.may(lambda a: isinstance(a, External) and not _sees_no_gradients(facts, scope, call, a.qualname)):
        return Kind.GRADIENT
    found = _worst([found, *(_of_module(facts, a, depth) for a in callee.alternatives)])
    if (callee.open or not targets) and not callee.must_be(External, Object):
        if not callee.alternatives and (container := origin(inference, scope, flow_of(scope), call.func)) is not None:
            return _worst([found, _of_held(facts, *container, depth)])
        return Kind.KNOWN_LAYERS if found is not Kind.GRADIENT and stands_for_layers(inference, callee) else Kind.GRADIENT
    return found


def _cannot_be_called(alternative: Alternative) -> bool:
    """Whether a call of it raises: `None` where a layer is left out, a tensor that a name was taken for."""
    return isinstance(alternative, Tensor) or (isinstance(alternative, Literal) and alternative.value is None)


def _is_of_known_package(alternative: Alternative) -> bool:
    """Whether an object's class is torch's, or of a package that knows nothing of gradients."""
    return isinstance(alternative, Object) and alternative.qualname.startswith(("builtins.", "torch.", *_PACKAGES))


_OF_CONTAINERS = words("append insert pop clear copy keys values items reverse")
"""Methods of lists and dicts that run no code of what they hold."""


def _worst(kinds: Iterable[Kind | None]) -> Kind | None:
    """What is open about several things together: the worst is not declarable."""
    found = [kind for kind in kinds if kind is not None]
    return next((kind for kind in found if not kind.is_declarable), found[0] if found else None)


def reaches_gradients(facts: Facts, scope: Scope, depth: int = 4) -> Kind | None:
    """The same of a function, with what it runs, as for a call; what is deeper than `depth` calls may do anything."""
    if depth == 0 or USES_GRADIENTS.search(scope.text):
        return Kind.GRADIENT
    nothing: Kind | None = None
    solver = facts.inference.solver
    return solver.solve(("reaches gradients", scope, depth), lambda: _reaches_gradients(facts, scope, depth), nothing)


def _reaches_gradients(facts: Facts, scope: Scope, depth: int) -> Kind | None:
    flow = flow_of(scope)
    found = _worst(works_with_gradients(facts, scope, inner, depth - 1) for inner in flow.calls)
    if found is Kind.GRADIENT:
        return found
    called = {target for call in flow.calls for target in facts.loops.targets(scope, call)}
    others = {*hidden_runs(facts, scope, flow.order)} - called - {scope}
    unknown = unknown_objects(facts, scope, flow.order, lambda method: reaches_gradients(facts, method) is None)
    found = _worst([found, None if unknown is None else unknown.kind])
    return _worst([found, *(reaches_gradients(facts, other, depth - 1) for other in others)])


def _of_module(facts: Facts, alternative: Alternative, depth: int) -> Kind | None:
    """What is open about the forward pass of a module, through modules of the project that it holds."""
    if isinstance(alternative, Instance):
        forward = find_method(facts.inference, alternative.cls, "forward")
        if forward is not None:
            return reaches_gradients(facts, forward, depth)
        network = Network(facts, alternative.cls.name, set(), records=False)
        return _of_network(facts, network, network.cls(alternative.cls), depth)
    if not isinstance(alternative, Object) or (_is_of_known_package(alternative) and alternative.qualname not in _CONTAINERS):
        return None
    if alternative.qualname not in _CONTAINERS:
        return Kind.KNOWN_LAYERS
    if depth == 0:
        return Kind.GRADIENT
    if not isinstance(alternative.site, tuple):
        return Kind.KNOWN_LAYERS
    scope, call = alternative.site
    given = [(scope, part) for part in (*call.args, *(k.value for k in call.keywords))]
    return _worst(_of_held(facts, *part, depth) for part in (*given, *fills(facts, scope, call)))


def _of_held(facts: Facts, scope: Scope, held: ast.expr, depth: int) -> Kind | None:
    """What is open about the forward passes of the layers that a container holds, or that stand in what it is filled with."""
    value = facts.inference.value(scope, held)
    if value.must(_is_part):
        return _worst(_of_module(facts, a, depth - 1) for a in value.alternatives)
    network = Network(facts, ast.unparse(held), set(), records=False)
    return _of_network(facts, network, network.held(scope, held, 6), depth)


def _is_part(alternative: Alternative) -> bool:
    """Whether a part of a container is a layer, its name or its place, and nothing that holds layers in its turn."""
    is_layer = isinstance(alternative, Object) and is_module_name(alternative.qualname)
    return is_layer or isinstance(alternative, (Instance, Literal, Number, Text))


def _of_network(facts: Facts, network: Network, found: Iterator[Obligation], depth: int) -> Kind | None:
    """What is open about a network with what was found about it, and about the forward pass of each class that it has."""
    kinds = [obligation.kind for obligation in network.kinds(found)]
    forwards = [find_method(facts.inference, cls, "forward") for cls in network.seen if isinstance(cls, Class)]
    reached = (reaches_gradients(facts, f, depth - 1) for f in dict.fromkeys(forwards) if f is not None)
    return _worst([*kinds, *reached])


def _sees_no_gradients(facts: Facts, scope: Scope, call: ast.Call, qualname: str) -> bool:
    """Whether a function of a package reads, writes or uses no gradients, whatever it is given."""
    if qualname in ("builtins.getattr", "builtins.hasattr"):
        name = facts.inference.value(scope, call.args[1]).literal if len(call.args) > 1 else None
        return isinstance(name, str) and "grad" not in name
    if qualname in _MANAGERS or qualname.startswith(("builtins.", *_PACKAGES)) or _differentiates_apart(External(qualname)):
        return qualname not in _SEES
    return is_known_function(qualname) or not any(
        facts.inference.value(scope, given).may(lambda a: not isinstance(a, (Number, Literal, Text)))
        or facts.inference.value(scope, given).open
        for given in (*call.args, *(k.value for k in call.keywords))
    )


def _differentiates_apart(alternative: Alternative) -> bool:
    """Whether a function hands out gradients, and neither reads nor changes those that tensors hold."""
    return alternative == External("torch.autograd.grad")


def leaves_gradients_alone(facts: Facts, scope: Scope, manager: ast.expr) -> bool:
    """Whether a context manager lets what stands under it do to gradients what it does without it."""
    if facts.inference.value(scope, manager).must(lambda a: isinstance(a, Object) and a.qualname.startswith("tqdm")):
        return True
    callee = facts.inference.value(scope, manager.func if isinstance(manager, ast.Call) else manager)
    return callee.must(lambda a: isinstance(a, External) and a.qualname in _MANAGERS)


_CLEARS = made(r"(?:reset|clear|zero)_*(?:all_*)?grad", re.I)


def clears_gradients(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether a call is `zero_grad`, or that of a method that calls it and is named like it: `self.reset_grad()`."""
    if not isinstance(call.func, ast.Attribute) or not _CLEARS.search(call.func.attr):
        return False
    return call.func.attr == "zero_grad" or any(
        "zero_grad" in flow_of(target).calls_named for target in facts.loops.targets(scope, call)
    )
