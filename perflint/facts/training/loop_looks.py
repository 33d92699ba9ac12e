"""Loops by their look: what one goes over, and which loop a place belongs to."""

from __future__ import annotations

import ast
import re
from collections.abc import Container

from perflint.facts.dataflow.definitions import Loop, path_of
from perflint.facts.dataflow.flow import Flow
from perflint.facts.values.values import Batch, Sequence, Value
from perflint.source.nodes import walk
from perflint.source.texts import last_name
from perflint.source.words import made, words

_LOSS = made(
    r"^(?!_?(?:compile|make|build|create|init|setup|select|register|load|save|log|plot|print|show)_)(?:.*_)?"
    r"(?:loss(?:es)?|criterion|cross_entropy\w*|dice|focal|nll)(?:_|$|\d)",
    re.I,
)
_FEW_ROUNDS = 10
_SHOWS = words("print pprint display imshow show")
_LOOKS = words(
    """
    len type str repr list int float range enumerate zip isinstance format size dim item tolist numpy cpu detach min max mean
    std unique keys items squeeze permute transpose figure subplot subplots title set_title axis tight_layout
    """
)
"""What takes a batch to pieces, to show it."""


def is_named_like_loss(name: str) -> bool:
    """Whether a function is named like one that computes a loss, not like one that does something with it."""
    return _LOSS.search(name) is not None


def statement_loop(flow: Flow, node: ast.AST) -> Loop | None:
    """The innermost `for` or `while` statement around a place that may repeat.

    Comprehensions are no loops over batches, and `for _ in range(1)` is a block that runs once.
    """
    return _repeated(flow.loop(node))


def _repeated(loop: Loop | None) -> Loop | None:
    """The innermost of a loop and those around it that is a statement and may repeat."""
    while loop is not None and (loop.statement is None or written_rounds(loop) in (0, 1)):
        loop = loop.parent
    return loop


def outside_displays(loop: Loop | None, kinds: Container[Loop]) -> Loop | None:
    """The innermost loop that is a step loop or iterates over more than a few values that are written out.

    `for kind in ("LSTM", "GRU")` runs a handful of times: what it holds belongs to the loop around it.
    """
    while loop is not None and loop not in kinds and _is_display(loop.iterated):
        loop = _repeated(loop.parent)
    return loop


def counts_rounds(loop: Loop) -> bool:
    """`for t in range(steps)`."""
    return isinstance(loop.iterated, ast.Call) and last_name(loop.iterated.func) in ("range", "trange")


def written_rounds(loop: Loop) -> int | None:
    """How many rounds a loop over `range` takes, if that is written out."""
    match loop.iterated:
        case ast.Call(func=ast.Name(id="range" | "trange"), args=[ast.Constant(value=int(rounds))]):
            return rounds
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(first)), ast.Constant(value=int(last))]):
            return max(last - first, 0)
    return None


def runs_one_of(flow: Flow, loop: Loop, call: ast.Call) -> bool:
    """Whether a call runs what a loop goes over, or an item by its variable: `for layer in layers: x = layer(x)`."""
    parts = (part for part in walk(call.func) if isinstance(part, ast.Name))
    return any(d.kind == "for" and d.block.loop is loop for part in parts for d in flow.reaching.get(part, ()))


def loop_of_act(flow: Flow, call: ast.Call) -> Loop | None:
    """The innermost loop around a call that may train, but for one over optimizers: `for one in optimizers: one.step()`."""
    loop = statement_loop(flow, call)
    while loop is not None and _goes_over_optimizers(loop) and runs_one_of(flow, loop, call):
        loop = _repeated(loop.parent)
    return loop


def calls_outside_of_loops(flow: Flow) -> list[ast.Call]:
    """The calls of a function that stand in no loop, and whose function no loop of it calls, too.

    Beside a loop that trains, none that is made instead of it: `if args.profile_only: return profile_one_step(model)`.
    """
    again = {call.func.id for call in flow.calls if isinstance(call.func, ast.Name) and loop_of_act(flow, call)}
    once = [call for call in flow.calls if path_of(call.func) not in again and loop_of_act(flow, call) is None]
    if any(loop_of_act(flow, call) for call in flow.calls_named.get("backward", ())):
        return [call for call in once if not _is_returned_early(flow, call)]
    return once


def _is_returned_early(flow: Flow, call: ast.Call) -> bool:
    """`if ...: return f(x)`."""
    statement = flow.statement(call)
    return isinstance(statement, ast.Return) and flow.block[call].kind == "then"


def _goes_over_optimizers(loop: Loop) -> bool:
    return loop.iterated is not None and _OPTIMIZERS.search(ast.unparse(loop.iterated)) is not None


_OPTIMIZERS = made(r"optim|(?<![a-z])opts?(?![a-z])", re.I)


def goes_over_chunks(flow: Flow, loop: Loop) -> bool:
    """`for i in range(0, len(x), size): ... x[i:i + size]`: batches by hand."""
    match loop.iterated:
        case ast.Call(func=ast.Name(id="range" | "trange"), args=[_, _, step]) if not isinstance(
            step, (ast.Constant, ast.UnaryOp)
        ):
            variable = getattr(loop.statement, "target", None)
            return isinstance(variable, ast.Name) and any(
                isinstance(parent := flow.parent.get(mention), ast.Slice) and parent.lower is mention
                for mention in flow.mentions.get(variable.id, ())
                if flow.loop(mention) is loop
            )
    return False


