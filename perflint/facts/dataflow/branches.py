"""The tests that decide about branches, and branches that exclude each other: the arms of an `if`, `if x:` and `if not x:`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.facts.dataflow.definitions import Block, path_of
from perflint.facts.dataflow.flow import Flow
from perflint.source.nodes import walk

_COMPARES = (ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.cmpop, ast.boolop, ast.unaryop)


def branch_test(block: Block, node: ast.AST) -> tuple[ast.expr, bool] | None:
    """The test that decides about a block, and what it must give for a node in it to run; None where nothing decides."""
    match block.node:
        case ast.If(test=test) if block.kind in ("then", "else"):
            return test, block.kind == "then"
        case ast.IfExp(test=test, body=body) if node is not test:
            return test, any(part is node for part in ast.walk(body))
    return None


def exclude_each_other(flow: Flow, first: ast.AST, second: ast.AST) -> bool:
    """Whether a round of the loop around both, or a call, runs only one of two nodes, of which `second` stands below.

    No proof for a fix: what a test names is taken to stay as it is until the scope binds it.
    """
    later = list(_decisions(flow, second))
    return any(
        holds is not wanted and _decide_alike(flow, test, other)
        for test, holds in _decisions(flow, first)
        for other, wanted in later
    )


def _decisions(flow: Flow, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The tests that decide whether a node runs, and what each must give; `not` is taken away."""
    for block in flow.block[node].ancestry():
        asked = branch_test(block, node)
        if asked is not None:
            test, wanted = asked
            while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test, wanted = test.operand, not wanted
            yield test, wanted


def _decide_alike(flow: Flow, first: ast.expr, second: ast.expr) -> bool:
    """Whether two tests are one, or ask the same in one round, with nothing bound in between that they ask for."""
    if first is second:
        return True
    if flow.loop(first) is not flow.loop(second) or ast.dump(first) != ast.dump(second):
        return False
    low, high = flow.order[first], flow.order[second]
    for part in walk(first):
        path = path_of(part)
        if path is None and not isinstance(part, _COMPARES):
            return False
        if path is not None and any(low < bound.order < high for bound in flow.definitions_of(path)):
            return False
    return True
