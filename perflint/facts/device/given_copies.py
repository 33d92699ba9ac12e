"""Copies of what a helper is given, for which the host waits if the caller's batch is in host memory: `to_cuda(batch)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.device.uploads import comes_from_host, is_blocking, is_on_host, target_of, without_cuda
from perflint.facts.device.waits import HostWait
from perflint.facts.facts import Facts
from perflint.facts.operations.operations import Road
from perflint.facts.values.bound_arguments import given
from perflint.facts.values.values import Place
from perflint.source.syntax import Scope


def copies_of_given(facts: Facts, scope: Scope, call: ast.Call, target: Scope) -> Iterator[HostWait]:
    """The copies in the function `target` of what a call in `scope` gives it, where that comes from the host.

    Those that are waits for every caller are left out: they are among `Waits.of`.
    """
    flow = flow_of(target)
    for copy in (*flow.calls_named["to"], *flow.calls_named["cuda"]):
        name = _parameter(target, copy)
        passed = given(target, call, name) if name is not None else None
        if passed is None or facts.waits.at(target, copy) or not is_blocking(copy) or without_cuda(target, copy):
            continue
        place = target_of(facts.inference, target, copy)
        if place is None or place is Place.HOST:
            continue
        value = facts.inference.value(scope, passed)
        if is_on_host(value) or (value.alternatives and comes_from_host(facts.inference, facts.loops, scope, passed)):
            yield HostWait(copy, Road.UPLOAD)


def _parameter(target: Scope, copy: ast.Call) -> str | None:
    """The parameter that is copied."""
    receiver = copy.func.value if isinstance(copy.func, ast.Attribute) else None
    bound = flow_of(target).reaching.get(receiver, frozenset()) if isinstance(receiver, ast.Name) else frozenset()
    return receiver.id if isinstance(receiver, ast.Name) and bound and all(d.kind == "parameter" for d in bound) else None
