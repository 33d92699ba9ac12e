"""Functions that no call in sight can run: each hands other arguments than they take."""

from __future__ import annotations

import ast
import re
from functools import cache

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.facts import Facts
from perflint.facts.values.bound_arguments import may_bind
from perflint.facts.values.classes import ancestors
from perflint.source.syntax import Scope
from perflint.source.texts import last_name
from perflint.source.words import any_layout


def fits_no_call(facts: Facts, scope: Scope) -> bool:
    """Whether a function, or the constructor of its class, is called, and all calls of it end with a TypeError."""
    if scope.parent is not None or scope.is_module:
        return False
    called = scope if scope.owner is None else scope.owner.methods.get("__init__")
    calls = [site.node for site in facts.inference.callers.sites(called).sites] if called is not None else []
    return called is not None and bool(calls) and _fit_none(called, calls)


def fits_no_call_of_objects(facts: Facts, method: Scope, depth: int = 1) -> bool:
    """`fits_no_call` for a method that only the project's own code calls, by its name.

    depth: through how many methods that fit no call themselves it may be called.
    """
    sites = [(site.scope, site.node) for site in facts.inference.callers.sites(method).sites]
    found = [*sites, *facts.inference.callers.namesakes(method)]
    calls = [pair for pair in found if not _is_of_another_class(facts, method, *pair)]
    alive = (
        call
        for caller, call in calls
        if not (depth and caller.owner is not None and fits_no_call_of_objects(facts, caller, depth - 1))
    )
    if not calls or not _fit_none(method, list(alive)):
        return False
    return not facts.project.program_may_hold(method.module.source.path, _handed_on(method.name))


def _is_of_another_class(facts: Facts, method: Scope, caller: Scope, call: ast.Call) -> bool:
    """Whether a call of a method's name is one of `self`, in a class that has nothing to do with that of the method."""
    own, other = method.owner, caller.owner
    if own is None or other is None or not isinstance(call.func, ast.Attribute) or path_of(call.func.value) != "self":
        return False
    return other is not own and other not in ancestors(facts.inference, own) and own not in ancestors(facts.inference, other)


def _fit_none(scope: Scope, calls: list[ast.Call]) -> bool:
    return not any(may_bind(scope, call, by_object=_is_by_object(scope, call)) for call in calls)


def _is_by_object(scope: Scope, call: ast.Call) -> bool:
    """Whether a call hands on the object before the dot, or a new one: that by a class gets it as its first argument."""
    if scope.name == "__init__" and last_name(call.func) != "__init__":
        return True
    match call.func:
        case ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            return not name[:1].isupper()
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
            return True
    return False


@cache
def _handed_on(name: str) -> re.Pattern[bytes]:
    """Where a method is no call's function: `callback=self.step`."""
    return any_layout(rb"\. %b\b(?! \()" % re.escape(name.encode()))
