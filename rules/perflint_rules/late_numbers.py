"""Numbers that are made of reads, and how they are handed over to be made later: no rule by itself."""

import ast
import copy
from collections.abc import Iterator, Mapping
from itertools import chain, count

from perflint.api import (
    CannotRewrite,
    Code,
    HostRead,
    Kind,
    Literal,
    Number,
    Obligation,
    ReadKind,
    Tensor,
    path_of,
    without_effect,
)
from perflint_rules.kept_locals import means_item
from perflint_rules.late_order import out_of_order

Reads = Mapping[ast.expr, HostRead]
_COMPUTED = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_ROWS = (ast.List, ast.Tuple, ast.Dict)
_LEAVES = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)


def number_around(code: Code, reads: Reads, node: ast.expr) -> ast.expr:
    """The largest expression around a read that is computed from reads and numbers alone."""
    while True:
        parent = code.flow.parent.get(node)
        if isinstance(parent, ast.Call) and not _rounds(code, parent):
            return node
        if not isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.Call)) or not is_late_number(code, reads, parent):
            return node
        node = parent


def row_around(code: Code, reads: Reads, node: ast.expr) -> ast.expr | None:
    """The row of numbers that a read is part of: `[a.item(), b.item()]`, a tuple, a dict with its keys written out."""
    row = code.flow.parent.get(number_around(code, reads, node))
    return row if isinstance(row, _ROWS) and is_late_number(code, reads, row) else None


def is_late_number(code: Code, reads: Reads, node: ast.expr) -> bool:
    """Whether an expression gives a number, or a row of them, that can be made of single numbers when they have been read."""
    return _leaves(code, reads, node) is not None


def as_arguments(code: Code, reads: Reads, node: ast.expr) -> str:
    """What a `LateItem` is made with that gives the number of an expression.

    Each tensor is taken as it is where the plain code reads it: before anything runs that may write to it.

    Raises:
        CannotRewrite: it is another read than of a single number, or a comment would be lost.

    """
    leaves = _leaves(code, reads, node)
    if leaves is None:
        raise CannotRewrite("it is another read than of a single number")
    if node in reads:
        return _of_read(code, reads[node])
    if "#" in code.text(node):
        raise CannotRewrite("a comment would be lost")
    given, defaults, names = list[str](), list[str](), _names(leaves)
    for number, (leaf, name) in enumerate(names.items(), 1):
        if leaf in reads:
            alone = _of_read(code, reads[leaf])
            at_once = ", of=" in alone or any(_evaluated(code, reads, later) for later in leaves[number:])
            given.append(f"LateItem({alone})" if at_once else alone)
        else:
            defaults.append(f"{name}={code.text(leaf)}")
    taken = [name for leaf, name in names.items() if leaf in reads]
    return f"{', '.join(given)}, of=lambda {', '.join((*taken, *defaults))}: {_written(node, names)}"


def open_about(code: Code, reads: Reads, node: ast.expr) -> Iterator[Obligation | None]:
    """What is not proved about making a number later than its parts are evaluated."""
    leaves = _leaves(code, reads, node) or []
    for number, leaf in enumerate(leaves):
        if leaf not in reads:
            yield _evaluated(code, reads, leaf)
            yield from out_of_order(code, [leaf], _tensors(reads, leaves[number:]))
    if any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div) for part in _computing(node, leaves)):
        yield Obligation(Kind.ERRORS_ARE_BUGS, "a division by zero would be noticed later")


def read_for(code: Code, reads: Reads, node: ast.expr) -> list[ast.expr]:
    """The tensors that are read for a number."""
    return _tensors(reads, _leaves(code, reads, node) or [])


def _tensors(reads: Reads, leaves: list[ast.expr]) -> list[ast.expr]:
    return [reads[leaf].tensor for leaf in leaves if leaf in reads]


def _evaluated(code: Code, reads: Reads, leaf: ast.expr) -> Obligation | None:
    """What stands against it that evaluating a leaf does nothing but give a value."""
    return without_effect(code.facts, code.scope, reads[leaf].tensor if leaf in reads else leaf)


