"""Whether a program goes through the names of a file: a further import would be one more of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.fears import BUILT_FROM_TEXT, Fear, feared
from perflint.facts.values.values import External, ModuleRef
from perflint.rule.obligations import Kind
from perflint.source.renaming import renamed
from perflint.source.scopes import every_scope, in_any_scope
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout, whole, words

_GATE: Final = any_layout(rb"\b(?:globals|locals|dir|vars|getmembers\w*|__dict__|__dir__)\b")
_CALLED: Final = ("globals", "locals", "dir", "vars", "getmembers", "getmembers_static")
_FUNCTIONS: Final = words(
    "builtins.globals builtins.locals builtins.dir builtins.vars inspect.getmembers inspect.getmembers_static"
)
_LOOKS_UP: Final = words("get update pop setdefault")
"""Methods of a dictionary of names that are about some of them alone."""
_FINDS_MODULES: Final = Fear(
    Kind.NAMES,
    any_layout(
        rb"\bfrom sys import\b|\bimport sys as\b|"
        + whole("import_module", "importlib", "pkgutil", "imp", "getmodule", "find_spec", "f_globals", "__globals__")
        + rb"|"
        + whole("get_objects", "get_referrers", "get_referents", "load_module")
    ),
    "the program finds modules otherwise than by import statements",
)
_NAMES_APART: Final = Fear(
    Kind.NAMES,
    any_layout(
        rb"\brunpy\b|\bexec \((?:[^()]|\((?:[^()]|\([^()]*\))*\))*,|\b(?:object|ModuleType) \. __dir__\b"
        rb"|\b(?:getattr \([^()]*,|attrgetter \() ['\"]__d(?:ict|ir)__['\"]|" + whole("__globals__", "f_globals")
    ),
    "the program takes the names of a file in other ways than by imports, and may go through them",
)


def lists_names(facts: Facts, path: str) -> bool:
    """Whether a program goes through the names of a file, or of one that imports it, as registries do.

    What is not known is this file's module only if an import of it is handed on as an object, or somebody finds it by name.
    """
    project = facts.project
    if any(feared(project, path, _NAMES_APART)):
        return True
    files = (path, *sorted(project.importers(path)))
    listed = [facts.lists_names.get(file, partial(_found, facts, file)) for file in files if project.holds(file, _GATE)]
    if True in listed or (None in listed and _is_found(facts, path)):
        return True
    return (None in listed or _others_list(facts, path, files)) and _is_handed_on(facts, path, files)


def _others_list(facts: Facts, path: str, files: tuple[str, ...]) -> bool:
    """Whether other files of the program may go through the names of a module that somebody has, and may give them."""
    if not facts.project.holders(path):
        return False
    members = facts.project.members(path)
    if members is None:
        return facts.project.program_may_hold(path, _GATE)
    others = (file for file in members if file not in files and facts.project.holds(file, _GATE))
    return any(facts.lists_names.get(file, partial(_found, facts, file)) is not False for file in others)


def _is_found(facts: Facts, path: str) -> bool:
    """Whether somebody may find the module of a file by its name."""
    return any(feared(facts.project, path, BUILT_FROM_TEXT, _FINDS_MODULES))


def _is_handed_on(facts: Facts, path: str, files: tuple[str, ...]) -> bool:
    """Whether somebody may get the module of a file, or a package that has it, as an object."""
    names = {Path(path).stem, *Path(path).parent.parts}
    handed_on = (facts.hands_on_modules.get(file, partial(_hands_on, facts, file)) for file in files)
    return any(taken is None or not names.isdisjoint(taken) for taken in handed_on)


def _hands_on(facts: Facts, file: str) -> frozenset[str] | None:
    """The last names of modules that a file does more with than to take names of them; None for any."""
    module = facts.project.module(file)
    if module is None or module.star_imports:
        return None
    try:
        scopes = [part for scope in every_scope(module) for part in _with_parts(scope)]
        imported = {d.name for scope in scopes for d in flow_of(scope).definitions if d.kind == "import"}
        return frozenset(
            name
            for scope in scopes
            for bound in imported
            for mention in flow_of(scope).mentions.get(bound, ())
            if isinstance(mention, ast.Name)
            for name in _handed_on(facts, scope, mention)
        )
    except SyntaxProblem:
        return None


def _with_parts(scope: Scope) -> Iterator[Scope]:
    yield scope
    for inner in flow_of(scope).parts():
        yield from _with_parts(inner)


def _handed_on(facts: Facts, scope: Scope, mention: ast.expr) -> Iterator[str]:
    """The last names of the modules that an expression may be which begins with a name that is imported."""
    parent, value = flow_of(scope).parent, facts.inference.value
    node = mention
    while isinstance(above := parent.get(node), ast.Attribute) and above.value is node:
        if not value(scope, above).may_be(ModuleRef, External):
            return
        node = above
    if isinstance(above, ast.Call) and above.func is node:
        return
    for alternative in value(scope, node).alternatives:
        match alternative:
            case ModuleRef(module):
                yield module.name.rpartition(".")[2]
            case External(qualname):
                yield qualname.rpartition(".")[2]


def _found(facts: Facts, file: str) -> bool | None:
    module = facts.project.module(file)
    if in_any_scope(module, partial(_in_scope, facts, is_known=True)):
        return True
    return None if in_any_scope(module, partial(_in_scope, facts, is_known=False)) else False


def _in_scope(facts: Facts, scope: Scope, is_known: bool) -> bool:
    """Whether a scope lists the names of a module; is_known: of one that inference knows, not of what may be any object."""
    if _GATE.search(scope.text) is None and not renamed(scope.module.source, _CALLED):
        return False
    flow = flow_of(scope)
    called = (*_CALLED, *renamed(scope.module.source, _CALLED))
    return (
        any(_lists(facts, scope, mention, is_known) for name in called for mention in flow.mentions.get(name, ()))
        or any(_shows(facts, scope, owned, owned.value, is_known) for owned in _attributes(flow, "__dict__"))
        or any(_may_be_module(facts, scope, owned.value, is_known) for owned in _attributes(flow, "__dir__"))
        or any(_in_scope(facts, inner, is_known) for inner in flow.parts())
    )


def _attributes(flow: Flow, name: str) -> Iterator[ast.Attribute]:
    return (mention for mention in flow.mentions.get(name, ()) if isinstance(mention, ast.Attribute))


def _lists(facts: Facts, scope: Scope, mention: ast.expr, is_known: bool) -> bool:
    """Whether one of Python's functions for names is handed on, or gives the names of a module to go through."""
    value = facts.inference.value(scope, mention)
    if not value.may(lambda a: isinstance(a, External) and a.qualname in _FUNCTIONS):
        return False
    around = flow_of(scope).parent.get(mention)
    if not isinstance(around, ast.Call) or around.func is not mention:
        return isinstance(getattr(mention, "ctx", None), ast.Load)
    given = [*around.args[:1], *(keyword.value for keyword in around.keywords)]
    if given:
        return any(_shows(facts, scope, around, owner, is_known) for owner in given)
    is_own = scope.is_module or value.may(lambda a: a == External("builtins.globals"))
    return is_own and not _is_looked_up(scope, around)


def _shows(facts: Facts, scope: Scope, names: ast.expr, owner: ast.expr, is_known: bool) -> bool:
    """Whether somebody gets the names of something that may be a module of the project, and not only looks some of them up."""
    return not _is_looked_up(scope, names) and _may_be_module(facts, scope, owner, is_known)


def _is_looked_up(scope: Scope, names: ast.expr) -> bool:
    match flow_of(scope).parent.get(names):
        case ast.Subscript(value=value):
            return value is names
        case ast.Attribute(attr=attr):
            return attr in _LOOKS_UP
    return False


def _may_be_module(facts: Facts, scope: Scope, owner: ast.expr, is_known: bool) -> bool:
    if scope.owner is not None and scope.parameters and path_of(owner) == scope.parameters[0].arg:
        return False  # a method's own object, or its class
    value = facts.inference.value(scope, owner)
    if is_known:
        return value.may_be(ModuleRef)
    return not value.must(lambda a: not isinstance(a, ModuleRef))
