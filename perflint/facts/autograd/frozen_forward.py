"""Forward passes of frozen networks that training repeats in each epoch."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.definitions import Loop, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.training.batch_moves import leading_moves
from perflint.facts.values.values import External, Loader
from perflint.source.records import dataclass
from perflint.source.syntax import Scope


@dataclass(frozen=True)
class FrozenForward:
    """The forward pass of a frozen network in a loop. moves: what copies the batch before."""

    loop: ast.For
    epochs: ast.stmt
    block: ast.With
    network: ast.expr
    features: str
    loader: ast.expr
    device: str | None
    moves: tuple[ast.stmt, ...]


def frozen_forward(facts: Facts, scope: Scope, loop: Loop) -> FrozenForward | None:
    """The forward pass of a network in eval mode over the first part of each batch, in a loop inside of one over epochs."""
    flow = flow_of(scope)
    statement, around = loop.node, loop.parent
    if not isinstance(statement, ast.For) or around is None or around.statement is None:
        return None
    match statement.target:
        case ast.Tuple(elts=[ast.Name(id=first), *_]):
            pass
        case _:
            return None
    blocks = [s for s in statement.body if isinstance(s, ast.With) and _is_forward(facts, scope, s, first)]
    if len(blocks) != 1 or flow.parent[statement] is not around.statement:
        return None
    (block,) = blocks
    assert isinstance(block.body[0], ast.Assign)
    assert isinstance(block.body[0].value, ast.Call)
    network, features = block.body[0].value.func, block.body[0].targets[0]
    found = leading_moves(facts.inference, scope, loop)
    moves = found[1].statements if found is not None else ()
    held = {n for s in (block, *moves) for n in ast.walk(s)}
    uses = [n for s in statement.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == first and n not in held]
    loader = found[0] if found is not None else statement.iter
    if uses or not facts.inference.value(scope, loader).may_be(Loader) or not _stays_in_eval_mode(flow, network, around):
        return None
    assert isinstance(features, ast.Name)
    device = found[1].target if found is not None else None
    return FrozenForward(statement, around.statement, block, network, features.id, loader, device, moves)


def _is_forward(facts: Facts, scope: Scope, block: ast.With, first: str) -> bool:
    """Whether a block without autograd holds one forward pass over the first part of the batch, and nothing else."""
    match block:
        case ast.With(
            items=[ast.withitem(context_expr=ast.Call(func=manager, args=[]), optional_vars=None)],
            body=[ast.Assign(targets=[ast.Name()], value=ast.Call(func=network, args=[ast.Name(id=given)], keywords=[]))],
        ):
            is_no_grad = facts.inference.value(scope, manager).must(lambda a: a == External("torch.no_grad"))
            return given == first and path_of(network) is not None and is_no_grad
    return False


def _stays_in_eval_mode(flow: Flow, network: ast.expr, epochs: Loop) -> bool:
    """Whether the scope puts a network in eval mode before the epochs, and never in train mode."""
    path = path_of(network)
    calls = [c for name in ("eval", "train") for c in flow.calls_named[name]]
    own = [c for c in calls if isinstance(c.func, ast.Attribute) and path_of(c.func.value) == path]
    is_put = any(isinstance(c.func, ast.Attribute) and c.func.attr == "eval" and flow.loop(c) is not epochs for c in own)
    return is_put and not any(isinstance(c.func, ast.Attribute) and c.func.attr == "train" for c in own)
