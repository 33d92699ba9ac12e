"""What operators, properties and methods of objects that are not known may run: code of the program, if it has such."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from perflint.facts.dataflow.displays import is_display
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.fears import OWN_CONTAINERS, OWN_OPERATORS, Fear
from perflint.facts.values.values import Elements, Mapping, Sequence, Value
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope
from perflint.source.words import any_layout

_CONTENTS = 3
"""How deep an operation looks into a container: it compares, adds up or shows what is in it."""


def runs_unknown_objects(facts: Facts, scope: Scope, part: ast.AST, plain: Container[ast.AST] = ()) -> Obligation | None:
    """What evaluating or executing one node of a tree, without the nodes below it, may run of objects that are not known.

    Libraries' own operators, items and properties change nothing that a program holds; those of the program may.
    plain: expressions that are numbers, whatever inference knows of them.
    """
    for asked, fears in _asked(facts, scope, part):
        if _is_plain(facts, scope, asked, plain):
            continue
        for fear in fears:
            if facts.project.program_may_hold(scope.module.source.path, fear.pattern, fear.before):
                return Obligation(fear.kind, f"`{ast.unparse(asked)}` may be anything, and {fear.words}")
    match part:
        case ast.Attribute(value=owner, attr=name, ctx=ast.Load()):
            if _is_known(facts.inference.value(scope, owner), 0) or is_display(flow_of(scope), owner):
                return None
            pattern = any_layout(rf"\bdef (?:{name}|__getattr(?:ibute)?__) \(|\b{name} = property\b".encode())
            if facts.project.program_may_hold(scope.module.source.path, pattern):
                words = f"`{ast.unparse(owner)}` may be an object of the program, whose `{name}` may do more than give a value"
                return Obligation(Kind.PLAIN_OBJECTS, words)
    return None


def _asked(facts: Facts, scope: Scope, part: ast.AST) -> Iterator[tuple[ast.expr, tuple[Fear, ...]]]:
    """The parts of a node whose own methods say what it does, each with what is to be feared of them."""
    match part:
        case ast.Subscript(value=container, slice=index):
            yield container, (OWN_CONTAINERS,)
            yield index, (OWN_OPERATORS,)
        case (
            ast.For(iter=iterated)
            | ast.Starred(value=iterated)
            | ast.Assign(targets=[ast.Tuple() | ast.List()], value=iterated)
        ):
            yield iterated, (OWN_CONTAINERS,)
        case ast.If(test=asked) | ast.IfExp(test=asked) | ast.AugAssign(value=asked) | ast.FormattedValue(value=asked):
            yield asked, (OWN_OPERATORS, OWN_CONTAINERS)
        case ast.Call(args=args, keywords=keywords):
            for given in (*args, *(keyword.value for keyword in keywords)):
                yield given, (OWN_OPERATORS, OWN_CONTAINERS)
        case ast.Compare() | ast.BinOp() | ast.UnaryOp() | ast.BoolOp():
            for operand in ast.iter_child_nodes(part):
                if isinstance(operand, ast.expr):
                    yield operand, (OWN_OPERATORS, OWN_CONTAINERS)


def _is_plain(facts: Facts, scope: Scope, node: ast.expr, plain: Container[ast.AST]) -> bool:
    """Whether an expression is known to be no object of the program, and to hold none; operators of such give such."""
    if node in plain or _is_known(facts.inference.value(scope, node), _CONTENTS):
        return True
    if not isinstance(node, (ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp)):
        return False
    operands = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    return all(_is_plain(facts, scope, operand, plain) for operand in operands)


def _is_known(value: Value, depth: int) -> bool:
    """Whether all that a value may be is known, and what containers hold down to a depth."""
    if value.open or not value.alternatives:
        return False
    if not depth:
        return True
    for alternative in value.alternatives:
        match alternative:
            case Sequence(items=items) if not all(_is_known(item, depth - 1) for item in items):
                return False
            case Elements(element=element) if not _is_known(element, depth - 1):
                return False
            case Mapping(items=pairs, rest=rest):
                if not _is_known(rest, depth - 1) or not all(_is_known(item, depth - 1) for _, item in pairs):
                    return False
    return True
