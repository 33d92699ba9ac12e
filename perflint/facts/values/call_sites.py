"""Calls of a function, as they are found."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.values.values import FunctionRef
from perflint.source.records import dataclass
from perflint.source.syntax import Module, Scope


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
    """The calls of a function. complete: no other use of it was found."""

    sites: tuple[CallSite, ...]
    complete: bool


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
