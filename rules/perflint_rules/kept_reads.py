"""Rewrites that keep a read's tensor on the device until somebody looks at what the step has made of it: no rule by itself."""

import ast

from perflint.api import (
    Code,
    HostRead,
    ReadKind,
    Tensor,
    path_of,
)
from perflint_rules.kept_item_sums import GuardedTotal
from perflint_rules.kept_lists import Listed
from perflint_rules.kept_locals import Kept
from perflint_rules.kept_names import Named
from perflint_rules.kept_totals import Total


def kept(code: Code, read: HostRead) -> "Kept | None":
    """The local that takes the read, where it is one that can keep device values."""
    loop = code.step_loop(read.node)
    if loop is None or loop.statement is None or not _is_item(code, read):
        return None
    found = Total.find(code, read, loop, read.node)
    if code.options.runtime and (found is None or any(found.missing())):
        guarded = GuardedTotal.find(code, read, loop, read.node)
        if guarded is not None and not any(guarded.missing()):
            return guarded
    return found or Listed.find(code, read, loop, read.node) or Named.find(code, read, loop)


def _is_item(code: Code, read: HostRead) -> bool:
    """Whether a read gives what `.item()` gives."""
    if read.kind is not ReadKind.CONVERSION:
        return read.kind is ReadKind.ITEM
    floating = code.value(read.tensor).must(lambda a: isinstance(a, Tensor) and "float" in a.dtype)
    return floating and isinstance(read.node, ast.Call) and path_of(read.node.func) == "float"
