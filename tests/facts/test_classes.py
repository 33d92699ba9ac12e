"""Ancestors, subclasses, methods and what counts as a module."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.values import classes
from perflint.facts.values.heirs import subclasses

FILES = {"base.py": "from torch import nn\nclass Base(nn.Module):\n    def f(self): pass\nclass Plain: pass\n"}
TEXT = """
from base import Base, Plain
import torch.nn as nn
class A(Base):
    def g(self): pass
class B(A, Mixin):
    f = None
    x: int = 3
class C(Plain): pass
class Loop(Loop): pass
class Early:
    def h(self): pass
class Left(Early): pass
class Right(Early):
    def h(self): pass
class Diamond(Left, Right): pass
class Late:
    def f(self): pass
class Last(A, Late): pass
class Generic(Base[int]):
    def __init__(self):
        self.layer = nn.Linear(2, 2)
        self.child = A()
"""


def test_ancestors_across_files() -> None:
    program = Program(TEXT, FILES)
    found = classes.ancestors(program.facts.inference, program.cls("B"))
    assert [a if isinstance(a, str) else a.name for a in found] == ["B", "A", "Base", "torch.nn.Module", "Mixin"]
    assert len(classes.ancestors(program.facts.inference, program.cls("Loop"))) < 20


def test_modules() -> None:
    program = Program(TEXT, FILES)
    answers = {
        name: classes.is_module(program.facts.inference, program.cls(name)) for name in ("A", "B", "C", "Loop", "Generic")
    }
    assert answers == {"A": True, "B": True, "C": False, "Loop": False, "Generic": True}


def test_methods() -> None:
    program = Program(TEXT, FILES)
    inference = program.facts.inference

    def method(cls: str, name: str) -> str | None:
        found = classes.find_method(inference, program.cls(cls), name)
        return found.qualname if found is not None else None

    assert (method("Diamond", "h"), method("Last", "f")) == ("Right.h", "Base.f")
    assert (method("A", "f"), method("B", "g"), method("B", "f"), method("C", "f")) == ("Base.f", "A.g", None, None)


def test_subclasses_across_files() -> None:
    program = Program(TEXT, FILES)
    found = subclasses(program.facts.inference, program.cls("Base", "base.py"))
    assert [cls.name for cls in found] == ["A", "B", "Last", "Generic"]


@pytest.mark.parametrize("name", ["Dataset", "ABC", "Module", "Net"])
def test_a_class_of_the_project_may_have_the_name_of_a_well_known_one(name: str) -> None:
    files = {
        "base.py": f"class {name}:\n    def f(self): pass\n",
        "more.py": f"from base import {name} as Dataset\nclass Second(Dataset): pass\n",
    }
    program = Program(f"from base import {name}\nclass First({name}): pass\n", files)
    found = subclasses(program.facts.inference, program.cls(name, "base.py"))
    assert found is not None
    assert sorted(cls.name for cls in found) == ["First", "Second"]
