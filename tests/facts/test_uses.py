"""Every way that a value can go through code."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.uses import FIELDS, NO_VALUES

KINDS = [
    kind
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and kind.__module__ in ("ast", "_ast")
]
"""The classes of nodes of the Python that runs this."""


def test_each_field_of_each_node_is_listed() -> None:
    listed = [*NO_VALUES, *(field for fields in FIELDS.values() for field in fields)]
    present = {f"{kind.__name__}.{field}" for kind in KINDS for field in kind._fields if not issubclass(kind, ast.Constant)}
    assert not {field for field in present if not field.startswith("Constant.")} - {*listed}
    assert len(listed) == len({*listed})
