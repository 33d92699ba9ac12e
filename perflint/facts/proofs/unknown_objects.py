"""What operators, properties and methods of objects that are not known may run: code of the program, if it has such."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container, Iterable, Iterator

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.displays import is_display
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.fears import OWN_CONTAINERS, OWN_OPERATORS, Fear
from perflint.facts.proofs.held_functions import functions_given, holds_function, is_called, may_be_field
from perflint.facts.training.training_objects import is_neural_module
from perflint.facts.values.classes import ancestors, is_super_call
from perflint.facts.values.values import (
    NOTHING,
    Alternative,
    ClassRef,
    FunctionRef,
    Instance,
    Literal,
    Mapping,
    Number,
    Text,
    Value,
    held_by,
)
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Class, Scope
from perflint.source.words import any_layout

_DESCRIBES = any_layout(rb"def __get__ \(")
_DESCRIBES_LAYERS = any_layout(rb"def (?:extra_repr|_get_name|__repr__|__str__|__format__) \(")
"""What a network runs of its layers when it is shown, but for code of torch."""
_CONTENTS = 3
"""How deep an operation looks into a container: it compares, adds up or shows what is in it."""


def runs_unknown_objects(facts: Facts, scope: Scope, part: ast.AST, plain: Container[ast.AST] = ()) -> Obligation | None:
    """What evaluating or executing one node of a tree, without the nodes below it, may run of objects that are not known.

    Libraries' own operators, items and properties change nothing that a program holds; those of the program may.
    plain: expressions that are numbers, whatever inference knows of them.
    """
    return next((obligation for obligation, _ in _feared(facts, scope, part, plain)), None)


def unknown_objects(
    facts: Facts, scope: Scope, nodes: Iterable[ast.AST], is_harmless: Callable[[Scope], bool]
) -> Obligation | None:
    """The same of some code, for a proof that can say of each of the program's methods whether it would do harm."""
    for node in nodes:
        for obligation, pattern in _feared(facts, scope, node):
            methods = methods_found(facts, scope.module.source.path, pattern) if pattern is not None else None
            if methods is None or not all(map(is_harmless, methods)):
                return obligation
    return None


def _feared(
    facts: Facts, scope: Scope, part: ast.AST, plain: Container[ast.AST] = ()
) -> Iterator[tuple[Obligation, re.Pattern[bytes] | None]]:
    """What a node may run of objects that are not known, with what finds the definitions of it; None where nothing does."""
    path = scope.module.source.path
    for shown in _shown(facts, scope, part):
        if facts.project.program_may_hold(path, _DESCRIBES_LAYERS):
            words = f"`{ast.unparse(shown)}` may be a network, and showing it runs methods of the program"
            yield Obligation(Kind.PLAIN_OBJECTS, words), _DESCRIBES_LAYERS
    for asked, fears in _asked(facts, scope, part):
        if _is_plain(facts, scope, asked, plain):
            continue
        for fear in fears:
            if facts.project.program_may_hold(path, fear.pattern, fear.before):
                yield Obligation(fear.kind, f"`{ast.unparse(asked)}` may be anything, and {fear.words}"), fear.pattern
    match part:
        case ast.Attribute(value=owner, attr=name, ctx=ast.Load()):
            if is_super_call(owner) or is_display(flow_of(scope), owner):
                return
            held = facts.inference.value(scope, owner)
            called = is_called(flow_of(scope), part)
            if held.may(lambda a: _may_describe(facts, a, name)) and facts.project.program_may_hold(path, _DESCRIBES):
                words = f"`{name}` of `{ast.unparse(owner)}` may be a descriptor, whose `__get__` may do more than give a value"
                yield Obligation(Kind.PLAIN_OBJECTS, words), _DESCRIBES
            if _is_known(held, 0):
                if called and (kind := holds_function(facts, scope, part, held)) is not None:
                    yield Obligation(kind, f"`{ast.unparse(part)}` is no method, and may be any function"), None
                return
            defined = rf"def(?<!\wdef) (?:{name}|__getattr(?:ibute)?__) \(|{name}(?<!\w{name}) = property\b"
            pattern = any_layout(defined.encode())
            words = f"`{ast.unparse(owner)}` may be an object of the program, whose `{name}` may do more than give a value"
            if facts.project.program_may_hold(path, pattern):
                yield Obligation(Kind.PLAIN_OBJECTS, words), pattern
            if called and may_be_field(facts, path, name):
                yield Obligation(Kind.PLAIN_OBJECTS, words), None
        case ast.Call() as call:
            for given in functions_given(facts, scope, call):
                words = f"`{ast.unparse(call.func)}` calls `{ast.unparse(given)}`, which is not known"
                yield Obligation(Kind.UNKNOWN_CODE, words), None


def _may_describe(facts: Facts, alternative: Alternative, name: str) -> bool:
    """Whether the class of an object binds a name in its body to something else than a method."""
    if not isinstance(alternative, (Instance, ClassRef)):
        return False
    above = ancestors(facts.inference, alternative.cls)
    return any(isinstance(cls, Class) and name in cls.variables for cls in above)


