"""How often a place runs, as a word for people and an order for reports."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.definitions import Loop, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.dataflow.guards import is_guarded
from perflint.facts.facts import Facts
from perflint.facts.training.loop_looks import counts_rounds, goes_over_few
from perflint.facts.training.loops import LoopKind, is_step_hook
from perflint.facts.training.tests_alone import runs_each_step_in_tests_alone
from perflint.rule.finding import Rate
from perflint.source.nodes import walk
from perflint.source.syntax import Scope
from perflint.source.words import words

_PARAMETERS = words("parameters named_parameters param_groups buffers named_buffers state_dict")
_LISTS = frozenset(("params", "param_list", "parameters"))
_ENDINGS = ("_params", "_parameters")
_PASSED_ON = words("enumerate tqdm zip list reversed sorted iter items values")
_SAMPLE_METHODS = frozenset(("__getitem__", "collate_fn"))


def rate_of(facts: Facts, scope: Scope, node: ast.AST) -> Rate:
    """How often a node runs, in steps of the loop that trains or evaluates, as far as it is known."""
    flow, loops = flow_of(scope), facts.loops
    if node not in flow.block:  # a decorator
        return Rate.PER_STEP if loops.heat(scope) is not None else Rate.UNKNOWN
    step = loops.step_loop(scope, node)
    if step is not None:
        return _within_step(_inside(flow, node, step)) or Rate.PER_STEP
    around = loops.around(scope, node)
    if around is not None:
        return Rate.PER_INTERVAL
    inner = _inside(flow, node, None)
    if loops.heat(scope) is not None:
        seldom = is_guarded(flow, node) or runs_each_step_in_tests_alone(facts, scope)
        return Rate.PER_INTERVAL if seldom else _within_step(inner) or Rate.PER_STEP
    if scope.name in _SAMPLE_METHODS:
        return Rate.PER_SAMPLE
    kinds = loops.kinds(scope)
    if any(loop in other.ancestry() for other in kinds for loop in inner):
        return Rate.PER_EPOCH
    return Rate.UNKNOWN


def is_of_evaluation(facts: Facts, scope: Scope, node: ast.AST) -> bool:
    """Whether code that runs each step does so in evaluations alone, which are a small part of most runs.

    A loop that counts its rounds in a function that trains makes what it trains with: the steps of an environment.
    """
    loops = facts.loops
    loop = loops.step_loop(scope, node)
    is_known = loop is not None or is_step_hook(scope) or bool(loops.hot_calls(scope))
    if not is_known or loops.is_of_training(scope, node):
        return False
    counts = loop is not None and (loop.iterated is None or counts_rounds(loop))
    return not (counts and LoopKind.TRAIN in loops.kinds(scope).values())


def _inside(flow: Flow, node: ast.AST, step: Loop | None) -> list[Loop]:
    """The loops around a node, up to the step loop."""
    found: list[Loop] = []
    own = flow.loop(node)
    for loop in own.ancestry() if own is not None else ():
        if loop is step:
            break
        found.append(loop)
    return found


def _within_step(loops: list[Loop]) -> Rate | None:
    """What a loop within a step goes over; the few parts of a batch, such as the values of a dict, are one step's."""
    if any(map(goes_over_parameters, loops)):
        return Rate.PER_PARAMETER
    return None if all(goes_over_few(loop.iterated) for loop in loops) else Rate.PER_SAMPLE


def goes_over_parameters(loop: Loop) -> bool:
    """Whether a loop iterates over the parameters of a network, by their names."""
    node = loop.iterated
    if node is None:
        return False
    while isinstance(node, ast.Call) and (path_of(node.func) or "").rpartition(".")[2] in _PASSED_ON and node.args:
        node = node.args[0]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value in _LISTS  # `group["params"]`
    if isinstance(node, ast.Name):
        return node.id in _LISTS or node.id.endswith(_ENDINGS)
    return any(
        isinstance(part, ast.Attribute) and (part.attr in _PARAMETERS | _LISTS or part.attr.endswith(_ENDINGS))
        for part in walk(node)
    )
