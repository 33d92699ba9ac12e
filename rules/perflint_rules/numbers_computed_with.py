"""Numbers that are read from the device and computed with there again: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import IDLE_SINKS, Code, Finding, HostRead, ReadKind, Sink, written_out

_MAYBE = ("then", "else")
_FATE = IDLE_SINKS | {Sink.RETURN, Sink.COMPUTED}


def computed_with(code: Code) -> Iterator[Finding]:
    """`alpha = log_alpha.exp().item(); loss = (alpha * entropy).mean()`: the tensor does as well."""
    if not any(Sink.COMPUTED in code.sinks(call) for call, _ in written_out(code.flow)):
        return
    for read in code.reads():
        if not _is_number(read) or Sink.COMPUTED not in code.sinks(read.node) or not code.is_hot(read.node):
            continue
        if code.sinks(read.node) <= _FATE and all(block.kind not in _MAYBE for block in code.flow.block[read.node].ancestry()):
            message = (
                f"the CPU waits for `{ast.unparse(read.tensor)}` in every step, and the number goes back into what the device "
                "computes; compute with the detached tensor"
            )
            yield code.finding(read.node, message, waits=[read.node])


def _is_number(read: HostRead) -> bool:
    return read.kind in (ReadKind.ITEM, ReadKind.CONVERSION)
