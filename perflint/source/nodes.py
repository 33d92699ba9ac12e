"""The nodes of a tree, one after the other: `ast.walk` in less than half of its time."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_HOLDS_NO_NODE = frozenset(("ctx", "id", "attr", "asname", "level", "conversion", "kind", "type_comment", "simple", "is_async"))


def walk(root: ast.AST) -> Iterator[ast.AST]:
    """A node and all nodes below it, in the order of `ast.walk`; whether a name is loaded or stored is no node here."""
    found = [root]
    for node in found:
        for name in _FIELDS[type(node)]:
            held = getattr(node, name, None)
            if isinstance(held, ast.AST):
                found.append(held)
            elif isinstance(held, list):
                found += [item for item in held if isinstance(item, ast.AST)]
        yield node


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of a kind of nodes that may hold others."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        fields = () if kind is ast.Constant else tuple(name for name in kind._fields if name not in _HOLDS_NO_NODE)
        self[kind] = fields
        return fields


_FIELDS = _Fields()
