"""The layers of a network that compute something else in evaluation mode."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from perflint.facts.dataflow.conditions import branch_test
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.reach import can_be_parsed
from perflint.facts.values.arguments import argument
from perflint.facts.values.bound_arguments import given
from perflint.facts.values.classes import find_method
from perflint.facts.values.held_modules import modules
from perflint.facts.values.values import Alternative, ClassRef, External, FunctionRef, Instance, Object
from perflint.source.nodes import defaults_of
from perflint.source.syntax import Class, Scope
from perflint.source.words import any_layout, made

MAX_BUILT: Final = 100
"""How many constructors and functions are looked through for the layers that a network is built of."""
_NORMALISED: Final = made(
    r"res(?:ne|nex)t|densenet|mobilenet|efficientnet|_bn\b|inception|googlenet|shufflenet|mnasnet|regnet", re.I
)
"""How ready-made networks are called that have batch normalisation."""
_OWN_MODE: Final = any_layout(rb"\bself \. training\b")


class ByMode(Enum):
    """Layers that compute something else in evaluation mode."""

    DROPOUT = "dropout"
    NORMALISATION = "batch normalisation"


def layers_by_mode(facts: Facts, names: Iterable[tuple[Scope, ast.AST]]) -> frozenset[ByMode]:
    """What a network is known to have that depends on its mode, by the first of its names that says what it is."""
    for scope, node in names:
        networks = list(_networks(facts, scope, node, 2)) if isinstance(node, ast.expr) else []
        if networks:
            return frozenset(layer for network in networks for layer in _layers_of(facts, network))
    return frozenset()


def _networks(facts: Facts, scope: Scope, node: ast.expr, depth: int) -> Iterator[Alternative]:
    """What a name may stand for, without the wrappers of several GPUs."""
    node = node.value if isinstance(node, ast.Attribute) and node.attr == "module" else node
    for network in modules(facts.inference, scope, node):
        match network:
            case Object(qualname, site=(Scope() as maker, ast.Call(args=[inner, *_]))) if qualname.endswith("DataParallel"):
                yield from _networks(facts, maker, inner, depth - 1) if depth else ()
            case _:
                yield network


def _layers_of(facts: Facts, network: Alternative) -> Iterator[ByMode]:
    """The layers of a network of torch or of the project: of all that its constructor surely builds."""
    pending = list[_Maker]()
    match network:
        case Object(qualname, site=(Scope() as outer, ast.Call() as made)):
            yield from _by_mode(facts, outer, made, qualname)
        case Instance(cls):
            pending += _constructor(facts, cls, None)
    seen = {maker.scope for maker in pending}
    for maker in pending:
        scope = maker.scope
        if scope.owner is not None and any(map(_drops_by_mode, scope.owner.methods.values())):
            yield ByMode.DROPOUT
        for call in flow_of(scope).calls if can_be_parsed(scope) else ():
            if not _is_made(facts, maker, call):
                continue
            for called in facts.inference.value(scope, call.func).alternatives:
                if isinstance(called, External):
                    yield from _by_mode(facts, scope, call, called.qualname)
                built = _constructor(facts, called.cls, (scope, call)) if isinstance(called, ClassRef) else []
                built += [_Maker(called.scope, (scope, call))] if isinstance(called, FunctionRef) else []
                pending += (inner for inner in built if inner.scope not in seen and len(pending) < MAX_BUILT)
                seen.update(inner.scope for inner in built)


class _Maker(NamedTuple):
    """A function that builds layers, and the call that runs it, with where that stands; None: any call may."""

    scope: Scope
    site: tuple[Scope, ast.Call] | None


def _constructor(facts: Facts, cls: Class, site: tuple[Scope, ast.Call] | None) -> list[_Maker]:
    method = find_method(facts.inference, cls, "__init__")
    return [_Maker(method, site)] if method is not None else []


def _is_made(facts: Facts, maker: _Maker, node: ast.AST) -> bool:
    """Whether a function surely gets to a node: nothing decides about it but what its call gives: `if batchnorm:`."""
    for block in flow_of(maker.scope).block[node].ancestry():
        if block.kind not in ("then", "else", "handler", "operand", "case"):
            continue
        asked = branch_test(block, node)
        if asked is None or maker.site is None or not isinstance(asked[0], ast.Name):
            return False
        caller, call = maker.site
        written = given(maker.scope, call, asked[0].id)
        told = facts.inference.value(caller, written).literal if written is not None else ...
        if told is ... or bool(told) is not asked[1]:
            return False
    return True


def _drops_by_mode(method: Scope) -> bool:
    """Whether it is `F.dropout(x, training=self.training)` that drops, and no layer."""
    return b"dropout" in method.text and _OWN_MODE.search(method.text) is not None


def _drops(facts: Facts, scope: Scope, share: ast.expr | None) -> bool:
    """Whether a dropout layer drops anything: not if its share is 0, or a parameter that is 0 by default."""
    if share is None:
        return True
    written = defaults_of(scope.node).get(share.id, share) if isinstance(share, ast.Name) else share
    return not any(facts.inference.value(scope, node).literal == 0 for node in (share, written))


def _by_mode(facts: Facts, scope: Scope, call: ast.Call, qualname: str) -> set[ByMode]:
    """What a call of a function or a class outside of the project builds."""
    package, _, name = qualname.rpartition(".")
    if package.startswith("torch.nn"):
        if "BatchNorm" in name:
            keeps = argument(call, 4, "track_running_stats")
            forgets = keeps is not None and facts.inference.value(scope, keeps).literal is False
            return set() if forgets else {ByMode.NORMALISATION}
        return {ByMode.DROPOUT} if "Dropout" in name and _drops(facts, scope, argument(call, 0, "p")) else set()
    if qualname.startswith(("torchvision.models.", "timm.", "torch.hub.")) and _NORMALISED.search(ast.unparse(call)):
        return {ByMode.NORMALISATION}
    return set()  # what `from_pretrained` gives is in evaluation mode already
