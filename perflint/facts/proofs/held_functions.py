"""Functions that code runs by another name than their own: handed to `map`, or held by an object like a method."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from perflint.facts.autograd.keeps_nothing import is_of_pure_package, keeps_nothing
from perflint.facts.autograd.without_graph import MODULE_METHODS, is_known_method
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.training.training_objects import is_neural_module
from perflint.facts.values import classes
from perflint.facts.values.values import (
    Alternative,
    ClassRef,
    External,
    FunctionRef,
    Instance,
    Literal,
    Number,
    Object,
    Tensor,
    Text,
    Value,
)
from perflint.rule.obligations import Kind
from perflint.source.scopes import scopes_with
from perflint.source.syntax import Module, Scope, SyntaxProblem
from perflint.source.words import any_layout, words

_PLACES: Final = {
    "builtins.map": 0,
    "builtins.filter": 0,
    "builtins.iter": 0,
    "functools.reduce": 0,
    "itertools.accumulate": 1,
    "itertools.dropwhile": 0,
    "itertools.filterfalse": 0,
    "itertools.groupby": 1,
    "itertools.starmap": 0,
    "itertools.takewhile": 0,
}
"""Where functions of Python take one that they call."""
_KEYWORDS: Final = words("key func function default object_hook default_factory")
_MAKES_RECORDS: Final = any_layout(
    rb"\b(?:SimpleNamespace|Namespace|namedtuple|NamedTuple|make_dataclass|EasyDict|edict|AttrDict|DotDict|Bunch|Munch|DotMap)\b"
    rb"|\btype \( (?:f?['\"]|\w+ ,)"
)
"""What makes objects whose attributes stand in a call."""
_RECORDS: Final = words("types.SimpleNamespace argparse.Namespace")
_PLAIN_BASES: Final = words("builtins.object typing.NamedTuple typing.Generic typing.Protocol abc.ABC enum.Enum")
_NAMES_OTHERS: Final = (ast.Name, ast.Attribute, ast.Subscript, ast.Lambda, ast.IfExp, ast.BoolOp)
"""The expressions that may be a function that stands elsewhere."""


def is_called(flow: Flow, node: ast.AST) -> bool:
    """Whether an expression is what a call calls."""
    call = flow.parent.get(node)
    return isinstance(call, ast.Call) and call.func is node


def functions_given(facts: Facts, scope: Scope, call: ast.Call) -> Iterator[ast.expr]:
    """What a function of Python gets from a call that it calls in its turn, and that is not known."""
    callee = facts.inference.value(scope, call.func).single
    if not isinstance(callee, External):
        return
    given = [k.value for k in call.keywords if k.arg in _KEYWORDS]
    place = _PLACES.get(callee.qualname)
    if place is not None and len(call.args) > max(place, 1 if callee.qualname == "builtins.iter" else 0):
        given.append(call.args[place])
    for function in given:
        value = facts.inference.value(scope, function)
        if not isinstance(function, ast.Lambda) and (not value.alternatives or value.open or not value.must(_is_looked_at)):
            yield function


def _is_looked_at(alternative: Alternative) -> bool:
    """Whether a function is one of the program, which is looked at where it is named, or keeps and changes nothing."""
    match alternative:
        case External(qualname):
            return is_of_pure_package(qualname)
        case FunctionRef() | ClassRef() | Instance() | Literal() | Number() | Text() | Tensor():
            return True
    return getattr(alternative, "qualname", "").startswith("torch.nn.")


def _is_no_function(value: Value) -> bool:
    return bool(value.alternatives) and not value.open and not value.may_be(FunctionRef, ClassRef, External)


def holds_function(facts: Facts, scope: Scope, function: ast.Attribute, held: Value) -> Kind | None:
    """What is open about an attribute that is called of an object of the program, if it is no method of its class.

    Only where it is named like a method of tensors, for which it would be taken: any other name is not known by itself.
    """
    if not (is_known_method(function.attr) or keeps_nothing(function.attr)) or not facts.inference.value(scope, function).open:
        return None
    for alternative in held.alternatives:
        if isinstance(alternative, Object) and alternative.qualname in _RECORDS:
            return Kind.UNKNOWN_CODE
        if not isinstance(alternative, (Instance, ClassRef)):
            continue
        if classes.find_method(facts.inference, alternative.cls, function.attr) is not None:
            continue
        if is_neural_module(facts.inference, Instance(alternative.cls)):
            if function.attr not in MODULE_METHODS:
                return Kind.KNOWN_LAYERS
        elif all(a in _PLAIN_BASES for a in classes.ancestors(facts.inference, alternative.cls) if isinstance(a, str)):
            return Kind.UNKNOWN_CODE
    return None


def may_be_field(facts: Facts, path: str, name: str) -> bool:
    """Whether an object of the program may hold a function under a name, like a method: as an attribute, or in its class."""
    word = any_layout(rb"\b" + name.encode() + rb"\b")

    def held() -> bool:
        members = facts.project.members(path)
        if members is None:
            return True
        if facts.project.program_may_hold(path, _MAKES_RECORDS) and _is_keyword(facts, path, name):
            return True
        return any(_holds(facts, file, name) for file in members if facts.project.holds(file, word))

    return facts.inference.solver.solve(("field", path, name), held, True)


def _is_keyword(facts: Facts, path: str, name: str) -> bool:
    """Whether a name stands before a `=` or in a text: a field of what is made by a call."""
    field = any_layout(rb"(?<![.\w])%b =(?!=)|['\"][\w\x20,]*\b%b\b[\w\x20,]*['\"]" % ((name.encode(),) * 2))
    return facts.project.program_may_hold(path, field)


def _holds(facts: Facts, file: str, name: str) -> bool:
    module = facts.project.module(file)
    if module is None:
        return False
    if any(name in cls.variables and name not in cls.methods for cls in module.classes.values()):
        return True
    return name.encode() in facts.project.attributes_stored(file) and _is_stored(facts, module, name)


def _is_stored(facts: Facts, module: Module, name: str) -> bool:
    """Whether a function of a file sets an attribute of a name to what may be a function that stands elsewhere."""
    for scope in scopes_with(module, name):
        try:
            flow = flow_of(scope)
        except SyntaxProblem:
            return True
        for store in flow.stores:
            if isinstance(store, ast.Attribute) and store.attr == name:
                values = [d.value for d in flow.definitions_at(store)]
                named = [v for v in values if v is None or isinstance(v, _NAMES_OTHERS)]
                if not all(v is not None and _is_no_function(facts.inference.value(scope, v)) for v in named):
                    return True
    return False
