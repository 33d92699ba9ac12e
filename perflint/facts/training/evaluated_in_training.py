"""Loops that evaluate a network in training mode: nothing in the program ever puts one into evaluation mode."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from perflint.facts.dataflow.definitions import Loop, path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.training.layers_by_mode import ByMode, layers_by_mode
from perflint.facts.training.loops import LoopKind
from perflint.facts.training.modes import optimized
from perflint.facts.values.bound_arguments import given
from perflint.facts.values.classes import ancestors
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, made

_DEPTH: Final = 3
"""Through how many calls the names of a network are looked for."""
_EVALUATES: Final = made(
    r"(?:\b|_)(?:val|valid|validation|validate|test|testing|dev|eval|evaluate|evaluation)(?:\b|_|(?-i:(?=[A-Z])))", re.I
)
"""Names of functions that evaluate, and of what they evaluate with."""
_MEASURES: Final = made(r"loss|entropy|acc|correct|hits|metric|score|iou|dice|psnr|ssim|f1|auc|error|mse|mae|pred", re.I)
_SETS_ANY: Final = any_layout(
    rb"[)\]] \. eval \(|\beval = |\. train \( (?:mode = )?(?! \)|True\b)[^)]"
    rb"|\. training = (?!=)|['\"](?:eval|training)['\"]|\. __dict__\b|\bset_\w*(?:mode|eval|train|test)\w* \("
)
"""What may put a network into evaluation mode, whichever it is."""
_BY_OTHERS: Final = re.compile(
    rb"^[ \t]*(?:from|import)[ \t]+(?:accelerate|catalyst|colossalai|composer|deepspeed|detectron2|fairseq|fastai|fvcore|ignite"
    rb"|keras|lightning|lightly|mmcv|mmengine|monai|poutyne|ptflops|pytorch_lightning|skorch|speechbrain|thop|torchbearer"
    rb"|torchinfo|torchsummary|torchtnt|trl)\b",
    re.MULTILINE,
)
"""Packages that evaluate networks themselves, or switch their mode to look at them."""
_PLAIN: Final = frozenset(("object", "builtins.object", "torch.nn.Module", "abc.ABC"))
_ON_PURPOSE: Final = re.compile(rb"monte.?carlo|mc_?drop|uncertaint|bayes|update_bn|bn_update|\bswa\b|stochastic", re.I)
"""Programs that draw in evaluations, too, or gather statistics in them."""


class EvaluatedInTraining(NamedTuple):
    """A network that a loop evaluates in training mode.

    at: its call there. layers: what it has that computes something else in that mode.
    """

    loop: Loop
    network: str
    at: ast.Call
    layers: frozenset[ByMode]


def evaluated_in_training(facts: Facts, scope: Scope) -> Iterator[EvaluatedInTraining]:
    """The networks that a function evaluates though they are in training mode, in its loops over batches."""
    flow, path, project = flow_of(scope), scope.module.source.path, facts.project
    told = set[str]()
    for loop, kind in facts.loops.kinds(scope).items():
        if kind is not LoopKind.EVALUATE or loop.statement is None or not _is_evaluation(scope, loop):
            continue
        for call in (call for call in flow.calls if flow.within(call, loop.block)):
            network = path_of(call.func)
            if network is None or network in told or facts.grad_mode.is_off(scope, call) is not True:
                continue
            if network.startswith("self.") and not _is_in_sight(facts, scope):
                continue
            layers = layers_by_mode(facts, [(scope, call.func)])
            if not layers or any(project.program_may_hold(path, p) for p in (_SETS_ANY, _BY_OTHERS, _ON_PURPOSE)):
                continue
            names = tuple(dict.fromkeys(_names(facts, scope, network, _DEPTH)))
            if project.program_may_hold(path, _may_evaluate(names)):
                continue
            if any(project.program_holds(path, optimized(name)) for name in names):
                told.add(network)
                yield EvaluatedInTraining(loop, network, call, layers)


def _is_in_sight(facts: Facts, scope: Scope) -> bool:
    """Whether a method's class derives from none of another package, which may know how to evaluate what it holds."""
    above = ancestors(facts.inference, scope.owner) if scope.owner is not None else ()
    return all(not isinstance(base, str) or base in _PLAIN for base in above)


def _is_evaluation(scope: Scope, loop: Loop) -> bool:
    """Whether a loop measures how good a network is on data that it is not trained with, by the names in it."""
    source = ast.unparse(loop.iterated) if loop.iterated is not None else ""
    if "train" in source.lower() or not (_EVALUATES.search(source) or _EVALUATES.search(scope.name)):
        return False
    assert loop.statement is not None
    return any(_MEASURES.search(ast.unparse(statement)) for statement in loop.statement.body)


def _names(facts: Facts, scope: Scope, network: str, depth: int) -> Iterator[str]:
    """What a network is called by a function, and by those that hand it on to it."""
    yield network.rpartition(".")[2]
    root = network.partition(".")[0]
    if depth and [d.kind for d in flow_of(scope).definitions_of(root)] == ["parameter"] and root != "self":
        for site in facts.inference.callers.sites(scope).sites:
            written = given(scope, site.node, root)
            outer = path_of(written) if written is not None else None
            if outer is not None:
                yield from _names(facts, site.scope, outer, depth - 1)


@cache
def _may_evaluate(names: tuple[str, ...]) -> re.Pattern[bytes]:
    """What may put a network of some names into evaluation mode, or one that is called like any."""
    any_of = b"|".join(re.escape(name.encode()) for name in names)
    return any_layout(rb"\b(?:%b|self|m|x|mod|module|\w*(?:model|net|network)s?\d*) (?:\. module )?\. eval \(" % any_of)
