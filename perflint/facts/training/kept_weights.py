"""Weights that a training keeps by a second name for them, and trains on: `best = model.state_dict()`.

The tensors of a state dict are the parameters themselves, so what is kept changes with each step of the optimizer. Networks are
told apart by the names that code has for them, so this is no proof.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache, partial
from typing import Final, NamedTuple

from perflint.facts.dataflow.definitions import Block, Definition, Loop, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.dataflow.uses import Way, steps
from perflint.facts.facts import Facts
from perflint.facts.proofs.reach import called_from
from perflint.facts.training.modes import optimized, trained
from perflint.facts.training.rounds import ends_with, is_left_behind, is_new_each_round, may_replace, name_outside, network_name
from perflint.facts.training.training_objects import MODULE_HOUSEKEEPING, is_neural_module, is_optimizer, is_scaler
from perflint.facts.values.classes import find_method
from perflint.facts.values.values import Instance
from perflint.project.project import MAX_IMPORTERS
from perflint.source.nodes import walk
from perflint.source.syntax import Class, Scope
from perflint.source.texts import last_name
from perflint.source.words import any_layout, made, words

_DEPTH: Final = 3
"""How many calls away from the loop weights are kept."""
_BEST: Final = made(r"best|better|improv", re.I)
_EXTREME: Final = made(
    r"best|better|improv|lowest|highest|optimal|(?:^|_)(?:min|max)(?:$|_(?!\w*(?:step|epoch|iter|round|batch)))", re.I
)
"""How what is the best so far is called."""
_ORDERS: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_REPLACED: Final = any_layout(
    rb"\b(?:p|w|params?|parameters?|weights?) \. data = (?!=)|\bassign = True|\bvector_to_parameters\b"
    rb"|\b(?:FSDP|FullyShardedDataParallel|fully_shard|deepspeed|convert_weights|swap_tensors)\b"
)
"""What a program holds that gives parameters other tensors, or networks whose state dicts are copies."""
_NEW_DATA: Final = any_layout(rb"(?<!\bself)(?<!args)(?<!opt)(?<!cfg)(?<!config)\. data = (?!=)")
"""What gives something else other numbers than it had: `scale.data = torch.ones(3)`, but not a dataset's `self.data = rows`."""
_OWN_STATE: Final = any_layout(rb"\bdef state_dict \(")
_LOOKS: Final = words("len print isinstance id type bool hasattr str repr")
_SETTINGS: Final = words("eval train to cuda cpu keys parameters named_parameters zero_grad requires_grad_")
"""Methods of a network or a dict that say nothing about whether its weights are used."""
_LOADS: Final = made(r"(?<!up)(?<!down)load(?!er)|restore|resume", re.I)
"""How functions are called that give a network the weights of a file."""
_CHANGES: Final = words("update pop popitem clear setdefault")
_DISPLAYS: Final = words("dict OrderedDict copy")
"""What makes a new dict of the same tensors, or a copy of a dict that holds them."""


class KeptWeights(NamedTuple):
    """Weights that are kept by an alias, while a loop trains them.

    network: its name at the alias. kept: what the alias is called. at: the expression whose value is kept. is_best: whether
    they are meant to be the best of several rounds, and not those from before.
    """

    network: str
    kept: str
    at: ast.expr
    is_best: bool


class _Place(NamedTuple):
    """Where an alias is kept: a name or attribute, or what stands under a key there. target: what binds it."""

    path: str
    target: ast.AST
    key: str | int | None = None
    definition: Definition | None = None


class _Round(NamedTuple):
    """A loop that trains a network, and the node in its body that keeps the weights, or calls what does."""

    scope: Scope
    loop: Loop
    node: ast.AST
    network: str


def kept_weights(facts: Facts, scope: Scope) -> Iterator[KeptWeights]:
    """The aliases of weights that a function keeps, that are trained on, and that are used then as if they were copies."""
    flow = flow_of(scope)
    for at, holder in _aliases(flow):
        network = network_name(holder)
        if network is None or not _has_torchs_weights(facts, scope, holder, is_bare=at is holder):
            continue
        for place in _places(flow, at):
            if at is holder and not _BEST.search(place.path):
                continue
            is_best = _is_lost(facts, scope, at, network, place, is_bare=at is holder)
            if is_best or (at is not holder and _is_loaded_back(facts, scope, at, network, place)):
                kept = place.path if place.key is None else f"{place.path}[{place.key!r}]"
                yield KeptWeights(network, kept, at, is_best)
                break


