"""Rows of a tensor that a loop copies to the host one by one: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    IDLE_SINKS,
    Batch,
    Code,
    Definition,
    Finding,
    HostRead,
    Loop,
    Place,
    ReadKind,
    Severity,
    Tensor,
    path_of,
    place_of,
)


def row_copies(code: Code) -> Iterator[Finding]:
    """The loops over a tensor on the device that need each row on the host: one copy before the loop gives all of them."""
    found: dict[tuple[Loop, str], ast.expr] = {}
    for read in code.reads(formatted=False):
        if read.kind is not ReadKind.COPY or not code.is_hot(read.node) or code.sinks(read.node) <= IDLE_SINKS:
            continue
        row = _row(code, read)
        if row is not None:
            found.setdefault(row, read.node)
    for (_, rows), node in found.items():
        message = f"each row of `{rows}` is copied from the device by itself; copy all of it once, before the loop"
        severity = None if code.facts.loops.is_of_training(code.scope, node) else Severity.INFO  # to show what was written
        yield code.finding(node, message, waits=[node], severity=severity)


def _row(code: Code, read: HostRead) -> tuple[Loop, str] | None:
    """The loop that gives what is copied, or of which it is a part, and the tensor that it goes over."""
    node = read.tensor
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    bound = code.flow.reaching.get(node, frozenset())
    if len(bound) != 1:
        return None
    (definition,) = bound
    loop = definition.block.loop
    if definition.kind != "for" or loop is None or loop.statement is None or loop in code.step_loops():
        return None
    tensor = _gone_over(definition)
    if tensor is None or path_of(tensor) is None or not _is_on_device(code, tensor):
        return None
    return loop, ast.unparse(tensor)


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
