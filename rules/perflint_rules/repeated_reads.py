"""Reads of one value in one step, and where one read could serve them all: no rule by itself."""

import ast
import string
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from perflint.api import (
    Code,
    HostRead,
    Kind,
    ReadKind,
    Tensor,
    implied,
    path_of,
    step_definitions,
    untouched,
    written_out,
)
from perflint_rules.kept_locals import means_item


def groups(code: Code) -> Iterator[list[HostRead]]:
    """Reads of the same value in the same iteration, where an early one has always run before the later ones."""
    flow = code.flow
    written = list(written_out(flow))
    items = [tensor for call, tensor in written if call in flow.calls_named["item"]]
    if not _repeats([*items, *(tensor for _, tensor in implied(flow))]):
        return
    if not _repeats([tensor for _, tensor in written]) and not code.step_loops():
        return
    by_path: defaultdict[tuple[str, frozenset[object]], list[HostRead]] = defaultdict(list)
    for read in code.reads():
        path = path_of(read.tensor)
        if path is None or read.kind not in (ReadKind.ITEM, ReadKind.FORMAT, ReadKind.CONVERSION) or not _is_number(code, read):
            continue
        if code.around(read.node) is None and not code.is_hot(read.node):
            continue
        by_path[path, flow.reaching.get(read.tensor, frozenset())].append(read)
    for (path, definitions), reads in by_path.items():
        if path.isidentifier() and not definitions:
            continue
        group = [r for r in reads if _joins(code, reads[0], r)]
        hoistable = common_place(code, reads)
        if hoistable is not None:
            group = reads
        if len(group) > 1 and not _changed(code, group):
            yield group


def _repeats(tensors: Iterable[ast.expr]) -> bool:
    """Whether some value looks as if it were read twice."""
    paths = Counter(path_of(tensor) for tensor in tensors)
    return any(path is not None and count > 1 for path, count in paths.items())


def _is_number(code: Code, read: HostRead) -> bool:
    """Whether the read gives the same Python number as `.item()` would."""
    if read.kind is not ReadKind.FORMAT:
        return means_item(code, read)
    return _is_formatted(code, read.node) and code.value(read.tensor).must(lambda a: isinstance(a, Tensor) and a.ndim == 0)


def _is_formatted(code: Code, node: ast.expr) -> bool:
    """Whether a tensor is formatted as its number: `{}` and `{:.3f}`, but not `{!r}`."""
    match code.flow.parent.get(node):
        case ast.FormattedValue():
            return True
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(template)))):
            try:
                fields = [(name, conversion) for _, name, _, conversion in string.Formatter().parse(template)]
            except ValueError:
                return False
            return all(conversion is None and (name is None or name.isalnum() or not name) for name, conversion in fields)
    return False


def _joins(code: Code, first: HostRead, other: HostRead) -> bool:
    return first is other or code.flow.dominates(first.node, other.node)


def common_place(code: Code, reads: list[HostRead]) -> ast.stmt | None:
    """The statement before which one read serves all: the top of the block in which some read always runs."""
    flow = code.flow
    first = reads[0]
    if all(_joins(code, first, r) for r in reads):
        return flow.statement(first.node)
    for sure in reads[1:]:
        block = flow.block[sure.node]
        if not all(flow.within(r.node, block) for r in reads):
            continue
        statement = flow.top(first.node, block)
        if statement is not None and not _may_leave_between(code, statement, sure.node):
            return statement
    return None


def _may_leave_between(code: Code, statement: ast.stmt, sure: ast.AST) -> bool:
    """Whether a `continue`, `break`, `return` or `raise` may keep the sure read from running."""
    low, high = code.flow.order[statement], code.flow.order[sure]
    leaving = (ast.Continue, ast.Break, ast.Return, ast.Raise, ast.Assert)
    return any(isinstance(n, leaving) and low <= code.flow.order.get(n, -1) <= high for n in code.flow.block)


def _changed(code: Code, reads: list[HostRead]) -> bool:
    """Whether the value surely differs between the reads: an in-place write stands between them."""
    tensor = reads[0].tensor
    if not isinstance(tensor, ast.Name):
        path = path_of(tensor) or ""
        low, high = code.flow.order[reads[0].node], code.flow.order[reads[-1].node]
        root = path.split(".")[0].split("[")[0]
        return any(d.name in (path, root) and low < d.order < high for d in code.flow.definitions)
    definitions = step_definitions(code.flow, *(read.tensor for read in reads))
    if not definitions:
        return True
    missing = [untouched(code.facts, code.scope, d, reads[-1].node, first=reads[0].node) for d in definitions]
    return any(obligation is not None and obligation.kind is Kind.WRITE for obligation in missing)
