"""Whether the tensors of a step get to an accelerator: what shows that they do, and what shows that they stay on the host."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from enum import Enum

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.reach import called_from
from perflint.facts.training.network_places import Hint, Networks, hints_in, hints_in_class
from perflint.facts.values.values import Batch, ClassRef, Output, Place, Tensor, device_place, place_of
from perflint.source.cells import SUFFIX
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.texts import last_name
from perflint.source.words import any_layout, made, words

_MOVES = any_layout(
    rb"\. cuda \(|\. to \( (?:\w+ \. )*(?:\w*(?:dev|gpu|rank|cuda)|['\"](?:cuda|mps|xla|npu|xpu))|\bdevice = (?!None|['\"]cpu)"
    rb"|ccelerat|\b[Ff]abric\b|lightning|\w*Trainer \(|deepspeed|DataParallel|fully_shard|FullyShardedDataParallel"
    rb"|set_default_(?:device|tensor_type)|device_map|['\"]nccl['\"]|\bxla_device\b|\bfastai\b|\bcatalyst\b"
)
"""What moves something to a device, or has it moved."""
_MOVES_BATCHES = any_layout(rb"ccelerat|\b[Ff]abric\b|lightning|deepspeed|DeviceDataLoader|\bfastai\b|\bxla\b|\bdali\b")
"""What has the batches of loaders moved."""
_LOADER = made(r"loader|(?:^|_)dl$", re.I)
_MOVES_ITSELF = any_layout(rb"\. (?:to|cuda) \(")
_DEFAULTS = any_layout(rb"set_default_(?:device \( (?!['\"]cpu)|tensor_type \( ['\"]?torch \. cuda)|class \w+ \( \w*Trainer\b")
"""What makes all that is made afterwards on a device, or takes care of networks that are given to it."""
_LEVELS = 4
"""Through how many calls upwards it is looked for what moves something."""
_MAX_CALLERS = 12
_READ = words("item cpu numpy tolist")


class Whereabouts(Enum):
    """Where the tensors of a step are, as far as the source tells."""

    ACCELERATOR = "on an accelerator, or nothing speaks against it"
    NOT_MOVED = "nothing in sight moves them"
    HOST = "on the host, which is the only device that is named for them"


def whereabouts(facts: Facts, scope: Scope, node: ast.AST | None = None) -> Whereabouts:
    """Where the tensors are that a place of a scope computes with: a guess, and no proof.

    What moves something shows it, the nearest first: in the function and its class, in what these call, in what makes the
    networks of the function, in its callers. A network that is made in sight and moved nowhere is on the host, and so is all
    that is moved to a device which is the CPU. Where that leaves it open, any move of the program counts.

    node: what reads or copies a tensor, which counts by itself where that is on a device.
    """
    places = _places_of(facts, scope, node)
    if Place.CUDA in places:
        return Whereabouts.ACCELERATOR
    found: Whereabouts = facts.whereabouts.get(scope, lambda: _find(facts, scope))
    if Place.CUDA_OR_HOST in places and found is not Whereabouts.HOST:
        return Whereabouts.ACCELERATOR
    return found  # where it may be either, a configuration may say that it is the host


def _places_of(facts: Facts, scope: Scope, node: ast.AST | None) -> set[Place]:
    """Where what a place reads is known to be."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and last_name(node.func) in _READ):
        return set()
    held = facts.inference.value(scope, node.func.value).alternatives
    return {place_of(a) for a in held if isinstance(a, (Tensor, Batch, Output))}


def _find(facts: Facts, scope: Scope) -> Whereabouts:
    try:
        found = _by_what_is_near(facts, scope)
    except SyntaxProblem:
        found = None
    if found is not None:
        return found
    moves = facts.project.program_holds(scope.module.source.path, _MOVES)
    return Whereabouts.ACCELERATOR if moves else Whereabouts.NOT_MOVED