def _aliases(flow: Flow) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Expressions that give a network or its weights, each with the network."""
    for call in flow.calls_named["state_dict"]:
        if isinstance(call.func, ast.Attribute) and not call.args and not call.keywords:
            yield call, call.func.value
    for definition in flow.definitions:
        value = definition.value
        if definition.kind == "assign" and not definition.index and isinstance(value, (ast.Name, ast.Attribute)):
            if _BEST.search(definition.name) and not _BEST.search(network_name(value) or ""):
                yield value, value


def _has_torchs_weights(facts: Facts, scope: Scope, holder: ast.expr, *, is_bare: bool) -> bool:
    """Whether something is a network, as far as shows, whose state dict is torch's, and whose parameters stay what they are."""
    inference, path = facts.inference, scope.module.source.path
    network = holder.value if isinstance(holder, ast.Attribute) and holder.attr == "module" else holder
    value = inference.value(scope, network)
    if value.may(is_optimizer) or value.may(is_scaler):
        return False
    known = [a for a in value.alternatives if isinstance(a, Instance)]
    if not all(is_neural_module(inference, a) and find_method(inference, a.cls, "state_dict") is None for a in known):
        return False
    project, name = facts.project, network_name(holder) or ""
    if not known and project.program_holds(path, _OWN_STATE):
        return False
    wanted = optimized(name) if is_bare else _TRAINABLE
    return project.program_holds(path, wanted) and not project.program_holds(path, _REPLACED)


_TRAINABLE: Final = any_layout(rb"\. (?:named_)?parameters \(")


def _is_shallow(func: ast.expr) -> bool:
    """Whether a call gives a display of what it gets; a bare `copy` may be `deepcopy` by another name."""
    return last_name(func) in _DISPLAYS and not (isinstance(func, ast.Name) and func.id == "copy")


def _places(flow: Flow, node: ast.expr, key: str | int | None = None) -> Iterator[_Place]:
    """Where the value of an expression is kept: by itself, or in a display or a shallow copy."""
    for step in steps(flow, node):
        match step.way, step.node:
            case Way.BOUND, _ if not step.index:
                yield from (_Place(d.name, d.node, key, d) for d in step.definitions)
            case Way.STORED, ast.Attribute() as target if not step.index and (path := path_of(target)) is not None:
                yield _Place(path, target, key)
            case Way.STORED, ast.Subscript(value=base, slice=ast.Constant(value=str() | int() as name)) if not step.index:
                if (path := path_of(base)) is not None:
                    yield _Place(path, step.node, name)
            case Way.CONTAINED, ast.Dict(keys=keys, values=values) if node in values:
                name_node = keys[values.index(node)]
                if isinstance(name_node, ast.Constant) and isinstance(name_node.value, (str, int)):
                    yield from _places(flow, step.node, name_node.value)
            case Way.CONTAINED, (ast.Tuple() | ast.List()) as display:
                yield from _places(flow, display, display.elts.index(node))
            case Way.ARGUMENT, ast.Call(func=func, args=[_], keywords=[]) as call if _is_shallow(func):
                yield from _places(flow, call, key)
            case Way.ARGUMENT, ast.Call(func=ast.Name(id="dict"), args=[]) as call if step.name not in ("", "**"):
                yield from _places(flow, call, step.name)
            case Way.METHOD, ast.Call() as call if step.name == "copy":
                yield from _places(flow, call, key)
            case Way.ALIAS, _ if step.result is not None:
                yield from _places(flow, step.result, key)


# -- the best of several rounds ----------------------------------------------------------------------------------------------


def _is_lost(facts: Facts, scope: Scope, at: ast.expr, network: str, place: _Place, *, is_bare: bool) -> bool:
    """Whether what is kept as the best is trained on in later rounds, and used behind them."""
    flow = flow_of(scope)
    if _is_changed(flow, place) or (is_bare and _saves_beside(flow, at)):
        return False
    for found in _rounds(facts, scope, at, network, place, chosen=False, depth=_DEPTH):
        if _gets_other_tensors(facts, found):
            continue
        if any(True for _ in _uses(facts, scope, found, place, is_bare=is_bare)):
            return True
    return False


def _gets_other_tensors(facts: Facts, found: _Round) -> bool:
    """Whether the function that trains a network in rounds may give its parameters other tensors than they had."""
    if may_replace(facts, found.scope, found.loop, found.network):
        return True
    return any(_NEW_DATA.search(run.text) for run in called_from(facts, found.scope))


