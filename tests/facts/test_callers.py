"""Who calls a function, whether that is all, and what its parameters are in consequence."""

from __future__ import annotations

from pathlib import Path

import pytest
from ask import Program

from perflint.facts.facts import Facts
from perflint.project.project import Project

SITES = {
    "function": ("def f(x): pass\nf(1)\nf(2)", "f", 2, True),
    "callback": ("def f(x): pass\nf(1)\ng(f)", "f", 1, False),
    "only a callback": ("def f(x): pass\ng(f)", "f", 0, False),
    "kept in a dict": ("def f(x): pass\nd = {'f': f}\nf(1)", "f", 1, False),
    "another name for it": ("def f(x): pass\ng = f\ng(1)\nf(2)", "f", 1, False),
    "another name for it by `as`": ("def f(x): pass\nwith f  as g: g(1)\nf(2)", "f", 1, False),
    "decorated by something unknown": ("@decorate\ndef f(x): pass\nf(1)", "f", 1, False),
    "decorated by no_grad": ("import torch\n@torch.no_grad()\ndef f(x): pass\nf(1)", "f", 1, True),
    "shadowed": ("def f(x): pass\ndef g(f): f(1)", "f", 0, True),
    "method": ("class A:\n    def f(self, x): pass\nA().f(1)", "A.f", 1, True),
    "method of another class": ("class A:\n    def f(self): pass\nclass B:\n    def f(self): pass\nB().f()", "A.f", 0, True),
    "inherited method": ("class A:\n    def f(self, x): pass\nclass B(A): pass\nB().f(1)", "A.f", 1, True),
    "constructor": ("class A:\n    def __init__(self, x): pass\nA(1)", "A.__init__", 1, True),
    "method of its name with other arguments": ("def f(x, y): x.f()\nf(1, 2)", "f", 1, True),
    "method of its name, too many arguments": ("def f(x): x.f(1, 2)\nf(1)", "f", 1, True),
    "method of its name, another keyword": ("def f(x): x.f(y=1)\nf(1)", "f", 1, True),
    "method of its name that may be it": ("def f(x, y): x.f(1, y=2)\nf(1, 2)", "f", 1, False),
    "method of its name with defaults": ("def f(x=1): x.f()\nf(1)", "f", 1, False),
    "method of its name, arguments not written out": ("def f(x, y): x.f(*y)\nf(1, 2)", "f", 1, False),
    "method of an unknown object": ("class A:\n    def f(self, x): pass\nA().f(1)\nunknown.f(2)", "A.f", 1, False),
    "method that takes another number": ("class A:\n    def f(self, x): pass\nA().f(1)\nunknown.f()", "A.f", 1, True),
    "method that is called on its class": ("class A:\n    def f(self, x): pass\nA().f(1)\nunknown.f(A(), 2)", "A.f", 1, False),
    "static, called on its class": ("class A:\n    @staticmethod\n    def f(x): pass\nA.f(1)", "A.f", 1, True),
    "method of a class, called on it": ("class A:\n    def f(self, x): pass\nA.f(A(), 2)", "A.f", 1, True),
    "inner function, called by its neighbour": (
        "def g():\n    def f(x): pass\n    def h(): f(1)\n    h()\n    (lambda: f(2))()", "g.<locals>.f", 2, True
    ),
    "inner function, called by a class beside it": (
        "def g():\n    def f(x): pass\n    class C:\n        def m(self): f(1)", "g.<locals>.f", 1, True
    ),
    "inner function and a parameter of its name": (
        "def g():\n    def f(x): pass\n    def h(f): f(1)\n    f(2)", "g.<locals>.f", 1, True
    ),
    "called by a class of a function": ("def f(x): pass\ndef g():\n    class C:\n        def m(self): f(1)", "f", 1, True),
    "method, called by a class of a function": (
        "class A:\n    def f(self): pass\ndef g():\n    class C:\n        def m(self): A().f()", "A.f", 1, True
    ),
    "called where a class is made": ("def f(x): pass\nclass C:\n    a = f(1)\n    def m(self): f(2)", "f", 2, True),
    "default value of a function": ("def f(x): pass\ndef g(a=f): pass\nf(1)", "f", 1, False),
    "decorator": ("def f(x): pass\n@f\ndef g(): pass\nf(1)", "f", 1, False),
    "decorator called like another": ("def override(x): pass\n@override\ndef g(): pass\noverride(1)", "override", 1, False),
    "default value of a method": ("def f(x): pass\nclass C:\n    def m(self, a=f(1)): f(2)", "f", 2, True),
    "inner function": ("def g():\n    def f(x): pass\n    f(1)\ng()", "g.<locals>.f", 1, True),
}  # fmt: skip