def _by_what_is_near(facts: Facts, scope: Scope) -> Whereabouts | None:
    while scope.parent is not None:
        scope = scope.parent
    is_notebook = scope.is_module and scope.module.source.path.endswith(SUFFIX)
    own: set[Hint] = set()
    if not is_notebook:  # whose cells are programs of their own
        own = {*hints_in(facts, scope), *(hints_in_class(facts, scope.owner) if scope.owner is not None else ())}
    if not is_notebook and (_makes_all_for_cpu(facts, scope) or _looks_at_batches_alone(facts, scope)):
        return Whereabouts.HOST
    if Hint.DEVICE in own:
        return Whereabouts.ACCELERATOR
    networks = Networks(facts)
    roots = _networks_of(facts, scope)
    hints = {hint for root in roots for hint in networks.of(scope, root)}
    if own == hints == {Hint.HOST}:
        return Whereabouts.HOST
    if Hint.DEVICE in hints or (not is_notebook and _holds(facts, called_from(facts, scope, depth=2), Hint.DEVICE)):
        return Whereabouts.ACCELERATOR
    if Hint.HOST in own | hints:
        return Whereabouts.HOST
    if roots and Hint.HIDDEN not in hints and not facts.project.program_holds(scope.module.source.path, _DEFAULTS):
        return Whereabouts.NOT_MOVED
    return _by_callers(facts, scope)


def _makes_all_for_cpu(facts: Facts, scope: Scope) -> bool:
    """Whether a function makes objects of the project that are told a device, each the CPU by its name, and moves nothing."""
    if _MOVES_ITSELF.search(scope.text):
        return False
    told = [
        keyword.value
        for call in flow_of(scope).calls
        for keyword in call.keywords
        if keyword.arg == "device" and facts.inference.value(scope, call.func).must_be(ClassRef)
    ]
    return bool(told) and all(device_place(facts.inference.value(scope, device)) is Place.HOST for device in told)


def _looks_at_batches_alone(facts: Facts, scope: Scope) -> bool:
    """Whether a function gets nothing but a loader, goes over it and runs no network: `count_classes(loader)`.

    Its batches are on the host, unless the program has a library that moves those of all loaders.
    """
    names = [parameter.arg for parameter in scope.parameters]
    if len(names) != 1 or not _LOADER.search(names[0]) or _MOVES_ITSELF.search(scope.text):
        return False
    flow = flow_of(scope)
    if not any(isinstance(loop.iterated, ast.Name) and loop.iterated.id == names[0] for loop in flow.loops):
        return False
    if any(facts.loops.is_forward(scope, call) for call in flow.calls):
        return False
    return not facts.project.program_holds(scope.module.source.path, _MOVES_BATCHES)


def _holds(facts: Facts, scopes: Iterable[Scope], wanted: Hint) -> bool:
    return any(wanted in hints_in(facts, scope) for scope in scopes)


def _networks_of(facts: Facts, scope: Scope) -> list[ast.expr]:
    """The networks that a function runs, or whose parameters it goes over."""
    return list({path_of(node) or ast.dump(node): node for node in _find_networks(facts, scope)}.values())


def _find_networks(facts: Facts, scope: Scope) -> Iterator[ast.expr]:
    flow = flow_of(scope)
    for call in flow.calls:
        match call.func:
            case ast.Attribute(value=network, attr="parameters" | "named_parameters") if not call.args:
                yield network
            case ast.Attribute(value=network, attr="train") if not call.args and facts.loops.kinds(scope):
                yield network
            case ast.Name() | ast.Attribute() if flow.loop(call) is not None and facts.loops.is_forward(scope, call):
                yield call.func


def _by_callers(facts: Facts, scope: Scope) -> Whereabouts | None:
    """What the callers of a function say, the nearest first; None where nobody moves anything."""
    level, seen = [scope], {scope}
    for _ in range(_LEVELS):
        callers = [caller for function in level for caller in _callers(facts, function)]
        level = [caller for caller in dict.fromkeys(callers) if caller not in seen][:_MAX_CALLERS]
        seen.update(level)
        found = {hint for caller in level for hint in hints_in(facts, caller)}
        if Hint.DEVICE in found:
            return Whereabouts.ACCELERATOR
        if Hint.HOST in found:
            return Whereabouts.HOST
    return None


def _callers(facts: Facts, scope: Scope) -> Iterator[Scope]:
    """The functions that call one, and those that make objects of its class."""
    functions = [scope]
    if scope.owner is not None and scope.name != "__init__":
        functions += filter(None, [scope.owner.methods.get("__init__")])
    for function in functions:
        for site in facts.inference.callers.sites(function).sites:
            outer = site.scope
            while outer.parent is not None:
                outer = outer.parent
            yield outer
