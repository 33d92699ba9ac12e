"""Whether code evaluates a network rather than trains it, as far as its names and its calls of `eval()` tell."""

from __future__ import annotations

import ast
import os
import re
from functools import cache

from perflint.facts.autograd.gradflow import GradEnd, GradUse, adapts, backward_below, backward_in, graph_ends
from perflint.facts.autograd.keeps_nothing import is_abstract
from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.training.generation import writes_tokens
from perflint.facts.training.loops import LoopKind
from perflint.facts.training.training_objects import MODULE_HOUSEKEEPING, is_neural_module, may_run_module
from perflint.facts.values.call_sites import CallSite
from perflint.facts.values.classes import ancestors
from perflint.facts.values.names import NETWORK_CALL
from perflint.facts.values.values import Instance, Object
from perflint.source.syntax import Class, Scope
from perflint.source.texts import last_name
from perflint.source.words import any_layout, made, words

_ENTERS_SWITCH = any_layout(rb"enter_context \( (?:\w+ \. )?(?:no_grad|inference_mode|set_grad_enabled) \(")
"""`stack.enter_context(torch.no_grad())`: a region whose end is not in the text."""
_GRAD_SWITCH = any_layout(rb"no_grad|inference_mode|set_grad_enabled")
CALLS_EVAL = any_layout(rb"\. eval \(")
_MEASURES = "eval|evaluate|evaluation|test|valid|validate|validation|vali|val|score|benchmark"
_MEASURE = made(rf"(?:^|_)(?:{_MEASURES})(?:_|$|\d)", re.I)
_EVALUATES = made(
    rf"(?:^|_)(?:{_MEASURES}|infer|inference|predict|prediction|sample|generate|embed|encode|extract)(?:_|$|\d)", re.I
)
_ACTS = made(r"(?:^|_)(?:act|actions?)(?:_|$|\d)", re.I)
_READS = any_layout(rb"\. (?:item|detach|cpu|tolist) \(|argmax")
_TEST_LIBRARIES = made(rb"pytest|unittest")
_TESTS = any_layout(rb"^[\t\x20]*(?:import|from) (?:pytest|unittest)\b", re.M)
_FORWARD_METHODS = frozenset(("forward", "generate", "encode", "decode", "sample", "predict", "get_action", "act"))
_LOSS = made(r"crit(?!ic)|loss", re.I)
_STORES = any_layout(rb"\bself \. \w+ =(?!=)")
_FREEZES = any_layout(rb"\. requires_grad = False")
_FREEZING = any_layout(rb"\. requires_grad\b|requires_grad_ \(")


def measures(scope: Scope) -> bool:
    """Whether a function is named like one that measures how good a network is."""
    return bool(_MEASURE.search(scope.name))


def evaluates(scope: Scope) -> bool:
    """Whether a function is named like one that runs a network without training it, or calls `eval()`."""
    return bool(_EVALUATES.search(scope.name)) or calls_eval(scope)


def acts(scope: Scope) -> bool:
    """Whether a function is named like one by which an agent chooses what to do."""
    return bool(_ACTS.search(scope.name))


def calls_eval(scope: Scope) -> bool:
    """Whether a function switches something to evaluation."""
    return any(isinstance(c.func, ast.Attribute) and not c.args for c in flow_of(scope).calls_named["eval"])


def is_test(scope: Scope) -> bool:
    """Whether the code is of a test suite, which may run a network for its graph or its hooks, and seldom for long."""
    folder, name = os.path.split(scope.module.source.path.lower())
    if name.startswith("test_") and os.path.basename(folder) in ("test", "tests"):
        return True
    if name.endswith("_test.py") and not {"test", "tests"}.isdisjoint(folder.split(os.sep)):
        return True
    named = scope.name.startswith("test_") and (name.startswith("test_") or name.endswith("_test.py"))
    return named or (scope.module.holds(_TEST_LIBRARIES) and scope.module.holds(_TESTS))


def called_in_evaluation(facts: Facts, scope: Scope) -> bool:
    """Whether each caller has called `eval()` before: all callers that there are, or all in a file that nobody imports."""
    if not _READS.search(scope.text) or not facts.project.program_holds(scope.module.source.path, CALLS_EVAL):
        return False
    found = facts.inference.callers.sites(scope)
    known = found.complete or not facts.project.importers(scope.module.source.path)
    return known and bool(found.sites) and all(_after_eval(site) for site in found.sites)


def is_tried_out(facts: Facts, scope: Scope) -> bool:
    """Whether a function without a loop runs once: the top of a script calls it, or such functions do, and no loop."""
    return _runs_once(facts, scope, 3, loops=False)


