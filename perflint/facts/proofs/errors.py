"""Whether the program goes on after an error, with what the error left behind."""

from __future__ import annotations

import ast
from typing import Final

from perflint.facts.autograd.gradients import USES_GRADIENTS
from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.fears import CATCHES
from perflint.facts.proofs.packages import is_known_package
from perflint.facts.proofs.reach import called_from
from perflint.facts.values.values import ClassRef, External, FunctionRef, Object
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, words

_RUNS_APART: Final = any_layout(
    rb"\b(?:Thread\w*|Timer|Process|Pool|fork|spawn|start_processes|__del__) \("
    rb"|\bsubmit \(|Executor \(|\b(?:run_in_executor|to_thread) \("
    rb"|\bcreate_task \(|\bgather \(|\bensure_future \(|\bTestCase\b|\bpytest\b"
)
"""What runs a function so that its error ends nothing else."""
_AT_END: Final = any_layout(rb"\batexit\b|excepthook\b")
"""What runs functions when an error has ended the program."""


def error_is_caught(facts: Facts, scope: Scope, node: ast.AST, depth: int = 3) -> Obligation | None:
    """What may go on after an error that `node` of a scope raises: a handler, or whoever runs the function."""
    around = (block for block in flow_of(scope).block[node].ancestry() if block.kind in ("try", "with"))
    if any(_may_end(facts, scope, block.node) for block in around):
        return Obligation(Kind.CONTROL_FLOW, "the error is caught, and the program goes on")
    if facts.project.program_may_hold(scope.module.source.path, _AT_END):
        return Obligation(Kind.ERRORS_ARE_BUGS, "the program runs code of its own at its end, whose errors end nothing")
    path = scope.module.source.path
    if scope.is_module:
        imported = facts.project.importers(path) - {path}
        if imported and facts.project.program_may_hold(path, CATCHES.pattern):
            return Obligation(Kind.ERRORS_ARE_BUGS, "whoever imports the file may handle the error")
        return None
    if any(_may_retry(facts, scope, decorator) for decorator in scope.decorators):
        return Obligation(Kind.ERRORS_ARE_BUGS, "a decorator of another package may handle the error")
    found = facts.inference.callers.sites(scope)
    missing = [error_is_caught(facts, s.scope, s.node, depth - 1) for s in found.sites] if depth else []
    if not found.complete or not missing:
        project = facts.project
        if project.program_may_hold(path, CATCHES.pattern) or project.program_may_hold(path, _RUNS_APART):
            missing.append(Obligation(Kind.ERRORS_ARE_BUGS, "the error may be caught"))
    return min(filter(None, missing), key=lambda caught: caught.kind.is_declarable, default=None)


def relied_on(facts: Facts, scope: Scope, node: ast.AST, depth: int = 3) -> Obligation | None:
    """What is around `node`, or around a call of its function, and goes on after an error: perhaps after one of this line.

    `node` may be a decorator, which stands for all of its function.
    """
    inside = flow_of(scope).block.get(node)
    for block in inside.ancestry() if inside is not None else ():
        handlers = getattr(block.node, "handlers", []) if block.kind == "try" else []
        if any(_goes_on(handler) and not _exits(handler) and _may_take_error_of_torch(handler) for handler in handlers):
            return Obligation(Kind.CONTROL_FLOW, "a handler around it goes on after an error")
        managers = getattr(block.node, "items", []) if block.kind == "with" else []
        if any(_is_named_for_errors(item.context_expr) for item in managers):
            return Obligation(Kind.CONTROL_FLOW, "a `with` around it goes on after an error")
    callers = facts.inference.callers
    sites = (*callers.sites(scope).sites, *callers.forward_sites(scope)) if depth and not scope.is_module else ()
    return next(filter(None, (relied_on(facts, site.scope, site.node, depth - 1) for site in sites)), None)


def _exits(handler: ast.ExceptHandler) -> bool:
    """Whether the last thing that a handler does is to end the program."""
    last = handler.body[-1]
    return isinstance(last, ast.Expr) and _ends_program(last.value)


def _ends_program(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and path_of(node.func) in ("sys.exit", "exit", "quit", "os._exit")


def _is_named_for_errors(manager: ast.expr) -> bool:
    made = path_of(manager.func) if isinstance(manager, ast.Call) else None
    return (made or "").rpartition(".")[2] in _SWALLOW


def _may_take_error_of_torch(handler: ast.ExceptHandler) -> bool:
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (path_of(kind) or "").rpartition(".")[2] not in _OF_OTHERS for kind in types)


