"""Functions of the project that code runs without calling them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import partial

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.values import classes
from perflint.facts.values.calls import iterating_runs
from perflint.facts.values.heirs import subclasses
from perflint.facts.values.values import (
    ClassRef,
    FunctionRef,
    Instance,
    Loader,
    Object,
    Sequence,
    Value,
    held_by,
)
from perflint.source.syntax import Class, Scope

_ATTRIBUTES = frozenset(("__getattr__", "__getattribute__", "__setattr__", "__delattr__"))
_LOADED = (ast.Name, ast.Attribute, ast.Subscript)
_LOADS = frozenset(("__getitem__", "__getitems__", "__iter__", "__next__", "__len__", "__call__"))
_ASKS_FOR_TYPES = frozenset(("isinstance", "issubclass", "super"))
_MAKES = ("__init__", "__new__", "__post_init__")
_REACHES_INTO_CONTAINERS = (ast.Compare, ast.BinOp, ast.AugAssign, ast.FormattedValue, ast.Call, ast.keyword)
"""What may compare, add up or show what a container holds."""
_CONTENTS = 3
_BY_NAME = frozenset(("getattr", "setattr", "hasattr", "delattr"))


def hidden_runs(facts: Facts, scope: Scope, nodes: Iterable[ast.AST]) -> Iterator[Scope]:
    """What code may run otherwise than by a call: functions that it names or hands on, properties, operators of objects.

    nodes: the code, within `scope`. A function that is called as well may be among them.
    """
    for node in nodes:
        yield from facts.hidden.get((scope, node), partial(_all_run_by, facts, scope, node))


def _all_run_by(facts: Facts, scope: Scope, node: ast.AST) -> tuple[Scope, ...]:
    return tuple(_run_by(facts, scope, node))


def _run_by(facts: Facts, scope: Scope, node: ast.AST) -> Iterator[Scope]:
    """`hidden_runs` of one node."""
    flow = flow_of(scope)
    match node:
        case ast.Attribute(value=receiver, attr=name):
            value = facts.inference.value(scope, receiver)
            for alternative in value.alternatives:
                if isinstance(alternative, (Instance, ClassRef)):
                    method = classes.find_method(facts.inference, alternative.cls, name)
                    heirs = subclasses(facts.inference, alternative.cls) if value.open else None
                    yield from filter(None, (method, *(heir.methods.get(name) for heir in heirs or ())))
        case ast.Lambda() if node in flow.inner:
            yield flow.inner_scope(node)
        case ast.Call(func=ast.Name(id=name), args=[receiver, *_]) if name in _BY_NAME:
            for alternative in facts.inference.value(scope, receiver).alternatives:
                if isinstance(alternative, Instance):
                    yield from _methods(facts, alternative.cls)
    if isinstance(node, ast.Call) or (isinstance(node, _LOADED) and isinstance(node.ctx, ast.Load)):
        for ran in iterating_runs(facts.inference.value(scope, node)):
            if isinstance(ran, Scope) and ran is not scope:
                yield ran
            elif isinstance(ran, Loader) and isinstance(ran.site, tuple):
                yield from _loading(facts, *ran.site)
    if isinstance(node, ast.expr) and _is_read(node, flow.parent):
        value = facts.inference.value(scope, node)
        for alternative in value.alternatives:
            if isinstance(alternative, FunctionRef):
                yield alternative.scope
            elif isinstance(alternative, ClassRef):
                if _may_be_called_elsewhere(node, flow.parent):
                    yield from _constructors(facts, alternative.cls)
            elif isinstance(alternative, Instance):
                if _is_given_away(facts, scope, node, flow.parent):
                    yield from _methods(facts, alternative.cls)
                else:
                    yield from _operators(facts, alternative.cls, node, flow.parent.get(node))
        if isinstance(flow.parent.get(node), _REACHES_INTO_CONTAINERS):
            for instance in _contents(value, _CONTENTS):
                yield from (method for method in _methods(facts, instance.cls) if method.name.startswith("__"))


def _is_read(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether the value of an expression is looked at: that of a target by an augmented assignment alone."""
    if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
        return isinstance(parents.get(node), ast.AugAssign)
    return not isinstance(node, ast.Constant)


def _contents(value: Value, depth: int) -> Iterator[Instance]:
    """The objects of the project that containers hold."""
    for part in (part for alternative in value.alternatives if depth for part in held_by(alternative)):
        yield from (a for a in part.alternatives if isinstance(a, Instance))
        yield from _contents(part, depth - 1)


def _loading(facts: Facts, scope: Scope, call: ast.Call, depth: int = 3) -> Iterator[Scope]:
    """The project's functions that a loader runs for its batches: those of its dataset, sampler, `collate_fn`, transforms."""
    for given in (*call.args, *(k.value for k in call.keywords)):
        yield from _loaded(facts, facts.inference.value(scope, given), depth)


def _loaded(facts: Facts, value: Value, depth: int) -> Iterator[Scope]:
    for alternative in value.alternatives:
        match alternative:
            case FunctionRef(function):
                yield function
            case Instance(cls):
                yield from (method for method in _methods(facts, cls) if method.name in _LOADS)
            case Object(site=(inner, made)) if depth and isinstance(inner, Scope) and isinstance(made, ast.Call):
                yield from _loading(facts, inner, made, depth - 1)
            case Sequence(items=items) if depth:
                for item in items:
                    yield from _loaded(facts, item, depth - 1)


def _is_given_away(facts: Facts, scope: Scope, node: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether an object is an argument of code that cannot be looked at, which may call any of its methods."""
    call = parents.get(node)
    if isinstance(call, ast.keyword):
        call = parents.get(call)
    return isinstance(call, ast.Call) and call.func is not node and not facts.loops.targets(scope, call)


def _may_be_called_elsewhere(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a class is named for others to call it, as in `map(Cls, items)`: types and members that are asked for are not."""
    parent = parents.get(node)
    if isinstance(parent, ast.Call):
        return parent.func is not node and not (isinstance(parent.func, ast.Name) and parent.func.id in _ASKS_FOR_TYPES)
    return not isinstance(parent, (ast.Attribute, ast.ExceptHandler))


def _constructors(facts: Facts, cls: Class) -> Iterator[Scope]:
    """What of the project's runs when an object of a class is made."""
    return filter(None, (classes.find_method(facts.inference, cls, name) for name in _MAKES))


def _operators(facts: Facts, cls: Class, node: ast.expr, parent: ast.AST | None) -> Iterator[Scope]:
    """What Python may run for an object where it stands."""
    for method in _methods(facts, cls):
        if isinstance(parent, ast.Attribute):
            runs = method.name in _ATTRIBUTES
        elif isinstance(parent, ast.Call) and parent.func is node:
            runs = method.name == "__call__"
        elif isinstance(parent, ast.Match):
            runs = True  # a pattern reads attributes, and properties among them
        else:
            runs = method.name.startswith("__")
        if runs:
            yield method


def _methods(facts: Facts, cls: Class) -> Iterator[Scope]:
    """The methods that somebody may run who has an object: its constructor has run already."""
    for ancestor in classes.ancestors(facts.inference, cls):
        if isinstance(ancestor, Class):
            yield from (method for name, method in ancestor.methods.items() if name != "__init__")