def _rounds(
    facts: Facts, scope: Scope, node: ast.AST, network: str, place: _Place | None, *, chosen: bool, depth: int
) -> Iterator[_Round]:
    """The loops that come to a node if a round was better than those before, and train a network in each round."""
    flow = flow_of(scope)
    for loop in flow.block[node].loops():
        if loop.statement is None or not _trains(facts, scope, loop, network):
            continue
        if not is_new_each_round(flow, loop, network) and not ends_with(facts, scope, loop, node):
            if chosen or _is_chosen(flow, node, loop.block, place):
                yield _Round(scope, loop, node, network)
        return
    if not depth or scope.is_module:
        return
    chosen = chosen or _is_chosen(flow, node, None, place)
    for site in facts.inference.callers.sites(scope).sites:
        outer = name_outside(site.scope, site.node, scope, network, _DEPTH)
        if outer is not None:
            yield from _rounds(facts, site.scope, site.node, outer, None, chosen=chosen, depth=depth - 1)


def _trains(facts: Facts, scope: Scope, loop: Loop, network: str) -> bool:
    """Whether a round of a loop trains a network or a part of it: `model.encoder(x)`, but no `model.eval()`."""
    names = (name for name in trained(facts, scope, loop) if name == network or name.startswith(f"{network}."))
    return any(name == network or name.rpartition(".")[2] not in MODULE_HOUSEKEEPING for name in names)


def _is_chosen(flow: Flow, node: ast.AST, around: Block | None, place: _Place | None) -> bool:
    """Whether a node runs only where something became better: a test compares by order, or says so."""
    for block in flow.block[node].ancestry():
        if block is around:
            break
        if isinstance(block.node, ast.If) and block.kind in ("then", "else"):
            other = block.node.orelse if block.kind == "then" else block.node.body
            is_kept_anyway = place is not None and any(_binds(statement, place) for statement in other)
            if not is_kept_anyway and any(_says_better(flow, part, place) for part in ast.walk(block.node.test)):
                return True
    return False


def _binds(statement: ast.stmt, place: _Place) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(path_of(target) == path_of(place.target) is not None or path_of(target) == place.path for target in targets)


def _says_better(flow: Flow, test: ast.AST, place: _Place | None) -> bool:
    match test:
        case ast.Compare(ops=ops) if any(isinstance(op, _ORDERS) for op in ops):
            named = set(filter(None, map(path_of, ast.walk(test))))
            about = [*named, place.path] if place is not None else named
            return not named & _counters(flow) and any(_EXTREME.search(name.rpartition(".")[2]) for name in about)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _BEST.search(name) is not None
    return False


def _counters(flow: Flow) -> set[str]:
    """What counts the rounds of loops: a comparison of it says nothing about how good a round was."""
    found = {d.name for d in flow.definitions if d.kind == "for" and isinstance(d.block.node, _LOOPS)}
    added = (node for node in flow.order if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant))
    return found | set(filter(None, (path_of(node.target) for node in added)))


_LOOPS: Final = (ast.For, ast.AsyncFor)


def _is_changed(flow: Flow, place: _Place) -> bool:
    """Whether the dict that is kept is changed, or replaced where it was just made: `best = {k: v.clone() for ...}`."""
    if place.definition is not None and place.key is None:
        return any(_changes(flow, use) for use in flow.uses[place.definition])
    statement = flow.statement(place.target)
    behind = [s for s in flow.siblings(statement) if s.lineno > statement.lineno]
    return any(_binds(s, place) for s in behind)


def _changes(flow: Flow, use: ast.expr) -> bool:
    return any(step.way is Way.CHANGED or (step.way is Way.METHOD and step.name in _CHANGES) for step in steps(flow, use))


def _saves_beside(flow: Flow, node: ast.AST) -> bool:
    """Whether the branch that a node stands in saves something."""
    calls = (part for s in flow.siblings(flow.statement(node)) for part in walk(s) if isinstance(part, ast.Call))
    return any("save" in (last_name(call.func) or "").lower() for call in calls)


# -- what becomes of it --------------------------------------------------------------------------------------------------


