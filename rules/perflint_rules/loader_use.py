"""What a loader's batches are for, how often an evaluation runs, and what it waits for anyhow: no rule by itself."""

import ast
import re

from perflint.api import (
    NOW,
    Code,
    HostRead,
    LoaderCall,
    Loop,
    LoopKind,
    ReadKind,
    Severity,
    Sink,
    backward_in,
    ends_soon,
    is_guard,
    is_left_to_evaluation,
    is_seldom,
    last_name,
    loop_writes_text,
    only_shows,
    runs_once,
)
from perflint_rules.idle_device import is_paid_for

_DRAWING = ("imshow", "imwrite", "imsave", "save_image", "savefig", "rectangle", "putText", "waitKey")

_SPARES_MEMORY = re.compile(r"(?:^|[._])(?:cpu|offload|low_?mem|save_?mem)", re.I)
_GOES_OVER = ("enumerate", "tqdm", "islice", "iter", "len", "print", "zip")
_TRAINS = re.compile(rb"backward|optimi[sz]er|(?i:epoch|(?<!pre)train)")
"""What a function holds that has to do with training."""


def worth(code: Code, loader: LoaderCall) -> Severity | None:
    """`Severity.INFO` where how fast batches come hardly counts: nobody goes over them, or all takes a few, shows or writes."""
    if loader.is_left:
        return Severity.INFO
    loops = list(loader.loops_in(code.scope))
    if loops and all(_is_little(loop.node) or loop_writes_text(code.facts, code.scope, loop) for loop in loops):
        return None if _is_handed_on(code, loader) else Severity.INFO
    return Severity.INFO if _is_taken_once(code, loader) else None


def _is_handed_on(code: Code, loader: LoaderCall) -> bool:
    """Whether a function gets the loader, too, which may train with it: `train(model, loader)`."""
    bound = code.flow.statement(loader.call)
    definitions = code.flow.definitions_at(bound.targets[0]) if isinstance(bound, ast.Assign) else []
    calls = (code.flow.parent.get(use) for definition in definitions for use in code.flow.uses[definition])
    return any(isinstance(call, ast.Call) and last_name(call.func) not in _GOES_OVER for call in calls)


def _passes_once(code: Code, node: ast.AST) -> bool:
    """Whether a node stands in an evaluation that a program makes once: a test after the training, a prediction."""
    loop = code.around(node)
    return loop is not None and _is_one_pass(code, loop)


def is_of_one_pass(code: Code, node: ast.expr) -> bool:
    """Whether a wait is part of an evaluation that is made once, that draws, or that a network makes itself."""
    return _passes_once(code, node) or is_left_to_evaluation(code.flow, node) or draws(code, node)


def draws(code: Code, node: ast.AST) -> bool:
    """Whether a loop around a node draws or writes a picture in each round, and trains nothing: that takes the time."""
    loop = code.flow.loop(node)
    if loop is None or code.facts.loops.is_of_training(code.scope, node):
        return False
    *_, outermost = loop.ancestry()
    drawn = (call for name in _DRAWING for call in code.flow.calls_named.get(name, ()))
    return any(
        code.flow.within(call, outermost.block) and not any(is_guard(code.flow, b) for b in code.flow.block[call].ancestry())
        for call in drawn
    )


def waits_anyhow(code: Code, node: ast.expr) -> bool:
    """Whether each round of an evaluation, or a step right here, needs another value: without this wait there is that one."""
    if code.facts.loops.is_of_training(code.scope, node):
        return is_paid_for(code, node)
    loop = code.flow.loop(node)
    return any(
        read.node is not node
        and (loop is None or code.flow.within(read.node, loop.block))
        and code.is_hot(read.node)
        and not is_seldom(code.flow, read.node)
        and (collects(code, read) or not code.sinks(read.node).isdisjoint(NOW))
        for read in code.reads()
    )


def collects(code: Code, read: HostRead) -> bool:
    """Whether an evaluation collects whole tensors on the host: on the device they might take more memory than there is.

    So does what is told to (`if self.cpu_cache`). The runtime has lists that copy them there without a wait.
    """
    if read.kind is not ReadKind.COPY or read.node is read.tensor:
        return False
    if any(
        block.kind == "then" and _SPARES_MEMORY.search(_test(block.node)) for block in code.flow.block[read.node].ancestry()
    ):
        return True
    if code.offers_runtime:
        return False
    kept = code.sinks(read.node) <= frozenset((Sink.COLLECT, Sink.STORE))
    return kept and not code.facts.loops.is_of_training(code.scope, read.node)


