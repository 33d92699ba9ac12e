"""Under which conditions code runs, and which code runs only where other code does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from perflint.facts.dataflow.definitions import Block, path_of
from perflint.facts.dataflow.flow import Flow
from perflint.facts.dataflow.guards import leaves_block
from perflint.source.texts import last_name


class Condition(NamedTuple):
    """What a test gives wherever a node runs."""

    test: ast.expr
    holds: bool


_OPPOSITES: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {ast.IsNot: ast.Is, ast.NotEq: ast.Eq, ast.NotIn: ast.In}


def branch_test(block: Block, node: ast.AST) -> Condition | None:
    """The test that decides about a block, and what it must give for a node in it to run; None where nothing decides."""
    match block.node:
        case ast.If(test=test) if block.kind in ("then", "else"):
            return Condition(test, block.kind == "then")
        case ast.IfExp(test=test, body=body) if node is not test:
            return Condition(test, any(part is node for part in ast.walk(body)))
    return None


def conditions(flow: Flow, node: ast.AST) -> Iterator[Condition]:
    """What holds wherever a node runs, taken apart as far as that says more."""
    for asked in _tests(flow, node):
        yield from _parts(asked)


def _tests(flow: Flow, node: ast.AST) -> Iterator[Condition]:
    """The tests above a node: of the branches around it, of operands before it, of `if not debug: return` before it."""
    for block in flow.block[node].ancestry():
        asked = branch_test(block, node)
        if asked is not None:
            yield asked
        elif isinstance(block.node, ast.BoolOp):
            # each operand stands in a block inside that of the one before
            operand = sum(other.node is block.node for other in block.ancestry())
            yield Condition(block.node.values[operand - 1], isinstance(block.node.op, ast.And))
    for around in (node, *flow.ancestors(node)):
        for above in flow.siblings(around) if isinstance(around, ast.stmt) and around in flow.parent else ():
            if above is around:
                break
            if isinstance(above, ast.If):
                if leaves_block(above.body):
                    yield Condition(above.test, False)
                elif above.orelse and leaves_block(above.orelse):
                    yield Condition(above.test, True)


def _parts(condition: Condition) -> Iterator[Condition]:
    """What follows from a condition: `not amp and clip` gives `amp`, which fails, and `clip`; an `or` that holds stays one."""
    test, holds = condition
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _parts(Condition(operand, not holds))
        case ast.BoolOp(op=op, values=values):
            if isinstance(op, ast.And) is not holds:
                yield condition
            for value in values if isinstance(op, ast.And) is holds else ():
                yield from _parts(Condition(value, holds))
        case ast.Compare(left=left, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=bool(wanted))]):
            yield from _parts(Condition(left, holds is wanted))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPPOSITES:
            yield from _parts(Condition(ast.Compare(left, [_OPPOSITES[type(op)]()], [right]), not holds))
        case _:
            yield Condition(test, holds)
            if holds and not isinstance(test, ast.Compare):
                yield Condition(ast.Compare(test, [ast.Is()], [ast.Constant(None)]), False)


def exclude_each_other(flow: Flow, first: ast.AST, second: ast.AST) -> bool:
    """Whether code that comes to one node never comes to the other, by flags that stay as they are in the loop around both."""
    known = {(ast.unparse(part.test), part.holds): asked for asked in _tests(flow, first) for part in _parts(asked)}
    for asked in _tests(flow, second):
        for part, holds in _parts(asked):
            opposite = known.get((ast.unparse(part), not holds))
            if opposite is not None and _stay(flow, opposite.test, asked.test, first, second):
                return True
    return False


def _stay(flow: Flow, test: ast.expr, other: ast.expr, first: ast.AST, second: ast.AST) -> bool:
    """Whether what two tests read is the same for both, and in each round of the innermost loop around two nodes."""
    around = set(map(id, flow.block[second].loops()))
    loop = next((loop for loop in flow.block[first].loops() if id(loop) in around), None)
    tests = [node for asked in (test, other) for node in ast.walk(asked)]
    low, high = sorted((flow.order[test], flow.order[other]))
    names: dict[str, set[object]] = {}
    for node in tests:
        if isinstance(node, ast.Call) and not last_name(node.func).startswith("is_"):
            return False
        if isinstance(node, ast.Name):
            names.setdefault(node.id, set()).add(flow.reaching.get(node, frozenset()))
    paths = {path_of(node) for node in tests if isinstance(node, (ast.Attribute, ast.Subscript))}
    changes = [d for name in names for d in flow.definitions_of(name) if loop is not None and loop.block in d.block.ancestry()]
    stores = (store for store in flow.stores if path_of(store) in paths)
    stored = any(low < flow.order[s] < high or (loop is not None and flow.within(s, loop.block)) for s in stores)
    shared = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    shared &= {node.id for node in ast.walk(other) if isinstance(node, ast.Name)}
    return not changes and not stored and all(len(names[name]) == 1 for name in shared)