def goes_over_few(node: ast.expr | None) -> bool:
    """Whether a loop goes over few things: those written out, a dict's, columns of `zip(*rows)`, a network's layers."""
    match node:
        case ast.Call(func=ast.Name(id="zip"), args=[ast.Starred()]):
            return True
        case ast.Call(func=ast.Attribute(attr="items" | "values" | "keys"), args=[]):
            return True
        case ast.Call(func=ast.Name(id="range"), args=[ast.Name(id=name) | ast.Attribute(attr=name)]):
            return _NUMBER_OF_PARTS.fullmatch(name) is not None
    return _is_display(node)


_NUMBER_OF_PARTS = made(r"_?(?:n|num|number_of)_?(?:layers|levels|stages|scales|heads|blocks)", re.I)


def _is_display(node: ast.expr | None) -> bool:
    """Whether an expression is a literal tuple, list, set or dict, or an `enumerate` or `zip` of one."""
    match node:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return not any(isinstance(part, ast.Starred) for part in parts)
        case ast.Dict(keys=keys):
            return None not in keys
        case ast.Call(func=ast.Attribute(value=ast.Dict() as inner, attr="items" | "keys" | "values")):
            return _is_display(inner)
        case ast.Call(func=ast.Name(id="enumerate" | "reversed" | "sorted" | "zip"), args=args):
            return any(_is_display(argument) for argument in args)
    return False


_BATCH_SOURCE = made(r"load|iter|data|batch|dl\b|train|val|test|stream|queue|gen|prefetch|bar\b|set\b", re.I)


def may_give_batches(flow: Flow, node: ast.expr, depth: int = 3) -> bool:
    """Whether what a loop iterates over may be a data loader, by the look of it."""
    match node:
        case ast.Name(id=name):
            if _BATCH_SOURCE.search(name):
                return True
            bound = flow.reaching.get(node, frozenset())
            return depth > 0 and any(
                d.kind in ("with", "for", "walrus", "assign", "import")
                and (d.value is None or d.kind == "for" or may_give_batches(flow, d.value, depth - 1))
                for d in bound
            )
        case ast.Attribute(attr=name):
            return _BATCH_SOURCE.search(name) is not None
        case ast.Call(func=ast.Name(id="range" | "trange" | "reversed" | "sorted" | "len" | "count")):
            return False
        case ast.Call(func=ast.Attribute(attr="items" | "keys" | "values" | "split" | "glob" | "parameters" | "modules")):
            return False
        case ast.Call(func=func, args=args):
            return any(may_give_batches(flow, a, depth) for a in args) or _BATCH_SOURCE.search(path_of(func) or "") is not None
        case ast.Subscript(value=base):
            return may_give_batches(flow, base, depth)
    return False


def holds_batch(element: Value) -> bool:
    """Whether what a loop goes over gives batches."""
    return element.may_be(Batch) or element.may(
        lambda a: isinstance(a, Sequence) and any(item.may_be(Batch) for item in a.items)
    )


def iterating_loop(flow: Flow, call: ast.Call) -> Loop | None:
    """The loop that goes over what a call gives: `for i, batch in enumerate(call(...))`."""
    for loop in flow.loops:
        inner = loop.iterated if loop.statement is not None else None
        while isinstance(inner, ast.Call) and inner is not call and inner.args and (last_name(inner.func) in _WRAPPERS):
            inner = inner.args[0]
        if inner is call:
            return loop
    return None


_WRAPPERS = words("enumerate tqdm track trange islice progress_bar")


def ends_soon(loop: ast.For) -> bool:
    """Whether a loop ends in its first round, or behind a small number of rounds that is written: `if i == 3: break`."""
    if isinstance(loop.body[-1], (ast.Break, ast.Return)) or any(map(_is_small_slice, walk(loop.iter))):
        return True
    counters = set[str]()
    match loop.target:
        case ast.Tuple(elts=[ast.Name(id=number), *_]) if _is_numbered(loop):
            counters.add(number)
    for statement in loop.body:
        match statement:
            case ast.AugAssign(target=ast.Name(id=count), value=ast.Constant(value=1)):
                counters.add(count)
    return any(_leaves_soon(statement, counters) for statement in loop.body)


def _is_small_slice(node: ast.AST) -> bool:
    """`islice(batches, 3)`."""
    match node:
        case ast.Call(args=[_, ast.Constant(value=int(number))]):
            return last_name(node.func) == "islice" and number <= _FEW_ROUNDS
    return False


def _is_numbered(loop: ast.For) -> bool:
    return any(isinstance(n, ast.Call) and last_name(n.func) == "enumerate" for n in walk(loop.iter))


def _leaves_soon(statement: ast.stmt, counters: Container[str]) -> bool:
    match statement:
        case ast.If(
            test=ast.Compare(
                left=ast.Name(id=name), ops=[ast.Eq() | ast.Gt() | ast.GtE()], comparators=[ast.Constant(value=int(number))]
            )
        ):
            return name in counters and number <= _FEW_ROUNDS and isinstance(statement.body[-1], (ast.Break, ast.Return))
    return False


def only_shows(loop: ast.For) -> bool:
    """Whether a loop does nothing but print or draw what it is given."""
    inside = [node for statement in loop.body for node in walk(statement)]
    calls = {last_name(node.func) for node in inside if isinstance(node, ast.Call)}
    statements = (node for node in inside if isinstance(node, ast.stmt))
    return bool(calls & _SHOWS) and calls <= _SHOWS | _LOOKS and all(map(_keeps_nothing, statements))


def _keeps_nothing(statement: ast.stmt) -> bool:
    """Whether a statement makes nothing but names, for what others show: no total, no entry of a dict."""
    match statement:
        case ast.AugAssign(value=ast.Constant()) | ast.Assign(targets=[ast.Name() | ast.Tuple()]):
            return True
    return isinstance(statement, (ast.Expr, ast.If, ast.For, ast.Assert, ast.Pass, ast.Break, ast.Continue))
