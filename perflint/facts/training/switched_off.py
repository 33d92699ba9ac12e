"""Branches that a program does not take as it stands: `if args.verbose:` where the parser says `action="store_true"`.

What decides is followed from where it is declared to where it is asked for, also through functions and constructors:
`Model(dropout=args.dropout)`, `self.dropout = dropout`, `if self.dropout > 0:`.
"""

from __future__ import annotations

import ast
import operator
import os
import re
from collections.abc import Callable
from typing import Any

from perflint.facts.dataflow.conditions import branch_test
from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.guards import is_behind_the_end
from perflint.facts.facts import Facts
from perflint.facts.values.arguments import argument
from perflint.facts.values.bound_arguments import given
from perflint.facts.values.object_methods import declared_options
from perflint.facts.values.values import Object
from perflint.source.nodes import defaults_of
from perflint.source.syntax import Scope
from perflint.source.words import made

_OF_THE_RUN = made(r"cuda|gpu|device|fp16|bf16|half|amp|dist|ddp|rank|world|train|parallel|worker", re.I)
"""Options that say where and whether a training runs: who trains on a GPU gives them."""
_DEPTH = 6
"""Names, parameters and attributes that are followed one after the other."""
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


class _UnknownError(Exception):
    """What a test depends on is no option of a command line."""


def is_switched_off(facts: Facts, scope: Scope, node: ast.AST, depth: int = 2) -> bool:
    """Whether a branch around a node, or around all calls of its function, is taken only if somebody gives an option.

    Or never, behind a `return`.
    """
    flow = flow_of(scope)
    if node not in flow.block:
        return False
    if is_behind_the_end(flow, node):
        return True
    for block in flow.block[node].ancestry():
        asked = branch_test(block, node)
        if asked is not None:
            test, wanted = asked
            try:
                if bool(_Defaults(facts).of(scope, test, _DEPTH)) is not wanted:
                    return True
            except _UnknownError:
                continue
    if not depth or scope.is_module:
        return False
    made = scope.owner.methods.get("__init__") if scope.owner is not None else None
    for called in (scope, made):
        sites = facts.inference.callers.sites(called).sites if called is not None else ()
        if sites and all(is_switched_off(facts, site.scope, site.node, depth - 1) for site in sites):
            return True
    return False


