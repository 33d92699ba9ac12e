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
from perflint.facts.values.classes import is_super_call
from perflint.facts.values.values import Alternative, External
from perflint.rule.obligations import Kind, Obligation, one_of_each_kind
from perflint.source.scopes import every_scope
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout, words

_SETTERS: Final = words("setattr delattr patch object multiple dict")
"""The last names of what sets an attribute by its name: `setattr`, `mock.patch.object`, `monkeypatch.setattr`."""
_BUILTINS: Final = words("object dict")
"""What sets nothing under these names alone: only `mock.patch.object` and `mock.patch.dict` do."""
_SET_METHODS: Final = words("__setattr__ __delattr__")
_LOOKS: Final = words("getattr hasattr isinstance issubclass callable print id type repr str dir help len bool")
"""Functions that leave alone what they are given."""
_NO_PACKAGES: Final = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.Compare, ast.Lambda)
_PACKAGES: Final = words(
    "torch torch.nn torch.nn.functional torch.nn.init torch.cuda torch.cuda.amp torch.amp torch.utils.data"
)

_HANDED_OUT: Final = any_layout(
    rb"(?:[(,\[{=:]|\b(?:return|yield|else|or|and)\b)"
    rb" (?:torch|nn|F|functional|torch \. (?:nn|amp|cuda|utils \. data)|nn \. (?:functional|init)|cuda \. amp|utils \. data)\b"
    rb" (?:[,)\]}:;#\r\n]|\Z|(?:else|if|or|and)\b)"
    rb"|\b(?:torch|nn|functional|init|amp|cuda|utils \. data) as\b(?! (?:torch|nn|F|functional)\b)"
    rb"|\bfrom torch(?: \. \w+)* import\b(?:[^\n(]| \([^)]*)*\b(?:init|amp|cuda|data)\b"
    rb"|\bimport_module\b|__import__|\bmodules \[|\bgetattr \([^()]*['\"](?:torch|nn|functional|init|amp|cuda|data)['\"]"
)
"""Where a file gives a package of torch another name, or has it as a value."""


def replaced(facts: Facts, path: str, *qualnames: str) -> Iterator[Obligation]:
    """What puts something else in the place of functions or classes of torch, of their methods or packages, in a program."""
    names = frozenset(qualname.rpartition(".")[2] for qualname in qualnames)
    names |= {f"torch.{part}" for qualname in qualnames for part in qualname.split(".")[1:-1]}
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
    one_of = "|".join(sorted(name for name in names if "." not in name)).encode()
    packages = "|".join(sorted(name.rpartition(".")[2] for name in names if "." in name)).encode() or b"(?!)"
    return any_layout(
        rb"\. (?:%b)(?: [)\]]+| :[^=\n]+)? (?:[,=](?!=)|in\b)|\bas [\w.]+ \. (?:%b)\b"
        rb"|['\"](?:[\w.]+\.)?(?:%b)['\"]|\b(?:%b) \. \w+ =(?!=)|\b(?:set|del)attr\b|__(?:set|del)attr__"
        rb"|\b__dict__\b|\bvars \([^)]|[(,\[] torch [,)\]]|\b(?:torch|cuda|nn|utils) \. (?:%b) =(?!=)"
        % (one_of, one_of, one_of, one_of, packages)
    )


def _found(facts: Facts, file: str, names: frozenset[str]) -> list[Obligation]:
    module = facts.project.module(file)
    if module is None:
        return []
    try:
        found = [kind for scope in every_scope(module) for kind in _in_scope(facts, scope, names, module.name, file)]
    except SyntaxProblem:
        return [Obligation(Kind.UNKNOWN_CODE, f"`{module.name}` cannot be parsed")]
    return one_of_each_kind(found)


def _in_scope(facts: Facts, scope: Scope, names: frozenset[str], module: str, file: str) -> Iterator[Obligation]:
    if not _may_replace(names).search(scope.text):
        return
    flow = flow_of(scope)
    changed: list[tuple[ast.expr, ast.expr | None]] = [(store, _owner_replaced(store, names)) for store in flow.stores]
    changed += [(call, owner) for call in flow.calls for owner in _owners_set(facts, scope, call, names)]
    changed += [
        (node, _owner_of_names(facts, scope, node)) for node in flow.order if isinstance(node, ast.Attribute | ast.Call)
    ]
    for node, owner in changed:
        if owner is None:
            continue
        value = None if owner is node else facts.inference.value(scope, owner)
        if value is None or value.may(_is_of_torch):
            words = f"`{ast.unparse(node)}` puts something else in the place of a function of torch in {module}"
            yield Obligation(Kind.NAMES, words, file)
        elif value.open:
            yield Obligation(Kind.PLAIN_MODULES, f"`{ast.unparse(node)}` in {module} may replace a function of torch", file)
    for mention in (*flow.mentions.get("setattr", ()), *flow.mentions.get("delattr", ())):
        around = flow.parent.get(mention)
        if not (isinstance(around, ast.Call) and around.func is mention):
            words = f"`{ast.unparse(mention)}` is handed on in {module}, and may replace a function of torch"
            yield Obligation(Kind.PLAIN_MODULES, words, file)
    for inner in flow.parts():
        yield from _in_scope(facts, inner, names, module, file)


