"""Whether torch may take a function as a whole: TorchScript and `fullgraph=True` refuse most of what Python code may hold."""

from __future__ import annotations

import ast
from typing import Final

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.rule.obligations import Kind, Obligation
from perflint.source.identifiers import stands_in_code
from perflint.source.syntax import Scope
from perflint.source.words import any_layout

_HARMLESS: Final = rb"(?:trace|trace_module|load|save|freeze|is_scripting|is_tracing|annotate|ignore|unused)\b"
_SCRIPTS: Final = any_layout(
    rb"\. jit \. (?!%b)\w|\bimport [^\n]*\bjit\b|\bjit import (?!%b)|\bScriptModule\b" % (_HARMLESS, _HARMLESS)
)
"""What may script a function."""
_OF_DYNAMO: Final = rb"(?:config|reset|disable|allow_in_graph|(?:maybe_)?mark_\w+|utils|is_compiling|list_backends)\b"
_WHOLE: Final = any_layout(rb"\bfullgraph\b(?! = False)|\bcompile \([^()]*\*\*|partial \([^()]*\bcompile\b")
"""What may compile a function so that a graph break is an error."""
_EXPORTS: Final = any_layout(
    rb"\b_?dynamo \. (?!%b|export\b)\w+ \(|\b_?dynamo import (?!%b)|\bnopython\b|\b_?dynamo \. export\b"
    rb"|\btorch \. export\b|\btorch import [^\n]*\bexport\b|\bdynamo = True\b" % (_OF_DYNAMO, _OF_DYNAMO)
)
"""What of torch takes functions in one graph without `compile`: all of its compiler but what is known not to."""
_REFUSED: Final = (
    *(ast.Try, ast.Lambda, ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.FunctionDef, ast.AsyncFunctionDef),
    *(ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Match, ast.AsyncFor, ast.AsyncWith),
)
"""What TorchScript does not take."""


def taken_whole(facts: Facts, scope: Scope) -> Obligation | None:
    """What may take a function as a whole, so that other calls in it may be refused."""
    if scope.is_module:
        return None
    path, project = scope.module.source.path, facts.project
    if facts.compiled.runs(scope) is not False and project.program_may_hold(path, _WHOLE):
        return Obligation(Kind.REWRITE, "the function may be compiled with `fullgraph=True`, which refuses the new line")
    if project.program_may_hold(path, _EXPORTS):
        return Obligation(Kind.REWRITE, "the program takes networks in one graph, which refuses the new line")
    if project.program_may_hold(path, _SCRIPTS) and _scripts(facts, path) and not _is_refused(scope):
        return Obligation(Kind.REWRITE, "TorchScript, which the program uses, does not take the new line")
    return None


def _scripts(facts: Facts, path: str) -> bool:
    """Whether a program that names TorchScript does so in code, and not in comments only."""
    files = facts.project.members(path)
    texts = (facts.project.read(file) or b"" for file in files or () if facts.project.holds(file, _SCRIPTS))
    return files is None or any(stands_in_code(name, text) for text in texts for name in ("jit", "ScriptModule"))


def _is_refused(scope: Scope) -> bool:
    """Whether TorchScript does not take a function as it is."""
    arguments = scope.function.args if scope.function is not None else None
    if arguments is None or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        return True
    return any(isinstance(node, _REFUSED) for statement in scope.body for node in ast.walk(statement)) or any(
        isinstance(call.func, ast.Attribute) and call.func.attr in ("zero_grad", "step") for call in flow_of(scope).calls
    )
