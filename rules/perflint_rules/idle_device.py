"""Waits that the host makes anyhow, and totals of numbers that were read already: no rule by itself."""

import ast
from collections.abc import Iterable

from perflint.api import (
    NOW,
    Alternative,
    Code,
    External,
    Literal,
    Number,
    Object,
    last_name,
    words,
)

_LOOKS = words("item cpu numpy tolist detach size dim numel format time perf_counter")
"""Methods that give the device nothing to compute, whatever they belong to."""
_READS = words("item numpy tolist")


def is_paid_for(code: Code, node: ast.expr) -> bool:
    """Whether the host waits right before or behind a wait for what it needs: the device gets nothing to do in between."""
    flow = code.flow
    for read in code.reads():
        if read.node is node or flow.block[read.node] is not flow.block[node] or code.sinks(read.node).isdisjoint(NOW):
            continue
        first, last = sorted((node, read.node), key=flow.order.__getitem__)
        if flow.dominates(first, last) and _launch_nothing(code, flow.calls_between(first, last)):
            return True
    return False


def adds_up_reads(code: Code, node: ast.expr) -> bool:
    """Whether `train_loss`, or what is computed with it, is of numbers that were read: `train_loss += loss.item() / steps`."""
    return isinstance(node, (ast.Name, ast.BinOp)) and _is_of_reads(code, node, set())


def _is_of_reads(code: Code, node: ast.expr | None, seen: set[ast.expr]) -> bool:
    """Whether an expression is a number that was read, or arithmetic with one, and no name in it stands for anything else."""
    if node in seen:
        return True  # the total itself
    match node:
        case ast.Constant() | ast.Name() if code.value(node).must_be(Number, Literal):
            return True
        case ast.BinOp(left=left, right=right):
            return all(_is_of_reads(code, side, seen) for side in (left, right))
        case ast.Name() if not code.may_be_on_device(node):
            return True
        case ast.Name():
            seen.add(node)
            made = code.flow.reaching.get(node, frozenset())
            return bool(made) and all(d.kind in ("assign", "augmented") and _is_of_reads(code, d.value, seen) for d in made)
    return node is not None and _is_read(node)


def _launch_nothing(code: Code, calls: Iterable[ast.Call]) -> bool:
    return all(last_name(call.func) in _LOOKS or _runs_on_host(code, call) or _takes_numbers(code, call) for call in calls)


def _runs_on_host(code: Code, call: ast.Call) -> bool:
    """Whether a call is of a library other than torch, or looks at arrays alone: extensions in C know no tensors."""
    looked_at = [call.func.value] if isinstance(call.func, ast.Attribute) else call.args
    if looked_at and all(code.value(part).may(_is_array) for part in looked_at):
        return True
    return code.value(call.func).must(lambda a: isinstance(a, External) and not a.qualname.startswith("torch."))


def _takes_numbers(code: Code, call: ast.Call) -> bool:
    """`losses.update(loss.item(), n)`: what gets numbers of the host alone, and is given some."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return bool(given) and all(_is_read(part) or code.value(part).must(_is_of_host) for part in given)


def _is_read(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in _READS


def _is_of_host(alternative: Alternative) -> bool:
    return isinstance(alternative, Number) or _is_array(alternative)


def _is_array(alternative: Alternative) -> bool:
    return isinstance(alternative, Object) and alternative.qualname == "numpy.ndarray"
