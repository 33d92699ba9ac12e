"""Which methods of a module run in its forward pass: what `forward` calls, hands on or picks by its name."""

from __future__ import annotations

import re
from functools import cache

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.guards import is_guarded
from perflint.facts.values import classes
from perflint.facts.values.heirs import subclasses
from perflint.facts.values.inference import Inference
from perflint.source.syntax import Scope
from perflint.source.words import any_layout

_PICKED = any_layout(rb"getattr \( self , f?['\"](\w+)(?:\{|%|['\"] [+%])")
"""`getattr(self, "_" + mode)`: how the names begin of those that may be picked."""


def in_forward(inference: Inference, scope: Scope, depth: int = 2) -> bool:
    """Whether a function is the forward pass of a module, or a method of it that runs in one."""
    if scope.owner is None:
        return False
    if not classes.is_module(inference, scope.owner):
        return scope.name in ("forward", "backward") and classes.is_function_of_autograd(inference, scope.owner)
    if scope.name in ("forward", "__call__"):
        return True
    if depth == 0 or (scope.name.startswith("__") and scope.name.endswith("__")) or _sets_property(scope):
        return False
    heirs = subclasses(inference, scope.owner) or ()
    family = [a for a in classes.ancestors(inference, scope.owner) if not isinstance(a, str)]
    methods = [method for cls in (*family, *heirs) for method in cls.methods.values() if method is not scope]
    users = [method for method in methods if _runs(method, scope.name)]
    if not users:
        users = [method for method in methods if _may_pick(method, scope.name)]
    return any(in_forward(inference, user, depth - 1) for user in users)


def _sets_property(scope: Scope) -> bool:
    """Whether a method runs where an attribute is set: what asks for the attribute runs another one of that name."""
    return any(path_of(decorator) == f"{scope.name}.setter" for decorator in scope.decorators)


def runs_now_and_then(scope: Scope) -> bool:
    """Whether each call of a method by its class stands under a guard: `if self.mask is None: self.make_mask()`."""
    if scope.owner is None or scope.name in ("forward", "__call__"):
        return False
    users = [m for m in scope.owner.methods.values() if m is not scope and scope.name.encode() in m.called_members]
    calls = [(flow, call) for flow in map(flow_of, users) for call in flow.calls_named.get(scope.name, ())]
    return bool(calls) and all(is_guarded(flow, call) for flow, call in calls)


def _runs(method: Scope, name: str) -> bool:
    """Whether a method calls another one, or hands it on: `losses = {"boxes": self.loss_of_boxes}`."""
    word = name.encode()
    return word in method.called_members or (word in method.text and _handed_on(name).search(method.text) is not None)


@cache
def _handed_on(name: str) -> re.Pattern[bytes]:
    return any_layout(rb"\bself \. %b\b(?! [(=])" % name.encode())


def _may_pick(method: Scope, name: str) -> bool:
    """Whether a method may call another one by a name that it makes up."""
    found = _PICKED.findall(method.text) if b"getattr" in method.text else ()
    return any(name.encode().startswith(prefix) for prefix in found)
