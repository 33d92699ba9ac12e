"""Reads that stand side by side in a tuple, a list or the arguments of a call, made with one wait there: no rule by itself."""

import ast
from collections.abc import Iterator, Sequence

from perflint.api import CannotRewrite, Code, Edit, HostRead, Import, Kind, Obligation
from perflint_rules.early_reads import computed_early

_HELPER = "items_together"


def side_by_side(code: Code, reads: Sequence[HostRead]) -> Iterator[list[HostRead]]:
    """The reads of different tensors that are elements one after the other: nothing runs between them but what they read."""
    known = {read.node: read for read in reads}
    for around in dict.fromkeys(code.flow.parent.get(read.node) for read in reads):
        row: list[HostRead] = []
        for element in (*_elements(around), None):
            if element is not None and element in known:
                row.append(known[element])
                continue
            if len({ast.dump(read.tensor) for read in row}) > 1:
                yield row
            row = []


def open_about_place(code: Code, row: Sequence[HostRead]) -> Iterator[Obligation]:
    """What stands against it that the tensors of a row are all computed before the first is read."""
    for read in row[1:]:
        if not isinstance(read.tensor, ast.Name):
            yield from computed_early(code, read.tensor)
            yield Obligation(Kind.ERRORS_ARE_BUGS, "an error of a later tensor would be raised before an earlier one is read")


def in_place(code: Code, row: Sequence[HostRead]) -> Iterator[Edit | Import]:
    """The edits: `f(n, *items_together(a, b))`, and without a star where a tuple holds nothing else."""
    flow, tensors = code.flow, {ast.dump(read.tensor) for read in row}
    later = (read for read in code.reads() if flow.order[read.node] > flow.order[row[-1].node])
    if any(ast.dump(read.tensor) in tensors and flow.loop(read.node) is flow.loop(row[0].node) for read in later):
        raise CannotRewrite("one of them is read again, and needs a name")
    around = flow.parent.get(row[0].node)
    (start, _), (_, end) = code.span(row[0].node), code.span(row[-1].node)
    star = "*"
    if isinstance(around, ast.Tuple):
        if len(row) == len(around.elts):
            (start, end), star = code.span(around), ""
        elif isinstance(flow.parent.get(around), ast.Subscript):
            raise CannotRewrite("an index takes no star before Python 3.11")
    if b"#" in code.source.body[start:end]:
        raise CannotRewrite("a comment would be lost")
    given = ", ".join(ast.unparse(read.tensor) if "\n" in code.text(read.tensor) else code.text(read.tensor) for read in row)
    yield Import("perflint_runtime", _HELPER)
    yield Edit(start, end, f"{star}{_HELPER}({given})")


def _elements(around: ast.AST | None) -> list[ast.expr]:
    match around:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Call(args=elements):
            return elements
    return []
