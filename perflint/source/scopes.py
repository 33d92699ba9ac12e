"""Questions about each piece of code of a file."""

from __future__ import annotations

from collections.abc import Callable

from perflint.source.syntax import Module, Scope, SyntaxProblem


def in_any_scope(module: Module | None, holds: Callable[[Scope], bool]) -> bool:
    """Whether something holds of a file's own code or of one of its outermost functions; of what is no Python it may."""
    if module is None:
        return True
    try:
        return any(holds(scope) for scope in (module.top, *module.functions()))
    except SyntaxProblem:
        return True
