"""Whether a method of an object may run later: right before anybody else looks at the object, as `LateMeter` does it.

What is asked for is known to be harmless: the method computes with what it is given and with the object's own attributes, and
nothing of the class hands the object itself to anybody.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.proofs import inspects_itself
from perflint.facts.values.classes import ancestors, find_method
from perflint.facts.values.values import External, Instance, Object, Value
from perflint.source.syntax import Class, Scope, SyntaxProblem
from perflint.source.words import any_layout, words

_KNOWN: Final = words("timm.utils.AverageMeter.update timm.utils.metrics.AverageMeter.update")
"""Methods outside of the project that add up numbers."""
_SPECIAL: Final = words("__init__ __str__ __repr__ __format__")
"""Special methods that run nowhere but where a `LateMeter` catches up."""
_COMPUTING: Final = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call),
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If, ast.Pass, ast.Assert, ast.Return, ast.Expr),
)
_FUNCTIONS: Final = words("abs bool float int isinstance max min round")
_OF_TENSORS: Final = words("cpu detach item numpy")
"""Methods that numbers do not have: where a method is given none but numbers, a test for tensors is before them."""


def may_run_later(facts: Facts, made: Value, method: str) -> bool:
    """Whether a method of an object may run later, when it is given nothing but numbers and text."""
    return bool(made.alternatives) and all(
        (isinstance(a, Object) and f"{a.qualname}.{method}" in _KNOWN)
        or (isinstance(a, Instance) and keeps_to_itself(facts, a.cls) and _only_computes(facts, a.cls, method))
        for a in made.alternatives
    )


def keeps_to_itself(facts: Facts, cls: Class) -> bool:
    """Whether nobody but its holder gets hold of an object, and no code of its class runs but its methods, when called."""
    for ancestor in ancestors(facts.inference, cls):
        if ancestor in ("object", "builtins.object"):
            continue
        if not isinstance(ancestor, Class) or ancestor.node.decorator_list or ancestor.node.keywords:
            return False
        for name, scope in ancestor.methods.items():
            if (name.startswith("__") and name not in _SPECIAL) or not _hides_object(facts, cls, scope):
                return False
    return True


def _hides_object(facts: Facts, cls: Class, scope: Scope) -> bool:
    """Whether a method uses its object for nothing but its attributes, and is done when it returns."""
    try:
        flow = flow_of(scope)
    except SyntaxProblem:
        return False
    decorators = {path_of(decorator) for decorator in scope.decorators}
    if not scope.parameters or flow.yields or flow.inner or not decorators <= {"property"}:
        return False
    itself = scope.parameters[0].arg
    mentions = (node for node in _parts(scope.body) if isinstance(node, ast.Name) and node.id == itself)
    return not inspects_itself(flow) and all(_is_harmless(facts, cls, flow, mention) for mention in mentions)


def _is_harmless(facts: Facts, cls: Class, flow: Flow, use: ast.AST) -> bool:
    """Whether a mention of an object in its own method is for an attribute of it."""
    attribute = flow.parent.get(use)
    if not isinstance(attribute, ast.Attribute):
        return False
    around = flow.parent.get(attribute)
    if attribute.attr == "__dict__":  # '{avg:.2f}'.format(**self.__dict__)
        call = flow.parent.get(around) if isinstance(around, ast.keyword) and around.arg is None else None
        return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "format"
    is_called = isinstance(around, ast.Call) and around.func is attribute
    method = find_method(facts.inference, cls, attribute.attr)
    return not attribute.attr.startswith("__") and (method is None or is_called or bool(method.decorators))


def _only_computes(facts: Facts, cls: Class, name: str, depth: int = 2) -> bool:
    """Whether a method does nothing but compute with numbers, its own and those of its object, and keep them there."""
    scope = find_method(facts.inference, cls, name)
    if scope is None or scope.decorators or scope.function is None or not depth:
        return False
    if may_be_replaced(facts, scope):
        return False
    arguments = scope.function.args
    defaults = [default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None]
    if arguments.vararg or arguments.kwarg or not all(isinstance(default, ast.Constant) for default in defaults):
        return False
    asked = {part for node in _parts(scope.body) for part in _asked_for(facts, scope, node)}
    return all(node in asked or _computes(facts, cls, scope, node, depth) for node in _parts(scope.body))


def may_be_replaced(facts: Facts, scope: Scope) -> bool:
    """Whether another function may be in the place of a method."""
    return facts.project.program_may_hold(scope.module.source.path, _replaces(scope.name)) or not _is_defined_once(scope)


def methods_of(cls: Class | str) -> list[Scope]:
    """The methods of a class of the project; none of what is no such class."""
    return [*cls.methods.values()] if isinstance(cls, Class) else []


@cache
def _replaces(name: str) -> re.Pattern[bytes]:
    """What puts another function in the place of a method, or takes part in what an attribute is, in a text."""
    special = rb"__(?:(?:set|get|del)attr(?:ibute)?|class|dict|init|new|del|str|repr|format)__"
    return any_layout(rb"\. (?:%b|%b) =(?!=)|['\"]%b['\"]" % (name.encode(), special, name.encode()))


def _is_defined_once(scope: Scope) -> bool:
    """Whether a method is the only one of its name in its class."""
    known = scope.module.scopes.values()
    return sum(other.owner is scope.owner and other.name == scope.name for other in known) == 1


def _asked_for(facts: Facts, scope: Scope, node: ast.AST) -> Iterator[ast.AST]:
    """What `isinstance` looks for: classes from outside of the project."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Tuple() as kinds]):
            if all(facts.inference.value(scope, kind).must_be(External) for kind in kinds.elts):
                yield from ast.walk(kinds)
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
            if facts.inference.value(scope, kind).must_be(External):
                yield from ast.walk(kind)


def _parts(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.stmt, ast.expr)):
                yield node


def _computes(facts: Facts, cls: Class, scope: Scope, node: ast.AST, depth: int) -> bool:
    flow = flow_of(scope)
    parent = flow.parent.get(node)
    match node:
        case ast.Call(func=ast.Name(id=name)):
            value = facts.inference.value(scope, node.func)
            return name in _FUNCTIONS and value.must(lambda a: a == External(f"builtins.{name}"))
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)):
            if owner == scope.parameters[0].arg:
                return _only_computes(facts, cls, name, depth - 1)
            return name in _OF_TENSORS and _is_local(flow, owner)
        case ast.Call():
            return False
        case ast.Name(id=name):
            is_called = isinstance(parent, ast.Call) and parent.func is node
            return is_called or _is_local(flow, name)
        case ast.Attribute(value=owner, attr=name):
            if not isinstance(owner, ast.Name):
                return False
            if isinstance(parent, ast.Call) and parent.func is node:
                return True
            return owner.id == scope.parameters[0].arg and _is_own(facts, cls, name)
    return isinstance(node, _COMPUTING)


def _is_local(flow: Flow, name: str) -> bool:
    """Whether a name is a parameter or a variable of the function."""
    return bool(flow.definitions_of(name)) and name not in flow.outer_names


def _is_own(facts: Facts, cls: Class, name: str) -> bool:
    """Whether an attribute is an object's own: neither a method or a property nor shared by all objects of the class."""
    found = ancestors(facts.inference, cls)
    return not any(isinstance(a, Class) and (name in a.methods or name in a.variables) for a in found)
