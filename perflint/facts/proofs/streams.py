"""Whether a wait may be what keeps several streams apart: nothing of the kind is known of what a program's loops go over."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.fears import SIDE_STREAM, feared
from perflint.facts.proofs.packages import stranger
from perflint.facts.training.loop_looks import may_give_batches
from perflint.facts.values.values import Alternative, External, Literal, Loader, Mapping, Number, Sequence, Tensor
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.texts import brief
from perflint.source.words import words

_HANDS_ON: Final = words(
    "builtins.enumerate builtins.zip builtins.iter tqdm.tqdm tqdm.auto.tqdm tqdm.std.tqdm tqdm.notebook.tqdm"
)
"""What gives the elements of what it is given."""


def one_stream(facts: Facts, scope: Scope) -> Obligation | None:
    """What stands against all work of a function's steps being on one stream, in whose order memory is used again.

    Streams that the program names; or batches of a loader that is not known, where a package that is not known may have one.
    """
    path = scope.module.source.path
    if (streams := next(feared(facts.project, path, SIDE_STREAM), None)) is not None:
        return streams
    if all(_is_known(facts, *loop) for loop in _loops(facts, scope)) or stranger(facts.project, path) is None:
        return None
    source = _unknown_source(facts, scope)
    words = f"batches may come from {source}, which may copy the next one while this one is still in use"
    return Obligation(Kind.ONE_STREAM, words)


def _unknown_source(facts: Facts, scope: Scope) -> str:
    """For people: what the nearest step loop goes over that is not known, and gives batches by the look of it.

    The package that may have a loader is not named: which of those that are not known has one, nobody can say.
    """
    for caller, iterated in _loops(facts, scope):
        if iterated is not None and any(loop.iterated is iterated for loop in facts.loops.kinds(caller)):
            for part in _unknown_parts(facts, caller, iterated):
                if may_give_batches(flow_of(caller), part):
                    return f"`{brief(part)}`"
    return "a loader that is not known"


def _loops(facts: Facts, scope: Scope) -> Iterator[tuple[Scope, ast.expr | None]]:
    """What the loops of a function, and those of its callers, go over or take by `next`; None for what is not known."""
    pending, seen = [scope], {scope}
    while pending:
        found = pending.pop()
        try:
            loops = [loop for loop in flow_of(found).loops if loop.statement is not None]
            sites = facts.inference.callers.sites(found)
        except SyntaxProblem:
            yield found, None
            continue
        yield from ((found, loop.iterated) for loop in loops)
        for call in flow_of(found).calls_named["next"]:
            yield found, call.func.value if isinstance(call.func, ast.Attribute) else next(iter(call.args), None)
        if not sites.sites and not loops and not found.is_module:
            yield found, None
        new = {site.scope for site in sites.sites} - seen
        seen |= new
        pending += new


def _is_known(facts: Facts, scope: Scope, iterated: ast.expr | None) -> bool:
    """Whether a loop goes over torch's own loaders, numbers, or what is in memory."""
    return iterated is not None and not any(_unknown_parts(facts, scope, iterated))


def _unknown_parts(facts: Facts, scope: Scope, iterated: ast.expr) -> Iterator[ast.expr]:
    """What of the things that a loop goes over is nothing of the kind: `batches` of `enumerate(tqdm(batches))`."""
    value = facts.inference.value(scope, iterated)
    if value.must(_is_plain):
        return
    callee = facts.inference.value(scope, iterated.func).single if isinstance(iterated, ast.Call) else None
    name = callee.qualname if isinstance(callee, External) else ""
    if isinstance(iterated, ast.Call) and name in _HANDS_ON:
        given = [*iterated.args, *(k.value for k in iterated.keywords if k.arg in ("iterable", None))]
        for part in given:
            yield from _unknown_parts(facts, scope, part)
        if not given:
            yield iterated
    elif name != "builtins.range":
        yield iterated


def _is_plain(alternative: Alternative) -> bool:
    return isinstance(alternative, (Loader, Tensor, Sequence, Mapping, Number, Literal))