def _of_read(code: Code, read: HostRead) -> str:
    text = code.text(read.tensor)
    if read.kind is not ReadKind.CONVERSION or (means_item(code, read) and _has_no_graph(code, read.tensor)):
        return text
    assert isinstance(read.node, ast.Call)
    return f"{text}, of={path_of(read.node.func)}"


def _has_no_graph(code: Code, tensor: ast.expr) -> bool:
    """Whether `float` of a tensor gives no warning."""
    return code.value(tensor).must(lambda a: isinstance(a, Tensor) and a.grad is False)


def _leaves(code: Code, reads: Reads, node: ast.expr) -> list[ast.expr] | None:
    """The reads and the numbers that a number or a row is computed from, in order; None if there is anything else."""
    if not isinstance(node, _ROWS):
        return _number_leaves(code, reads, node)
    if isinstance(node, ast.Dict) and not all(isinstance(key, ast.Constant) for key in node.keys):
        return None
    return _with_read(code, reads, node.values if isinstance(node, ast.Dict) else node.elts)


def _number_leaves(code: Code, reads: Reads, node: ast.expr) -> list[ast.expr] | None:
    if node in reads:
        return [node] if _reads_number(code, reads[node]) else None
    match node:
        case ast.Constant(value=number):
            return [] if type(number) in (int, float) else None
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _with_read(code, reads, [operand])
        case ast.BinOp(op=operator) if isinstance(operator, _COMPUTED):
            return _with_read(code, reads, [node.left, node.right])
        case ast.Call(args=[rounded, _]) if _rounds(code, node):
            return _with_read(code, reads, [rounded])
    if isinstance(node, _LEAVES) and code.value(node).must(_is_number):
        return [node]
    return None


def _with_read(code: Code, reads: Reads, parts: list[ast.expr]) -> list[ast.expr] | None:
    """The leaves of some parts, in order; a part without a read is one number."""
    found = [_number_leaves(code, reads, part) for part in parts]
    return None if None in found else [leaf for leaves in found for leaf in leaves or ()]


def _reads_number(code: Code, read: HostRead) -> bool:
    if read.kind is not ReadKind.CONVERSION:
        return read.kind is ReadKind.ITEM
    match read.node:
        case ast.Call(func=ast.Name(id="float" | "int" as kind), args=[_], keywords=[]):
            return code.means_builtin(kind)
    return False


def _rounds(code: Code, call: ast.expr) -> bool:
    """`round(x, 4)`: without the digits nan would be an error."""
    match call:
        case ast.Call(func=ast.Name(id="round"), args=[_, ast.Constant(value=int())], keywords=[]):
            return code.means_builtin("round")
    return False


def _is_number(alternative: object) -> bool:
    return isinstance(alternative, Number) or (isinstance(alternative, Literal) and type(alternative.value) in (int, float))


def _computing(node: ast.expr, leaves: list[ast.expr]) -> Iterator[ast.expr]:
    """The parts of an expression above its leaves."""
    if node not in leaves:
        yield node
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _computing(child, leaves)


def _names(leaves: list[ast.expr]) -> dict[ast.expr, str]:
    """A name for each leaf."""
    free = chain("abcdefghijklmnopqrstuvwxyz", (f"x{number}" for number in count()))
    return dict(zip(leaves, free, strict=False))


def _written(node: ast.expr, names: Mapping[ast.expr, str]) -> str:
    """The text of an expression with names in the place of its leaves."""

    def renamed(part: ast.expr) -> ast.expr:
        if part in names:
            return ast.Name(names[part], ast.Load())
        written = copy.copy(part)
        for field, child in ast.iter_fields(part):
            if isinstance(child, ast.expr):
                setattr(written, field, renamed(child))
            elif isinstance(child, list):
                setattr(written, field, [renamed(c) if isinstance(c, ast.expr) else c for c in child])
        return written

    return ast.unparse(renamed(node))
