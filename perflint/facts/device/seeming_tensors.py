"""What is hardly anything but a tensor, though nothing is known of where it comes from."""

from __future__ import annotations

import ast
from typing import Final

from perflint.facts.dataflow.flow import Flow
from perflint.source.words import words

REDUCTIONS: Final = words("sum mean min max norm amin amax")


def is_differentiated_in(flow: Flow, node: ast.expr) -> bool:
    """Whether the same function starts a backward pass at a value, `loss.backward()`: hardly anything but a tensor can."""
    bound = flow.reaching.get(node, frozenset()) if isinstance(node, ast.Name) else frozenset()
    starts = (call.func.value for call in flow.calls_named["backward"] if isinstance(call.func, ast.Attribute))
    return bool(bound) and any(flow.reaching.get(start) == bound for start in starts)


def is_reduced_gradient(node: ast.expr) -> bool:
    """`p.grad.norm()`, `p.grad.data.norm(2)`: hardly anything but a parameter has a `grad`."""
    match node:
        case ast.Call(func=ast.Attribute(value=reduced, attr=name)) if name in REDUCTIONS:
            inner = reduced.value if isinstance(reduced, ast.Attribute) and reduced.attr == "data" else reduced
            return isinstance(inner, ast.Attribute) and inner.attr == "grad"
    return False
