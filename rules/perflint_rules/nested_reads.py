"""Reads of `t[i][j]` and of `t[i, 0]` in a loop over an index, which are only reported: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import Batch, Code, Finding, Loop, Output, Severity, Tensor, path_of
from perflint_rules.element_reads import may_be_no_tensor, read_name
from perflint_rules.indexed_reads import is_read_each_time, loop_over, stays_in
from perflint_rules.loader_use import draws


def nested_reads(code: Code) -> Iterator[Finding]:
    """The first read of each tensor of several dimensions whose elements a loop in the step takes one by one."""
    seen: set[tuple[Loop, str]] = set()
    for call in code.flow.calls:
        tensor, keys = _taken_from(read_name(call))
        loop, path = code.flow.loop(call), path_of(tensor)
        if len(keys) < 2 or loop is None or path is None or (loop, path) in seen or not code.is_hot(call):
            continue
        if not any(isinstance(key, ast.Name) and loop_over(code, key) is loop for key in keys):
            continue
        if not code.value(tensor).may_be(Tensor, Batch, Output) or not code.may_be_on_device(tensor):
            continue
        if all(read.node is not call for read in code.reads(formatted=False)):
            continue  # in a forward pass that nobody trains
        if stays_in(code, tensor, loop) and is_read_each_time(code, call, loop):
            seen.add((loop, path))
            others = [key for key in keys if not isinstance(key, ast.Constant)]
            cure = (
                "read all of it before the loop with `tolist()`"
                if len(others) == 1
                else "gather those first, and read them once"
            )
            message = f"each element of `{path}` is read from the device by itself; {cure}"
            little = draws(code, call) or may_be_no_tensor(code, [call], tensor)
            yield code.finding(call, message, waits=[call], severity=Severity.INFO if little else None)


def _taken_from(item: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """The tensor of `t[i][j]`, `t[i, 0]` and `outputs[2][i]`, and its keys: `outputs[2]` is a tensor of its own."""
    keys: list[ast.expr] = []
    tensor, taken = item, keys
    while isinstance(item, ast.Subscript):
        keys = [*keys, *(item.slice.elts if isinstance(item.slice, ast.Tuple) else [item.slice])]
        if not isinstance(item.slice, ast.Constant):
            tensor, taken = item.value, keys
        item = item.value
    return tensor, taken