def runs_once(facts: Facts, scope: Scope) -> bool:
    """Whether a program runs a scope once: no loop is around its calls, as far up as they are followed."""
    return scope.is_module or _runs_once(facts, scope, 3, loops=True)


def _runs_once(facts: Facts, scope: Scope, depth: int, loops: bool) -> bool:
    """loops: whether the functions on the way may have loops elsewhere."""
    sites = facts.inference.callers.sites(scope).sites if depth and (loops or not flow_of(scope).loops) else ()
    callers = {site.scope for site in sites if not site.scope.is_module and facts.inference.callers.sites(site.scope).sites}
    return (
        any(site.scope.is_module or site.scope in callers for site in sites)
        and all(flow_of(site.scope).loop(site.node) is None for site in sites)
        and all(_runs_once(facts, caller, depth - 1, loops) for caller in callers)
    )


def goes_backward_once(facts: Facts, scope: Scope, *statements: ast.stmt) -> bool:
    """Whether statements go backward, and a program runs them once: no loop is around them, in them, or in what they call."""
    flow = flow_of(scope)
    if any(flow.loop(statement) is not None for statement in statements) or not runs_once(facts, scope):
        return False
    inside = {node for statement in statements for node in ast.walk(statement)}
    called = (target for call in flow.calls if call in inside for target in facts.loops.targets(scope, call))
    loops = any(loop.node in inside for loop in flow.loops) or any(map(facts.loops.kinds, called))
    return not loops and any(call in inside for call in flow.calls_named["backward"])


def _after_eval(site: CallSite) -> bool:
    if not CALLS_EVAL.search(site.scope.text):
        return False
    flow = flow_of(site.scope)
    return any(
        flow.dominates(call, site.node)
        for call in flow.calls_named["eval"]
        if isinstance(call.func, ast.Attribute) and not call.args
    )


