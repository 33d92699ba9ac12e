"""Whether code works with gradients: runs a backward pass, reads, writes or clears them, or steps an optimizer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.facts import operations
from perflint.facts.classes import find_method
from perflint.facts.definitions import path_of
from perflint.facts.facts import Facts
from perflint.facts.fears import RUNS_UNCALLED, feared
from perflint.facts.flow import flow_of
from perflint.facts.hidden import hidden_runs
from perflint.facts.loops import is_neural_module, is_optimizer
from perflint.facts.values import (
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
from perflint.facts.without_graph import is_known_function
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, words

READS_GRADIENTS = any_layout(rb"\. _?grad\b|['\"]_?grad['\"]|clip_grad|get_total_norm|grad_norm")
USES_GRADIENTS = any_layout(rb"\. (?:_?grad\b|(?:zero_grad|step) \()|backward \(|['\"]_?grad['\"]|_hook \(|clip_grad|grad_norm")
_HOUSEKEEPING = words("parameters named_parameters buffers modules children train eval state_dict")
_PACKAGES = (
    "math.",
    "numpy.",
    "random.",
    "time.",
    "logging.",
    "tqdm.",
    "torch.utils.data.",
    "collections.",
    "itertools.",
    "os.",
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
        if "grad" in name and name not in ("no_grad", "enable_grad", "set_grad_enabled"):
            yield Obligation(Kind.GRADIENT, f"`{ast.unparse(call.func)}` works on gradients in between")
        elif name in ("backward", "step", "closure", "unscale_"):
            yield Obligation(Kind.CONTROL_FLOW, f"`{ast.unparse(call.func)}` stands in between")
        elif works_with_gradients(facts, scope, call):
            yield Obligation(Kind.GRADIENT, f"`{ast.unparse(call.func)}` may run a backward pass or read gradients")
    yield from feared(facts.project, scope.module.source.path, RUNS_UNCALLED)
    if any(isinstance(node, ast.ClassDef) for node in between):
        yield Obligation(Kind.GRADIENT, "a class is defined in between, and its body may read gradients")
    for function in dict.fromkeys(hidden_runs(facts, scope, between)):
        if reaches_gradients(facts, function):
            yield Obligation(Kind.GRADIENT, f"`{function.name}` may run in between, and run a backward pass or read gradients")


def works_with_gradients(facts: Facts, scope: Scope, call: ast.Call, depth: int = 4) -> bool:
    """Whether a call may run a backward pass, read gradients or clear them; yes when it is not known what it runs."""
    inference = facts.inference
    targets = facts.loops.targets(scope, call)
    if any(reaches_gradients(facts, target, depth) for target in targets):
        return True
    if isinstance(call.func, ast.Attribute):
        row = operations.method(call.func.attr)
        if row is not None and not row.gradients and not facts.project.backward_helpers((call.func.attr,)):
            return False
        owner = inference.value(scope, call.func.value)
        if owner.must_be(Tensor, Batch, Output, Number, Text, Literal, Sequence, Elements, Mapping):
            return False
        if not targets and call.func.attr in _HOUSEKEEPING and owner.must(lambda a: is_neural_module(inference, a)):
            return False
        if owner.must(lambda a: isinstance(a, Object) and not is_optimizer(a)):
            return owner.may(lambda a: _module_works_with_gradients(facts, a, depth))
    callee = inference.value(scope, call.func)
    if callee.may(lambda a: isinstance(a, External) and not _sees_no_gradients(facts, scope, call, a.qualname)):
        return True
    if callee.may(lambda a: _module_works_with_gradients(facts, a, depth)):
        return True
    return (callee.open or not targets) and not callee.must_be(External, Object)


def reaches_gradients(facts: Facts, scope: Scope, depth: int = 4) -> bool:
    """Whether a function may, or what it runs; yes where that is deeper than `depth` calls."""
    if depth == 0 or USES_GRADIENTS.search(scope.text):
        return True
    flow = flow_of(scope)
    if any(works_with_gradients(facts, scope, inner, depth - 1) for inner in flow.calls):
        return True
    called = {target for call in flow.calls for target in facts.loops.targets(scope, call)}
    others = {*hidden_runs(facts, scope, flow.order)} - called - {scope}
    return any(reaches_gradients(facts, other, depth - 1) for other in others)


def _module_works_with_gradients(facts: Facts, alternative: Alternative, depth: int) -> bool:
    """Whether the forward pass of a module from outside the project may, through modules of the project that it holds."""
    if isinstance(alternative, Instance):
        forward = find_method(facts.inference, alternative.cls, "forward")
        return forward is not None and reaches_gradients(facts, forward, depth)
    if not isinstance(alternative, Object) or alternative.qualname not in _CONTAINERS:
        return False
    if not isinstance(alternative.site, tuple) or depth == 0:
        return True
    scope, call = alternative.site
    held = [facts.inference.value(scope, argument) for argument in (*call.args, *(k.value for k in call.keywords))]
    return any(
        value.may(lambda a: isinstance(a, (Instance, Object)) and _module_works_with_gradients(facts, a, depth - 1))
        or (value.open and alternative.qualname != "torch.nn.Module")
        for value in held
    )


def _sees_no_gradients(facts: Facts, scope: Scope, call: ast.Call, qualname: str) -> bool:
    """Whether a function of a package reads, writes or uses no gradients, whatever it is given."""
    if qualname in ("builtins.getattr", "builtins.hasattr"):
        name = facts.inference.value(scope, call.args[1]).literal if len(call.args) > 1 else None
        return isinstance(name, str) and "grad" not in name
    if qualname.startswith(("builtins.", *_PACKAGES)):
        return qualname not in _SEES
    return is_known_function(qualname) or not any(
        facts.inference.value(scope, given).may(lambda a: not isinstance(a, (Number, Literal, Text)))
        or facts.inference.value(scope, given).open
        for given in (*call.args, *(k.value for k in call.keywords))
    )


def leaves_gradients_alone(facts: Facts, scope: Scope, manager: ast.expr) -> bool:
    """Whether a context manager lets what stands under it do to gradients what it does without it."""
    if facts.inference.value(scope, manager).must(lambda a: isinstance(a, Object) and a.qualname.startswith("tqdm")):
        return True
    callee = facts.inference.value(scope, manager.func if isinstance(manager, ast.Call) else manager)
    return callee.must(lambda a: isinstance(a, External) and a.qualname in _MANAGERS)
