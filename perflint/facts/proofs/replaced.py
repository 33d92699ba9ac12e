"""Whether a program puts functions of its own in the place of torch's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.values.values import Alternative, External
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout, words

_SETTERS: Final = words("setattr delattr patch object multiple dict")
"""The last names of what sets an attribute by its name: `setattr`, `mock.patch.object`, `monkeypatch.setattr`."""


def replaced(facts: Facts, path: str, *qualnames: str) -> Iterator[Obligation]:
    """What puts something else in the place of functions or classes of torch, or of their methods, in the program of a file."""
    names = frozenset(qualname.rpartition(".")[2] for qualname in qualnames)
    if not facts.project.program_may_hold(path, _may_replace(names)):
        return
    members = facts.project.members(path)
    if members is None:
        yield Obligation(Kind.PLAIN_MODULES, "the program is too large to be looked through for replaced functions of torch")
    for file in members or ():
        if facts.project.holds(file, _may_replace(names)):
            yield from facts.replaced.get((file, names), lambda file=file: _found(facts, file, names))  # type: ignore[misc]


@cache
def _may_replace(names: frozenset[str]) -> re.Pattern[bytes]:
    one_of = "|".join(sorted(names)).encode()
    return any_layout(
        rb"\. (?:%b) (?::[^=\n]+)?[,=](?!=)|['\"](?:[\w.]+\.)?(?:%b)['\"]|\b(?:%b) \. \w+ =(?!=)|setattr \(" % ((one_of,) * 3)
    )


def _found(facts: Facts, file: str, names: frozenset[str]) -> list[Obligation]:
    module = facts.project.module(file)
    if module is None:
        return []
    try:
        for scope in (module.top, *module.functions()):
            what = _in_scope(facts, scope, names)
            if what is not None:
                words = f"`{ast.unparse(what)}` puts something else in the place of a function of torch in {module.name}"
                return [Obligation(Kind.NAMES, words, file)]
    except SyntaxProblem:
        return [Obligation(Kind.UNKNOWN_CODE, f"`{module.name}` cannot be parsed")]
    return []


def _in_scope(facts: Facts, scope: Scope, names: frozenset[str]) -> ast.expr | None:
    if not _may_replace(names).search(scope.text):
        return None
    flow = flow_of(scope)
    for store in flow.stores:
        if _replaces(facts, scope, store, names):
            return store
    for call in flow.calls:
        if _sets(facts, scope, call, names):
            return call
    return next((found for inner in flow.inner if (found := _in_scope(facts, flow.inner_scope(inner), names))), None)


def _replaces(facts: Facts, scope: Scope, store: ast.expr, names: frozenset[str]) -> bool:
    match store:
        case ast.Attribute(value=owner, attr=attribute):
            owned = attribute in names or (path_of(owner) or "").rpartition(".")[2] in names
            return owned and facts.inference.value(scope, owner).may(_is_of_torch)
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name in names and any(holder in ast.unparse(store.value) for holder in ("__dict__", "vars("))
    return False


def _sets(facts: Facts, scope: Scope, call: ast.Call, names: frozenset[str]) -> bool:
    """Whether a call sets an attribute of torch by its name, or by a name that is not known."""
    func = call.func
    if (func.attr if isinstance(func, ast.Attribute) else path_of(func)) not in _SETTERS or not call.args:
        return False
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if texts:
        owner, _, name = texts[0].rpartition(".")
        return name in names and (owner.startswith("torch") or facts.inference.value(scope, call.args[0]).may(_is_of_torch))
    return facts.inference.value(scope, call.args[0]).may(_is_of_torch)


def _is_of_torch(alternative: Alternative) -> bool:
    return isinstance(alternative, External) and f"{alternative.qualname}.".startswith("torch.")
