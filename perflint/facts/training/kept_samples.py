"""Samples that are looked up before they are made, and kept: `if self.images[i] is None: self.images[i] = read(i)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from perflint.facts.dataflow.conditions import branch_test
from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import Flow
from perflint.source.words import any_layout


def is_kept_by_key(flow: Flow, node: ast.AST) -> bool:
    """Whether a function gets to a node only if a table lacks an entry, and fills the table: each sample is made once."""
    stored = {path_of(s.value) for s in flow.stores if isinstance(s, ast.Subscript) and not _is_if_there_is_room(flow, s, node)}
    return any(by_key and path in stored and _keeps_all(flow, path) for path, by_key in _lacked_before(flow, node))


def is_kept_whole(flow: Flow, node: ast.AST) -> bool:
    """Whether a function gets to a node only if an attribute is None, and sets it: one sample makes what all others use."""
    stored = {path_of(store) for store in flow.stores if isinstance(store, ast.Attribute)}
    return any(not by_key and path in stored for path, by_key in _lacked_before(flow, node))


def _is_if_there_is_room(flow: Flow, store: ast.AST, node: ast.AST) -> bool:
    """Whether a sample is made, but is kept only while a table is small: `if len(self.images) < 1000`."""
    around = {block.node for block in flow.block[node].ancestry()}
    tests = (b.node.test for b in flow.block[store].ancestry() if isinstance(b.node, ast.If) and b.node not in around)
    return any(path_of(call.func) == "len" for test in tests for call in ast.walk(test) if isinstance(call, ast.Call))


def _keeps_all(flow: Flow, path: str) -> bool:
    """Whether a table is there the next time, with all that it got: an attribute, or a name of the module."""
    if "." not in path and flow.definitions_of(path):
        return False
    owner = flow.scope.owner
    methods = [method.text for method in owner.methods.values()] if owner is not None else [flow.scope.text]
    return not any(_takes_from(path).search(text) for text in methods)


@cache
def _takes_from(table: str) -> re.Pattern[bytes]:
    """What makes a table smaller again."""
    name = table.encode().replace(b".", b" \\. ")
    return any_layout(rb"\b%b \. (?:pop|popitem|clear) \(|\bdel %b \[" % (name, name))


def _lacked_before(flow: Flow, node: ast.AST) -> Iterator[tuple[str, bool]]:
    """The tables and attributes without which, or without an entry of which, a function gets to a node, and whether by key."""
    for block in flow.block[node].ancestry():
        asked = branch_test(block, node)
        if asked is not None:
            test, wanted = asked
            yield from _lacked(flow, test, holds=wanted)
    statement: ast.AST = flow.statement(node)
    while isinstance(statement, ast.stmt) and statement is not flow.scope.node:
        for other in flow.siblings(statement):
            if other is statement:
                break
            if isinstance(other, ast.If) and isinstance(other.body[-1], ast.Return):
                yield from _lacked(flow, other.test, holds=False)
        statement = flow.parent[statement]


def _lacked(flow: Flow, test: ast.expr, *, holds: bool) -> Iterator[tuple[str, bool]]:
    """What is not there if a test holds, or does not."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _lacked(flow, operand, holds=not holds)
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) is holds:
            for value in values:
                yield from _lacked(flow, value, holds=holds)
        case ast.Compare(ops=[ast.In() | ast.NotIn() as op], comparators=[table]) if isinstance(op, ast.NotIn) is holds:
            path = path_of(table)
            if path is not None:
                yield path, True
        case ast.Compare(left=held, ops=[op], comparators=[ast.Constant(value=None)]):
            if isinstance(op, (ast.Is, ast.Eq)) is holds:
                yield from _looked_at(flow, held)


def _looked_at(flow: Flow, held: ast.expr) -> Iterator[tuple[str, bool]]:
    """The table that an expression is an entry of, or the attribute that it is, also by a name."""
    match held:
        case ast.Subscript(value=table) | ast.Call(func=ast.Attribute(value=table, attr="get")):
            path = path_of(table)
            if path is not None:
                yield path, True
        case ast.NamedExpr(value=value):
            yield from _looked_at(flow, value)
        case ast.Attribute():
            path = path_of(held)
            if path is not None:
                yield path, False
        case ast.Name():
            found = flow.reaching.get(held, frozenset())
            for definition in found:
                if len(found) == 1 and definition.kind == "assign" and not definition.index and definition.value is not None:
                    if not isinstance(definition.value, ast.Name):
                        yield from _looked_at(flow, definition.value)
