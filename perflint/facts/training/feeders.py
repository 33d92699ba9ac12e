"""Methods that give the steps of a training their batches, by their names and those of their classes."""

from __future__ import annotations

import re

from perflint.facts.dataflow.definitions import path_of
from perflint.source.syntax import Scope
from perflint.source.words import made, words

_DRAWS = words("sample sample_batch sample_transitions get_batch")
_REPLAY = made(r"replay|memory|(?<![a-z])buffer|Rollout.*Storage", re.I)
_GIVES = words("__next__ next next_batch get_batch")
_LOADER = made(r"loader|(?:data|batch|bucket)_?(?:iter|gen|stream)|batcher", re.I)
_NO_LOADERS = ("Dataset", "Sampler")


def gives_batch(scope: Scope) -> bool:
    """Whether a method draws a batch from a replay buffer, or is asked for the next one of a loader that is written by hand.

    Whoever trains with one, of whatever framework, does so before each step.
    """
    drawn = scope.owner is not None and scope.name in _DRAWS and _REPLAY.search(scope.owner.name) is not None
    return drawn or (scope.name in _GIVES and belongs_to_loader(scope))


def belongs_to_loader(scope: Scope) -> bool:
    """Whether a method is one of a loader that is written by hand: data sets and samplers give samples and indices."""
    if scope.owner is None or not _LOADER.search(scope.owner.name):
        return False
    return not any((path_of(base) or "").endswith(_NO_LOADERS) for base in scope.owner.node.bases)
