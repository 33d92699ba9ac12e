"""Branches that no step takes: those of an export, and those that its calls decide about by what they give a function.

`if torch.onnx.is_in_onnx_export():`, `if logpx is None:` where each step gives one.
"""

from __future__ import annotations

import ast

from perflint.facts.dataflow.conditions import branch_test
from perflint.facts.dataflow.definitions import Block
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.values.bound_arguments import given
from perflint.facts.values.call_sites import CallSite
from perflint.facts.values.decorators import caches
from perflint.facts.values.values import is_none
from perflint.source.nodes import defaults_of
from perflint.source.syntax import Scope
from perflint.source.texts import last_name
from perflint.source.words import words

_EXPORTS = words("is_in_onnx_export is_exporting is_scripting is_tracing")


def is_left_out(facts: Facts, scope: Scope, node: ast.AST) -> bool:
    """Whether no call that runs a function each step, as far as such calls are in sight, takes the branch around a node.

    What a decorator keeps (`lru_cache`) is computed once for all steps.
    """
    if scope.decorators and caches(facts.inference.module_name, scope):
        return True
    flow = flow_of(scope)
    names = {parameter.arg for parameter in scope.parameters}
    for block in flow.block[node].ancestry():
        if _is_of_export(block):
            return True
        tested = _tested(block, node)
        if tested is None or tested[0].id not in names:
            continue
        name, against_none, wanted = tested
        if all(d.kind == "parameter" for d in flow.reaching.get(name, ())):
            calls = hot_sites(facts, scope)
            if calls and all(_decided(facts, scope, call, name.id, against_none) is (not wanted) for call in calls):
                return True
    return False


def _is_of_export(block: Block) -> bool:
    match block.node:
        case ast.If(test=ast.Call(func=asked)):
            return block.kind == "then" and last_name(asked) in _EXPORTS
    return False


def hot_sites(facts: Facts, scope: Scope) -> list[CallSite]:
    """The calls that run a function each step, those of a network for its `forward`."""
    loops = facts.loops
    if scope.name != "forward":
        return loops.hot_calls(scope)
    sites = facts.inference.callers.forward_sites(scope)
    return [site for site in sites if loops.step_loop(site.scope, site.node) or loops.heat(site.scope) is not None]


def _tested(block: Block, node: ast.AST) -> tuple[ast.Name, bool, bool] | None:
    """The name whose value decides about a block; whether it is compared with None; what must hold for `node` in it to run."""
    asked = branch_test(block, node)
    if asked is None:
        return None
    test, wanted = asked
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, wanted = test.operand, not wanted
    match test:
        case ast.Name():
            return test, False, wanted
        case ast.Compare(left=ast.Name() as name, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=None)]):
            return name, True, wanted
        case ast.Compare(left=ast.Name() as name, ops=[ast.IsNot() | ast.NotEq()], comparators=[ast.Constant(value=None)]):
            return name, True, not wanted
    return None


def _decided(facts: Facts, scope: Scope, site: CallSite, name: str, against_none: bool) -> bool | None:
    """What the test of a parameter gives for a call; None if that is not known."""
    call = site.node
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    written = given(scope, call, name)
    if written is None:
        default = defaults_of(scope.node).get(name)
        if not isinstance(default, ast.Constant):
            return None
        return default.value is None if against_none else bool(default.value)
    value = facts.inference.value(site.scope, written)
    if not against_none:
        literal = value.literal
        return literal if isinstance(literal, bool) else None
    if value.must(is_none):
        return True
    is_known = bool(value.alternatives) or not (isinstance(written, ast.Name) and written.id in defaults_of(site.scope.node))
    return None if value.may(is_none) or not is_known else False
