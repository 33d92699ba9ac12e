"""Evaluations that a function makes when a flag says so: no rule by itself."""

from collections.abc import Iterator

from perflint.api import Code, Finding, brief, evaluated_by_flag


def flagged(code: Code) -> Iterator[Finding]:
    """`run_epoch(loader, train=False)`, which runs the same forward pass as a training, and records its graph."""
    found = evaluated_by_flag(code.facts, code.scope)
    if found is not None:
        forward, site = found
        there = f"line {site.node.lineno} evaluates by `{brief(site.node)}`"
        yield code.finding(forward, f"{there}, and this records a graph that nobody uses; make that call under `no_grad`")