def writes_results(code: Code, read: HostRead, sinks: frozenset[Sink]) -> bool:
    """Whether predictions are written to a file, which is what the program is for."""
    written = sinks == {Sink.LOG} and read.kind is ReadKind.COPY and not backward_in(code.facts, code.scope)
    return written and not code.facts.loops.is_of_training(code.scope, read.node)


def _test(node: ast.AST) -> str:
    return ast.unparse(node.test) if isinstance(node, (ast.If, ast.IfExp)) else ""


def _is_one_pass(code: Code, loop: Loop) -> bool:
    """Whether a loop over batches trains nothing, and runs once, or once for each setting of a test."""
    around = list(loop.ancestry())
    alone = all(one in code.step_loops() for one in around if one.statement is not None)
    return (
        not any(code.step_loops().get(one) is LoopKind.TRAIN for one in around)
        and (alone or not _TRAINS.search(code.scope.text))
        and runs_once(code.facts, code.scope)
    )


def _is_taken_once(code: Code, loader: LoaderCall) -> bool:
    """Whether a loader is for one batch, or one pass of an evaluation: what takes it are such loops, or `trainer.predict`."""
    bound, once = code.flow.statement(loader.call), runs_once(code.facts, code.scope)
    if once and _tests_by_trainer(code, loader.call):
        return True
    if code.flow.loop(loader.call) is None and isinstance(bound, ast.Assign):
        uses = [use for d in code.flow.definitions_at(bound.targets[0]) for use in code.flow.uses[d]]
        if uses and all((once and _tests_by_trainer(code, use)) or _is_for_one_batch(code, use) for use in uses):
            return True
    takers = loader.takers()
    if takers and all(begins_anew(taker) or _is_little(taker) for _, taker in takers):
        return True
    return bool(takers) and all(
        any(loop.node is taker and _is_one_pass(code.at(scope), loop) for loop in code.at(scope).step_loops())
        for scope, taker in takers
    )


def begins_anew(taker: ast.AST) -> bool:
    """`next(iter(loader))`, `loader.__iter__().next()`: one batch, for which workers would be started."""
    match taker:
        case ast.Call(args=[ast.Call(), *_]) | ast.Call(func=ast.Attribute(value=ast.Call())):
            return True
    return False


def _tests_by_trainer(code: Code, use: ast.expr) -> bool:
    """`trainer.predict(model, loader)`, outside of loops; use: the loader, or what makes it right there."""
    parent = code.flow.parent[use]
    if isinstance(parent, ast.keyword):
        parent = code.flow.parent[parent]
    return (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Attribute)
        and parent.func.attr in ("predict", "test")
        and code.flow.loop(use) is None
    )


def _is_for_one_batch(code: Code, use: ast.expr) -> bool:
    """`shown = next(iter(loader))`, `iter(loader).next()`, `for x in loader: break`, outside of loops or now and then."""
    taker = code.flow.parent[use]  # `iter(loader)`, `loader.__iter__`
    if isinstance(taker, ast.For):
        return _is_little(taker) and code.flow.loop(use) is None
    if isinstance(taker, ast.Attribute) and taker.attr == "__iter__":
        taker = code.flow.parent[taker]
    elif not isinstance(taker, ast.Call) or last_name(taker.func) != "iter":
        return False
    kept = code.flow.parent[taker]
    if isinstance(kept, ast.Assign):
        taken = [use for d in code.flow.definitions_at(kept.targets[0]) for use in code.flow.uses[d]]
        return bool(taken) and all(_draws_seldom(code, use) for use in taken)
    return _draws_seldom(code, taker)


def _draws_seldom(code: Code, batches: ast.AST) -> bool:
    """Whether an iterator gives one batch where it stands, which is in no loop, or every N steps."""
    match code.flow.parent[batches]:
        case ast.Call(func=ast.Name(id="next")) | ast.Attribute(attr="next" | "__next__"):
            return code.flow.loop(batches) is None or is_seldom(code.flow, batches)
    return False


def _is_little(taker: ast.AST) -> bool:
    """Whether a loop takes a few batches, or only shows them."""
    return isinstance(taker, ast.For) and (ends_soon(taker) or only_shows(taker))