@pytest.mark.parametrize("name", SITES)
def test_sites(name: str) -> None:
    text, qualname, count, complete = SITES[name]
    program = Program(text)
    found = program.facts.inference.callers.sites(program.scope(qualname))
    assert (len(found.sites), found.complete) == (count, complete)


PARAMETERS = {
    "all callers": ("def f(x):\n    x  #?\nf(1)\nf(2)", "1 | 2"),
    "keyword and default": ("def f(x=3, y=4):\n    y  #?\nf(1)\nf(2, y=5)", "4 | 5"),
    "nobody": ("def f(x):\n    x  #?", "?"),
    "callback": ("def f(x):\n    x  #?\nf(1)\ng(f)", "1 | ?"),
    "a caller that is not understood": ("def f(x):\n    x  #?\nf(1)\nf(g())", "1 | ?"),
    "recursion": ("def f(x):\n    x  #?\n    f(x)\nf(1)", "1 | ?"),
    "recursion with something unknown": ("def f(x):\n    x  #?\n    f(g(x))\nf(1)", "1 | ?"),
    "annotation": ("import torch\ndef f(x: torch.Tensor):\n    x  #?", "tensor on unknown | ?"),
    "self": ("class A:\n    def f(self):\n        self  #?", "instance A"),
    "self of a subclass": ("class A:\n    def f(self):\n        self  #?\nclass B(A): pass", "instance A | instance B"),
    "cls": ("class A:\n    @classmethod\n    def f(cls):\n        cls  #?", "classref A"),
    "static, called on its class": ("class A:\n    @staticmethod\n    def f(x):\n        x  #?\nA.f(3)", "3"),
    "method, called on its class": ("class A:\n    def f(self, x):\n        x  #?\nA.f(A(), 3)", "3"),
    "classmethod, called on its class": ("class A:\n    @classmethod\n    def f(cls, x):\n        x  #?\nA.f(3)", "3"),
    "annotated with a class that declares an attribute": (
        "import torch\nclass A:\n    x: torch.Tensor\ndef f(a: A):\n    g(a.x)\ndef g(x):\n    x  #?",
        "tensor on unknown | ?",
    ),
    "annotated with a class": ("class A: pass\ndef f(x: A | None):\n    x  #?", "instance A | ?"),
    "static": ("class A:\n    @staticmethod\n    def f(x):\n        x  #?", "?"),
    "an element of what may be None": ("def f(x):\n    for a in x:\n        a  #?\nf([1])\nf(None)", "1"),
    "an element of None": ("def f(x):\n    for a in x:\n        a  #?\nf(None)", "?"),
    "an attribute of what may be None": (
        "class A:\n    def __init__(self): self.b = 1\ndef f(x):\n    x.b  #?\nf(A())\nf(None)",
        "1",
    ),
    "a method of what may be None": ("import torch\ndef f(x=None):\n    x.item()  #?\nf(torch.zeros(()))\nf()", "float"),
    "a call of what may be None": ("def g(): return 1\ndef f(x=None):\n    x()  #?\nf(g)\nf()", "1"),
    "more positional arguments": ("def f(*x):\n    x  #?\nf(1, 2)", "(1, 2)"),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    text, expected = PARAMETERS[name]
    assert Program(text).said() == expected


LIB = {"lib.py": "def f(x):\n    x  #?\n", "other.py": "import lib\nlib.f(2)\n", "unrelated.py": "def f(x): pass\nf(3)\n"}


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        ("from lib import f\nf(1)", "1 | 2"),
        ("import lib as l\nl.f(1)", "1 | 2"),
        ("from lib import f", "2"),
        ("from lib import f as g\ng(1)", "2 | ?"),
        ("from lib import f  as g\ng(1)", "2 | ?"),
        ("from lib import f as\\\n g\ng(1)", "2 | ?"),
        ("from lib import (f  # under another name\n    as g)\ng(1)", "2 | ?"),
        ("from lib import f\nh(f)", "2 | ?"),
        ("import lib\ng = lib.f\ng(1)", "2 | ?"),
    ],
)
def test_across_files(main: str, expected: str) -> None:
    assert Program(main, LIB).said() == expected


