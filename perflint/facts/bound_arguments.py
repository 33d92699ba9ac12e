"""Which values the parameters of a function get from a call."""

from __future__ import annotations

import ast

from perflint.facts.definitions import path_of
from perflint.facts.frames import Frame, Inferring
from perflint.facts.values import NOTHING, UNKNOWN, FunctionRef, Mapping, Sequence, Value, join, one


def bound_arguments(
    inference: Inferring, function: FunctionRef, node: ast.Call, frame: Frame
) -> list[tuple[str, Value]] | None:
    """The parameters of a function as this call binds them; None when the call does not fit."""
    scope = function.scope
    definition = scope.node
    if not isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return None
    args = definition.args
    positional = [a.arg for a in (*args.posonlyargs, *args.args)]
    bound: dict[str, Value] = {}
    is_static = any(path_of(d) == "staticmethod" for d in scope.decorators)
    if scope.owner is not None and positional and not is_static and function.receiver is not None:
        bound[positional.pop(0)] = function.receiver
    star = next((i for i, a in enumerate(node.args) if isinstance(a, ast.Starred)), None)
    given = node.args if star is None else node.args[:star]
    for name, argument in zip(positional, given, strict=False):
        bound[name] = inference.infer(argument, frame)
    extra = [inference.infer(a, frame) for a in given[len(positional) :]]
    keywords = {k.arg: inference.infer(k.value, frame) for k in node.keywords if k.arg is not None}
    spread: dict[str, Value] = {}
    uncertain = star is not None
    for keyword in node.keywords:
        if keyword.arg is None:
            mapping = inference.infer(keyword.value, frame).single
            if isinstance(mapping, Mapping) and mapping.rest == NOTHING:
                spread.update(mapping.items)
            else:
                uncertain = True
    keywords = {**spread, **keywords}
    names = [*positional, *(a.arg for a in args.kwonlyargs)]
    defaults = _defaults(args)
    outer = inference.frame(scope.parent or scope.module.top, (), frame.depth)
    for name in names:
        if name in keywords:
            bound[name] = keywords.pop(name)
        elif name not in bound:
            default = defaults.get(name)
            value = inference.infer(default, outer) if default is not None else UNKNOWN
            bound[name] = join((value, UNKNOWN)) if uncertain else value
    if args.vararg is not None:
        bound[args.vararg.arg] = UNKNOWN if star is not None else one(Sequence(tuple(extra)))
    if args.kwarg is not None:
        bound[args.kwarg.arg] = UNKNOWN if uncertain else one(Mapping(tuple(keywords.items()), NOTHING))
    return sorted(bound.items(), key=lambda pair: pair[0])


def _defaults(args: ast.arguments) -> dict[str, ast.expr]:
    positional = [*args.posonlyargs, *args.args]
    pairs: dict[str, ast.expr] = {}
    if args.defaults:
        pairs.update({a.arg: d for a, d in zip(positional[-len(args.defaults) :], args.defaults, strict=True)})
    pairs.update({a.arg: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None})
    return pairs
