"""Whose batches an evaluation takes: no rule by itself."""

import ast
import os
import re

from perflint.api import Code, LoaderCall, LoopKind, conditions, path_of

_EVALUATION = re.compile(r"(?:^|_)(?:val|valid|validation|test|eval|infer)\w*", re.I)
_ONLY_LOOKS = re.compile(r"(?:^|_)(?:test|eval|evaluat|infer|visuali[sz]|viewer|preview|demo)", re.I)
"""Names of functions and files that look at what was trained."""
_PART = re.compile(r"(?:^|[/\\_-])(?:val|valid|validation|test|testing|eval)(?:[._-][^/\\]*)?[/\\]?$", re.I)
"""What a dataset is told by to hold the samples of an evaluation: `split="val"`, `"data/test"`."""


def is_for_evaluation(code: Code, loader: LoaderCall) -> bool:
    """Whether nothing trains with what a loader gives, by its name, that of its function or file, or by all loops over it."""
    bound = code.flow.statement(loader.call)
    if isinstance(bound, ast.Assign) and any(_EVALUATION.search(path_of(t) or "") for t in bound.targets):
        return True
    if any(map(_ONLY_LOOKS.search, (code.scope.name, os.path.basename(code.source.path)))) or _holds_evaluation(code, loader):
        return True
    if any(holds and _asks_for_evaluation(test) for test, holds in conditions(code.flow, loader.call)):
        return True
    takers = loader.takers()
    return bool(takers) and not any(_trains(code.at(scope), taker) for scope, taker in takers)


def _holds_evaluation(code: Code, loader: LoaderCall) -> bool:
    """Whether the call that makes the dataset says that its samples are those of an evaluation."""
    given = loader.argument("dataset")
    bound = code.flow.reaching.get(given, frozenset()) if isinstance(given, ast.Name) else frozenset()
    made = [d.value for d in bound] if bound else [given]
    return all(isinstance(call, ast.Call) and any(map(_says_evaluation, ast.walk(call))) for call in made)


def _asks_for_evaluation(test: ast.expr) -> bool:
    """`phase == "val"`, `mode in ("val", "test")`."""
    match test:
        case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=str(name))]):
            return _EVALUATION.match(name) is not None
        case ast.Compare(ops=[ast.In()], comparators=[ast.Tuple(elts=named) | ast.List(elts=named) | ast.Set(elts=named)]):
            texts = [part.value for part in named if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            return len(texts) == len(named) and all(map(_EVALUATION.match, texts))
    return False


def _says_evaluation(node: ast.AST) -> bool:
    match node:
        case ast.keyword(arg="train", value=ast.Constant(value=False)):
            return True
        case ast.Constant(value=str(text)):
            return _PART.search(text) is not None and "train" not in text.lower()
    return False


def _trains(code: Code, taker: ast.AST) -> bool:
    """Whether a loop trains, or a function that draws a batch, or whoever takes what it yields."""
    if code.flow.yields:
        return True
    kinds = code.facts.loops.kinds(code.scope)
    return any(kind is LoopKind.TRAIN and taker in (loop.node, code.scope.node) for loop, kind in kinds.items())
