"""Copies from the host into a tensor that is kept on the device: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import Code, Finding, Road, any_layout

COPIES = any_layout(rb"resize(?:_as)?_ \((?:[^()]|\([^()]*\))*\) \. copy_ \(")
"""`kept.resize_(x.size()).copy_(x)`, in a text."""


def copies_into_place(code: Code) -> Iterator[Finding]:
    """`kept.resize_(x.size()).copy_(x)`, where `x` is on the host and `kept` on the device."""
    if not code.flow.calls_named["copy_"]:
        return
    for wait in code.waits(Road.UPLOAD, at=lambda node: isinstance(node, ast.Call) and _is_copy(node)):
        message = "the CPU waits for this copy to the device; pass `non_blocking=True`, and pin what is copied"
        yield code.finding(wait.node, message, waits=[wait.node])


def _is_copy(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "copy_"
