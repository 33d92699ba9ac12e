"""What containers of layers get after they are made: `layers.append(...)`, `body.add_module(...)`, `heads["a"] = ...`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts, Fill
from perflint.facts.values.layer_containers import is_container
from perflint.facts.values.values import Object
from perflint.source.scopes import scopes_where
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout, words

FILLING: Final = words("append extend insert add_module register_module update setdefault __setitem__")
"""Methods by which a container of layers gets more of them."""
_ONE_OF: Final = "|".join(sorted(FILLING)).encode()
_FILLS: Final = any_layout(rb"\. (?:%b) \(|\] =(?!=)" % _ONE_OF)
_FILLS_HERE: Final = any_layout(rb"\b(?:%b)\b|\] (?:[-+*/%%@&|^<>=,):]|in\b)" % _ONE_OF)
"""The same of a part of such a file: all forms of a target."""


def fills(facts: Facts, scope: Scope, made: ast.Call) -> Iterator[tuple[Scope, ast.expr]]:
    """What any function of the program puts into a container that a call makes, as far as it is known which one it fills.

    What fills a container that it is handed is no matter of this: `surgery` tells of it.
    """
    path = scope.module.source.path
    for file in facts.project.members(path) or (path,):
        found = facts.fills.get(file, lambda file=file: [*_fills(facts, file)])  # type: ignore[misc]
        yield from ((where, given) for site, where, given in found if site == _site(scope, made))


def _site(scope: Scope, made: ast.Call) -> tuple[str, int, int]:
    return scope.module.source.path, made.lineno, made.col_offset


def _fills(facts: Facts, file: str) -> Iterator[Fill]:
    module = facts.project.module(file) if facts.project.holds(file, _FILLS) else None
    for scope in scopes_where(module, _FILLS_HERE) if module is not None else ():
        yield from _fills_of(facts, scope)


def _fills_of(facts: Facts, scope: Scope) -> Iterator[Fill]:
    try:
        flow = flow_of(scope)
    except SyntaxProblem:
        return  # `surgery` says so
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for call in flow.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in FILLING:
            pairs += [(call.func.value, given) for given in (*call.args, *(k.value for k in call.keywords))]
    for store in flow.stores:
        if isinstance(store, ast.Subscript):
            pairs += [
                (store.value, d.value if d.value is not None and not d.index else store) for d in flow.definitions_at(store)
            ]
    for filled, given in pairs:
        for alternative in facts.inference.value(scope, filled).alternatives:
            if isinstance(alternative, Object) and is_container(alternative) and isinstance(alternative.site, tuple):
                yield _site(*alternative.site), scope, given
    for inner in flow.parts():
        yield from _fills_of(facts, inner)
