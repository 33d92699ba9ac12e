"""Code that nobody runs."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.training.unused import is_unused
from perflint.source.texts import may_use

LOSSES = """
class Used:
    def forward(self, x):
        return x

class Left:
    def forward(self, x):
        return x

def helper(x):
    return x

def left(x):
    return x

@register
class Registered:
    def forward(self, x):
        return x
"""


def unused(main: str, name: str = "losses.py") -> set[str]:
    """The functions of a file that nobody runs."""
    program = Program(main, {name: LOSSES})
    return {scope.qualname for scope in program.module(name).functions() if is_unused(program.facts, scope)}


NAMED = "from losses import Used, helper\nprint(Used(), helper(1))"


def test_what_nobody_names_is_unused() -> None:
    assert unused(NAMED) == {"Left.forward", "left"}


@pytest.mark.parametrize(
    "main",
    [
        "import losses, sys\nprint(getattr(losses, sys.argv[1]))",
        "import losses\nprint(losses.__dict__[input()])",
        "from losses import *\nprint(eval(input()))",
        "import losses as zoo, sys\nprint(zoo.__dict__[sys.argv[1]])",
        "print('nobody imports it')",
    ],
)
def test_what_may_be_found_by_a_name_that_is_not_written_may_be_used(main: str) -> None:
    assert unused(main) == set()


def test_a_class_may_be_imported_by_its_name() -> None:
    assert unused(f"import importlib\n{NAMED}\nimportlib.import_module(input())") == {"left"}


def test_what_a_package_hands_on_may_be_found_by_its_name() -> None:
    files = {"models/__init__.py": "from .losses import *\n", "models/losses.py": LOSSES}
    program = Program("import sys, models\nprint(models.__dict__[sys.argv[1]]())", files)
    assert not any(is_unused(program.facts, scope) for scope in program.module("models/losses.py").functions())


def test_a_lambda_of_a_module_is_no_function_that_has_a_name() -> None:
    program = Program("import losses\nlosses.read(1)", {"losses.py": "read = lambda x: [y.item() for y in x]"})
    scopes = [scope for scope in program.scopes() if scope.module is program.module("losses.py")]
    assert len(scopes) > 1
    assert not any(is_unused(program.facts, scope) for scope in scopes)


@pytest.mark.parametrize("name", ["losses_old.py", "backup/losses.py", "losses copy.py", "deprecated/losses.py"])
def test_files_that_are_kept_are_unused(name: str) -> None:
    assert "Used.forward" in unused(NAMED, name)


@pytest.mark.parametrize("name", ["copy_task.py", "threshold.py", "older.py", "archiver.py"])
def test_names_that_only_look_like_it(name: str) -> None:
    assert unused(NAMED, name) == set()


def test_a_longer_name_is_another() -> None:
    assert unused("from losses import Used, helper\nleft_over = Used(), helper(1)\n") == {"Left.forward", "left"}


def test_what_others_import_and_leave_is_unused() -> None:
    assert unused("from losses import (\n    Used, helper,\n    left,\n)\nprint(Used(), helper(1))") == {"Left.forward", "left"}


def test_what_is_imported_under_another_name_is_used() -> None:
    assert unused("from losses import Used, helper, left as chosen\nprint(Used(), helper(1), chosen)") == {"Left.forward"}


def test_what_tests_alone_use_is_unused() -> None:
    program = Program(NAMED, {"losses.py": LOSSES, "tests/test_left.py": "from losses import left\nleft(1)"})
    found = {scope.qualname for scope in program.module("losses.py").functions() if is_unused(program.facts, scope)}
    assert found == {"Left.forward", "left"}


TRAINER = """
class Trainer:
    def run(self):
        self.step()

    def step(self):
        pass

    def left(self):
        pass

class Callback(Library):
    def on_end(self):
        pass
"""


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        ("Trainer().run()", {"Trainer.left"}),
        ("Trainer().left()", {"Trainer.run"}),
        ("x = Trainer(); getattr(x, input())()", set()),
        ("x = Trainer(); getattr(x, 'left')()", {"Trainer.run"}),
    ],
)
def test_a_method_that_nobody_asks_an_object_for_is_unused(main: str, expected: set[str]) -> None:
    program = Program(f"from lib import Library\n{TRAINER}\nif __name__ == '__main__':\n    print(Callback())\n    {main}\n")
    assert {scope.qualname for scope in program.module().functions() if is_unused(program.facts, scope)} == expected


SCRIPT = "def left():\n    pass\n\ndef used():\n    pass\n\nif __name__ == '__main__':\n    used()\n"


@pytest.mark.parametrize(
    ("more", "expected"),
    [("", {"left"}), ("# left()\n", {"left"}), ("other = left\n", set()), ("globals()['left']()\n", set())],
)
def test_a_function_of_a_script_that_the_script_leaves_is_unused(more: str, expected: set[str]) -> None:
    program = Program(SCRIPT + more)
    assert {scope.qualname for scope in program.module().functions() if is_unused(program.facts, scope)} == expected


def test_what_is_looked_up_in_another_module_is_not_looked_up_here() -> None:
    looked_up = "import models\nprint(models.__dict__[input()])"
    assert unused(f"from losses import Used, helper\nprint(Used(), helper(1))\n{looked_up}") == {"Left.forward", "left"}


PROGRAM = "from losses import Used\n\nif __name__ == '__main__':\n    Used()\n"
ALONE = "import torch\n\nLIMIT = 3\n\ndef metric(x):\n    return helper(x)\n\ndef helper(x):\n    return x.item()\n"


@pytest.mark.parametrize(
    ("main", "alone", "expected"),
    [
        (PROGRAM, ALONE, {"metric", "helper"}),
        (f"from metrics import metric\n{PROGRAM}    metric(1)\n", ALONE, set()),
        (PROGRAM, ALONE + "print(metric(3))\n", set()),
        ("from losses import Used\nUsed()\n", ALONE, set()),
        ("import importlib\nimportlib.import_module(input())\n" + PROGRAM, ALONE, set()),
        ("if __name__ == '__main__':\n    print(1)\n", ALONE, set()),
    ],
    ids=["nobody", "imported", "runs", "no-script", "by-name", "no-program"],
)
def test_a_file_of_definitions_that_no_file_of_a_program_imports_is_unused(main: str, alone: str, expected: set[str]) -> None:
    program = Program(main, {"losses.py": LOSSES, "metrics.py": alone})
    found = {scope.qualname for scope in program.module("metrics.py").functions() if is_unused(program.facts, scope)}
    assert found == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"from losses import left\n", False),
        (b"from losses import left\nleft(1)\n", True),
        (b"from losses import left as l\n", True),
        (b"from others import right as left\nleft(1)\n", False),
        (b"from losses import *\nleft(1)\n", True),
        (b"import losses\nlosses.left(1)\n", True),
        (b"import losses as zoo\nzoo.left(1)\n", True),
        (b"import losses\nself.left = 1\nleft = 2\n", False),
        (b"import losses\ngetattr(losses, 'left')\n", True),
        (b"# left\nimport losses\n", False),
        (b"from losses import used, \\\n    left\nleft(1)\n", True),
    ],
)
def test_a_text_uses_a_name_of_a_module_or_not(text: bytes, expected: bool) -> None:
    assert may_use(b"left", "losses", text) is expected
