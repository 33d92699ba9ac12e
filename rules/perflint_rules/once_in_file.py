"""What is one decision for a file: the first place has the finding, with all of the others. No rule by itself."""

import ast
from collections.abc import Callable, Iterable

from perflint.api import Code


def places_in_file(code: Code, word: str, find: Callable[[Code], Iterable[ast.Call]]) -> list[ast.Call]:
    """All places in a file's own statements and its outermost functions, in order, if the first is in this scope.

    word: an identifier that stands at each of them. Inner functions have those of their own.
    """
    outer = code.scope.module.scopes_with(word)
    if code.scope not in outer:
        return list(find(code))
    found = [(code.span(call), scope, call) for scope in outer for call in find(code.at(scope))]
    found.sort(key=lambda place: place[0])
    return [call for _, _, call in found] if found and found[0][1] is code.scope else []


def also(calls: list[ast.Call]) -> str:
    """Words for the other places."""
    lines = [str(call.lineno) for call in calls[1:]]
    return f" (also on line{'s' if len(lines) > 1 else ''} {', '.join(lines)})" if lines else ""
