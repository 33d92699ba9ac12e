"""What code may run, through all that it calls: the one walk over calls, for questions about each function that runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.hidden import hidden_runs
from perflint.source.syntax import Scope, SyntaxProblem


def called_from(facts: Facts, *scopes: Scope, depth: int | None = 3, hidden: bool = False) -> Iterator[Scope]:
    """Functions and the functions of the project that they call, some calls deep or all the way, each once, the nearest first.

    hidden: those that run without being called, too: properties, operators, functions that are handed on.
    """
    pending: deque[tuple[Scope, int | None]] = deque((scope, depth) for scope in scopes)
    seen: set[Scope] = set()
    while pending:
        found, left = pending.popleft()
        if found in seen:
            continue
        seen.add(found)
        yield found
        if left != 0 and can_be_parsed(found):
            flow = flow_of(found)
            deeper = None if left is None else left - 1
            if hidden:
                pending.extend((function, deeper) for function in hidden_runs(facts, found, [*flow.order]))
            pending.extend((target, deeper) for call in flow.calls for target in facts.loops.targets(found, call))


def can_be_parsed(scope: Scope) -> bool:
    """Whether the text of a function is Python."""
    try:
        flow_of(scope)
    except SyntaxProblem:
        return False
    return True
