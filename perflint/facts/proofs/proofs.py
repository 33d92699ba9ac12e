"""Proofs about clocks, copies in flight and names, as functions over the facts.

Each returns None when the proof holds, and else what stands against it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope
from perflint.source.words import words

_TIMING = words(
    """
    time perf_counter monotonic process_time perf_counter_ns monotonic_ns process_time_ns time_ns thread_time now
    utcnow synchronize elapsed_time record default_timer tic toc
    """
)
_LOCALS = frozenset(("locals", "vars", "eval", "exec", "globals", "dir"))
_BY_TEXT = words("query eval evaluate sql")
"""Methods and functions of pandas, numexpr and duckdb that look for the variables that a text names in their caller."""


def untimed(calls: Iterable[ast.Call]) -> Obligation | None:
    """Whether none of the calls between two points reads a clock (D15)."""
    for call in calls:
        name = (path_of(call.func) or "").rpartition(".")[2]
        if name in _TIMING:
            return Obligation(Kind.NO_CLOCK, f"`{ast.unparse(call)}` measures time in between")
    return None


def free_name(scope: Scope, wanted: str) -> str | None:
    """A name like `wanted` that the scope can bind (D11): not used anywhere in the module; None if it inspects itself."""
    if scope.is_module:
        return None  # a new global is visible to whoever imports the module
    text = scope.module.source.body.decode()
    if inspects_itself(flow_of(scope)):
        return None
    candidates = (wanted, *(f"{wanted}_{n}" for n in range(2, 9)))
    return next((name for name in candidates if name not in text), None)


def inspects_itself(flow: Flow) -> bool:
    """Whether the function may look at its variables by name, as `locals()` does, and `vars()`, but not `vars(args)`."""
    asks = any(
        isinstance(call.func, ast.Name) and not (call.args and name in ("vars", "dir"))
        for name in _LOCALS
        for call in flow.calls_named[name]
    )
    return asks or any(_is_given_text(call, name) for name in _BY_TEXT for call in flow.calls_named[name])


def _is_given_text(call: ast.Call, name: str) -> bool:
    """Whether a call's first argument may be a text: `frame.query("loss < @best")`, but neither `model.eval()`,
    `metric.eval({"found": found})` nor `trainer.evaluate(model)`.
    """
    first = next(iter((*call.args, *(keyword.value for keyword in call.keywords))), None)
    if name in ("query", "eval"):
        return first is not None and not isinstance(first, (ast.Dict, ast.List, ast.Set, ast.Tuple))
    return isinstance(first, (ast.JoinedStr, ast.BinOp)) or (isinstance(first, ast.Constant) and isinstance(first.value, str))


def suspends(flow: Flow) -> bool:
    """Whether the function yields or awaits, so that others run in the middle of it."""
    return bool(flow.yields)
