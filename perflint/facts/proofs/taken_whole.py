"""Whether torch may take a function as a whole: TorchScript and `fullgraph=True` refuse most of what Python code may hold."""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.values.decorators import decorator_qualname
from perflint.facts.values.values import External
from perflint.project.imports import MAX_NEIGHBOURS
from perflint.project.project import Project
from perflint.rule.obligations import Kind, Obligation
from perflint.source.renaming import renamed
from perflint.source.scopes import every_scope
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout, words

_SCRIPTS: Final = any_layout(rb"\bjit\b|\bScriptModule\b")
_WHOLE: Final = any_layout(rb"\bfullgraph\b|\bcompile \((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\*\*")
_EXPORTS: Final = any_layout(rb"\b_?dynamo\b|\bnopython\b|\btorch \. export\b|\btorch import [^\n]*\bexport\b")
"""Words that what takes a function as a whole goes by: where none stands in a program, it is not looked at."""
_LOADS: Final = any_layout(
    rb"load_state_dict \( torch \. load \(|json \. loads? \(|\bloads? \(|\b(?:read_pickle|Unpickler|unpickle)\b"
)
"""What makes objects of what a file holds; of weights, and of plain data, it makes none of the program's classes."""
_OF_JIT: Final = words("trace trace_module load save freeze is_scripting is_tracing annotate ignore unused")
"""What of `torch.jit` scripts nothing."""
_OF_DYNAMO: Final = words(
    """
    config reset disable allow_in_graph mark_dynamic maybe_mark_dynamic mark_static mark_static_address mark_unbacked utils
    is_compiling list_backends optimize
    """
)
"""What of torch's compiler takes no function, or none in one graph unless a keyword says so."""
_PACKAGES: Final = ("jit", "export", "_dynamo", "ScriptModule")
_WHOLE_PACKAGES: Final = words("torch torch.jit torch.export torch._dynamo")
_COMPILERS: Final = words("torch.compile torch._dynamo.optimize torch._compile")
_REFUSED: Final = (
    *(ast.Try, ast.Lambda, ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.FunctionDef, ast.AsyncFunctionDef),
    *(ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Match, ast.AsyncFor, ast.AsyncWith),
)
"""What TorchScript does not take."""


class _Takes(enum.Enum):
    """How a program takes a function as a whole."""

    WHOLE = enum.auto()
    EXPORTED = enum.auto()
    SCRIPTED = enum.auto()


def taken_whole(facts: Facts, scope: Scope) -> Obligation | None:
    """What may take a function as a whole, so that other calls in it may be refused."""
    if scope.is_module:
        return None
    path = scope.module.source.path
    if facts.compiled.runs(scope) is not False and _Takes.WHOLE in _taken(facts, path, _WHOLE):
        return Obligation(Kind.REWRITE, "the function may be compiled with `fullgraph=True`, which refuses the new line")
    if _Takes.EXPORTED in _taken(facts, path, _EXPORTS):
        return Obligation(Kind.REWRITE, "the program takes networks in one graph, which refuses the new line")
    if _Takes.SCRIPTED in _taken(facts, path, _SCRIPTS) and not _is_refused(scope):
        return Obligation(Kind.REWRITE, "TorchScript, which the program uses, does not take the new line")
    return None


def _taken(facts: Facts, path: str, gate: re.Pattern[bytes]) -> frozenset[_Takes]:
    """How a program takes functions as a whole, by the files that hold a word for it."""
    project = facts.project
    if not project.program_may_hold(path, gate):
        return frozenset()
    members = project.members(path)
    if members is None:
        return frozenset(_Takes)
    found = frozenset[_Takes]()
    for file in members:
        if project.holds(file, gate) and (takes := facts.takes_whole.get(file, partial(_taken_by, facts, file))) - found:
            found |= takes if _may_be_handed(facts.project, file, path) else frozenset()
    return found


def _may_be_handed(project: Project, taker: str, path: str) -> bool:
    """Whether somebody may hand functions of a file to one that takes functions as a whole.

    Who does it runs the taker, and gets the functions by imports, from there or from what it is called by; or out of a pickle.
    """
    users = [taker]
    for user in users:  # it grows
        importers = project.importers(user)
        if len(importers) > MAX_NEIGHBOURS:
            return True
        users += sorted(importers.difference(users))
    reached = users
    for file in reached:
        reached += sorted(project.imports(file) - {*reached})
    return path in reached or any(map(partial(_unpickles, project), reached))


def _unpickles(project: Project, file: str) -> bool:
    """Whether a file may make objects of classes that it does not import, of more than weights."""
    if not project.holds(file, _LOADS):
        return False
    found = _LOADS.finditer(project.read(file) or b"")
    return any(not match[0].startswith((b"load_state_dict", b"json")) for match in found)


