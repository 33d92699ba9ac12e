"""Rows and elements of a tensor that a loop reads from the device one by one: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    IDLE_SINKS,
    Batch,
    Code,
    Definition,
    Elements,
    Finding,
    HostRead,
    Loop,
    Place,
    ReadKind,
    Severity,
    Sink,
    Tensor,
    path_of,
    place_of,
)


def row_copies(code: Code) -> Iterator[Finding]:
    """The loops over a tensor on the device, or over a list of them, that need each on the host: all can be read before."""
    found: dict[tuple[Loop, str], tuple[HostRead, str]] = {}
    for read in code.reads(formatted=False):
        if not isinstance(_root(read.tensor), ast.Name) or not code.is_hot(read.node):
            continue
        sinks = code.sinks(read.node)
        if sinks <= IDLE_SINKS or (read.kind is not ReadKind.COPY and Sink.CONTROL in sinks):
            continue
        row = _row(code, read)
        if row is not None:
            loop, rows, message = row
            found.setdefault((loop, rows), (read, message))
    for read, message in found.values():
        severity = None if code.facts.loops.is_of_training(code.scope, read.node) else Severity.INFO  # to show what was written
        yield code.finding(read.node, message, waits=[read.node], severity=severity)


def _row(code: Code, read: HostRead) -> tuple[Loop, str, str] | None:
    """The loop that gives what is read, or of which it is a part, what it goes over, and what to do about it."""
    root = _root(read.tensor)
    bound = code.flow.reaching.get(root, frozenset())
    if len(bound) != 1:
        return None
    (definition,) = bound
    loop = definition.block.loop
    if definition.kind != "for" or loop is None or loop.statement is None or loop in code.step_loops():
        return None
    tensor = _gone_over(definition)
    if tensor is not None and _is_on_device(code, tensor):
        rows = ast.unparse(tensor)
        if read.kind is not ReadKind.COPY:
            return loop, rows, f"each element of `{rows}` is read from the device by itself; go over `{rows}.tolist()`"
        if path_of(tensor) is None:
            return None
        return loop, rows, f"each row of `{rows}` is copied from the device by itself; copy all of it once, before the loop"
    if read.kind is ReadKind.COPY or loop.iterated is None or not _holds_tensors(code, loop.iterated, root):
        return None
    rows, name = ast.unparse(loop.iterated), ast.unparse(root)
    return loop, rows, f"each round reads its `{name}` from the device by itself; read all of `{rows}` at once, before the loop"


def _holds_tensors(code: Code, iterated: ast.expr, item: ast.expr) -> bool:
    """Whether a loop goes over a list whose items are tensors on the device, or hold one each."""
    listed = code.value(iterated).may(lambda a: isinstance(a, Elements) and a.kind == "list")
    held = [a for a in code.value(item).alternatives if isinstance(a, Tensor)]
    return listed and code.value(item).must_be_if_known(Tensor) and any(a.place.may_be_device for a in held)


def _root(node: ast.expr) -> ast.expr:
    """The variable that a row is, or a part of it; of a number computed from an element alone, too: `int(t * 10)`."""
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.BinOp)):
        if isinstance(node, ast.BinOp) and not isinstance(node.right, ast.Constant):
            return node
        node = node.left if isinstance(node, ast.BinOp) else node.value
    return node


def _gone_over(definition: Definition) -> ast.expr | None:
    """What a variable of a loop comes from: `a` for `x` in `for i, (x, y) in enumerate(zip(a, b))`."""
    node, index = definition.value, list(definition.index)
    while isinstance(node, ast.Call):
        match node:
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner]) if index[:1] == [1]:
                node, index = inner, index[1:]
            case ast.Call(func=ast.Name(id="zip"), args=parts) if index and isinstance(index[0], int) and index[0] < len(parts):
                node, index = parts[index[0]], index[1:]
            case _:
                return None
    return node if not index else None


def _is_on_device(code: Code, tensor: ast.expr) -> bool:
    """Whether an expression is a tensor on the device, as far as one can see: no list of tensors."""
    held = code.value(tensor)
    return (
        held.must_be_if_known(Tensor, Batch)
        and held.may(lambda a: isinstance(a, Tensor) and place_of(a).may_be_device)
        and not held.must(lambda a: place_of(a) is Place.HOST)
    )
