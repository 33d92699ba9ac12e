"""Which values the parameters of a function get from a call."""

from __future__ import annotations

import ast
from collections.abc import Collection

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow
from perflint.facts.values.classes import is_super_call
from perflint.facts.values.frames import Frame, Inferring
from perflint.facts.values.values import NOTHING, UNKNOWN, FunctionRef, Mapping, Sequence, Value, join, one
from perflint.source.nodes import defaults_of, walk
from perflint.source.syntax import Scope


def bound_arguments(
    inference: Inferring, function: FunctionRef, node: ast.Call, frame: Frame, wanted: Collection[str]
) -> list[tuple[str, Value]] | None:
    """Some parameters of a function, as this call binds them; None when the call does not fit.

    wanted: the names of these parameters; what the others get is not worked out.
    """
    scope = function.scope
    definition = scope.node
    if not isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return None
    args = definition.args
    positional = [a.arg for a in (*args.posonlyargs, *args.args)]
    bound: dict[str, Value] = {}
    is_static = any(path_of(d) == "staticmethod" for d in scope.decorators)
    if scope.owner is not None and positional and not is_static and function.receiver is not None:
        receiver = positional.pop(0)
        if receiver in wanted:
            bound[receiver] = function.receiver
    names = [*positional, *(a.arg for a in args.kwonlyargs)]
    star = next((i for i, a in enumerate(node.args) if isinstance(a, ast.Starred)), None)
    given = node.args if star is None else node.args[:star]
    placed = dict(zip(positional, given, strict=False))
    keywords = {k.arg: k.value for k in node.keywords if k.arg is not None}
    rest = args.kwarg.arg if args.kwarg is not None and args.kwarg.arg in wanted else None
    spread: dict[str, Value] = {}
    uncertain = star is not None
    if rest is not None or any(name in wanted and name not in keywords for name in names):
        for keyword in node.keywords:
            if keyword.arg is None:
                mapping = inference.infer(keyword.value, frame).single
                if isinstance(mapping, Mapping) and mapping.rest == NOTHING:
                    spread.update(mapping.items)
                else:
                    uncertain = True
    defaults = defaults_of(definition)
    outer = inference.frame(scope.parent or scope.module.top, (), frame.depth)
    for name in names:
        if name not in wanted:
            continue
        if name in keywords:
            bound[name] = inference.infer(keywords[name], frame)
        elif name in spread:
            bound[name] = spread[name]
        elif name in placed:
            bound[name] = inference.infer(placed[name], frame)
        else:
            default = defaults.get(name)
            value = inference.infer(default, outer) if default is not None else UNKNOWN
            bound[name] = join((value, UNKNOWN)) if uncertain else value
    if args.vararg is not None and args.vararg.arg in wanted:
        extra = tuple(inference.infer(a, frame) for a in given[len(positional) :]) if star is None else ()
        bound[args.vararg.arg] = one(Sequence(extra)) if star is None else UNKNOWN
    if rest is not None:
        others = {**spread, **{name: inference.infer(value, frame) for name, value in keywords.items() if name not in names}}
        items = tuple((name, value) for name, value in others.items() if name not in names)
        bound[rest] = UNKNOWN if uncertain else one(Mapping(items, NOTHING))
    return sorted(bound.items(), key=lambda pair: pair[0])


def may_bind(scope: Scope, call: ast.Call, by_object: bool = False) -> bool:
    """Whether a call may run the body of a function, by its arguments alone, with a receiver before them or without.

    by_object: a method has a receiver for sure.
    """
    definition = scope.node
    if not isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)) or definition.decorator_list:
        return True
    if any(isinstance(given, ast.Starred) for given in call.args) or any(k.arg is None for k in call.keywords):
        return True
    args = definition.args
    defaults = defaults_of(definition)
    positional = [a.arg for a in (*args.posonlyargs, *args.args)]
    required = {name for name in (*positional, *(a.arg for a in args.kwonlyargs)) if name not in defaults}
    named = {k.arg for k in call.keywords}
    given_here = len(call.args)
    for given in (given_here,) if scope.owner is None else (given_here + 1,) if by_object else (given_here, given_here + 1):
        fits = given <= len(positional) or args.vararg is not None
        taken = named <= {a.arg for a in (*args.args[given:], *args.kwonlyargs)} or args.kwarg is not None
        if fits and taken and required <= {*positional[:given], *named}:
            return True
    return False


def returned_parameters(flow: Flow) -> frozenset[str]:
    """The parameters on which what a function returns or yields may depend: no other's value is asked for in working it out."""
    if flow.returned_parameters is None:
        flow.returned_parameters = frozenset(_parameters_behind(flow))
    return flow.returned_parameters


def _parameters_behind(flow: Flow) -> set[str]:
    names: set[str] = set()
    seen: set[Definition] = set()
    pending: list[ast.AST] = [*flow.returns, *flow.yields]
    for part in pending:
        for node in walk(part):
            found = list(flow.reaching.get(node, ()))
            if isinstance(node, ast.Subscript) and (path := path_of(node.value)):
                found += (d for d in flow.definitions if d.name.startswith(f"{path}["))
            if isinstance(node, ast.Call) and is_super_call(node) and flow.scope.parameters:
                names.add(flow.scope.parameters[0].arg)
            for definition in found:
                if definition.kind == "parameter":
                    names.add(definition.name)
                elif definition not in seen:
                    seen.add(definition)
                    pending += [definition.node] if isinstance(definition.node, ast.expr) else []
                    pending += [definition.value] if definition.value is not None else []
    return names


def given(scope: Scope, call: ast.Call, name: str) -> ast.expr | None:
    """What a call of a function gives one of its parameters, as far as it is written out; None where that is the default."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if not isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return None
    names = [a.arg for a in (*scope.node.args.posonlyargs, *scope.node.args.args)]
    if scope.owner is not None and not any(path_of(d) == "staticmethod" for d in scope.decorators):
        names = names[1:]  # the object, which stands before the dot
    place = names.index(name) if name in names else len(call.args)
    if place >= len(call.args) or any(isinstance(a, ast.Starred) for a in call.args[: place + 1]):
        return None
    return call.args[place]


def parameter_of(scope: Scope, call: ast.Call, value: ast.AST) -> str | None:
    """The parameter of a function that gets an argument of a call, as far as it is written out."""
    names = [parameter.arg for parameter in scope.parameters]
    return next((name for name in names if given(scope, call, name) is value), None)