def _uses(facts: Facts, scope: Scope, found: _Round, place: _Place, *, is_bare: bool) -> Iterator[object]:
    """Where what is kept is used after later rounds may have trained on."""
    flow = flow_of(scope)
    inside = found.loop.block if found.scope is scope else None
    for use in _mentions(flow, place):
        whole = _part(flow, use, place)
        if whole is None:
            continue
        if inside is not None and not flow.within(use, inside):
            if flow.order[use] > flow.order[place.target] and not _is_loaded_before(flow, found, use):
                if is_bare and _is_loaded_into(flow, place):
                    return
                restored = next((c for c in flow.calls_named["load_state_dict"] if use in walk(c)), None)
                if _is_taken(flow, whole) and (restored is None or not is_left_behind(scope, restored)):
                    yield use
        elif _is_restored(flow, whole) and not flow.dominates(flow.statement(place.target), use):
            yield use
    if scope.owner is None or not scope.parameters or not place.path.startswith(f"{scope.parameters[0].arg}."):
        return
    attribute = place.path.partition(".")[2]
    for method in scope.owner.methods.values():
        if method is not scope and attribute.encode() in method.text and method.parameters:
            there = place._replace(path=f"{method.parameters[0].arg}.{attribute}", definition=None)
            yield from _taken_in(facts, scope, method, there, found)
    if "." not in attribute and place.key is None:
        yield from _taken_behind(found, attribute) if found.scope is not scope else ()
        if _is_taken_outside(facts, scope.owner, attribute):
            yield attribute


def _taken_in(facts: Facts, scope: Scope, method: Scope, place: _Place, found: _Round) -> Iterator[object]:
    """Where a method uses what another one keeps; what only saves or returns it has to run without a look at how good it is."""
    flow = flow_of(method)
    sites = facts.inference.callers.sites(method).sites
    whenever = not sites and found.scope is scope
    for site in sites:
        around, is_inside = flow_of(site.scope), site.scope is found.scope
        if site.scope is scope and around.dominates(place.target, site.node):
            continue
        whenever |= not _is_chosen(around, site.node, found.loop.block if is_inside else None, place)
    for use in _mentions(flow, place):
        part = _part(flow, use, place)
        if part is not None and (_is_restored(flow, part) or (whenever and _is_taken(flow, part))):
            yield part


def _taken_behind(found: _Round, attribute: str) -> Iterator[object]:
    """Where the function with the loop uses an attribute behind it."""
    flow = flow_of(found.scope)
    for use in flow.mentions[attribute]:
        if isinstance(use, ast.Attribute) and found.loop.statement is not None and not flow.within(use, found.loop.block):
            if flow.order[use] > flow.order[found.loop.statement] and _is_taken(flow, use):
                yield use


def _mentions(flow: Flow, place: _Place) -> list[ast.expr]:
    """The expressions that read where an alias is kept."""
    if place.definition is not None:
        return flow.uses[place.definition]
    return [node for node in flow.mentions[place.path.rpartition(".")[2]] if path_of(node) == place.path]


def _part(flow: Flow, use: ast.expr, place: _Place) -> ast.expr | None:
    """The expression that gives what is kept, or all around it; None for another part: `best["epoch"]`."""
    if place.key is None:
        return use
    match flow.parent.get(use):
        case ast.Subscript(value=base, slice=item, ctx=ast.Load()) as part if base is use:
            return part if isinstance(item, ast.Constant) and item.value == place.key else None
        case ast.Subscript():
            return None
        case ast.Attribute(attr="get") as method:
            call = flow.parent.get(method)
            match call:
                case ast.Call(args=[ast.Constant(value=name), *_]) if name == place.key:
                    return call
            return None
        case ast.Attribute():
            return None
        case ast.Assign(targets=[ast.Tuple(elts=parts)]) if isinstance(place.key, int) and place.key < len(parts):
            taken = flow.definitions_at(parts[place.key])
            return use if any(flow.uses[d] for d in taken) else None
    return use


def _is_taken(flow: Flow, node: ast.expr, depth: int = _DEPTH) -> bool:
    """Whether somebody does something with what an expression gives, and does not only look at whether it is there."""
    for step in steps(flow, node):
        match step.way:
            case Way.ARGUMENT if isinstance(step.node, ast.Call):
                if last_name(step.node.func) not in _LOOKS:
                    return True
            case Way.METHOD:
                if step.name not in _SETTINGS:
                    return True
            case Way.RETURNED | Way.YIELDED | Way.CALLED | Way.CONTAINED | Way.UNPACKED | Way.ITERATED | Way.STORED:
                return True
            case Way.ITEM:
                return True
            case Way.BOUND if depth:
                if any(_is_taken(flow, use, depth - 1) for d in step.definitions for use in flow.uses[d]):
                    return True
            case Way.ALIAS | Way.ATTRIBUTE if depth and step.result is not None:
                if _is_taken(flow, step.result, depth - 1):
                    return True
    return False


