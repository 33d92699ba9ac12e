"""Reads of rows and of what is computed from one, in a loop over the rows of a tensor: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import IDLE_SINKS, Code, External, Finding, Heat, Loop, ReadKind, Severity, Sink, Tensor, brief, path_of
from perflint_rules.indexed_reads import is_read_each_time, loop_over


def reads_of_rows(code: Code) -> Iterator[Finding]:
    """`torch.multinomial(weights[b], 1).item()`: what could be computed for all rows, and read once before the loop.

    And `tokens[b].tolist()`.
    """
    found = set[Loop]()
    for read in code.reads(formatted=False):
        whole = isinstance(read.tensor, ast.Subscript)  # `t[i].item()` is an element's, and read elsewhere
        if isinstance(read.tensor, ast.Name) or whole is not (read.kind is ReadKind.COPY):
            continue
        loop = _loop_over_rows(code, read.tensor)
        if loop is None or loop in found or loop in code.step_loops() or not is_read_each_time(code, read.node, loop):
            continue
        sinks = code.sinks(read.node)
        if sinks <= IDLE_SINKS | {Sink.RETURN} or Sink.CONTROL in sinks or not code.is_hot(read.node):
            continue  # item-every-step and sync-branch-on-tensor say what to do
        found.add(loop)
        text = brief(read.tensor)
        cure = (
            "read all rows before the loop" if whole else "compute it for all rows before the loop, and read it with `tolist()`"
        )
        message = f"the CPU waits for `{text}` once for each row; {cure}"
        trains = code.heat is Heat.FORWARD or code.facts.loops.is_of_training(code.scope, read.node)
        yield code.finding(read.node, message, waits=[read.node], severity=None if trains else Severity.INFO)


def _loop_over_rows(code: Code, computed: ast.expr) -> Loop | None:
    """The loop whose variable picks the only thing of each round that an expression is computed from."""
    rows = [part for part in ast.walk(computed) if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Name)]
    loops = {loop_over(code, row.slice) if isinstance(row.slice, ast.Name) else None for row in rows}
    loop = loops.pop() if len(loops) == 1 else None
    if loop is None or not all(code.value(row.value).may_be(Tensor) and not _changes(code, row.value, loop) for row in rows):
        return None
    indices = {row.slice for row in rows}
    for part in ast.walk(computed):
        match part:
            case ast.Call(func=ast.Attribute(value=receiver) as func):
                if not code.value(receiver).may_be(Tensor) and not code.value(func).must_be(External):
                    return None
            case ast.Call():
                return None
            case ast.Name() if part not in indices:
                if any(code.flow.within(d.node, loop.block) for d in code.flow.reaching.get(part, ())):
                    return None
    return loop


def _changes(code: Code, tensor: ast.expr, loop: Loop) -> bool:
    """Whether a loop binds a tensor's name or writes to it, as far as one can see."""
    path = path_of(tensor)
    if path is None or any(code.flow.within(d.node, loop.block) for d in code.flow.definitions_of(path)):
        return True
    written = [store.value for store in code.flow.stores if isinstance(store, ast.Subscript)]
    written += [c.func.value for c in code.flow.calls if isinstance(c.func, ast.Attribute) and c.func.attr.endswith("_")]
    return any(path_of(node) == path and code.flow.within(node, loop.block) for node in written)
