"""Calls of a function, as they are found."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.values.frames import Inferring
from perflint.facts.values.values import FunctionRef
from perflint.project.project import MAX_IMPORTERS
from perflint.source.records import dataclass
from perflint.source.scopes import scopes_with
from perflint.source.syntax import Module, Scope, SyntaxProblem


@dataclass(frozen=True, eq=False)
class CallSite:
    """A call in `scope` that runs `target`; `function` says with which receiver.

    scatters: what is given is copied to the device of the network first.
    """

    scope: Scope
    node: ast.Call
    function: FunctionRef
    scatters: bool = False


@dataclass(frozen=True)
class CallSites:
    """The calls of a function. complete: no other use of it was found, and there is no code that may have one unseen.

    complete_as_written: no other use of it was found. Code that makes up names, and programs elsewhere that import the project,
    may have one: enough to rank by, for no proof.
    """

    sites: tuple[CallSite, ...]
    complete: bool
    complete_as_written: bool = False


def may_have_another_name(name: str, module: Module) -> bool:
    """Whether a file may give a function a second name, by its text: `run = name`, `run = name if fast else other`."""
    body = module.source.body
    return any(body[max(at - 80, 0) : at].rstrip(b" \t\r\n\\(").endswith((b"=", b"else")) for at in module.occurrences(name))


def calls_by_another_name(caller: Scope, scope: Scope) -> Iterator[CallSite]:
    """The calls of a function by a name that another function gives it: `step = fast if small else exact; step(x)`."""
    flow = flow_of(caller)
    for mention in flow.mentions.get(scope.name, ()):
        taken = flow.parent.get(mention)
        if isinstance(taken, ast.IfExp) and mention is not taken.test:
            taken = flow.parent.get(taken)
        if isinstance(taken, ast.Assign):
            for use in (use for d in map(flow.definitions_at, taken.targets) for one in d for use in flow.uses[one]):
                call = flow.parent.get(use)
                if isinstance(call, ast.Call) and call.func is use:
                    yield CallSite(caller, call, FunctionRef(scope))


def calls_of_lambda(inference: Inferring, scope: Scope) -> Iterator[CallSite]:
    """The calls of a lambda by the name that it gets, in whatever file: `mse = lambda x, y: ...; mse(x, y)`."""
    outer = scope.parent or scope.module.top
    match flow_of(outer).parent.get(scope.node):
        case ast.Assign(targets=[ast.Name(id=name)]):
            pass
        case _:
            return
    callers = nested(outer, name)
    if outer.is_module:
        project, path = inference.project, scope.module.source.path
        importers = project.importers(path)
        files = sorted({path, *(importers if len(importers) <= MAX_IMPORTERS else ())})
        modules = (project.module(file) for file in files if project.mentions(file, name))
        callers = (inner for m in modules if m is not None for s in scopes_with(m, name) for inner in nested(s, name))
    for caller in callers:
        for call in flow_of(caller).calls_named[name]:
            called = inference.infer(call.func, inference.frame(caller, (), 2))
            if isinstance(call.func, ast.Name) and called.may(lambda a: isinstance(a, FunctionRef) and a.scope is scope):
                yield CallSite(caller, call, FunctionRef(scope))


def nested(scope: Scope, name: str) -> Iterator[Scope]:
    """A scope and the functions inside it, as far as they mention a name."""
    if name.encode() not in scope.text:
        return
    yield scope
    if scope.may_hold_functions or (not scope.is_module and b"class " in scope.text):
        with contextlib.suppress(SyntaxProblem):
            flow = flow_of(scope)
            for part in flow.parts():
                yield from nested(part, name)
