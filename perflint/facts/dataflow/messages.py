"""Statements that say something to people, and those that warn of what is seldom so."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.definitions import path_of
from perflint.source.nodes import walk
from perflint.source.texts import last_name
from perflint.source.words import made, words

_SAYS = made(
    r"^print$|^warnings\.warn$|^(?:sys\.)?exit$|(?:^|\.)(?:log\w*|_log\w*)\.(?:debug|info|warn|warning|error|critical|exception)$"
)
_WARNS = words("warn warning error critical exception")
_WARNING = made(r"(?i:warn|anomal|unexpected)|ERROR")


def is_message(statement: ast.stmt) -> bool:
    """Whether a statement prints, logs or warns, and does nothing else."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and _SAYS.search(path_of(call.func) or "") is not None


def warns(body: list[ast.stmt]) -> bool:
    """Whether a block does nothing but warn of what is seldom so: `print(f"WARNING: {norm}")`, `logger.warning(...)`."""
    said = [s.value for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and is_message(s)]
    if not all(isinstance(s, ast.Assign) or is_message(s) for s in body):
        return False
    return any(last_name(call.func) in _WARNS or any(map(_is_warning, walk(call))) for call in said)


def _is_warning(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and _WARNING.search(node.value) is not None