_OF_OTHERS: Final = words(
    """
    ImportError ModuleNotFoundError KeyboardInterrupt SystemExit FileNotFoundError FileExistsError OSError IOError EOFError
    KeyError StopIteration Empty JSONDecodeError UnicodeDecodeError
    """
)
"""Errors that no operation on tensors raises."""


def _may_end(facts: Facts, scope: Scope, statement: ast.AST | None) -> bool:
    """Whether a statement may end an error that is raised in it."""
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return any(_may_swallow(facts, scope, item.context_expr) for item in statement.items)
    leaving = (ast.Return, ast.Break, ast.Continue)
    last = [node for final in getattr(statement, "finalbody", []) for node in ast.walk(final)]
    ends = any(isinstance(node, leaving) or _ends_program(node) for node in last)
    return ends or any(map(_goes_on, getattr(statement, "handlers", [])))


def error_is_survived(facts: Facts, scope: Scope, depth: int = 3) -> bool:
    """Whether an error in the forward pass reaches a handler after which gradients may be used.

    After a Ctrl-C, programs save what they have: there, the handler's function must work with gradients itself.
    """
    if isinstance(scope.node, ast.Lambda):
        return True  # it is called elsewhere
    if facts.project.program_may_hold(scope.module.source.path, _AT_END):
        return True
    if not scope.is_module and any(_may_retry(facts, scope, decorator) for decorator in scope.decorators):
        return True
    for site in facts.inference.callers.sites(scope).sites if depth and not scope.is_module else ():
        for block in flow_of(site.scope).block[site.node].ancestry():
            handlers = getattr(block.node, "handlers", []) if block.kind == "try" else []
            if any(map(_goes_on, handlers)) or any(
                _looks_at_gradients(facts, site.scope, handler.body) for handler in handlers
            ):
                return True
            if _looks_at_gradients(facts, site.scope, getattr(block.node, "finalbody", [])):
                return True
            if isinstance(block.node, (ast.With, ast.AsyncWith)) and any(
                _may_swallow(facts, site.scope, item.context_expr) for item in block.node.items
            ):
                return True
        if error_is_survived(facts, site.scope, depth - 1):
            return True
    return False


def _looks_at_gradients(facts: Facts, scope: Scope, body: list[ast.stmt]) -> bool:
    """Whether statements that run when an error is raised use gradients, or their function does, or what they call."""
    if not body:
        return False
    calls = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call)]
    targets = [target for call in calls for target in facts.loops.targets(scope, call)]
    return any(USES_GRADIENTS.search(function.text) for function in (scope, *called_from(facts, *targets, depth=None)))


_SWALLOW: Final = ("suppress", "raises", "ExitStack", "AsyncExitStack", "catch", "attempt")
_PLAIN_DECORATORS: Final = words(
    "torch functools builtins abc contextlib typing numba jaxtyping beartype typeguard perflint_runtime"
)


def _may_retry(facts: Facts, scope: Scope, decorator: ast.expr) -> bool:
    """Whether a decorator is of a package that may call a function again, or end its errors: `@retry`."""
    made = decorator.func if isinstance(decorator, ast.Call) else decorator
    value = facts.inference.value(scope.parent or scope.module.top, made)
    return not value.must(
        lambda a: (
            isinstance(a, (FunctionRef, ClassRef))  # whose handlers are in sight
            or (isinstance(a, (External, Object)) and a.qualname.partition(".")[0] in _PLAIN_DECORATORS)
        )
    )


def _may_swallow(facts: Facts, scope: Scope, manager: ast.expr) -> bool:
    """Whether a context manager may end an error: `contextlib.suppress`, or a class of the project."""
    value = facts.inference.value(scope, manager.func if isinstance(manager, ast.Call) else manager)
    return not value.must(lambda a: isinstance(a, (External, Object)) and _lets_through(a.qualname))


def _lets_through(manager: str) -> bool:
    """Whether errors leave a context manager of a package: it is known, and not there to end them."""
    return manager.rpartition(".")[2] not in _SWALLOW and is_known_package(manager)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether the program runs on after an error other than a Ctrl-C."""
    if handler.type is not None and path_of(handler.type) == "KeyboardInterrupt":
        return False
    return not isinstance(handler.body[-1], ast.Raise)
