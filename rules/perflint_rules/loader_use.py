"""What a loader's batches are for, as far as its own scope shows: no rule by itself."""

import ast

from perflint.api import Code, Instance, LoaderCall, Severity, any_layout, called_from, loop_writes_text

_MOVES = any_layout(rb"\. (?:to|cuda|type) \(|device")


def stays_on_host(code: Code, loader: LoaderCall) -> bool:
    """Whether the loader is iterated here, and only here, and no batch is copied to a device."""
    flow, loops = code.flow, loader.only_loops()
    if not loops:
        return False
    moves = code.calls("to", "cuda", "backward", "prepare", "type")
    inside = [call for call in flow.calls if any(flow.within(call, loop.block) for loop in loops)]
    if any(move in inside for move in moves) or any(code.value(call.func).may_be(Instance) for call in inside):
        return False
    called = [target for call in inside for target in code.facts.loops.targets(code.scope, call)]
    if not code.scope.is_module:
        return not called
    return not any(_MOVES.search(target.text) for target in called_from(code.facts, *called))


def worth(code: Code, loader: LoaderCall) -> Severity | None:
    """`Severity.INFO` where how fast batches come hardly counts: all that is seen takes one of them, or writes text."""
    loops = list(loader.loops_in(code.scope))
    little = [isinstance(loop.node, ast.For) and isinstance(loop.node.body[-1], ast.Break) for loop in loops]
    if all(one or loop_writes_text(code.facts, code.scope, loop) for one, loop in zip(little, loops, strict=True)):
        return Severity.INFO if loops else None
    return None