def methods_found(facts: Facts, path: str, pattern: re.Pattern[bytes]) -> list[Scope] | None:
    """The methods of a program whose definitions a pattern finds; None where there are others than those of plain classes."""
    nothing: list[Scope] | None = None
    return facts.inference.solver.solve(("methods found", path, pattern), lambda: _find_methods(facts, path, pattern), nothing)


def _find_methods(facts: Facts, path: str, pattern: re.Pattern[bytes]) -> list[Scope] | None:
    files = facts.project.members(path)
    found: list[Scope] = []
    for file in files or ():
        places = len(pattern.findall(facts.project.read(file) or b"")) if facts.project.holds(file, pattern) else 0
        module = facts.project.module(file) if places else None
        classes = module.classes.values() if module is not None else ()
        methods = [method for cls in classes for method in cls.methods.values() if pattern.search(method.text)]
        if len(methods) < places:
            return None
        found += methods
    return found if files is not None else None


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
        case ast.AugAssign(target=target, value=value):
            yield value, (OWN_OPERATORS, OWN_CONTAINERS)
            if not _begins_as_number(facts, scope, target):
                yield target, (OWN_OPERATORS, OWN_CONTAINERS)
        case ast.If(test=asked) | ast.IfExp(test=asked) | ast.While(test=asked) | ast.FormattedValue(value=asked):
            yield asked, (OWN_OPERATORS, OWN_CONTAINERS)
        case ast.Call(func=func, args=args, keywords=keywords) if not _is_looked_at(facts, facts.inference.value(scope, func)):
            for given in (*args, *(keyword.value for keyword in keywords)):
                yield given, (OWN_OPERATORS, OWN_CONTAINERS)
        case ast.Compare() | ast.BinOp() | ast.UnaryOp() | ast.BoolOp():
            for operand in ast.iter_child_nodes(part):
                if isinstance(operand, ast.expr):
                    yield operand, (OWN_OPERATORS, OWN_CONTAINERS)


def _shown(facts: Facts, scope: Scope, part: ast.AST) -> list[ast.expr]:
    """What a node may turn to text that is a network, or nobody knows what: `print(model)`."""
    match part:
        case ast.FormattedValue(value=shown):
            given = [shown]
        case ast.Call(func=func) if not _is_looked_at(facts, facts.inference.value(scope, func)):
            given = [*part.args, *(keyword.value for keyword in part.keywords)]
        case _:
            return []
    return [shown for shown in given if _may_hold_network(facts, facts.inference.value(scope, shown), _CONTENTS)]


def _may_hold_network(facts: Facts, value: Value, depth: int) -> bool:
    """Whether a value may be a network, or hold one down to a depth, as far as it is known at all."""
    if value.open or not value.alternatives:
        return True
    for alternative in value.alternatives:
        if is_neural_module(facts.inference, alternative):
            return True
        held = held_by(alternative)
        if isinstance(alternative, Mapping) and alternative.rest == NOTHING:
            held = held[:-1]  # there are no other keys
        if depth and any(_may_hold_network(facts, part, depth - 1) for part in held):
            return True
    return False


def _begins_as_number(facts: Facts, scope: Scope, target: ast.expr) -> bool:
    """Whether all that is added to are numbers and texts: what is added to them says what becomes of it."""
    inference = facts.inference
    starts: list[tuple[Scope, ast.expr | None]] = [(scope, target)]
    if isinstance(target, ast.Name):
        starts = list(_starts(scope, target.id))
    elif isinstance(target, ast.Attribute) and scope.owner is not None and scope.parameters:
        if not all(map(_is_number_or_text, inference.value(scope, target).alternatives)):
            return False
        if path_of(target.value) == scope.parameters[0].arg:
            methods = [m for m in scope.owner.methods_assigning(target.attr) if m.parameters]
            starts = [start for m in methods for start in _starts(m, f"{m.parameters[0].arg}.{target.attr}")]
    return bool(starts) and all(
        start is not None and inference.value(where, start).must(_is_number_or_text) for where, start in starts
    )


def _starts(scope: Scope, name: str) -> Iterator[tuple[Scope, ast.expr | None]]:
    """What is bound to a name of a function, or an attribute of its object, but for what is added up."""
    for definition in flow_of(scope).definitions_of(name):
        if definition.kind != "augmented":
            yield scope, definition.value if definition.kind == "assign" and not definition.index else None


def _is_number_or_text(alternative: Alternative) -> bool:
    return isinstance(alternative, (Literal, Number, Text))


def _is_looked_at(facts: Facts, callee: Value) -> bool:
    """Whether what is called asks its arguments for nothing itself: code of the program, or a layer."""
    return callee.must(lambda a: isinstance(a, (FunctionRef, ClassRef)) or is_neural_module(facts.inference, a))


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
    return all(_is_known(part, depth - 1) for alternative in value.alternatives for part in held_by(alternative))
