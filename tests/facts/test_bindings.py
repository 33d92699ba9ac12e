"""What binds a module's variable is read off its statements where one plain statement does: the flow says the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from ask import Program
from conftest import FIXTURES

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.values.values import Value
from perflint.source.syntax import Module

FILES = sorted(FIXTURES.rglob("*.py"))

EVERY_KIND = """
import torch, os.path
import numpy as np
from a import b as c, d
from e import *
one = 1
two: int = 2
declared: int
again = 1
again = 2
chained = both = 3
left, (right, *rest) = 1, (2, 3)
table = [inner for inner in range(3)]
found = (walrus := 4)
print(printed := 5)
def function(default=(in_default := 6)): pass
def twice(): pass
class Plain(object): inside = 1
class Based((in_base := object)): pass
try:
    import tried
except ImportError as error:
    tried = None
if c:
    def conditional(): pass
for step in range(3):
    looped = step
with open(one) as handle: pass
match c:
    case {"a": captured, **others}: pass
    case [first, *more]: pass
def twice(): return 1
one.attribute = 7
deleted = 8
del deleted
added = 9
added += 1
"""


class _Unread(dict[str, None]):
    """Bindings that leave every question to the flow."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> None:
        return None


def names(module: Module) -> list[str]:
    """All names that stand in a file, and some that do not."""
    return sorted({node.id for node in ast.walk(ast.parse(module.source.body)) if isinstance(node, ast.Name)} | _bound(module))


def _bound(module: Module) -> set[str]:
    return {name for name in flow_of(module.top).defined if name.isidentifier()}


def values(program: Program, module: Module) -> Iterator[tuple[str, Value]]:
    """What each name is to somebody who asks for nothing else before."""
    inference = Facts(program.project).inference
    for name in names(module):
        yield name, inference.module_name(module, name, 3)


@pytest.mark.parametrize("path", [None, *FILES], ids=str)
def test_bindings_and_flow_agree(path: Path | None) -> None:
    text = path.read_text() if path is not None else EVERY_KIND
    program = Program(text, {"a.py": "b = 1\nclass d: pass\n", "e.py": "from a import *\nstarred = 2\n"})
    module = program.module()
    assert _bound(module) <= module.bindings.keys()
    read = dict(values(program, module))
    module.bindings = _Unread()
    assert read == dict(values(program, module))


def test_a_plain_statement_needs_no_flow() -> None:
    program = Program("from a import C, f, n", {"a.py": "n = 1\nclass C: pass\ndef f(): return 2\ntable = {0: C()}\n"})
    inference = program.facts.inference
    found = [inference.module_name(program.module(), name, 3) for name in ("C", "f", "n")]
    assert all(value.single is not None for value in found)
    assert program.module("a.py").top.flow_cache is None


@pytest.mark.parametrize("name", ["again", "tried", "inner", "walrus", "in_base", "twice", "captured", "added"])
def test_what_is_not_plain_is_left_to_the_flow(name: str) -> None:
    assert Program(EVERY_KIND).module().bindings[name] is None
