"""Networks that a loop trains in evaluation mode from its second round on: it evaluates them, and nothing sets them back.

What a round does is a list of what happens to networks, in its order, through the functions of the project that it calls.
Networks are told apart by the names that code has for them, so this is no proof.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache, partial
from typing import Final, NamedTuple

from perflint.facts.dataflow.definitions import Loop
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.training.layers_by_mode import ByMode, layers_by_mode
from perflint.facts.training.rounds import ends_with, is_new_each_round, name_outside, network_name
from perflint.facts.values.values import Alternative, External, Object
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout, made, words

_DEPTH: Final = 3
"""How many calls deep a round is followed."""
_TRAINS: Final = ("backward", "manual_backward")
_SETS_MODES: Final = made(r"(?:^|_)(?:train(?:ing)?|mode)(?:$|_(?!loss|acc|metric|score|iou|dice|data|loader|set|batch|time))")
"""Names of functions that nobody has in sight, and that may set a network back."""

_KNOWN: Final = words(
    """
    builtins torch torchvision torchmetrics numpy scipy sklearn pandas tqdm wandb tensorboardX matplotlib accelerate copy os sys
    json time math random pickle logging pathlib collections itertools functools argparse gc
    """
)
"""Packages whose functions leave the mode of a network as it is."""


class _Act(Enum):
    TRAINED = "a backward pass goes through it"
    EVALUATES = "it is put into evaluation mode"
    TRAINS = "some network is put into training mode, or may be"
    HANDED_ON = "a function that nobody has in sight gets it, and may put it into training mode"


class _Event(NamedTuple):
    """What happens to a network.

    network: its name where the loop stands; None for one that cannot be told. node: the call there. held: where, and by which
    expression, it is put into evaluation mode.
    """

    act: _Act
    network: str | None
    node: ast.AST
    held: tuple[Scope, ast.expr] | None = None


class LeftInEvaluation(NamedTuple):
    """A network that a loop leaves in evaluation mode.

    at: the call in the loop that puts it there, or leads to that. layers: what it is known to have that depends on the mode.
    """

    loop: Loop
    network: str
    at: ast.Call
    layers: frozenset[ByMode]


def left_in_evaluation(facts: Facts, scope: Scope) -> Iterator[LeftInEvaluation]:
    """The networks that a function trains in a loop, then evaluates, and trains on in the next round as they are then."""
    flow, told = flow_of(scope), set[str]()
    for loop in reversed(flow.loops) if not _hands_on(flow) else ():  # told of the innermost
        if loop.statement is None:
            continue
        inside = [call for call in flow.calls if flow.within(call, loop.block)]
        happens = list(_events(facts, scope, inside, _DEPTH))
        for network in dict.fromkeys(e.network for e in happens if e.act is _Act.EVALUATES and e.network is not None):
            at = _last_switch(happens, network)
            if network in told or at is None or is_new_each_round(flow, loop, network) or ends_with(facts, scope, loop, at):
                continue
            if not facts.project.program_holds(scope.module.source.path, optimized(network)):
                continue
            before = (call for call in flow.calls if flow.order[call] < flow.order[loop.statement])
            if any(e.act is _Act.EVALUATES and e.network == network for e in _events(facts, scope, before, _DEPTH)):
                continue
            told.add(network)
            named = ((scope, node) for node in flow.order if network_name(node) == network)
            asked = (e.held for e in reversed(happens) if e.act is _Act.EVALUATES and e.network == network)
            yield LeftInEvaluation(loop, network, at, layers_by_mode(facts, filter(None, (*asked, *named))))


def trained(facts: Facts, scope: Scope, loop: Loop) -> frozenset[str]:
    """The networks that a backward pass goes through in a round of a loop, and other things that are handed on in it."""
    flow = flow_of(scope)
    inside = (call for call in flow.calls if flow.within(call, loop.block))
    happens = _events(facts, scope, inside, _DEPTH)
    return frozenset(event.network for event in happens if event.act is _Act.TRAINED and event.network is not None)


@cache
def optimized(network: str) -> re.Pattern[bytes]:
    """Where the parameters of a network are handed to somebody, such as an optimizer; what a loop goes over is frozen there."""
    last = re.escape(network.rpartition(".")[2].encode())
    return any_layout(rb"\b%b (?:\. module )?\. (?:named_)?parameters \((?! \) :)" % last)


def _last_switch(happens: list[_Event], network: str) -> ast.Call | None:
    """Where a round that has trained a network puts it into evaluation mode, if that is how the next round finds it."""
    if any(e.act is _Act.TRAINS or (e.act is _Act.HANDED_ON and _holds(e.network or "", network)) for e in happens):
        return None
    about = [event for event in happens if event.network == network]
    if not about or about[0].act is not _Act.TRAINED or about[-1].act is not _Act.EVALUATES:
        return None
    before = happens[: happens.index(about[0])]
    if any(e.act is _Act.EVALUATES and _holds(network, e.network or "") for e in before):
        return None  # its forward pass puts a part of it into evaluation mode each time
    return about[-1].node if isinstance(about[-1].node, ast.Call) else None


def _holds(outer: str, network: str) -> bool:
    return network == outer or network.startswith(f"{outer}.")


def _events(facts: Facts, scope: Scope, calls: Iterable[ast.Call], depth: int) -> Iterator[_Event]:
    """What some calls of a function do to networks, by the names that the function has for them."""
    computed: dict[str, None] = {}
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _TRAINS:
            yield from (_Event(_Act.TRAINED, path, call) for path in computed)
            computed.clear()
            continue
        targets = facts.loops.targets(scope, call)
        if not targets:
            yield from _of_unknown(facts, scope, call)
        for target in targets if depth else ():
            for event in facts.modes.get((target, depth - 1), partial(_inside, facts, target, depth - 1)):
                network = name_outside(scope, call, target, event.network, _DEPTH)
                if network is not None or event.act is _Act.TRAINS:
                    yield _Event(event.act, network, call, event.held)
        if facts.grad_mode.is_off(scope, call) is not True:
            handed = map(network_name, (call.func, *call.args, *(k.value for k in call.keywords)))
            computed.update(dict.fromkeys(filter(None, handed)))


def _inside(facts: Facts, scope: Scope, depth: int) -> list[_Event]:
    """What a call of a function does to networks; who wraps it, or hands on how a network is set back, may do that."""
    try:
        flow = flow_of(scope)
        if not _may_set_back(facts, scope, flow):
            return list(_events(facts, scope, flow.calls, depth))
    except SyntaxProblem:
        pass
    return [_Event(_Act.TRAINS, None, scope.node)]


def _may_set_back(facts: Facts, scope: Scope, flow: Flow) -> bool:
    """Whether a function may put a network into training mode without a call of its `train`."""
    outer = scope.parent or scope.module.top
    makers = (decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in scope.decorators)
    return not all(facts.inference.value(outer, maker).must(_leaves_modes_alone) for maker in makers) or _hands_on(flow)


def _hands_on(flow: Flow) -> bool:
    """Whether a function gives another name to how a mode is set, or sets it by hand: `back = model.train`."""
    called = {call.func for call in flow.calls}
    mentions = [*flow.mentions["train"], *flow.mentions["apply"]]
    handed_on = any(isinstance(node, ast.Attribute) and node not in called for node in mentions)
    return handed_on or any(isinstance(store, ast.Attribute) and store.attr == "training" for store in flow.stores)


def _of_unknown(facts: Facts, scope: Scope, call: ast.Call) -> Iterator[_Event]:
    """What a call does that runs no function of the project, as far as is known."""
    match call.func:
        case ast.Attribute(value=held, attr="eval") if not call.args and (network := network_name(held)) is not None:
            yield _Event(_Act.EVALUATES, network, call, (scope, held))
            return
        case ast.Attribute(value=held, attr="train") if _says_no(call):
            yield _Event(_Act.EVALUATES, network_name(held), call, (scope, held))
            return
        case ast.Attribute(attr="train" | "apply"):
            yield _Event(_Act.TRAINS, None, call)
            return
    called = facts.inference.value(scope, call.func)
    if called.alternatives and not called.open and called.must(_leaves_modes_alone):
        return
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if _SETS_MODES.search(name):
        yield _Event(_Act.TRAINS, None, call)
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    for handed in (holder, *call.args, *(k.value for k in call.keywords)):
        network = network_name(handed) if handed is not None else None
        if network is not None and (handed is not holder or network == "self"):
            yield _Event(_Act.HANDED_ON, network, call)


def _says_no(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value is False


def _leaves_modes_alone(called: Alternative) -> bool:
    """Whether a function or an object is of a package that is known not to switch modes."""
    return isinstance(called, (External, Object)) and called.qualname.partition(".")[0] in _KNOWN
