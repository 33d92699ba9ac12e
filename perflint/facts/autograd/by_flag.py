"""Functions that train or evaluate as a parameter says: `run_epoch(loader, train=False)`."""

from __future__ import annotations

import ast

from perflint.facts.autograd.evaluations import computes_with_network
from perflint.facts.dataflow.definitions import Block
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.training.unused import is_unused
from perflint.facts.values.bound_arguments import given
from perflint.facts.values.call_sites import CallSite
from perflint.source.nodes import defaults_of
from perflint.source.syntax import Scope
from perflint.source.words import any_layout

_BACK = any_layout(rb"backward \(")
_SWITCHES = any_layout(rb"no_grad|inference_mode|grad_enabled|enable_grad")
_IF = any_layout(rb"\bif\b")


def evaluated_by_flag(facts: Facts, scope: Scope) -> tuple[ast.Call, CallSite] | None:
    """The forward pass of a function that records a graph, and a call for which a flag rules out every backward pass.

    None where autograd is off around that call, or where the function itself says when it is on.
    """
    text = scope.text
    if scope.is_module or not (_BACK.search(text) and _IF.search(text)) or _SWITCHES.search(text):
        return None
    flow = flow_of(scope)
    names = {parameter.arg for parameter in scope.parameters}
    sides = {call: [b for b in flow.block[call].ancestry() if b.kind in ("then", "else")] for call in flow.calls}
    told = [call for call, blocks in sides.items() if any(_flags(block) & names for block in blocks)]
    if not any(facts.loops.training_acts(scope, call, 1)[0] for call in told):
        return None
    backwards = [call for call in flow.calls if facts.loops.training_acts(scope, call, 1)[0]]
    guards = [sides[call] for call in backwards]
    first = min(flow.order[call] for call in backwards)
    for site in facts.inference.callers.sites(scope).sites:
        ruled_out = all(any(_is_ruled_out(scope, site, block) for block in blocks) for blocks in guards)
        if not ruled_out or is_unused(facts, site.scope) or facts.grad_mode.is_off(site.scope, site.node) is not False:
            continue
        for call in flow.calls:
            if flow.order[call] < first and flow.loop(call) is flow.loop(backwards[0]) and flow.loop(call) is not None:
                if computes_with_network(facts, scope, call) and facts.grad_mode.is_off(scope, call) is not True:
                    return call, site
    return None


def _flags(block: Block) -> set[str]:
    test = block.node.test if isinstance(block.node, ast.If) else None
    return {part.id for part in ast.walk(test) if isinstance(part, ast.Name)} if test is not None else set()


def _is_ruled_out(scope: Scope, site: CallSite, block: Block) -> bool:
    """Whether a call makes a condition such that a branch does not run."""
    if not isinstance(block.node, ast.If):
        return False
    holds = _holds(scope, site, block.node.test)
    return holds is not None and holds is (block.kind == "else")


def _holds(scope: Scope, site: CallSite, test: ast.expr) -> bool | None:
    """Whether a condition holds in a call, by a constant that is written there, or that is a default."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _holds(scope, site, operand)
            return None if inner is None else not inner
        case ast.BoolOp(op=ast.And(), values=parts):
            return False if any(_holds(scope, site, part) is False for part in parts) else None
        case ast.Name(id=name):
            flag = _constant(scope, site, name)
            return None if flag is None else bool(flag.value)
        case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[ast.Constant(value=other)]):
            flag = _constant(scope, site, name)
            if flag is None or not isinstance(op, (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)):
                return None
            return (flag.value == other) is isinstance(op, (ast.Eq, ast.Is))
    return None


def _constant(scope: Scope, site: CallSite, name: str) -> ast.Constant | None:
    """What a call gives a parameter that nobody binds again, if that is a constant."""
    if any(d.kind != "parameter" for d in flow_of(scope).definitions_of(name)):
        return None
    if any(k.arg is None for k in site.node.keywords) or any(isinstance(a, ast.Starred) for a in site.node.args):
        return None
    value = given(scope, site.node, name) or defaults_of(scope.node).get(name)
    return value if isinstance(value, ast.Constant) and name in {p.arg for p in scope.parameters} else None