def _taken_by(facts: Facts, file: str) -> frozenset[_Takes]:
    module = facts.project.module(file)
    if module is None:
        return frozenset(_Takes)
    try:
        return frozenset(taken for scope in every_scope(module) for taken in _in_scope(facts, scope))
    except SyntaxProblem:
        return frozenset(_Takes)


def _in_scope(facts: Facts, scope: Scope) -> Iterator[_Takes]:
    others = renamed(scope.module.source, _PACKAGES)
    if not others and not any(gate.search(scope.text) for gate in (_WHOLE, _EXPORTS, _SCRIPTS)):
        return
    for decorator in scope.decorators:
        yield from _takes(decorator_qualname(facts.inference.module_name, scope, decorator))
    flow = flow_of(scope)
    for call in flow.calls:
        yield from _by_keywords(facts, scope, call)
    yield from (_Takes.WHOLE for node in flow.order if isinstance(node, ast.Constant) and node.value == "fullgraph")
    for name in (*_PACKAGES, *others):
        for mention in flow.mentions.get(name, ()):
            yield from _used(facts, scope, mention)
    for definition in flow.definitions:
        if definition.kind == "import":
            value = facts.inference.definition(definition, facts.inference.frame(scope), flow)
            for alternative in value.alternatives:
                if isinstance(alternative, External) and alternative.qualname not in _WHOLE_PACKAGES:
                    yield from _takes(alternative.qualname)
    if scope.is_module and any(name in _WHOLE_PACKAGES for name, *_ in scope.module.star_imports):
        yield from _Takes
    for inner in flow.parts():
        yield from _in_scope(facts, inner)


def _by_keywords(facts: Facts, scope: Scope, call: ast.Call) -> Iterator[_Takes]:
    for keyword in call.keywords:
        if _is_off(keyword.value):
            continue
        if keyword.arg == "fullgraph" or (keyword.arg is None and _compiles(facts, scope, call)):
            yield _Takes.WHOLE
        elif keyword.arg in ("nopython", "dynamo"):
            yield _Takes.EXPORTED


def _is_off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _compiles(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether a call may be one of `torch.compile`, or of a network's `compile`, or prepare one."""
    value = facts.inference.value(scope, call.func)
    if value.may(lambda a: a == External("functools.partial")) and call.args:
        value = facts.inference.value(scope, call.args[0])
    elif value.must(lambda a: isinstance(a, External) and not a.qualname.startswith("torch.")):
        return False
    is_named = isinstance(call.func, ast.Attribute) and call.func.attr == "compile"
    return is_named or value.may(lambda a: isinstance(a, External) and a.qualname in _COMPILERS)


def _used(facts: Facts, scope: Scope, mention: ast.expr) -> Iterator[_Takes]:
    """What stands behind the name of a package, or of a class: `torch.jit.script`; the package itself where it is handed on."""
    flow = flow_of(scope)
    if not isinstance(getattr(mention, "ctx", None), ast.Load):
        return
    while isinstance(around := flow.parent.get(mention), ast.Attribute):
        mention = around
        known = facts.inference.value(scope, mention)
        if known.may(lambda a: isinstance(a, External) and a.qualname not in _WHOLE_PACKAGES):
            break
    value = facts.inference.value(scope, mention)
    named = [a.qualname for a in value.alternatives if isinstance(a, External)]
    if not value.alternatives:
        named = [f"torch.{(path_of(mention) or '').partition('.')[2]}"]  # of something that is not known
    for name in named:
        yield from _takes(name)


def _takes(qualname: str) -> Iterator[_Takes]:
    """How something of torch takes functions; nothing of another package does."""
    match qualname.split("."):
        case ["torch", "jit", *rest] if not rest or rest[0] not in _OF_JIT:
            yield _Takes.SCRIPTED
        case ["torch", "export", *_]:
            yield _Takes.EXPORTED
        case ["torch", "_dynamo", *rest] if not rest or rest[0] not in _OF_DYNAMO:
            yield _Takes.EXPORTED
        case [*_, "ScriptModule"]:
            yield _Takes.SCRIPTED


def _is_refused(scope: Scope) -> bool:
    """Whether TorchScript does not take a function as it is."""
    arguments = scope.function.args if scope.function is not None else None
    if arguments is None or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        return True
    return any(isinstance(node, _REFUSED) for statement in scope.body for node in ast.walk(statement)) or any(
        isinstance(call.func, ast.Attribute) and call.func.attr in ("zero_grad", "step") for call in flow_of(scope).calls
    )
