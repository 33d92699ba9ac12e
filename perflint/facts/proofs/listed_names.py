"""Whether a program goes through the names of a file: a further import would be one more of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from typing import Final

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.values.values import External, ModuleRef
from perflint.source.renaming import renamed
from perflint.source.scopes import in_any_scope
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, words

_GATE: Final = any_layout(rb"\b(?:globals|locals|dir|vars|getmembers\w*|__dict__|__dir__)\b")
_CALLED: Final = ("globals", "locals", "dir", "vars", "getmembers", "getmembers_static")
_FUNCTIONS: Final = words(
    "builtins.globals builtins.locals builtins.dir builtins.vars inspect.getmembers inspect.getmembers_static"
)
_LOOKS_UP: Final = words("get update pop setdefault")
"""Methods of a dictionary of names that are about some of them alone."""


def lists_names(facts: Facts, path: str) -> bool:
    """Whether a file, or one that imports it, goes through the names of a module, as registries do."""
    project = facts.project
    files = (path, *sorted(project.importers(path)))
    return any(project.holds(file, _GATE) and facts.lists_names.get(file, partial(_found, facts, file)) for file in files)


def _found(facts: Facts, file: str) -> bool:
    return in_any_scope(facts.project.module(file), partial(_in_scope, facts))


def _in_scope(facts: Facts, scope: Scope) -> bool:
    if _GATE.search(scope.text) is None and not renamed(scope.module.source, _CALLED):
        return False
    flow = flow_of(scope)
    called = (*_CALLED, *renamed(scope.module.source, _CALLED))
    return (
        any(_lists(facts, scope, mention) for name in called for mention in flow.mentions.get(name, ()))
        or any(_shows(facts, scope, owned, owned.value) for owned in _attributes(flow, "__dict__"))
        or any(_may_be_module(facts, scope, owned.value) for owned in _attributes(flow, "__dir__"))
        or any(_in_scope(facts, inner) for inner in flow.parts())
    )


def _attributes(flow: Flow, name: str) -> Iterator[ast.Attribute]:
    return (mention for mention in flow.mentions.get(name, ()) if isinstance(mention, ast.Attribute))


def _lists(facts: Facts, scope: Scope, mention: ast.expr) -> bool:
    """Whether one of Python's functions for names is handed on, or gives the names of a module to go through."""
    value = facts.inference.value(scope, mention)
    if not value.may(lambda a: isinstance(a, External) and a.qualname in _FUNCTIONS):
        return False
    around = flow_of(scope).parent.get(mention)
    if not isinstance(around, ast.Call) or around.func is not mention:
        return isinstance(getattr(mention, "ctx", None), ast.Load)
    given = [*around.args[:1], *(keyword.value for keyword in around.keywords)]
    if given:
        return any(_shows(facts, scope, around, owner) for owner in given)
    is_own = scope.is_module or value.may(lambda a: a == External("builtins.globals"))
    return is_own and not _is_looked_up(scope, around)


def _shows(facts: Facts, scope: Scope, names: ast.expr, owner: ast.expr) -> bool:
    """Whether somebody gets the names of something that may be a module of the project, and not only looks some of them up."""
    return not _is_looked_up(scope, names) and _may_be_module(facts, scope, owner)


def _is_looked_up(scope: Scope, names: ast.expr) -> bool:
    match flow_of(scope).parent.get(names):
        case ast.Subscript(value=value):
            return value is names
        case ast.Attribute(attr=attr):
            return attr in _LOOKS_UP
    return False


def _may_be_module(facts: Facts, scope: Scope, owner: ast.expr) -> bool:
    if scope.owner is not None and scope.parameters and path_of(owner) == scope.parameters[0].arg:
        return False  # a method's own object, or its class
    return not facts.inference.value(scope, owner).must(lambda a: not isinstance(a, ModuleRef))
