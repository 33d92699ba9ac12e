"""Masks that a dataset of the project gives with each sample."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.device.keys import is_bools
from perflint.facts.values import classes
from perflint.facts.values.arguments import argument
from perflint.facts.values.inference import Inference
from perflint.facts.values.values import Batch, Instance, Loader
from perflint.source.syntax import Scope

_STEPS = 4
"""Through how many names a batch's part is followed back to the loop that gets it."""
_Way = tuple[int | None, ...]


def is_mask_of_dataset(inference: Inference, scope: Scope, key: ast.expr) -> bool:
    """Whether an index is the part of a batch that each sample of the loader's dataset has bools for."""
    if not inference.value(scope, key).must(lambda a: isinstance(a, Batch) and a.default_collate):
        return False
    found = _origin(flow_of(scope), key, _STEPS)
    if found is None:
        return False
    iterated, way = found
    while isinstance(iterated, ast.Call) and iterated.args and not inference.value(scope, iterated).may_be(Loader):
        way = way[1:] if isinstance(iterated.func, ast.Name) and iterated.func.id == "enumerate" else way
        iterated = iterated.args[0]
    loader = inference.value(scope, iterated).single
    match loader:
        case Loader(site=(Scope() as made_in, ast.Call() as call)) if len(way) == 1 and way[0] is not None:
            dataset = argument(call, 0, "dataset")
            held = inference.value(made_in, dataset).single if dataset is not None else None
            method = classes.find_method(inference, held.cls, "__getitem__") if isinstance(held, Instance) else None
            return method is not None and _gives_bools(inference, method, way[0])
    return False


def _origin(flow: Flow, node: ast.expr, depth: int) -> tuple[ast.expr, _Way] | None:
    """What a loop goes over, and the way to the part of an element that a name, or a copy of it, stands for."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda"):
        node = node.func.value
    bound = flow.reaching.get(node, frozenset())
    if len(bound) != 1 or not depth:
        return None
    definition: Definition = next(iter(bound))
    match definition.kind, definition.value, definition.index:
        case "for", ast.expr() as iterated, way:
            return iterated, way
        case "assign", ast.Tuple(elts=parts), (int() as at,) if at < len(parts):
            return _origin(flow, parts[at], depth - 1)
        case "assign", ast.expr() as value, ():
            return _origin(flow, value, depth - 1)
    return None


def _gives_bools(inference: Inference, method: Scope, at: int) -> bool:
    """Whether each sample that a method returns has a tensor of bools at a place."""
    given = [node.value for node in flow_of(method).returns]
    parts = [value.elts[at] for value in given if isinstance(value, ast.Tuple) and at < len(value.elts)]
    return bool(parts) and len(parts) == len(given) and all(inference.value(method, p).must(is_bools) for p in parts)
