"""What a loader's batches are for, as far as its own scope shows: no rule by itself."""

import ast
import re

from perflint.api import Code, Loader, LoaderCall, LoopKind, Scope, Severity, loop_writes_text, path_of

_EVALUATION = re.compile(r"(?:^|_)(?:val|valid|validation|test|eval|infer)\w*", re.I)


def worth(code: Code, loader: LoaderCall) -> Severity | None:
    """`Severity.INFO` where how fast batches come hardly counts: all that is seen takes one of them, or writes text."""
    loops = list(loader.loops_in(code.scope))
    little = [isinstance(loop.node, ast.For) and isinstance(loop.node.body[-1], ast.Break) for loop in loops]
    if all(one or loop_writes_text(code.facts, code.scope, loop) for one, loop in zip(little, loops, strict=True)):
        return Severity.INFO if loops else None
    return None


def evaluates_alone(code: Code, loader: LoaderCall) -> bool:
    """Whether a loader without workers gives the samples of an evaluation, in their order: to pin a batch is to copy it."""
    if loader.workers != 0 or any(loader.gives(name) is not False for name in ("sampler", "batch_sampler")):
        return False
    if loader.literal("shuffle", False) is not False or any(dataset.is_iterable for dataset in loader.datasets):
        return False
    bound = code.flow.statement(loader.call)
    if isinstance(bound, ast.Assign) and any(_EVALUATION.search(path_of(t) or "") for t in bound.targets):
        return True
    takers = loader.takers()
    return bool(takers) and not any(_trains(code.at(scope), taker) for scope, taker in takers)


def evaluates_alone_around(code: Code, node: ast.AST) -> bool:
    """Whether the loop around a node goes over such loaders alone."""
    loop = code.around(node)
    iterated = loop.iterated if loop is not None else None
    while isinstance(iterated, ast.Call) and iterated.args and path_of(iterated.func) is not None:
        if code.value(iterated).may_be(Loader):
            break
        iterated = iterated.args[0]
    if loop is None or iterated is None or code.facts.loops.kinds(code.scope).get(loop) is LoopKind.TRAIN:
        return False
    made = []
    for alternative in code.value(iterated).alternatives:
        match alternative:
            case Loader(site=(Scope() as scope, ast.Call() as call)):
                made.append(LoaderCall(code.facts, scope, call))
    return bool(made) and all(evaluates_alone(code.at(loader.scope), loader) for loader in made)


def _trains(code: Code, taker: ast.AST) -> bool:
    """Whether a loop trains, or a function that draws a batch."""
    kinds = code.facts.loops.kinds(code.scope)
    return any(kind is LoopKind.TRAIN and taker in (loop.node, code.scope.node) for loop, kind in kinds.items())
