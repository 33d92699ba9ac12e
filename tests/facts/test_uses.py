"""Every way that a value can go through code."""

from __future__ import annotations

import ast

import pytest

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.uses import FIELDS, NO_VALUES, Way, steps_of_name
from perflint.source.source import Source
from perflint.source.syntax import Module

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


@pytest.mark.parametrize(
    ("reader", "is_read"),
    [
        ("def f(x):\n    return x\n", False),
        ("def f():\n    return kept\n", True),
        ("def f(kept):\n    return kept\n", False),
        ("def f():\n    return globals()['kept']\n", True),
        ("def f():\n    return lambda: kept\n", True),
        ("class A:\n    y = kept\n", True),
        ("class A:\n    def f(self):\n        return self.kept_back\n", False),
    ],
)
def test_who_may_read_a_variable_of_a_module(reader: str, is_read: bool) -> None:
    text = f"{reader}\n\nkept = 1\nprint(kept)\n"  # what stands behind a function is no part of it
    flow = flow_of(Module(Source("m.py", text.encode()), "m").top)
    (definition,) = flow.definitions_of("kept")
    assert (Way.CAPTURED in {step.way for step in steps_of_name(flow, definition)}) == is_read
