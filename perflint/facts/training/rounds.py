"""What the rounds of a loop have to do with a network, by the names that code has for it: so this is no proof."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import takewhile
from typing import Final

from perflint.facts.dataflow.conditions import conditions
from perflint.facts.dataflow.definitions import Loop, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.dataflow.guards import once_then_leaves
from perflint.facts.dataflow.uses import Way, steps
from perflint.facts.facts import Facts
from perflint.facts.values.bound_arguments import given
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.texts import last_name
from perflint.source.words import any_layout, words

_DEPTH: Final = 3
"""How many calls deep a round is searched for what replaces parameters."""
_HOPS: Final = 3
"""Through how many names a network is followed."""
_REPLACES: Final = words("cpu half float double bfloat16 type to_empty new")
"""How parameters get other tensors, so that a state dict keeps the old ones: methods of a network, or `new` for a new one."""


def network_name(node: ast.AST) -> str | None:
    """A name or attribute, without the wrapper of several GPUs around a network."""
    path = path_of(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    return re.sub(r"\.module\b", "", path) if path is not None else None


def name_outside(scope: Scope, call: ast.Call, target: Scope, network: str | None, depth: int) -> str | None:
    """The name that the caller of a function has for what the function calls by another one, maybe bound to a third."""
    if network is None or not depth:
        return None
    root, _, rest = network.partition(".")
    flow = flow_of(target)
    bound = flow.definitions_of(root)
    if not bound:
        is_shared = target.module is scope.module and (scope.is_module or not flow_of(scope).definitions_of(root))
        return network if is_shared and target.parent is None else None
    if len(bound) == 1 and bound[0].kind == "assign" and not bound[0].index and bound[0].value is not None:
        alias = network_name(bound[0].value)
        behind = f"{alias}.{rest}" if rest else alias
        return name_outside(scope, call, target, behind, depth - 1) if alias is not None else None
    if [definition.kind for definition in bound] != ["parameter"]:
        return None
    is_object = target.owner is not None and target.parameters and target.parameters[0].arg == root
    written = _holder(call, target) if is_object else given(target, call, root)
    outer = network_name(written) if written is not None else None
    return None if outer is None else f"{outer}.{rest}" if rest else outer


def _holder(call: ast.Call, method: Scope) -> ast.expr | None:
    """The object whose method a call runs: what stands before the dot, or what is called itself: `stopper(loss, model)`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == method.name:
        return call.func.value
    return call.func if method.name in ("__call__", "forward") else None


def is_new_each_round(flow: Flow, loop: Loop, network: str) -> bool:
    """Whether a loop binds the name of a network, or of what holds it."""
    names = {network.rsplit(".", n)[0] for n in range(network.count(".") + 1)}
    return any(loop.block in d.block.ancestry() for name in names for d in flow.definitions_of(name))


def ends_with(facts: Facts, scope: Scope, loop: Loop, node: ast.AST) -> bool:
    """Whether a round that gets to a node is the last one.

    It leaves the loop behind the node or takes back what the `while` asks for, or it is asked for by its number.
    """
    flow = flow_of(scope)
    if _is_one(facts, scope, loop) or once_then_leaves(flow, node, loop) or _stops(flow, loop, node):
        return True
    return any(_is_one_round(flow, loop, test, holds) for test, holds in conditions(flow, node))


def _is_one(facts: Facts, scope: Scope, loop: Loop) -> bool:
    """`for epoch in range(EPOCHS)`, where that is 1."""
    match loop.iterated:
        case ast.Call(func=ast.Name(id="range" | "trange"), args=[rounds]):
            return facts.inference.value(scope, rounds).literal == 1
    return False


def _stops(flow: Flow, loop: Loop, node: ast.AST) -> bool:
    """`while running`, where the statements around a node have `running = False`; `while not done`, likewise."""
    test, stopped = (loop.node.test, False) if isinstance(loop.node, ast.While) else (None, False)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, stopped = test.operand, True
    flag = path_of(test) if test is not None else None
    if flag is None:
        return False
    for around in takewhile(lambda above: flow.parent[above] is not loop.node, (node, *flow.ancestors(node))):
        for other in flow.siblings(around) if isinstance(around, ast.stmt) else ():
            match other:
                case ast.Assign(targets=[target], value=ast.Constant(value=bool(value))):
                    if path_of(target) == flag and value is stopped:
                        return True
    return False


def _is_one_round(flow: Flow, loop: Loop, test: ast.expr, holds: bool, depth: int = _HOPS) -> bool:
    """`epoch == epochs - 1`, and no `epoch % 5 == 0`; what holds in the last one only: `epoch >= epochs - 1`."""
    match test:
        case ast.Name() if depth:
            bound = flow.reaching.get(test, frozenset())
            values = [d.value for d in bound if d.kind == "assign" and not d.index and d.value is not None]
            return holds and len(values) == len(bound) == 1 and _is_one_round(flow, loop, values[0], holds, depth - 1)
        case ast.BoolOp(op=ast.Or(), values=values) if holds:
            return all(_is_one_round(flow, loop, value, holds, depth) for value in values)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if _counts_rounds(loop, left) or _counts_rounds(loop, right):
            if isinstance(op, ast.Eq):
                return holds and not any(
                    isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in ast.walk(test)
                )
            return isinstance(op, ast.GtE if holds else ast.Lt) and _is_last(loop, left, right)
    return False


