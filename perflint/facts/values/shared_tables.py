"""Whether a list or dict of a module may get other items: its functions and other files may have it, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.displays import Changing
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.dataflow.uses import Step, Way
from perflint.facts.values.frames import Inferring
from perflint.facts.values.values import (
    Alternative,
    ClassRef,
    Elements,
    External,
    FunctionRef,
    Instance,
    Mapping,
    ModuleRef,
    Object,
    Sequence,
    Value,
)
from perflint.project.project import MAX_IMPORTERS
from perflint.project.trace import LastingMemo
from perflint.source.nodes import defaults_of
from perflint.source.scopes import defining, scopes_with
from perflint.source.syntax import Module, Scope, SyntaxProblem

_COPYING: Final = ("torch.", "torchvision.")
"""The packages whose functions put nothing into a list or dict that they are given."""


def holds_tables(value: Value, depth: int = 3) -> bool:
    """Whether the parts of a table may be tables of what code calls: who has such a part may change it."""
    inner = [part for alternative in value.alternatives for part in _parts(alternative)]
    tables = [part for part in inner if part.may_be(Elements, Mapping, Sequence)]
    return any(_holds_code(part, depth) for part in tables)


def _parts(alternative: Alternative) -> list[Value]:
    match alternative:
        case Elements(element):
            return [element]
        case Sequence(items):
            return [*items]
        case Mapping(items, rest):
            return [*(item for _, item in items), rest]
    return []


def _holds_code(value: Value, depth: int) -> bool:
    if value.open or value.may_be(FunctionRef, ClassRef, External, Instance, Object):
        return True
    return depth > 0 and any(_holds_code(part, depth - 1) for a in value.alternatives for part in _parts(a))


def may_change_elsewhere(inference: Inferring, module: Module, name: str, deep: bool) -> bool:
    """Whether a function of a module, or another file, may put something into a list or dict that the module builds.

    deep: or into a list or dict that is a part of it.
    """
    known: LastingMemo[tuple[str, str, bool], bool] = inference.project.lasting("shared tables")
    return known.get((module.source.path, name, deep), lambda: _changes(inference, module, name, deep))


def _changes(inference: Inferring, module: Module, name: str, deep: bool) -> bool:
    project, path = inference.project, module.source.path
    if _in_file(inference, module, path, name, deep):
        return True
    importers = project.importers(path)
    if len(importers) > MAX_IMPORTERS:
        return True
    files = (file for file in sorted(importers) if file != path and project.mentions(file, name))
    return any((other := project.module(file)) is None or _in_file(inference, other, path, name, deep) for file in files)


def _in_file(inference: Inferring, module: Module, path: str, name: str, deep: bool) -> bool:
    """Whether a file may change the table `name` of the file at `path`."""
    renamed = re.findall(rb"\b%b[\s\\]+as[\s\\]+(\w+)" % re.escape(name.encode()), module.source.body)
    names = [name, *(other.decode() for other in renamed)]
    scopes = dict.fromkeys(scope for one in names for scope in scopes_with(module, one))
    try:
        if any(_in_scope(inference, scope, path, names, deep) for scope in scopes):
            return True
        around = defining(module).items() if scopes else ()
        defaults = (function for function, parts in around if not scopes.keys().isdisjoint(parts))
        return any(_by_default(inference, function, names, deep) for function in defaults)
    except SyntaxProblem:
        return True


def _by_default(inference: Inferring, function: Scope, names: list[str], deep: bool) -> bool:
    """Whether a function may change a table that it gets where its caller gives no other."""
    node = function.function
    if node is None:
        return False
    taken = {name for name, default in defaults_of(node).items() if (path_of(default) or "").rpartition(".")[2] in names}
    given = [d for d in flow_of(function).definitions if d.kind == "parameter" and d.name in taken]
    return next(_ChangingTable(inference, function, deep).ends(*given), None) is not None


def _in_scope(inference: Inferring, scope: Scope, path: str, names: list[str], deep: bool) -> bool:
    flow = flow_of(scope)
    tables = [
        node for name in names for node in flow.mentions.get(name, ()) if _is_table(inference, flow, node, path, names[0])
    ]
    is_elsewhere = scope.is_module and scope.module.source.path != path
    if any(
        d.kind == "augmented" and d.name in names and (is_elsewhere or d.name in flow.outer_names) for d in flow.definitions
    ):
        return True
    if next(_ChangingTable(inference, scope, deep).ends(*tables), None) is not None:
        return True
    return any(_in_scope(inference, part, path, names, deep) for part in flow.parts())


def _is_table(inference: Inferring, flow: Flow, node: ast.expr, path: str, name: str) -> bool:
    """Whether an expression may be the table: a name that its function does not bind itself, or an attribute of the module."""
    match node:
        case ast.Name(ctx=ast.Load()):
            reaching = flow.reaching.get(node, frozenset())
            return flow.scope.is_module or all(isinstance(d.node, ast.alias) for d in reaching)
        case ast.Attribute(value=base, attr=attribute, ctx=ast.Load()):
            value = inference.value(flow.scope, base) if attribute == name else None
            return value is not None and value.may(lambda a: isinstance(a, ModuleRef) and a.module.source.path == path)
    return False


class _ChangingTable(Changing):
    """The same of a list or dict that functions share: what torch gets, it copies. deep: its parts may be changed, too."""

    def __init__(self, inference: Inferring, scope: Scope, deep: bool) -> None:
        super().__init__(scope)
        self.inference, self.deep = inference, deep

    def judge(self, step: Step) -> Iterator[Step | ast.AST | Definition]:
        if step.way is Way.ARGUMENT and isinstance(step.node, ast.Call) and path_of(step.node.func):
            called = self.inference.value(self.scope, step.node.func)
            if called.must(lambda a: isinstance(a, External) and a.qualname.startswith(_COPYING)):
                return
        if self.deep and step.way in (Way.CALLED, Way.OPERAND, Way.INDEX):
            return
        if self.deep and step.way in (Way.ITEM, Way.METHOD, Way.ITERATED, Way.UNPACKED):
            yield from step.definitions
            yield from [step.result] if step.result is not None else ()
        yield from super().judge(step)
