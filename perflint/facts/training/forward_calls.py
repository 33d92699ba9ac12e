"""The calls `net(x)` that run a forward pass of the project: they do not say its name."""

from __future__ import annotations

import ast
import builtins

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.values import classes
from perflint.project.project import MAX_IMPORTERS
from perflint.source.syntax import Scope, SyntaxProblem

_NO_NETWORKS = frozenset(("torch", "np", "nn", "F", "numpy", "functional", "os", "math", "random", *dir(builtins)))


def forward_calls(facts: Facts, scope: Scope) -> tuple[tuple[Scope, ast.Call], ...]:
    """The calls that run `forward`, or `__call__`, of a module of the project, as far as their networks are known."""
    if scope.owner is None or scope.name not in ("forward", "__call__"):
        return ()
    if not classes.is_module(facts.inference, scope.owner):
        return ()
    return facts.forward_calls.get(scope, lambda: tuple(_found(facts, scope)))


def _found(facts: Facts, scope: Scope) -> list[tuple[Scope, ast.Call]]:
    path = scope.module.source.path
    importers = facts.project.importers(path)
    if len(importers) > MAX_IMPORTERS:
        return []
    found = []
    for file in sorted({path, *importers, *facts.inference.callers.handed_objects_of(importers)}):
        module = scope.module if file == path else facts.project.module(file)
        if module is None or not facts.project.near_training(file):
            continue
        for caller in (module.top, *module.functions()):
            try:
                calls = flow_of(caller).calls
            except SyntaxProblem:
                continue
            found += [(caller, call) for call in calls if _may_be_network(call) and scope in facts.loops.targets(caller, call)]
    return found


def _may_be_network(call: ast.Call) -> bool:
    if not call.args and not call.keywords:
        return False
    first = (path_of(call.func) or "").partition(".")[0]
    return bool(first) and first not in _NO_NETWORKS and not (isinstance(call.func, ast.Name) and first[0].isupper())