def _counts_rounds(loop: Loop, node: ast.expr) -> bool:
    target = loop.node.target if isinstance(loop.node, ast.For) else None
    counters = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)} if target is not None else set[str]()
    return any(isinstance(part, ast.Name) and part.id in counters for part in ast.walk(node))


def _is_last(loop: Loop, left: ast.expr, right: ast.expr) -> bool:
    """Whether `left >= right` holds in the last round only: `epoch >= epochs - 1`, `epoch + 1 >= epochs`."""
    counter = ast.unparse(loop.node.target) if isinstance(loop.node, ast.For) else ""
    told = f"{ast.unparse(left)} >= {ast.unparse(right)}"
    for node in ast.walk(loop.node.iter) if isinstance(loop.node, ast.For) else ():
        match node:
            case ast.Call(func=ast.Name(id="range" | "trange"), args=[end] | [_, end]):
                bound = ast.unparse(end)
                if told in (
                    f"{counter} >= {bound} - 1",
                    f"{counter} + 1 >= {bound}",
                    f"{counter} >= {bound.removesuffix(' + 1')}",
                ):
                    return True
    return False


def is_left_behind(scope: Scope, restored: ast.Call) -> bool:
    """Whether nobody has a network any more behind a call that loads its weights: the function has made it, as a local name.

    What is given to a function that only computes something is not kept; an object may keep it: `Evaluator(model)`.
    """
    flow = flow_of(scope)
    holder = restored.func.value if isinstance(restored.func, ast.Attribute) else None
    root = (network_name(holder) or "").partition(".")[0] if holder is not None else ""
    made = flow.definitions_of(root)
    if not made or not all(isinstance(d.value, ast.Call) for d in made) or flow.loop(restored) is not None:
        return False
    if root in flow.inner_names | flow.outer_names:
        return False
    if scope.is_module and any(_named(root).search(function.text) for function in scope.module.scopes.values()):
        return False
    uses = (node for node in flow.mentions[root] if isinstance(node, ast.Name))
    return not any(flow.order[use] > flow.order[restored] or _is_kept(flow, use, restored) for use in uses)


def _is_kept(flow: Flow, use: ast.Name, restored: ast.Call) -> bool:
    """Whether a use of a network may have something hold it that is used behind a call."""
    for step in steps(flow, use):
        if step.way is Way.ARGUMENT and isinstance(step.node, ast.Call):
            results = [*steps(flow, step.node)]
            bound = (later for result in results for d in result.definitions for later in flow.uses[d])
            is_used = any(flow.order[later] > flow.order[restored] for later in bound)
            if is_used or last_name(step.node.func)[:1].isupper() or any(r.way is Way.STORED for r in results):
                return True
        elif step.way not in (Way.METHOD, Way.ATTRIBUTE, Way.CALLED):
            return True
    return False


@cache
def _named(name: str) -> re.Pattern[bytes]:
    return any_layout(rb"\b%b\b" % name.encode())


def may_replace(facts: Facts, scope: Scope, loop: Loop, network: str) -> bool:
    """Whether a round of a loop may give the parameters of a network other tensors, or bind its name anew in what it calls."""
    flow = flow_of(scope)
    inside = (call for call in flow.calls if flow.within(call, loop.block))
    happens = _replacements(facts, scope, inside, _DEPTH)
    places = {how for name, how in happens if name == network or network.startswith(f"{name}.")}
    return bool(places & _REPLACES) or len(places) > 1


def _replacements(facts: Facts, scope: Scope, calls: Iterable[ast.Call], depth: int) -> Iterator[tuple[str, str]]:
    """The names of what some calls move, or bind anew, and how; a network that is moved to one place only moves once."""
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _REPLACES | {"to", "cuda"}:
            moved, place = network_name(_itself(call.func.value)), ", ".join(map(ast.unparse, [*call.args, *call.keywords]))
            how = call.func.attr if call.func.attr in _REPLACES else "cpu" if re.search(r"['\"]cpu", place) else place
            if moved is not None:
                yield moved, how
        for target in facts.loops.targets(scope, call) if depth else ():
            try:
                flow = flow_of(target)
            except SyntaxProblem:
                continue
            bound = ((path, "new") for store in flow.stores if (path := network_name(store)) is not None)
            for name, how in (*bound, *_replacements(facts, target, flow.calls, depth - 1)):
                outer = name_outside(scope, call, target, name, _HOPS)
                if outer is not None:
                    yield outer, how


def _itself(node: ast.expr) -> ast.expr:
    """A network without the methods that give it back: `model.eval()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("eval", "train", "to"):
        node = node.func.value
    return node
