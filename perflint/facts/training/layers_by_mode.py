"""The layers of a network that compute something else in evaluation mode."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.reach import can_be_parsed
from perflint.facts.training.datasets import is_conditional
from perflint.facts.values.arguments import argument
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
    """The layers of a network of torch or of the project: of all that its constructor builds, whatever it is given."""
    pending = list[Scope]()
    match network:
        case Object(qualname, site=(Scope() as maker, ast.Call() as made)):
            yield from _by_mode(facts, maker, made, qualname)
        case Instance(cls):
            pending += _constructor(facts, cls)
    for scope in pending:
        if scope.owner is not None and any(map(_drops_by_mode, scope.owner.methods.values())):
            yield ByMode.DROPOUT
        for call in flow_of(scope).calls if can_be_parsed(scope) else ():
            if is_conditional(scope, call):
                continue
            for called in facts.inference.value(scope, call.func).alternatives:
                if isinstance(called, External):
                    yield from _by_mode(facts, scope, call, called.qualname)
                built = _constructor(facts, called.cls) if isinstance(called, ClassRef) else []
                built += [called.scope] if isinstance(called, FunctionRef) else []
                pending += (inner for inner in built if inner not in pending and len(pending) < MAX_BUILT)


def _drops_by_mode(method: Scope) -> bool:
    """Whether it is `F.dropout(x, training=self.training)` that drops, and no layer."""
    return b"dropout" in method.text and _OWN_MODE.search(method.text) is not None


def _constructor(facts: Facts, cls: Class) -> list[Scope]:
    method = find_method(facts.inference, cls, "__init__")
    return [method] if method is not None else []


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
            return {ByMode.NORMALISATION}
        return {ByMode.DROPOUT} if "Dropout" in name and _drops(facts, scope, argument(call, 0, "p")) else set()
    if qualname.startswith(("torchvision.models.", "timm.", "torch.hub.")) and _NORMALISED.search(ast.unparse(call)):
        return {ByMode.NORMALISATION}
    return {ByMode.DROPOUT} if name == "from_pretrained" and qualname.startswith("transformers.") else set()