def computes_with_network(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether a call may run a forward pass: a network that gets something, or a method of one; no loss."""
    inference = facts.inference
    if not may_run_module(call) or isinstance(call.func, ast.Call):
        return False
    if isinstance(call.func, ast.Attribute) and call.func.attr in _FORWARD_METHODS:
        if _is_handmade(scope, call.func.value):
            return False
        if inference.value(scope, call.func.value).may(lambda a: is_neural_module(inference, a)):
            return True
    name = (path_of(call.func) or "").rpartition(".")[2]
    if name in ("eval", "train") or _LOSS.search(name):
        return False
    if not (call.args or call.keywords) or _makes_network(scope, call):
        return False
    return inference.value(scope, call.func).may(lambda a: is_neural_module(inference, a))


def _is_handmade(scope: Scope, receiver: ast.expr) -> bool:
    """Whether what runs forward is a loss, or has a `backward` of its own: a network without autograd."""
    name = last_name(receiver)
    if _LOSS.search(name):
        return True
    near = scope.owner.methods.values() if scope.owner is not None else (scope,)
    return any(_calls_backward_of(name).search(other.text) for other in near)


@cache
def _calls_backward_of(name: str) -> re.Pattern[bytes]:
    return any_layout(rb"\b" + name.encode() + rb"(?<!\w" + name.encode() + rb") \. backward \(")


def hands_to_network(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether a call runs a function of the project that is no module's and hands a batch to a network."""
    return (
        bool(call.args)
        and not _makes_network(scope, call)
        and any(
            (target.owner is None or not is_neural_module(facts.inference, Instance(target.owner)))
            and not evaluates(target)
            and NETWORK_CALL.search(target.text)
            and _records(facts, target)
            and not adapts(facts, target)
            and not _drops_graphs(facts, target)
            for target in facts.loops.targets(scope, call)
        )
    )


def _records(facts: Facts, scope: Scope) -> bool:
    """Whether a function runs a network, and in no branch without autograd: it does not choose itself."""
    runs = [call for call in flow_of(scope).calls if computes_with_network(facts, scope, call)]
    return bool(runs) and not any(facts.grad_mode.is_off(scope, call) is True for call in runs)


def _drops_graphs(facts: Facts, scope: Scope) -> bool:
    """Whether a function that only evaluations call drops each graph itself: then it is the place to switch autograd off."""
    if not called_in_evaluation(facts, scope):
        return False
    runs = (call for call in flow_of(scope).calls if computes_with_network(facts, scope, call))
    return not any(graph_ends(facts, scope, call) for call in runs)


def only_evaluates(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether a helper runs in a loop over batches that trains nothing, in a function that trains elsewhere."""
    loop = facts.loops.step_loop(scope, call)
    if loop is None or facts.loops.kinds(scope).get(loop) is not LoopKind.EVALUATE:
        return False
    targets = facts.loops.targets(scope, call)
    return not any(backward_in(facts, target) or backward_below(facts, target) for target in targets)


def _makes_network(scope: Scope, call: ast.Call) -> bool:
    """Whether what a call returns is used like a network: it makes one, or loads it."""
    flow = flow_of(scope)
    statement = flow.statement(call)
    if not isinstance(statement, ast.Assign):
        return False
    names = {path_of(target) for target in statement.targets} - {None}
    return any(
        isinstance(c.func, ast.Attribute) and path_of(c.func.value) in names
        for name in ("eval", "train", "load_state_dict", "parameters", "state_dict")
        for c in flow.calls_named[name]
    )


def are_differentiated(facts: Facts, scope: Scope, ends: list[GradEnd]) -> bool:
    """Whether a backward pass runs over graphs with some ends, in the function or in a caller that gets them."""
    if any(end.use is GradUse.BACKWARD for end in ends):
        return True
    return any(isinstance(end.node, ast.Return) for end in ends) and any(
        end.use is GradUse.BACKWARD
        for site in facts.inference.callers.sites(scope).sites
        for end in graph_ends(facts, site.scope, site.node)
    )


def wastes_no_graph(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether the graph of a forward pass is no waste: none is recorded, as far as is known, or somebody wants it."""
    if facts.grad_mode.is_off(scope, call) is not False or _ENTERS_SWITCH.search(scope.text):
        return True
    targets = [target for target in facts.loops.targets(scope, call) if not is_abstract(target)]
    if not targets and writes_tokens(call):
        return True  # transformers switches autograd off itself
    if targets and all(facts.grad_mode.may_be_switched_off(t) or _runs_without_autograd(facts, t) for t in targets):
        return True
    return (
        _has_no_parameters(facts, scope, call)
        or _is_frozen(facts, scope, call)
        or _switches_gradients_off(facts, scope, call)
        or _is_wanted(facts, scope, call)
        or _keeps_result(facts, scope, call)
    )


def _is_wanted(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether another branch runs the same network without autograd, so that here its graph is what somebody asks for.

    Or it trains: which way a network is run is a choice, and a branch that loses its result is one that nobody runs.
    """
    flow = flow_of(scope)
    name = path_of(call.func)
    sides = [b for b in flow.block[call].ancestry() if b.kind in ("then", "else")]
    beside = [
        other
        for other in (flow.calls if sides and name is not None else ())
        if path_of(other.func) == name
        if any(block.node is side.node and block is not side for side in sides for block in flow.block[other].ancestry())
    ]
    return bool(beside) and (backward_in(facts, scope) or any(facts.grad_mode.is_off(scope, other) is True for other in beside))


def _keeps_result(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether a network may keep what it computes, for a method that is called behind its forward pass."""
    flow, name = flow_of(scope), path_of(call.func)
    asked = name is not None and any(
        isinstance(other.func, ast.Attribute)
        and other.func.attr not in MODULE_HOUSEKEEPING
        and path_of(other.func.value) == name
        and flow.order[other] > flow.order[call]
        for other in flow.calls
    )
    targets = facts.loops.targets(scope, call) if asked else []
    return asked and (not targets or any(_STORES.search(target.text) for target in targets))


def _runs_without_autograd(facts: Facts, target: Scope) -> bool:
    """Whether a method that runs networks switches autograd off around each of them."""
    if not _GRAD_SWITCH.search(target.text):
        return False
    forwards = [call for call in flow_of(target).calls if computes_with_network(facts, target, call)]
    return bool(forwards) and all(facts.grad_mode.is_off(target, call) is True for call in forwards)


_WITHOUT_PARAMETERS = words(
    """
    Sigmoid Softmax LogSoftmax Softmin Softplus Softsign Tanh ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish Hardtanh
    Hardswish Hardsigmoid LogSigmoid Threshold Dropout Identity Flatten Unflatten Upsample MaxPool1d MaxPool2d MaxPool3d
    AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveMaxPool2d PixelShuffle Fold Unfold ZeroPad2d
    CosineSimilarity PairwiseDistance
    """
)


_MAY_HOLD_PARAMETERS = any_layout(
    rb"\bnn \. (?!Module\b|functional\b)|Param|Module(?:List|Dict)|_module \(|_parameter \(|setattr"
)


def _has_no_parameters(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether a layer has nothing to train: its graph is that of its input, which another call has recorded."""
    called = facts.inference.value(scope, call.func)
    return (
        bool(called.alternatives)
        and called.must_be_if_known(Object, Instance)
        and all(
            _holds_numbers_alone(facts, a.cls)
            if isinstance(a, Instance)
            else isinstance(a, Object) and a.qualname.startswith("torch.nn.") and _last(a) in _WITHOUT_PARAMETERS
            for a in called.alternatives
        )
    )


def _holds_numbers_alone(facts: Facts, cls: Class) -> bool:
    """Whether the methods of a class make no layer and no parameter, and keep none that they are given."""
    return all(_keeps_numbers(facts, above) for above in ancestors(facts.inference, cls) if isinstance(above, Class))


def _keeps_numbers(facts: Facts, cls: Class) -> bool:
    return all(
        not _MAY_HOLD_PARAMETERS.search(method.text)
        and not (name == "__init__" and any(last_name(call.func)[:1].isupper() for call in flow_of(method).calls))
        and not any(_is_kept_module(facts, method, store) for store in flow_of(method).stores)
        for name, method in cls.methods.items()
    )


def _is_kept_module(facts: Facts, scope: Scope, store: ast.expr) -> bool:
    """`self.net = net`, with what may be a network."""
    if not isinstance(store, ast.Attribute):
        return False
    statement = flow_of(scope).statement(store)
    if not isinstance(statement, ast.Assign):
        return False
    value = facts.inference.value(scope, statement.value)
    if isinstance(statement.value, ast.Name) and not value.alternatives:
        return not _is_operand(scope, store.attr)
    return value.may(lambda a: is_neural_module(facts.inference, a))


def _is_operand(scope: Scope, name: str) -> bool:
    """Whether the class of a method only computes with an attribute, as in `self.scale * x`: it is no network."""
    flows = [flow_of(method) for method in scope.owner.methods.values()] if scope.owner is not None else []
    looks = [(flow, node) for flow in flows for node in flow.order if isinstance(node, ast.Attribute) and node.attr == name]
    loads = [flow.parent[node] for flow, node in looks if isinstance(node.ctx, ast.Load)]
    return bool(loads) and all(isinstance(parent, ast.BinOp) for parent in loads)


def _last(layer: Object) -> str:
    package, _, name = layer.qualname.rpartition(".")
    return name if package.startswith("torch.nn") else ""


def _is_frozen(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether the parameters of the network that a call runs are switched off, so that no graph is recorded."""
    name = path_of(call.func) or ""
    of_object = name.startswith("self.")
    owner = name if of_object else name.partition(".")[0]
    methods = scope.owner.methods.values() if of_object and scope.owner is not None else ()
    homes = [scope, *(method for method in methods if _FREEZING.search(method.text))]
    if any(_freezes(flow_of(home), owner) for home in homes):
        return True
    for alternative in facts.inference.value(scope, call.func).alternatives:
        if isinstance(alternative, Instance):
            init = alternative.cls.methods.get("__init__")
            if init is not None and _FREEZES.search(init.text):
                return True
    return False


def _freezes(flow: Flow, owner: str) -> bool:
    """Whether a function switches the parameters of a network off, by its name: all at once, or one after the other."""
    for switch in (*flow.calls_named["requires_grad_"], *flow.calls_named["requires_grad"]):
        if any(isinstance(a, ast.Constant) and a.value is False for a in switch.args):
            if owner in ast.unparse(flow.statement(switch)):
                return True
    return any(
        isinstance(store, ast.Attribute)
        and store.attr == "requires_grad"
        and (loop := flow.block[store].loop) is not None
        and loop.iterated is not None
        and owner.rpartition(".")[2] in ast.unparse(loop.iterated)
        for store in flow.stores
    )


def _switches_gradients_off(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether what is called is itself decorated to run without autograd; what is there to be overridden computes nothing."""
    targets = [target for target in facts.loops.targets(scope, call) if not is_abstract(target)]
    return bool(targets) and all(any(facts.grad_mode.switches(t, d) for d in t.decorators) for t in targets)


def is_for_caller(facts: Facts, scope: Scope, call: ast.Call, ends: list[GradEnd]) -> bool:
    """Whether it is the caller who says what a pass is for: what he gave is run as it is, and its graph is returned."""
    if not any(isinstance(end.node, ast.Return) for end in ends) or CALLS_EVAL.search(scope.text):
        return False
    return facts.inference.value(scope, call.func).open and not measures(scope)
