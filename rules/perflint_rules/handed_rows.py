"""Rows of a tensor that a loop gives to functions which read their numbers one by one: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Code,
    Edit,
    Finding,
    Import,
    Kind,
    Literal,
    Loop,
    Number,
    Obligation,
    Severity,
    free_name,
    insert_before,
    loop_without_effect,
    parameter_of,
    path_of,
    replace,
)
from perflint_rules.element_reads import may_be_no_tensor
from perflint_rules.indexed_reads import is_read_each_time, loop_over, unproven_of_loop
from perflint_rules.loader_use import draws

_SHAPES = frozenset(("shape", "ndim", "dtype"))
_SIZES = frozenset(("dim", "numel"))
_NUMBERS = frozenset(("item", "tolist"))
_CHOICES = frozenset(("argmax", "argmin"))
"""What gives the first of several numbers that are alike, on every device."""


def handed_rows(code: Code) -> Iterator[Finding]:
    """The calls in a loop over `i` that get `t[i]`, and read numbers of it."""
    found: dict[Loop, dict[ast.Subscript, list[ast.Call]]] = {}
    for call in code.flow.calls:
        for row in (*call.args, *(k.value for k in call.keywords)):
            if not isinstance(row, ast.Subscript) or not isinstance(row.slice, ast.Name) or path_of(row.value) is None:
                continue
            loop = loop_over(code, row.slice)
            if loop is not None and code.may_be_on_device(row.value) and is_read_each_time(code, call, loop):
                if reads := _reads_of(code, call, row):
                    found.setdefault(loop, {})[row] = reads
    for loop, rows in found.items():
        missing, fix = list[Obligation | None](), None
        if code.offers_runtime:
            missing = [*_unproven(code, loop, [read for reads in rows.values() for read in reads])]
            fix = code.fix("let the runtime copy all rows at once", _copied(code, loop, [*rows]), unless=missing)
        names = ", ".join(dict.fromkeys(f"`{ast.unparse(row.value)}`" for row in rows))
        message = f"a function reads each row of {names} from the device by itself; copy them to the host before the loop"
        first = next(iter(rows))
        unknown = all(may_be_no_tensor(code, reads, row.value) for row, reads in rows.items())
        little = draws(code, first) or unknown
        yield code.finding(first, message, fix, missing, severity=Severity.INFO if little else None)


def _reads_of(code: Code, call: ast.Call, row: ast.Subscript) -> list[ast.Call]:
    """Where the one function of the project that gets a row reads its numbers; nothing if it does more with it."""
    targets = code.facts.loops.targets(code.scope, call)
    name = parameter_of(targets[0], call, row) if len(targets) == 1 else None
    if name is None or code.facts.loops.may_run_others(code.scope, call):
        return []
    within = code.at(targets[0])
    flow = within.flow
    if name in flow.inner_names | flow.outer_names or len(flow.definitions_of(name)) != 1:
        return []
    found: list[ast.Call] = []
    for use in flow.mentions[name]:
        reads = _read_at(within, use)
        if not reads and not _is_size(within, use):
            return []
        found += reads
    return found


def _is_size(code: Code, use: ast.expr) -> bool:
    """Whether a function only asks how long a row is."""
    match code.flow.parent.get(use):
        case ast.Attribute(attr=attr) as asked:
            return attr in _SHAPES or (attr in _SIZES and _called(code, asked) is not None)
        case ast.Call(func=ast.Name(id="len"), args=[_], keywords=[]):
            return code.means_builtin("len")
    return False


def _read_at(code: Code, use: ast.expr) -> list[ast.Call]:
    """The calls by which a function reads numbers of a row and does nothing else with it."""
    node, parent, found = use, code.flow.parent.get(use), list[ast.Call]()
    match parent:
        case ast.Call(func=ast.Name() as func, args=[_], keywords=[]) if code.is_external(func, "perflint_runtime.TensorItems"):
            return [parent]
        case ast.Attribute(attr=attr) if attr in _CHOICES and (choice := _called(code, parent)) is not None:
            node, found = choice, [choice]
        case ast.Subscript(value=value, slice=index) if value is use and _is_number(code, index):
            node = parent
    method = code.flow.parent.get(node)
    read = _called(code, method) if isinstance(method, ast.Attribute) and method.attr in _NUMBERS else None
    return [*found, read] if read is not None else []


def _called(code: Code, method: ast.Attribute) -> ast.Call | None:
    """The call of a method without arguments."""
    match code.flow.parent.get(method):
        case ast.Call(func=func, args=[], keywords=[]) as call if func is method:
            return call
    return None


def _is_number(code: Code, index: ast.expr) -> bool:
    """Whether an index is a Python number: a tensor on the device is none for rows on the host."""
    if isinstance(index, ast.Name) and loop_over(code, index) is not None:
        return True
    return code.value(index).must_be(Number, Literal)


def _unproven(code: Code, loop: Loop, reads: list[ast.Call]) -> Iterator[Obligation | None]:
    """What `TensorRows` cannot look at when the program runs: what else the loop does."""
    if not isinstance(loop.statement, ast.For):
        yield Obligation(Kind.CONTROL_FLOW, "the loop is no `for` statement")
        return
    yield loop_without_effect(code.facts, code.scope, loop.statement, reads)
    yield from unproven_of_loop(code, loop)


def _copied(code: Code, loop: Loop, rows: list[ast.Subscript]) -> Iterator[Edit | Import]:
    name = free_name(code.scope, "host_rows")
    if name is None or loop.statement is None:
        raise CannotRewrite("there is no name for the rows")
    if any("#" in code.text(row) for row in rows):
        raise CannotRewrite("a comment would be lost")
    yield Import("perflint_runtime", "TensorRows")
    yield insert_before(code.source, loop.statement, f"{name} = TensorRows()")
    for row in rows:
        yield replace(code.source, row, f"{name}[{code.text(row.value)}, {code.text(row.slice)}]")
