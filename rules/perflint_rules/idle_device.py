"""Waits for a device that has nothing to do, or that the host waits for anyhow: what they cost. No rule by itself."""

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
    Output,
    Tensor,
    is_read_in_step,
    is_seldom,
    last_name,
    words,
)
from perflint_rules.pageable import is_pageable, made_in_step

_LOOKS = words("item cpu numpy tolist detach size dim numel format time perf_counter")
"""Methods that give the device nothing to compute, whatever they belong to."""
_READS = words("item numpy tolist")
_WORKS = words("backward step")
_DECODES = words(
    """
    PIL.Image.open cv2.imread cv2.imdecode imageio.imread imageio.v2.imread skimage.io.imread numpy.load librosa.load
    librosa.core.load soundfile.read scipy.io.wavfile.read scipy.io.loadmat nibabel.load pydicom.dcmread
    """
)


def finds_idle_device(code: Code, copy: ast.expr) -> bool:
    """Whether a copy has nothing else to wait for: the host has just waited, or decoded a file, or needs the answer at once."""
    parts = set(ast.walk(copy))
    return (
        any(read.node in parts for read in code.reads())
        or follows_needed_read(code, copy)
        or _is_decoded(code, copy)
        or _is_answered(code, copy)
        or _follows_wait_of_last_round(code, copy)
    )


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


def gets_work(code: Code, first: ast.expr, last: ast.expr) -> bool:
    """Whether the device is known to get much to do between two places: a forward or backward pass, a step."""
    return any(
        last_name(call.func) in _WORKS or code.value(call).may_be(Output) for call in code.flow.calls_between(first, last)
    )


def follows_needed_read(code: Code, copy: ast.expr) -> bool:
    """Whether the host has read something that it needs, and has given the device nothing to do since."""
    flow, own = code.flow, set(ast.walk(copy))
    return any(
        flow.dominates(read.node, copy)
        and not code.sinks(read.node).isdisjoint(NOW)
        and all(_runs_on_host(code, call) for call in flow.calls_between(read.node, copy) if call not in own)
        for read in code.reads()
    )


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


def _is_decoded(code: Code, copy: ast.expr) -> bool:
    """`torch.from_numpy(cv2.imread(path)).cuda()`: the host reads and decodes a file for each, which takes far longer."""
    receiver = copy.func.value if isinstance(copy, ast.Call) and isinstance(copy.func, ast.Attribute) else copy
    made = made_in_step(code, receiver)
    calls = [part for part in ast.walk(made) if isinstance(part, ast.Call)] if made is not None else []
    return any(code.value(call.func).must(lambda a: isinstance(a, External) and a.qualname in _DECODES) for call in calls)


def _is_answered(code: Code, copy: ast.expr) -> bool:
    """`env.step(policy(torch.tensor(state).to(device)).item())`: the host waits for what is computed from it anyhow."""
    flow = code.flow
    if not isinstance(copy, ast.Call) or not isinstance(copy.func, ast.Attribute) or "backward" in flow.calls_named:
        return False
    if not is_pageable(code, made_in_step(code, copy.func.value), copy.func.value):
        return False
    asked = flow.parent[copy]
    if isinstance(asked, ast.Call) and copy in asked.args and _answers(code, asked):
        return True
    later = (r for r in code.reads() if flow.loop(r.node) is flow.loop(copy) and flow.order[r.node] > flow.order[copy])
    needed = any(not code.sinks(read.node).isdisjoint(NOW) for read in later)
    return needed and is_read_in_step(code.scope, copy)


def _answers(code: Code, asked: ast.Call) -> bool:
    """`agent.select_action(state)`: what it is given to reads what it computes, and returns no tensor."""
    inner = [code.at(target) for target in code.facts.loops.targets(code.scope, asked)]
    returned = [(at, node.value) for at in inner for node in at.flow.returns if node.value is not None]
    tensors = any(at.value(value).may(lambda a: isinstance(a, (Output, Tensor))) for at, value in returned)
    return bool(returned) and all(at.reads() for at in inner) and not tensors


def _follows_wait_of_last_round(code: Code, copy: ast.expr) -> bool:
    """Whether each round ends in a read that the host needs, and the next gives the device nothing before this copy."""
    flow, loop = code.flow, code.flow.loop(copy)
    if loop is None or loop.statement is None:
        return False
    inside = [call for call in flow.calls if flow.within(call, loop.block)]
    own, start = set(ast.walk(copy)), flow.order[copy]
    if not _launch_nothing(code, (call for call in inside if flow.order[call] < start and call not in own)):
        return False
    for read in code.reads():
        if flow.block[read.node] is not loop.block or code.sinks(read.node).isdisjoint(NOW) or is_seldom(flow, read.node, loop):
            continue
        last = flow.order[read.node]
        if last > start and _launch_nothing(code, (call for call in inside if flow.order[call] > last)):
            return True
    return False


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
