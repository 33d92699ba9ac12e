"""Which waits of a step are its last: only those show in its time. No rule by itself."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from perflint.api import Code, Finding, Severity, is_seldom
from perflint_rules.read_once import is_taken


def last_of_step(code: Code, found: Sequence[Finding]) -> Iterator[Finding]:
    """Findings about a scope's reads, as of little worth where the step that they are of reads more, which stays.

    What stays is what no finding has a fix for that needs no look. What one statement reads is one change.
    """
    nodes = {code.span(read.node)[0]: read.node for read in (*code.reads(), *code.truths())}
    taken = {wait for finding in found if is_taken(finding.fix) for wait in finding.waits}
    staying = [node for start, node in nodes.items() if start not in taken and _is_of_each_step(code, node)]
    for finding in found:
        own = [nodes[start] for start in (finding.start, *finding.waits) if start in nodes]
        yield replace(finding, severity=Severity.INFO) if _is_beside(code, own, staying) else finding


def _is_of_each_step(code: Code, node: ast.expr) -> bool:
    return code.is_hot(node) and not is_seldom(code.flow, node, code.around(node))


def _is_beside(code: Code, own: Sequence[ast.expr], others: Sequence[ast.expr]) -> bool:
    """Whether each step that makes one of some reads makes one of others, too, by another statement."""
    flow, statements = code.flow, {code.flow.statement(node) for node in own}
    further = [other for other in others if flow.statement(other) not in statements]
    return any(
        code.step_loop(node) is code.step_loop(other) and flow.block[other] in flow.block[node].ancestry()
        for node in own
        for other in further
    )