def _owner_replaced(store: ast.expr, names: frozenset[str]) -> ast.expr | None:
    """Whose attribute of one of these names is set by a statement; the statement itself where the name alone says that."""
    match store:
        case ast.Attribute(value=owner, attr=attribute):
            around = path_of(owner) or ""
            if f"torch.{attribute}" in names and around.partition(".")[0] == "torch":
                return owner
            return owner if attribute in names or around.rpartition(".")[2] in names else None
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return store if name in names and any(h in ast.unparse(store.value) for h in ("__dict__", "vars(")) else None
    return None


def _owners_set(facts: Facts, scope: Scope, call: ast.Call, names: frozenset[str]) -> Iterator[ast.expr]:
    """Whose attributes a call may set by one of these names, or by one that is not known; the call itself for `torch`'s own."""
    func = call.func
    last = func.attr if isinstance(func, ast.Attribute) else path_of(func)
    if last in _BUILTINS and facts.inference.value(scope, func).must(lambda a: a == External(f"builtins.{last}")):
        return
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if last in _SET_METHODS and isinstance(func, ast.Attribute) and not is_super_call(func.value):
        yield func.value if len(call.args) < (3 if last == "__setattr__" else 2) else call.args[0]
    elif last in _SETTERS and call.args:
        texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        owner, _, name = texts[0].rpartition(".") if texts else ("", "", "")
        if not texts or name in names or f"torch.{name}" in names:
            yield call if owner.startswith("torch") else call.args[0]
    elif last not in _LOOKS:
        displayed = [part for a in given for part in (a.elts if isinstance(a, (ast.List, ast.Tuple, ast.Set)) else [a])]
        has_others = facts.project.program_may_hold(scope.module.source.path, _HANDED_OUT)
        candidates = (p for p in displayed if not isinstance(p, _NO_PACKAGES) and (has_others or _comes_from_outside(scope, p)))
        packages = [part for part in candidates if facts.inference.value(scope, part).must(_is_package)]
        yield from packages if packages and not facts.loops.targets(scope, call) else ()


def _comes_from_outside(scope: Scope, node: ast.expr) -> bool:
    """Whether an expression is, or belongs to, what a function gets, imports or does not bind."""
    while isinstance(node, ast.Attribute):
        node = node.value
    bound = flow_of(scope).definitions_of(node.id) if isinstance(node, ast.Name) else []
    plainly = (d.value for d in bound if isinstance(d.value, (ast.Name, ast.Attribute)))
    is_given = any(isinstance(d.node, (ast.arg, ast.alias)) for d in bound)
    return isinstance(node, ast.Name) and (not bound or is_given or any(True for _ in plainly))


def _owner_of_names(facts: Facts, scope: Scope, node: ast.expr) -> ast.expr | None:
    """Whose attributes `__dict__` or `vars` gives to somebody who may write to them."""
    match node:
        case ast.Attribute(value=owner, attr="__dict__") | ast.Call(func=ast.Name(id="vars"), args=[owner]):
            around = flow_of(scope).parent.get(node)
            is_written = isinstance(around, ast.Attribute) and around.attr in ("update", "setdefault", "__setitem__", "pop")
            is_written |= isinstance(around, ast.Subscript) and isinstance(around.ctx, ast.Store)
            is_read = isinstance(around, (ast.Subscript, ast.Compare, ast.For))
            is_handed_on = not is_read and facts.inference.value(scope, owner).may(_is_of_torch)
            return owner if is_written or is_handed_on else None
    return None


def _is_of_torch(alternative: Alternative) -> bool:
    return isinstance(alternative, External) and f"{alternative.qualname}.".startswith("torch.")


def _is_package(alternative: Alternative) -> bool:
    return isinstance(alternative, External) and alternative.qualname in _PACKAGES
