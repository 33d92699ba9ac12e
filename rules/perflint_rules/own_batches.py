"""Tests with batches of their own in the middle of a training: no rule by itself."""

import ast

from perflint.api import Batch, Code, Elements, Loader, LoopKind, Sequence, Value, is_seldom


def is_every_so_often(code: Code, node: ast.AST) -> bool:
    """Whether a node runs every N steps only."""
    return is_seldom(code.flow, node, code.facts.loops.outermost(code.scope, node))


def runs_seldom(code: Code, node: ast.AST) -> bool:
    """Whether a node runs every N steps only, and then in no loop over a loader, each of whose rounds is a step."""
    return is_every_so_often(code, node) and not _goes_over_batches(code, node)


def _goes_over_batches(code: Code, node: ast.AST) -> bool:
    loop = code.step_loop(node)
    if loop is None or loop.iterated is None or code.step_loops().get(loop) is not LoopKind.EVALUATE:
        return False
    return code.value(loop.iterated).may(lambda a: isinstance(a, Loader) or (isinstance(a, Elements) and _is_batch(a.element)))


def _is_batch(element: Value) -> bool:
    """Whether a loop gets batches, maybe with their numbers: `(i, batch)`."""
    return element.may(lambda a: isinstance(a, Batch) or (isinstance(a, Sequence) and any(i.may_be(Batch) for i in a.items)))