def _is_restored(flow: Flow, use: ast.expr) -> bool:
    return any(
        step.way is Way.ARGUMENT and isinstance(step.node, ast.Call) and last_name(step.node.func) == "load_state_dict"
        for step in steps(flow, use)
    )


def _is_loaded_before(flow: Flow, found: _Round, use: ast.expr) -> bool:
    """Whether the network gets other weights behind the loop, from a file, before a use of what is kept."""
    for call in flow.calls_named["load_state_dict"]:
        if isinstance(call.func, ast.Attribute) and network_name(call.func.value) == found.network and call.args:
            if not flow.within(call, found.loop.block) and flow.order[found.loop.statement or call] < flow.order[call]:
                if flow.order[call] < flow.order[use] or use in walk(call):
                    return use not in walk(call)
    return False


def _is_loaded_into(flow: Flow, place: _Place) -> bool:
    """Whether a network that was kept gets its weights from elsewhere in the end."""
    for use in _mentions(flow, place):
        for step in steps(flow, use):
            if step.way is Way.METHOD and step.name == "load_state_dict":
                return True
            if step.way is Way.ARGUMENT and isinstance(step.node, ast.Call) and _LOADS.search(last_name(step.node.func) or ""):
                return True
    return False


def _is_taken_outside(facts: Facts, owner: Class, attribute: str) -> bool:
    """Whether another function loads or returns an attribute of an object, by the text of the files around.

    No other class may have one of that name.
    """
    project, path = facts.project, owner.module.source.path
    importers = project.importers(path) - {path}
    body, binds = owner.module.source.body, _binding(attribute)
    if len(binds.findall(body)) > sum(len(binds.findall(method.text)) for method in owner.methods.values()):
        return False
    texts = [project.read(file) or b"" for file in sorted(importers if len(importers) <= MAX_IMPORTERS else ())]
    if any(binds.search(text) for text in texts):
        return False
    return any(_taking(attribute).search(text) is not None for text in (body, *texts))


@cache
def _binding(attribute: str) -> re.Pattern[bytes]:
    return any_layout(rb"\. %b = (?!=)" % attribute.encode())


@cache
def _taking(attribute: str) -> re.Pattern[bytes]:
    own, held = rb"(?! self \. %b\b)" % attribute.encode(), rb"[\w.]+ \. %b\b" % attribute.encode()
    return any_layout(rb"\bload_state_dict \( %b%b|\breturn\b%b %b" % (own, held, own, held))


# -- those from before ---------------------------------------------------------------------------------------------------


def _is_loaded_back(facts: Facts, scope: Scope, at: ast.expr, network: str, place: _Place) -> bool:
    """Whether a network gets its own weights by an alias that was made before they were trained: nothing happens then."""
    flow = flow_of(scope)
    if _is_changed(flow, place) or not isinstance(at, ast.Call) or not isinstance(at.func, ast.Attribute):
        return False
    same = partial(_reaching, flow)
    for use in _mentions(flow, place) if _is_bound_once(flow, place) else ():
        call = flow.parent.get(_part(flow, use, place) or use)
        match call:
            case ast.Call(func=ast.Attribute(value=holder, attr="load_state_dict")) if network_name(holder) == network:
                if same(holder) != same(at.func.value) or flow.order[call] < flow.order[at]:
                    continue
                for loop in flow.loops:
                    statement = loop.statement
                    if statement is None or flow.within(at, loop.block) or flow.order[statement] < flow.order[at]:
                        continue
                    if flow.order[statement] < flow.order[call] and _trains(facts, scope, loop, network):
                        found = _Round(scope, loop, call, network)
                        if not is_new_each_round(flow, loop, network) and not _gets_other_tensors(facts, found):
                            return not _is_loaded_before(flow, found, use)
    return False


def _is_bound_once(flow: Flow, place: _Place) -> bool:
    """Whether nothing else is kept under the name of an alias, as what is found to be better is."""
    stored = (node for node in flow.stores if path_of(node) == place.path)
    return len(flow.definitions_of(place.path)) <= 1 and all(node is place.target for node in stored)


def _reaching(flow: Flow, holder: ast.expr) -> frozenset[Definition] | list[Definition]:
    """What may have bound the name of a network where it is used, or its attribute anywhere."""
    inner = holder
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    path = network_name(holder) or ""
    return flow.reaching.get(inner, frozenset()) if inner is holder or "." not in path else flow.definitions_of(path)
