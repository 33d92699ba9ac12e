"""Code that ends with an error whenever it runs: at a name that nothing binds, an import of files that import each other, or a
call that does not fit what it calls.

What else a project holds decides, so this is no proof: it says which code nobody can be waiting for.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from typing import Final

from perflint.facts.dataflow.definitions import Block
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.dataflow.guards import is_run_alone
from perflint.facts.dataflow.statement_pass import may_swallow
from perflint.facts.facts import Facts
from perflint.facts.training.import_circles import imported_modules, is_circular
from perflint.facts.values.bound_arguments import may_bind
from perflint.facts.values.classes import ancestors, find_method, is_module, put_in_its_place
from perflint.facts.values.values import ClassRef, FunctionRef, Instance
from perflint.source.syntax import Class, Module, Scope, SyntaxProblem
from perflint.source.words import any_layout, words

_BINDS_BY_NAME = any_layout(
    rb"\bimport \*|\b(?:globals|exec(?<!\.exec)|eval(?<!\.eval)|vars) \("
    rb"|\b(?:__builtins__|builtins|get_ipython)\b|sys \. modules"
)
"""What may bind names that no statement does."""
_MAIN = any_layout(rb"\bif __name__ == ['\"]__main__['\"]")
"""What a program has that is a single file."""
_GIVEN: Final = frozenset(
    (*dir(builtins), "__file__", "__path__", "__class__", "__builtins__", "__annotations__", "_", "display")
)
_BASES: Final = words(
    """
    torch.nn.Module torch.utils.data.Dataset torch.utils.data.dataset.Dataset builtins.object abc.ABC
    """
)
_DEPTH: Final = 3
"""Through how many calls an error is looked for, down and up."""


def ends_first(facts: Facts, scope: Scope, node: ast.AST, depth: int = _DEPTH) -> bool:
    """Whether a run ends with an error before it gets to a node, or in the first round of a loop around it.

    Or in the first call of a function that runs each step, or all that call the function end like that.
    """
    flow = flow_of(scope)
    if node not in flow.block:
        return False
    if any(_is_first(facts, flow, end, node) for end in dead_ends(facts, scope)):
        return True
    if not depth or scope.is_module:
        return False
    called = facts.inference.callers.sites(scope)
    if not called.sites or not called.complete_as_written:
        return False  # what a function is handed to may call it elsewhere
    return all(ends_first(facts, site.scope, site.node, depth - 1) for site in called.sites)


def _is_first(facts: Facts, flow: Flow, end: ast.AST, node: ast.AST) -> bool:
    """Whether a run that would get to a node gets to its end before, or next to that."""
    if flow.dominates(end, node):
        return True
    if facts.loops.heat(flow.scope) is not None and ends_surely(flow, end):
        return True
    around = set(map(id, flow.block[node].ancestry()))
    between = [block for block in flow.block[end].ancestry() if id(block) not in around]
    shared = {id(loop) for loop in flow.block[node].loops()} & {id(loop) for loop in flow.block[end].loops()}
    if not shared or not all(map(_runs_on, between)):
        return False
    return not any(flow.order[node] < at for at in _returns_before(flow, end))


def ends_surely(flow: Flow, end: ast.AST) -> bool:
    """Whether a function gets to one of its dead ends whenever it runs."""
    if not all(_runs_on(block) or is_run_alone(block) for block in flow.block[end].ancestry()):
        return False
    return not _returns_before(flow, end)


def _runs_on(block: Block) -> bool:
    """Whether a block runs whenever what is around it does; that a `for` has a first round is taken for granted."""
    match block.node:
        case ast.While(test=test) if block.kind == "loop":
            return isinstance(test, ast.Constant) and bool(test.value)
        case ast.With() | ast.AsyncWith():
            return not may_swallow(block.node)
    return block.kind in ("scope", "loop")


def _returns_before(flow: Flow, end: ast.AST) -> list[int]:
    statement = flow.statement(end)
    at = (flow.order[left] for left in flow.returns if left is not statement and left in flow.order)
    return [number for number in at if number < flow.order[end]]


def dead_ends(facts: Facts, scope: Scope, depth: int = _DEPTH) -> tuple[ast.AST, ...]:
    """The names and calls at which a function ends with an error when it gets there; what a handler may catch is left out."""
    return facts.dead_ends.get((scope, depth), lambda: tuple(_find(facts, scope, depth)))


def always_ends(facts: Facts, scope: Scope, depth: int = _DEPTH) -> bool:
    """Whether a function ends with an error whenever it is called."""
    return any(ends_surely(flow_of(scope), end) for end in dead_ends(facts, scope, depth))


def _find(facts: Facts, scope: Scope, depth: int) -> Iterator[ast.AST]:
    if scope.module.source.cells is not None:
        return  # who runs the cells of a notebook chooses which, and in which order
    try:
        flow = flow_of(scope)
    except SyntaxProblem:
        return
    is_whole = _is_of_several_files(facts, scope) or _MAIN.search(scope.module.source.body) is not None
    for node in flow.order:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            fails = is_whole and _is_unbound(flow, node) and not _is_annotation(flow, node)
        elif isinstance(node, (ast.ImportFrom, ast.Import)):
            fails = scope.is_module and _fails_to_import(facts, scope, node, depth)
        else:
            fails = isinstance(node, ast.Call) and _fails(facts, scope, flow, node, depth)
        if fails and not any(map(_may_catch, flow.block[node].ancestry())):
            yield node


def _may_catch(block: Block) -> bool:
    return block.kind in ("try", "handler") or (block.kind == "with" and may_swallow(block.node))


def _is_of_several_files(facts: Facts, scope: Scope) -> bool:
    """Whether a file imports another of the project, or is imported: one alone may be a part of something, as in a manual."""
    project, path = facts.project, scope.module.source.path
    return bool((project.imports(path) | project.importers(path)) - {path})


def _is_annotation(flow: Flow, node: ast.Name) -> bool:
    """Whether a name stands in the annotation of a variable, which no function looks at."""
    around = flow.statement(node)
    return isinstance(around, ast.AnnAssign) and any(inner is node for inner in ast.walk(around.annotation))


def _is_unbound(flow: Flow, node: ast.Name) -> bool:
    """Whether nothing in sight binds a name: no statement of a function around it or of the file, and not Python."""
    if flow.reaching.get(node) or node.id in _GIVEN:
        return False
    scope: Scope | None = flow.scope
    while scope is not None:
        if flow_of(scope).definitions_of(node.id):
            return False
        scope = scope.parent
    return not _may_bind_at_top(flow.scope.module, node.id)


def _may_bind_at_top(module: Module, name: str) -> bool:
    body = module.source.body
    if name in module.bindings or _BINDS_BY_NAME.search(body) is not None:
        return True
    return re.search(rb"\b(?:global|nonlocal)\b(?:[^\n]|\\\r?\n)*\b%b\b" % name.encode(), body) is not None


def _fails_to_import(facts: Facts, scope: Scope, statement: ast.ImportFrom | ast.Import, depth: int) -> bool:
    if isinstance(statement, ast.ImportFrom) and is_circular(facts, scope.module, statement):
        return True
    imported = imported_modules(facts, scope.module, statement) if depth else []
    return any(_is_got_to(flow_of(other.top), end) for other in imported for end in dead_ends(facts, other.top, depth - 1))


def _is_got_to(flow: Flow, end: ast.AST) -> bool:
    """Whether a file that is imported gets to one of its dead ends: not what it does when it is run itself."""
    return all(_runs_on(block) for block in flow.block[end].ancestry())


def _fails(facts: Facts, scope: Scope, flow: Flow, call: ast.Call, depth: int) -> bool:
    """Whether a call ends with an error: it fits nothing, gives another number of values than are taken, or runs into one."""
    called = _called(facts, scope, call)
    if called is None or not _runs_when_called(called):
        return False
    if not may_bind(called, call, by_object=called.owner is not None):
        return True
    return _gives_another_number(flow, call, called) or (depth > 0 and always_ends(facts, called, depth - 1))


def _runs_when_called(scope: Scope) -> bool:
    """Whether a call of a function runs its body at once."""
    try:
        return isinstance(scope.node, ast.FunctionDef) and not scope.decorators and not flow_of(scope).yields
    except SyntaxProblem:
        return False


def _called(facts: Facts, scope: Scope, call: ast.Call) -> Scope | None:
    """The function of the project that a call runs, without doubt: a constructor or the forward pass of a network, too."""
    inference = facts.inference
    match inference.value(scope, call.func).single:
        case FunctionRef(function, receiver) if function.parent is None and (function.owner is None) is (receiver is None):
            return function
        case ClassRef(cls) if _is_plain(facts, cls) and find_method(inference, cls, "__new__") is None:
            return find_method(inference, cls, "__init__")
        case Instance(cls) if _is_plain(facts, cls) and find_method(inference, cls, "__call__") is None:
            is_another = next(put_in_its_place(inference, cls, "forward", 2), None) is not None
            return find_method(inference, cls, "forward") if is_module(inference, cls) and not is_another else None
    return None


def _is_plain(facts: Facts, cls: Class) -> bool:
    """Whether nothing but what the project shows decides what a call of a class or of its objects runs."""
    above = list(ancestors(facts.inference, cls))
    if not all(isinstance(base, Class) or base in _BASES for base in above):
        return False
    return not any(base.node.decorator_list or base.node.keywords for base in above if isinstance(base, Class))


def _gives_another_number(flow: Flow, call: ast.Call, called: Scope) -> bool:
    """`a, b = f(x)`, where each `return` of `f` writes out three values."""
    match flow.parent.get(call):
        case ast.Assign(targets=[ast.Tuple(elts=targets) | ast.List(elts=targets)], value=value) if value is call:
            wanted = len(targets)
        case _:
            return False
    given = [returned.value for returned in flow_of(called).returns]
    if any(isinstance(target, ast.Starred) for target in targets):
        return False
    return bool(given) and all(
        isinstance(value, ast.Tuple) and len(value.elts) != wanted and not any(isinstance(e, ast.Starred) for e in value.elts)
        for value in given
    )
