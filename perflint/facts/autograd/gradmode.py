"""Whether autograd records: `no_grad` around an expression, by a decorator, by every caller; and `eval` mode."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.operations.api_tables import GRAD_OFF
from perflint.facts.proofs.fears import AUTOCAST
from perflint.facts.values.inference import Inference
from perflint.facts.values.values import External
from perflint.rule.obligations import Kind
from perflint.source.syntax import Scope, SyntaxProblem


class GradMode:
    """Three answers: True (autograd is off), False (it is on), None (not known)."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference

    def is_off(self, scope: Scope, node: ast.AST, depth: int = 3) -> bool | None:
        """Whether autograd is off when `node` is evaluated."""
        flow = flow_of(scope)
        for block in flow.block[node].ancestry():
            if block.kind == "with" and isinstance(block.node, (ast.With, ast.AsyncWith)):
                for item in block.node.items:
                    switched = self.switches(scope, item.context_expr)
                    if switched is not None or _is_conditional(item.context_expr):
                        return switched
        for call in flow.calls_named["set_grad_enabled"]:
            if isinstance(flow.parent.get(call), ast.Expr) and flow.order[call] < flow.order[node]:
                return self.switches(scope, call)
        for decorator in scope.decorators:
            switched = self._decorates(scope, decorator)
            if switched is not False:
                return switched
        if scope.parent is not None:
            if self._inference.callers.sites(scope).complete and self._by_callers(scope, depth) is True:
                return True
            return self.is_off(scope.parent, scope.node, depth) if scope.node in flow_of(scope.parent).block else None
        return self._by_callers(scope, depth)

    def may_autocast(self, scope: Scope, node: ast.AST, depth: int = 3) -> Kind | None:
        """What is open about it that `node` is evaluated in no region of mixed precision.

        Where only callers that cannot be seen may be in one, that is a matter of `application`.
        """
        if not self._inference.project.program_may_hold(scope.module.source.path, AUTOCAST.pattern):
            return None
        for block in flow_of(scope).block[node].ancestry():
            if block.kind == "with" and isinstance(block.node, (ast.With, ast.AsyncWith)):
                if any(self._may_be_autocast(scope, item.context_expr) for item in block.node.items):
                    return Kind.NO_AUTOCAST
        return self.may_be_called_in_autocast(scope, depth)

    def may_be_called_in_autocast(self, scope: Scope, depth: int = 3) -> Kind | None:
        """The same of the callers of a function."""
        if scope.is_module or not self._inference.project.program_may_hold(scope.module.source.path, AUTOCAST.pattern):
            return None
        if depth == 0 or any("autocast" in ast.unparse(decorator) for decorator in scope.decorators):
            return Kind.NO_AUTOCAST
        found = self._inference.callers.sites(scope)
        kinds = {self.may_autocast(site.scope, site.node, depth - 1) for site in found.sites}
        if Kind.NO_AUTOCAST in kinds or not (found.sites or found.complete):
            return Kind.NO_AUTOCAST
        return Kind.APPLICATION if not found.complete or Kind.APPLICATION in kinds else None

    def _may_be_autocast(self, scope: Scope, manager: ast.expr) -> bool:
        callee = manager.func if isinstance(manager, ast.Call) else manager
        return not self._inference.value(scope, callee).must(lambda a: isinstance(a, External) and "autocast" not in a.qualname)

    def switches(self, scope: Scope, manager: ast.expr) -> bool | None:
        """What a context manager or decorator does: True switches autograd off, False on, None neither or unknown."""
        inference = self._inference
        callee = manager.func if isinstance(manager, ast.Call) else manager
        value = inference.value(scope, callee)
        if value.must(lambda a: isinstance(a, External) and a.qualname in GRAD_OFF):
            if isinstance(manager, ast.Call) and manager.args:
                enabled = inference.value(scope, manager.args[0]).literal
                return bool(enabled) if isinstance(enabled, bool) else None
            return True
        if value.must(lambda a: isinstance(a, External) and a.qualname == "torch.enable_grad"):
            return False
        if value.must(lambda a: isinstance(a, External) and a.qualname == "torch.set_grad_enabled"):
            if isinstance(manager, ast.Call) and manager.args:
                enabled = inference.value(scope, manager.args[0]).literal
                return not enabled if isinstance(enabled, bool) else None
        return None

    def _decorates(self, scope: Scope, decorator: ast.expr) -> bool | None:
        """True: the decorator switches autograd off. False: it does not. None: it may."""
        holder = scope.module.top
        callee = decorator.func if isinstance(decorator, ast.Call) else decorator
        inference = self._inference
        flow = flow_of(scope)
        if decorator not in flow.order:  # decorators are evaluated outside the function
            text = ast.unparse(callee).rpartition(".")[2]
            if text in ("no_grad", "inference_mode"):
                return True
            return None if "grad" in text or "inference" in text else False
        return inference.value(holder, callee).may(lambda a: isinstance(a, External) and a.qualname in GRAD_OFF)

    def may_be_switched_off(self, scope: Scope) -> bool:
        """Whether a decorator of a function may switch autograd off, by what it is or by its name."""
        return any(self._decorates(scope, decorator) is not False for decorator in scope.decorators)

    def _is_never_called(self, scope: Scope) -> bool:
        found = self._inference.callers.sites(scope)
        return not scope.is_module and found.complete and not found.sites

    def _by_callers(self, scope: Scope, depth: int) -> bool | None:
        if scope.is_module or depth <= 0:
            return False
        try:
            found = self._inference.callers.sites(scope)
        except SyntaxProblem:
            return None
        if not found.sites:
            named = self._inference.callers.namesakes(scope)
            on = [caller for caller, call in named if not self.is_off(caller, call, depth - 1)]
            return None if len(on) < len(named) and all(map(self._is_never_called, on)) else False
        answers = {self.is_off(site.scope, site.node, depth - 1) for site in found.sites}
        if answers == {True}:
            return True
        return False if answers == {False} else None


def _is_conditional(manager: ast.expr) -> bool:
    """`torch.set_grad_enabled(flag)` and context managers that may be one."""
    callee = manager.func if isinstance(manager, ast.Call) else manager
    text = ast.unparse(callee)
    return "grad" in text or "inference" in text
