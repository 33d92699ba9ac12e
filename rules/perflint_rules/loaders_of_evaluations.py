"""Whose batches an evaluation takes: no rule by itself."""

import ast
import re

from perflint.api import Code, LoaderCall, LoopKind, path_of

_EVALUATION = re.compile(r"(?:^|_)(?:val|valid|validation|test|eval|infer)\w*", re.I)


def is_for_evaluation(code: Code, loader: LoaderCall) -> bool:
    """Whether nothing trains with what a loader gives, by its name or by all loops over it."""
    bound = code.flow.statement(loader.call)
    if isinstance(bound, ast.Assign) and any(_EVALUATION.search(path_of(t) or "") for t in bound.targets):
        return True
    takers = loader.takers()
    return bool(takers) and not any(_trains(code.at(scope), taker) for scope, taker in takers)


def _trains(code: Code, taker: ast.AST) -> bool:
    """Whether a loop trains, or a function that draws a batch, or whoever takes what it yields."""
    if code.flow.yields:
        return True
    kinds = code.facts.loops.kinds(code.scope)
    return any(kind is LoopKind.TRAIN and taker in (loop.node, code.scope.node) for loop, kind in kinds.items())
