"""Statements at the beginning of a loop's body that move a batch to a device, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perflint.facts.dataflow.definitions import Loop, path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.statement_names import assigned, bound_names, names_read
from perflint.facts.device.uploads import target_of
from perflint.facts.training.loop_heads import Head, UnknownLoop, is_fixed_in
from perflint.facts.values.inference import Inference
from perflint.source.records import dataclass
from perflint.source.syntax import Scope


@dataclass(frozen=True)
class BatchMoves:
    """How a loop moves its batches. statements: those that do nothing else; empty if each part is moved where it is taken out.

    calls: the copies, if the text shows them.
    """

    device: ast.expr
    statements: tuple[ast.stmt, ...] = ()
    calls: tuple[ast.Call, ...] = ()

    @property
    def target(self) -> str:
        """The device as text."""
        is_text = isinstance(self.device, ast.Constant) and isinstance(self.device.value, str)
        return f'"{ast.literal_eval(self.device)}"' if is_text else ast.unparse(self.device)


def batch_moves(
    inference: Inference, scope: Scope, loop: Loop, first: Sequence[ast.stmt], target: ast.expr
) -> BatchMoves | None:
    """The moves of a loop's batches, if all parts that are used go to one device before anything looks at them.

    first: the statements of its body that the moves may be the first of. target: what a batch is bound to.
    """
    body = loop.node.body if isinstance(loop.node, ast.For) else []
    names = set(bound_names(target))
    statements: list[ast.stmt] = []
    moved: dict[str, tuple[ast.expr, ast.Call | None]] = {}
    for statement in first:
        found = dict(_moved_in_place(statement))
        if not found or not found.keys() <= names - moved.keys():
            break
        moved |= found
        statements.append(statement)
    loads = {name for s in body if s not in statements for name in names_read(s)}
    copies = list(moved.values())
    if not moved and isinstance(target, ast.Name):
        copies = list(_moved_items(scope, body, target.id))
    elif (names - moved.keys()) & loads:
        return None
    devices = {ast.dump(device): device for device, _ in copies}
    calls = tuple(call for _, call in copies if call is not None)
    if len(devices) != 1 or any(_is_no_transfer(inference, scope, call) for call in calls):
        return None
    (device,) = devices.values()
    return BatchMoves(device, tuple(statements), calls) if is_fixed_in(flow_of(scope), loop, device) else None


def leading_moves(inference: Inference, scope: Scope, loop: Loop) -> tuple[ast.expr, BatchMoves] | None:
    """What a loop goes over, and how it moves its batches before it looks at them."""
    if not isinstance(loop.node, ast.For):
        return None
    try:
        head = Head(loop.node)
    except UnknownLoop:
        return None
    names = set(bound_names(head.target))
    first = [s for s in loop.node.body if (names_read(s) | assigned(s)) & names]
    moves = batch_moves(inference, scope, loop, first, head.target)
    loader = head.loader
    while isinstance(loader, ast.Call) and loader.args and (path_of(loader.func) or "").rpartition(".")[2] in ("tqdm", "track"):
        loader = loader.args[0]
    return (loader, moves) if moves is not None and moves.statements else None


def _is_no_transfer(inference: Inference, scope: Scope, call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and target_of(inference, scope, call) is None


def _moved_items(scope: Scope, body: Sequence[ast.stmt], batch: str) -> Iterator[tuple[ast.expr, ast.Call | None]]:
    """The copies of a batch's items, if each is moved where it is taken out: `batch["labels"].to(device)`."""
    parent = flow_of(scope).parent
    found: list[tuple[ast.expr, ast.Call | None]] = []
    for node in (n for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == batch):
        item = parent.get(node)
        taken = parent.get(item) if isinstance(item, ast.Subscript) else None
        match parent.get(taken) if isinstance(taken, ast.Attribute) and taken.attr == "to" else None:
            case ast.Call(args=[device], keywords=keywords) as call if all(k.arg == "non_blocking" for k in keywords):
                found.append((device, call))
            case _:
                return
    yield from found


def _moved_in_place(statement: ast.stmt) -> Iterator[tuple[str, tuple[ast.expr, ast.Call | None]]]:
    """The names that a statement moves to a device, with the device and the copy, if it does nothing else."""
    pairs: Sequence[tuple[ast.expr, ast.expr]]
    match statement:
        case ast.Assign(targets=[ast.Name() as name], value=value):
            pairs = [(name, value)]
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            pairs = list(zip(names, values, strict=True))
        case _:
            return
    copies = [(t.id, _copy(v, t.id)) for t, v in pairs if isinstance(t, ast.Name)]
    if len(copies) == len(pairs):
        found = [(name, copy) for name, copy in copies if copy is not None]
        yield from found if len(found) == len(copies) else []


def _copy(value: ast.expr, name: str) -> tuple[ast.expr, ast.Call | None] | None:
    """Where an expression moves what has a name, and the call that does it."""
    device: ast.expr
    match value:
        case ast.Call(func=ast.Name(id="moved" | "moved_copy"), args=[ast.Name(id=source), device], keywords=[]):
            pass
        case ast.Call(func=ast.Attribute(value=ast.Name(id=source), attr="to"), args=[device]) if _is_plain(value):
            pass
        case ast.Call(func=ast.Attribute(value=ast.Name(id=source), attr="cuda"), args=[]) if _is_plain(value):
            device = ast.Constant("cuda")
        case ast.DictComp(
            key=ast.Name(id=key),
            value=moved,
            generators=[
                ast.comprehension(
                    target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]),
                    iter=ast.Call(func=ast.Attribute(value=ast.Name(id=source), attr="items"), args=[]),
                    ifs=[],
                )
            ],
        ) if key == first and source == name:
            return _copy(moved, second)
        case _:
            return None
    if source != name or (path_of(device) is None and not isinstance(device, ast.Constant)):
        return None
    return device, value


def _is_plain(call: ast.Call) -> bool:
    return all(keyword.arg == "non_blocking" for keyword in call.keywords)
