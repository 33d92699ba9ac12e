"""Whether the program goes on after an error, with what the error left behind."""

from __future__ import annotations

import ast

from perflint.facts.definitions import path_of
from perflint.facts.facts import Facts
from perflint.facts.flow import flow_of
from perflint.facts.gradients import USES_GRADIENTS
from perflint.facts.values import External, Object
from perflint.source.syntax import Scope


def error_is_survived(facts: Facts, scope: Scope, depth: int = 3) -> bool:
    """Whether an error in the forward pass reaches a handler after which gradients may be used.

    After a Ctrl-C, programs save what they have: there, the handler's function must work with gradients itself.
    """
    if isinstance(scope.node, ast.Lambda):
        return True  # it is called elsewhere
    for site in facts.inference.callers.sites(scope).sites if depth and not scope.is_module else ():
        for block in flow_of(site.scope).block[site.node].ancestry():
            handlers = getattr(block.node, "handlers", []) if block.kind == "try" else []
            if any(_goes_on(handler) or USES_GRADIENTS.search(site.scope.text) for handler in handlers):
                return True
            if getattr(block.node, "finalbody", []) and USES_GRADIENTS.search(site.scope.text):
                return True
            if isinstance(block.node, (ast.With, ast.AsyncWith)) and any(
                _may_swallow(facts, site.scope, item.context_expr) for item in block.node.items
            ):
                return True
        if error_is_survived(facts, site.scope, depth - 1):
            return True
    return False


def _may_swallow(facts: Facts, scope: Scope, manager: ast.expr) -> bool:
    """Whether a context manager may end an error: `contextlib.suppress`, or a class of the project."""
    value = facts.inference.value(scope, manager.func if isinstance(manager, ast.Call) else manager)
    return not value.must(lambda a: isinstance(a, (External, Object)) and "suppress" not in a.qualname)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether the program runs on after an error other than a Ctrl-C."""
    if handler.type is not None and path_of(handler.type) == "KeyboardInterrupt":
        return False
    return not isinstance(handler.body[-1], ast.Raise)