@pytest.mark.parametrize(
    ("files", "function", "complete"),
    [
        ({}, "f", True),
        ({"setup.py": "from setuptools import setup\nsetup()"}, "f", False),
        ({"pyproject.toml": "[project]\nname = 'lib'"}, "f", False),
        ({"pyproject.toml": "[tool.ruff]"}, "f", True),
        ({"setup.py": ""}, "_f", True),
    ],
)
@pytest.mark.parametrize("is_package", [True, False])
def test_what_can_be_installed_has_callers_elsewhere(
    tmp_path: Path, files: dict[str, str], function: str, complete: bool, is_package: bool
) -> None:
    module = tmp_path / "lib" / "a.py"
    module.parent.mkdir()
    module.write_text(f"def {function}(x): pass\n")
    (tmp_path / "main.py").write_text(f"from lib.a import {function}\n{function}(1)\n")
    if is_package:
        (module.parent / "__init__.py").touch()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    project = Project(str(tmp_path), [str(path) for path in tmp_path.rglob("*.py")])
    parsed = project.module(str(module))
    assert parsed is not None
    found = Facts(project).inference.callers.sites(next(parsed.functions()))
    assert len(found.sites) == 1
    assert found.complete == (complete or not is_package)


def test_a_method_that_a_class_below_overrides_is_called_where_self_is_asked_for_it() -> None:
    base = """
class Base:
    def validate(self, loader, other):
        for batch in loader:
            self.measure(batch)
            other.count(batch)
    def measure(self, batch): raise NotImplementedError
    def count(self, batch): raise NotImplementedError
"""
    program = Program(
        "from base import Base\nclass Own(Base):\n    def measure(self, batch): pass\n    def count(self, batch): pass\n",
        {"base.py": base},
    )
    callers = program.facts.inference.callers
    found = {
        name: [site.scope.qualname for site in callers.sites(program.scope(f"Own.{name}")).sites]
        for name in ("measure", "count")
    }
    assert found == {"measure": ["Base.validate"], "count": []}


NETS = {"nets/__init__.py": "from .resnet import build\n", "nets/resnet.py": "def build(n): pass\n", "empty/__init__.py": ""}
BY_NAME = {
    "import nets\nnets.build(1)\ngetattr(nets, name)(2)": False,
    "import nets\nnets.build(1)\nnets.__dict__[name](2)": False,
    "import nets\nnets.build(1)\nnets.resnet.__dict__[name](2)": False,
    "import nets\nnets.build(1)\ngiven.__dict__[name](2)": False,
    "import nets\nnets.build(1)\nfind(nets).__dict__[name](2)": False,
    "import nets, torchvision.models as models\nnets.build(1)\nmodels.__dict__[name](2)": True,
    "import nets, torchvision\nnets.build(1)\ntorchvision.models.__dict__[name](2)": True,
    "import nets, empty\nnets.build(1)\ngetattr(empty, name)(2)": True,
    "import nets\nclass A:\n    def f(self): self.__dict__[name]()\nnets.build(1)": True,
}


@pytest.mark.parametrize("text", BY_NAME)
def test_functions_that_are_taken_by_names_that_are_made_up(text: str) -> None:
    program = Program(text + "\n", NETS)
    build = next(scope for scope in program.scopes() if scope.name == "build")
    assert program.facts.inference.callers.sites(build).complete is BY_NAME[text]


@pytest.mark.parametrize("text", ["from helpers import f\nf(3)", "import helpers\nhelpers.f(3)", "from helpers import *\nf(3)"])
@pytest.mark.parametrize("helpers", ["from core import f", "from core import *"])
def test_a_function_that_another_file_hands_on_is_called_there_too(text: str, helpers: str) -> None:
    program = Program(text + "\n", {"helpers.py": helpers + "\n", "core.py": "def f(x):\n    return x\nf(1)\n"})
    function = next(scope for scope in program.scopes() if scope.name == "f")
    assert len(program.facts.inference.callers.sites(function).sites) == 2


def test_a_function_is_called_by_the_name_that_another_one_gives_it() -> None:
    program = Program("""
def fast(x): pass
def exact(x): pass
def unused(x): pass
def step(x, small):
    if small:
        run = fast
    else:
        run = exact
    run(x)
    other = exact if small else unused
    print(other)
""")
    callers = program.facts.inference.callers
    found = {name: callers.sites(program.scope(name)) for name in ("fast", "exact", "unused")}
    assert {name: [site.scope.qualname for site in sites.sites] for name, sites in found.items()} == {
        "fast": ["step"],
        "exact": ["step"],
        "unused": [],
    }
    assert not any(sites.complete for sites in found.values())
