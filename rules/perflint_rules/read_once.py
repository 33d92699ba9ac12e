"""Reads of one value in one step that one read may serve: what is not proved about it. No rule by itself."""

import ast
from collections.abc import Iterable

from perflint.api import (
    BUILT_FROM_TEXT,
    OWN_TENSORS,
    PATCHED,
    Applicability,
    Code,
    Fix,
    HostRead,
    Kind,
    Obligation,
    ReadKind,
    Tensor,
    free_name,
    is_refuted,
    is_seldom,
    path_of,
    step_definitions,
    suspends,
    unshared,
    untimed,
    untouched,
)
from perflint_rules.element_reads import read_name
from perflint_rules.indexed_reads import indexed_reads, loop_over
from perflint_rules.kept_numbers import one_object
from perflint_rules.kept_reads import can_wait
from perflint_rules.quiet_code import writes_between
from perflint_rules.repeated_reads import common_place, groups


def open_about(code: Code, reads: list[HostRead]) -> Iterable[Obligation | None]:
    """The proofs that a safe merge needs and that do not hold."""
    tensor = reads[0].tensor
    flow = code.flow
    if not isinstance(tensor, ast.Name):
        yield Obligation(
            Kind.VALUE, f"`{ast.unparse(tensor)}` is an attribute or an item, which may be another object at each access"
        )
    else:
        definitions = step_definitions(flow, *(read.tensor for read in reads))
        if not definitions:
            yield Obligation(Kind.VALUE, f"several definitions of `{tensor.id}` reach the reads")
        place = common_place(code, reads) or reads[0].node  # there the one read is made, before all else of that statement
        items = [read for read in code.reads() if read.kind is ReadKind.ITEM]
        if not writes_between(code, place, reads[-1].node, [*reads, *items]):
            words = "what is read in between may be no tensor, and `item` may write to one"
            yield Obligation(Kind.PLAIN_OBJECTS, words) if writes_between(code, place, reads[-1].node, reads) else None
        else:
            for definition in definitions:
                yield untouched(code.facts, code.scope, definition, reads[-1].node, first=place)
            yield unshared(code.facts, code.scope, tensor)
        above = [[flow.parent.get(use) for use in flow.uses[definition]] for definition in definitions]
        backwarded = all(any(isinstance(p, ast.Attribute) and p.attr == "backward" for p in parents) for parents in above)
        if not backwarded and not code.value(tensor).must(lambda a: isinstance(a, Tensor) and a.ndim == 0):
            yield _no_number(code, reads)
    if suspends(flow):
        yield Obligation(Kind.CONTROL_FLOW, "the function yields or awaits")
    if common_place(code, reads) is None:
        yield Obligation(
            Kind.CONTROL_FLOW, "no read runs on every path, so reading once would add a wait to the steps that read nothing"
        )
    yield one_object(code, [read.node for read in reads])
    between = list(flow.calls_between(reads[0].node, reads[-1].node))
    yield from code.feared(OWN_TENSORS, BUILT_FROM_TEXT, PATCHED)
    yield untimed(between)
    yield from code.needs_wait()
    if free_name(code.scope, wanted(tensor)) is None:
        yield Obligation(Kind.NAMES, "a new variable would be a global, or is visible to `locals()`")


def _no_number(code: Code, reads: list[HostRead]) -> Obligation:
    """What stands against one read of what may be no single number: `x.item()` of a tensor raises an error then."""
    text = ast.unparse(reads[0].tensor)
    if any(read.kind is not ReadKind.ITEM for read in reads):
        return Obligation(Kind.VALUE, f"`{text}` may be no single number")
    if code.value(reads[0].tensor).must_be(Tensor):
        return Obligation(Kind.ERRORS_ARE_BUGS, f"`{text}` may be no single number, and the error would be raised earlier")
    return Obligation(Kind.PLAIN_OBJECTS, f"`{text}` may be no tensor, and `item` may give something else each time")


def wanted(tensor: ast.expr) -> str:
    """A name for the number that a tensor holds."""
    return (path_of(tensor) or "value").replace(".", "_").replace("[", "_").replace("]", "").replace("'", "") + "_value"


def is_read_anyhow(code: Code, read: HostRead) -> bool:
    """Whether another read of the same value is made in each step and cannot wait: one read serves both."""
    group = next((group for group in groups(code) if read in group), [])
    if not any(other is not read and _stays(code, other) for other in group) or _stays(code, read):
        return False
    return not is_refuted([*filter(None, open_about(code, group))])


def _stays(code: Code, read: HostRead) -> bool:
    """Whether a read is made in each step, and no rewrite makes it later."""
    return not is_seldom(code.flow, read.node, code.around(read.node)) and not can_wait(code, read)


def is_read_with_others(code: Code, read: ast.expr) -> bool:
    """Whether item-in-python-loop tells of a read of an element."""
    item = read_name(read)
    if not isinstance(item, ast.Subscript) or not isinstance(item.slice, ast.Name) or loop_over(code, item.slice) is None:
        return False
    return any(code.span(read)[0] in finding.waits for finding in indexed_reads(code))


def is_taken(fix: Fix | None) -> bool:
    """Whether a fix may be applied without a look."""
    return fix is not None and fix.applicability is not Applicability.UNSAFE
