"""Whose batches an evaluation takes: no rule by itself."""

import ast
import os
import re

from perflint.api import Code, LoaderCall, LoopKind, path_of

_EVALUATION = re.compile(r"(?:^|_)(?:val|valid|validation|test|eval|infer)\w*", re.I)
_ONLY_LOOKS = re.compile(r"(?:^|_)(?:test|eval|evaluat|infer|visuali[sz]|viewer|preview|demo)", re.I)
"""Names of functions and files that look at what was trained."""


def is_for_evaluation(code: Code, loader: LoaderCall) -> bool:
    """Whether nothing trains with what a loader gives, by its name, that of its function or file, or by all loops over it."""
    bound = code.flow.statement(loader.call)
    if isinstance(bound, ast.Assign) and any(_EVALUATION.search(path_of(t) or "") for t in bound.targets):
        return True
    if any(map(_ONLY_LOOKS.search, (code.scope.name, os.path.basename(code.source.path)))):
        return True
    takers = loader.takers()
    return bool(takers) and not any(_trains(code.at(scope), taker) for scope, taker in takers)


def _trains(code: Code, taker: ast.AST) -> bool:
    """Whether a loop trains, or a function that draws a batch, or whoever takes what it yields."""
    if code.flow.yields:
        return True
    kinds = code.facts.loops.kinds(code.scope)
    return any(kind is LoopKind.TRAIN and taker in (loop.node, code.scope.node) for loop, kind in kinds.items())
