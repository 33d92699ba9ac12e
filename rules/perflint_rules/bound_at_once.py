"""Reads that are bound to names, `a = x.item()`: the first, or all one below the other. No rule by itself."""

import ast
from collections.abc import Sequence

from perflint.api import Code, HostRead, ReadKind, path_of


def bound_at_once(code: Code, group: Sequence[HostRead]) -> list[ast.Assign]:
    """The statements of which some reads are the values; none if something else stands there.

    A comment may stand behind the first: it stays.
    """
    lines: list[ast.Assign] = []
    for read in group:
        match code.flow.statement(read.node):
            case ast.Assign(targets=[ast.Name()], value=value) as line if value is read.node:
                lines.append(line)
            case _:
                return []
    siblings = [*code.flow.siblings(lines[0])]
    first = siblings.index(lines[0])
    if siblings[first : first + len(lines)] != lines or len({ast.unparse(line.targets[0]) for line in lines}) < len(lines):
        return []
    (start, after_first), (_, end) = code.span(lines[0]), code.span(lines[-1])
    text = code.source.body
    second, last = (text.find(b"\n", place) % (len(text) + 1) for place in (after_first, end))  # -1: where the text ends
    apart = b"#" in text[start:after_first] + text[second:last] or b";" in text[start:last]
    return [] if apart else lines


def bound_first(code: Code, group: Sequence[HostRead]) -> ast.Assign | None:
    """The statement of the first read, where it binds a name to nothing else, and nothing else reads its tensor."""
    first = group[0]
    again = any(ast.dump(read.tensor) == ast.dump(first.tensor) for read in group[1:])
    match code.flow.statement(first.node):
        case ast.Assign(targets=[ast.Name()], value=value) as line if value is first.node and not again:
            return line if "#" not in code.text(line) else None
    return None


def wanted_name(code: Code, read: HostRead) -> str:
    """A name for the number that a read gives: after what it is bound to, or after its tensor."""
    match code.flow.statement(read.node):
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is read.node:
            return f"{name}_item"
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str(name)))], value=value) if value is read.node:
            return f"{name}_item" if name.isidentifier() else "value_item"
    path = (path_of(read.tensor) or "value").replace(".", "_").replace("[", "_").replace("]", "").replace("'", "")
    return path + f"_{'item' if read.kind is ReadKind.ITEM else 'copy'}"
