"""What lists hold."""

from __future__ import annotations

import ast

import pytest
from ask import Program

from perflint.facts.values.contents import items_of

LISTS = {
    "a display": ("rows = [a, b]", ["a", "b"]),
    "a comprehension": ("rows = [f(x) for x in y]", ["f(x)"]),
    "appended": ("rows = []\n    for x in y: rows.append(f(x))", ["f(x)"]),
    "inserted": ("rows = list()\n    rows.insert(0, a)\n    print(rows)", ["a"]),
    "begun and appended": ("rows = [a]\n    rows.append(b)", ["a", "b"]),
    "extended": ("rows = [a]\n    rows.extend(b)", []),
    "under another name": ("rows = [a]\n    others = rows", []),
    "unpacked": ("rows = [*a]", []),
    "given": ("rows = a", []),
    "empty": ("rows = []", []),
    "filled by a function inside": ("rows = [a]\n    def g(): rows.append(b)", []),
    "added to": ("rows = [a]\n    rows += [b]", []),
    "an item of another": ("for rows in [a, b]: pass", []),
    "kept elsewhere, too": ("y.rows = rows = [a]", []),
    "an item replaced": ("rows = [a]\n    rows[0] = b", ["a", "b"]),
    "an item looked at": ("rows = [a]\n    print(rows[0])", ["a"]),
    "one of two": ("rows = [a]\n    if a: rows = b", []),
}


@pytest.mark.parametrize("name", LISTS)
def test_items(name: str) -> None:
    text, expected = LISTS[name]
    program = Program(f"def f(a, b, y):\n    {text}\n    rows  #?\n")
    scope, node = program.at()
    assert [ast.unparse(item) for item in items_of(scope, node)] == expected