def is_off_by_default(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    """Whether an expression is false, 0 or None if nobody gives an option: `enabled=scales`, a parameter."""
    try:
        return not _Defaults(facts).of(scope, node, _DEPTH)
    except _UnknownError:
        return False


class _Defaults:
    """What expressions give if nobody gives an option. Each method raises `_UnknownError` where that is not known."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def of(self, scope: Scope, node: ast.expr, depth: int) -> object:
        match node:
            case ast.Constant(value=None | bool() | int() | float() as value):
                return value
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.of(scope, operand, depth)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.BoolOp(op=op, values=values):
                return self._of_several(scope, values, isinstance(op, ast.Or), depth)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                compare = _COMPARISONS[type(op)]
                sides = self.of(scope, left, depth), self.of(scope, right, depth)
                try:
                    return compare(*sides)
                except TypeError as error:
                    raise _UnknownError from error
            case ast.Name() if depth > 0:
                return self._of_name(scope, node, depth - 1)
            case ast.Attribute(attr=name) if depth > 0:
                try:
                    return self._of_attribute(scope, node, depth - 1)
                except _UnknownError:
                    return self._configured(scope, name)
            case ast.Subscript(slice=ast.Constant(value=str() as name)):
                return self._configured(scope, name)
        raise _UnknownError

    def _configured(self, scope: Scope, name: str) -> object:
        """The value that all configuration files agree on, where no command of the project's texts gives another."""
        values = self._facts.project.configured(name)
        if len(values) != 1 or "?" in values or _OF_THE_RUN.search(name) or self._is_given(scope.module.source.path, name):
            raise _UnknownError
        return ast.literal_eval(next(iter(values)))

    def _of_several(self, scope: Scope, operands: list[ast.expr], decisive: bool, depth: int) -> bool:
        """`and` and `or`: one operand may decide alone."""
        unknown = False
        for operand in operands:
            try:
                if bool(self.of(scope, operand, depth)) is decisive:
                    return decisive
            except _UnknownError:
                unknown = True
        if unknown:
            raise _UnknownError
        return not decisive

    def _of_name(self, scope: Scope, name: ast.Name, depth: int) -> object:
        reaching = flow_of(scope).reaching.get(name, frozenset())
        only = next(iter(reaching)) if len(reaching) == 1 else None
        if only is not None and only.kind == "assign" and not only.index and only.value is not None:
            return self.of(scope, only.value, depth)
        if only is not None and only.kind == "parameter":
            return self._of_parameter(scope, name.id, depth)
        raise _UnknownError

    def _of_parameter(self, scope: Scope, name: str, depth: int) -> object:
        found, sites = [], self._facts.inference.callers.sites(scope).sites
        default = defaults_of(scope.node).get(name)
        if not sites and scope.name == "__init__":  # what a configuration makes
            try:
                return self._configured(scope, name)
            except _UnknownError:
                if default is not None and not self._facts.project.configured(name):
                    return self.of(scope, default, depth)
                raise
        for site in sites:
            if any(isinstance(a, ast.Starred) for a in site.node.args) or any(k.arg is None for k in site.node.keywords):
                raise _UnknownError
            written = given(scope, site.node, name)
            if written is not None:
                found.append(self.of(site.scope, written, depth))
            elif default is not None:
                found.append(self.of(scope, default, depth))
        return _agreed(found)

    def _of_attribute(self, scope: Scope, node: ast.Attribute, depth: int) -> object:
        if isinstance(node.value, ast.Name) and node.value.id == "self" and scope.owner is not None:
            setters = scope.owner.methods_assigning(node.attr)
            if [setter.name for setter in setters] != ["__init__"]:
                raise _UnknownError
            stored = [d.value for d in flow_of(setters[0]).definitions if d.name == path_of(node)]
            return _agreed([self.of(setters[0], value, depth) for value in stored if value is not None])
        if _OF_THE_RUN.search(node.attr):
            raise _UnknownError
        namespaces = self._facts.inference.value(scope, node.value).alternatives
        sites = [a.site for a in namespaces if isinstance(a, Object) and a.qualname == "argparse.Namespace"]
        if len(sites) != len(namespaces):
            raise _UnknownError
        declared = [call for site in sites if isinstance(site, tuple) for _, call in declared_options(site[0], node.attr)]
        set_later = re.compile(rb"\bset_defaults\([^()]*\b%b\b" % re.escape(node.attr.encode()))
        if any(isinstance(site, tuple) and set_later.search(site[0].module.source.body) for site in sites):
            raise _UnknownError
        if self._is_given(scope.module.source.path, node.attr):
            raise _UnknownError
        return _agreed(list(map(_declared_default, declared)))

    def _is_given(self, path: str, option: str) -> bool:
        """Whether a command that runs a program with a file gives an option, as far as the project's texts show commands."""
        project = self._facts.project
        scripts = [os.path.basename(file).encode() for file in project.members(path) or ()]
        spelt = re.compile(rb"\b%b\b" % re.escape(option.encode()).replace(b"_", b"[-_]"))
        given = (line for line in project.commands() if spelt.search(line))
        return any(not scripts or any(script in line for script in scripts) for line in given)


def _agreed(found: list[object]) -> object:
    if not found or any(other != found[0] for other in found):
        raise _UnknownError
    return found[0]


def _declared_default(option: ast.Call) -> object:
    """The default of a switch or a number: which of several names somebody gives, such as a model's, is his choice."""
    action, default = argument(option, None, "action"), argument(option, None, "default")
    if argument(option, None, "required") is not None or any(keyword.arg is None for keyword in option.keywords):
        raise _UnknownError
    if default is None:
        kind = action.value if isinstance(action, ast.Constant) else None
        return kind == "store_false" if kind in ("store_true", "store_false") else None
    try:
        value = ast.literal_eval(default)
    except (ValueError, TypeError) as error:
        raise _UnknownError from error
    if not isinstance(value, (bool, int, float, type(None))):
        raise _UnknownError
    return value
