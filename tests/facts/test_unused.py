"""Code that nobody runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from ask import ROOT, Program

from perflint.facts.facts import Facts
from perflint.facts.training.unstartable import cannot_start
from perflint.facts.training.unused import is_unused
from perflint.project.project import Project
from perflint.source.uses import RUN_ALONE, part_around, parts, uses_here, uses_of

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


ROWS = """
class Rows:
    def read(self): pass
class Cells:
    def read(self): pass
if __name__ == "__main__":
    print(Rows().read(), Cells().read())
"""


@pytest.mark.parametrize(
    ("package", "added", "expected"),
    [
        ("from .rows_new import Rows\n", "", {"Rows.read"}),
        ("from .rows_new import Rows\n", "    loss.backward()\n", set()),
        ("from .rows_new import Rows as New\n", "", set()),
        ("from .rows_new import Rows\nfrom .rows import Cells\n", "", set()),
        ("", "", set()),
    ],
    ids=["another", "trains", "renamed", "imported", "none"],
)
def test_a_class_that_its_package_has_another_one_for(package: str, added: str, expected: set[str]) -> None:
    files = {"data/__init__.py": package, "data/rows.py": ROWS + added, "data/rows_new.py": ROWS, "setup.py": "setup()\n"}
    program = Program("from data import Rows\nRows().read()\n", files)
    scopes = program.module("data/rows.py").functions()
    assert {scope.qualname for scope in scopes if is_unused(program.facts, scope)} == expected


def test_a_lambda_of_a_module_is_no_function_that_has_a_name() -> None:
    program = Program("import losses\nlosses.read(1)", {"losses.py": "read = lambda x: [y.item() for y in x]"})
    scopes = [scope for scope in program.scopes() if scope.module is program.module("losses.py")]
    assert len(scopes) > 1
    assert not any(is_unused(program.facts, scope) for scope in scopes)


@pytest.mark.parametrize(
    "name",
    ["losses_old.py", "backup/losses.py", "losses copy.py", "losses copy 2.py", "losses copy(3).py", "deprecated/losses.py"],
)
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
        ("import importlib\nimportlib.import_module(input())\n" + PROGRAM, ALONE, {"metric", "helper"}),
        ("if __name__ == '__main__':\n    print(1)\n", ALONE, set()),
    ],
    ids=["nobody", "imported", "runs", "no-script", "by-another-name", "no-program"],
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
        (b"from nets import losses\nnets = {'losses': losses}\nnets[name].left(1)\n", True),
        (b"from nets import losses\nprint(losses.used)\nnets[name].left(1)\n", False),
        (b"from losses import used, \\\n    left\nleft(1)\n", True),
    ],
)
def test_a_text_uses_a_name_of_a_module_or_not(text: bytes, expected: bool) -> None:
    assert any(True for _ in uses_of(b"left", "losses", text)) is expected


def test_a_script_that_parses_arguments_and_leaves_a_function_does_not_run_it() -> None:
    text = "import argparse\nparser = argparse.ArgumentParser()\n\ndef left():\n    pass\n\ndef used():\n    pass\n\nused()\n"
    program = Program(text)
    assert {scope.qualname for scope in program.module().functions() if is_unused(program.facts, scope)} == {"left"}


def test_what_a_file_names_that_nobody_imports_is_unused() -> None:
    wrapper = "from losses import Left\n\nclass Wrapper:\n    def __init__(self):\n        self.left = Left()\n"
    program = Program(
        "from losses import Used\n\nif __name__ == '__main__':\n    Used()\n", {"losses.py": LOSSES, "wrap.py": wrapper}
    )
    found = {scope.qualname for scope in program.module("losses.py").functions() if is_unused(program.facts, scope)}
    assert found == {"Left.forward", "helper", "left"}


CHAIN = """
class Inner:
    def forward(self, x):
        return x

class Outer:
    def __init__(self):
        self.inner = Inner()

def build():
    return Outer()
"""


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        ("from chain import build\nbuild()", set()),
        ("from chain import build\nprint('build nothing')", {"Inner.forward", "Outer.__init__", "build"}),
        ("from chain import build\n\ndef run():\n    build()\n\nrun()", set()),
        (
            "from chain import build\n\ndef run():\n    build()\n\nif __name__ == '__main__':\n    print(1)",
            {"Inner.forward", "Outer.__init__", "build"},
        ),
        ("from chain import Inner as Outer\nOuter()", {"Outer.__init__", "build"}),
    ],
    ids=["used", "imported", "through-another", "by-what-nobody-runs", "under-another-name"],
)
def test_what_only_unused_code_names_is_unused(main: str, expected: set[str]) -> None:
    program = Program(main, {"chain.py": CHAIN})
    found = {scope.qualname for scope in program.module("chain.py").functions() if is_unused(program.facts, scope)}
    assert found == expected


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("loss = Left()\n    print(loss.forward(torch.rand(3)))", {"Left.forward"}),
        ("main(parse())\n    print(Left())", set()),
    ],
    ids=["a-demo", "a-script"],
)
def test_a_file_that_shows_its_parts_when_it_is_run_is_no_program(shown: str, expected: set[str]) -> None:
    text = f"import torch\n{LOSSES.replace('@register', '')}\nif __name__ == '__main__':\n    {shown}\n"
    program = Program("from losses import Used, helper, left, Registered\nUsed(helper(left), Registered)", {"losses.py": text})
    found = {scope.qualname for scope in program.module("losses.py").functions() if is_unused(program.facts, scope)}
    assert found == expected


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ("from utils.maths import used", False),
        ("from utils.maths import left_out", True),
        ("from .utils.maths import (\n    used,\n    left_out,\n)", True),
        ("try:\n    from utils.maths import left_out\nexcept ImportError:\n    left_out = None", False),
        ("from utils.names import left_out", False),
        ("from utils.maths import *", False),
        ("from torch.utils import left_out", False),
        ("from utils.gone import used", True),
        ("from utils.maths_cuda import used", False),
        ("from plotly.gone import used", False),
        ("import helpers", False),
        ("from helpers import run", True),
        ("from __future__ import division", True),
    ],
    ids=[
        "there",
        "missing",
        "several",
        "tried",
        "handed-on",
        "whole",
        "elsewhere",
        "no-file",
        "compiled",
        "installed",
        "module",
        "through-another",
        "too-late",
    ],
)
def test_a_file_that_takes_what_is_not_there_cannot_start(taken: str, expected: bool) -> None:
    files = {
        "train.py": f"import torch\n{taken}\n\ndef train():\n    pass\n\ntrain()\n",
        "utils/maths.py": "def used():\n    pass\n",
        "utils/names.py": "from utils.maths import *\n",
        "helpers.py": "from utils.maths import left_out\n\ndef run():\n    pass\n",
    }
    program = Program("print(1)", files)
    assert cannot_start(program.facts, f"{ROOT}/train.py") is expected
    assert is_unused(program.facts, program.scope("train", "train.py")) is expected


@pytest.mark.parametrize(
    ("script", "expected"), [("train.py", True), ("nets/DCNv4-main/train.py", False)], ids=["beside-scripts", "alone"]
)
def test_a_project_that_was_copied_into_another_is_not_run(script: str, expected: bool) -> None:
    copied = "def step(x):\n    return x\n\nstep(1)\n"
    files = {script: "from lib import x\n\nif __name__ == '__main__':\n    x()\n", "lib.py": "def x(): pass\n"}
    program = Program("print(1)", {"nets/DCNv4-main/ops.py": copied, "nets/DCNv4-main/lib.py": "def x(): pass\n", **files})
    assert is_unused(program.facts, program.scope("step", "nets/DCNv4-main/ops.py")) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("left(1)", 1),
        ("# left(1)", 0),
        ("'''Unlike left(1), it'''", 0),
        ("f'{left(1)}'", 1),
        ("find('left')", 1),
        ("model.left()", 0),
        ("run(left=3)", 0),
        ("if left == 3: pass", 1),
        ("left = 3", 0),
    ],
)
def test_where_a_text_uses_what_it_defines(text: str, expected: int) -> None:
    assert len(list(uses_here(b"left", text.encode()))) == expected


def test_the_parts_of_a_text() -> None:
    text = b"import x\n@x.y(\n  1\n)\ndef f(\n  a,\n):\n  pass\n\nasync def g(): pass\nclass C(f):\n  def h(): pass\n"
    text += b"if __name__ == '__main__':\n  g()\nelse:\n  x\n"
    assert [(part.name, part.is_decorated) for part in parts(text) if part.name] == [
        (b"f", True), (b"g", False), (b"C", False), (RUN_ALONE, False)
    ]  # fmt: skip
    assert part_around(text.index(b"h()"), text) == b"C"
    assert part_around(text.index(b"g()\n"), text) == RUN_ALONE
    assert part_around(text.rindex(b"x"), text) == b""


BASE = """
class Base:
    def step(self):
        return 1

    def other(self):
        return 2

class First(Base):
    def step(self):
        return 3
"""


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        ("from base import Base, First\n\nclass Second(Base):\n    def step(self):\n        pass\n\n", {"Base.step"}),
        ("from base import Base, First\n\nclass Second(Base):\n    def third(self):\n        pass\n\n", set()),
        ("from base import Base, First\nSecond = Base\n", set()),
        ("from base import Base, First\n\nclass Second(Base):\n    def step(self):\n        super().step()\n\n", set()),
    ],
    ids=["all", "one", "made", "by-super"],
)
def test_a_method_that_all_subclasses_have_their_own_of_is_unused(main: str, expected: set[str]) -> None:
    program = Program(f"{main}\nprint(First().step(), Second().other())", {"base.py": BASE})
    found = {scope.qualname for scope in program.module("base.py").functions() if is_unused(program.facts, scope)}
    assert found == expected


def test_a_module_that_git_ignores_is_there(tmp_path: Path) -> None:
    texts = {"train.py": "from conf.keys import KEY\n\nprint(KEY)\n", "conf/base.py": "X = 1\n"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in texts]
    assert cannot_start(Facts(Project(str(tmp_path), files)), files[0])
    (tmp_path / "conf" / "keys.py").write_text("KEY = 1\n")
    assert not cannot_start(Facts(Project(str(tmp_path), files)), files[0])


@pytest.mark.parametrize(
    ("readme", "expected"),
    [
        ("python train.py --lr 1", {"trials.py"}),
        ("python trials.py and python train.py", set()),
        ("python -m trials\npython -m train", set()),
        ("python prepare.py", set()),
        ("Read the paper.", set()),
    ],
    ids=["told", "both", "modules", "no-training", "nothing"],
)
def test_a_script_that_nobody_is_told_to_run(tmp_path: Path, readme: str, expected: set[str]) -> None:
    training = (
        "from net import Net\n\ndef main():\n    for x in data:\n        Net()(x).backward()\n        opt.step()\n\nmain()\n"
    )
    texts = {"train.py": training, "trials.py": training, "net.py": "class Net:\n    pass\n", "prepare.py": "print(1)\n"}
    for name, text in {**texts, "README.md": readme}.items():
        (tmp_path / name).write_text(text)
    facts = Facts(Project(str(tmp_path), [str(tmp_path / name) for name in texts]))
    scripts = {name: facts.project.module(str(tmp_path / name)) for name in ("train.py", "trials.py")}
    assert {name for name, module in scripts.items() if module is not None and is_unused(facts, module.top)} == expected


@pytest.mark.parametrize(
    ("main", "readme", "left"),
    [
        ("print(1)", "", True),
        ("from third_party.lib import step\nstep(1)", "", False),
        ("print(1)", "python third_party/run.py", False),
    ],
    ids=["nobody", "imported", "told"],
)
def test_a_copy_of_another_project_that_nobody_gets_to(tmp_path: Path, main: str, readme: str, left: bool) -> None:
    run = "from third_party.lib import step\nif __name__ == '__main__':\n    step(1)\n"
    texts = {"main.py": main, "third_party/lib.py": "def step(x):\n    return x\n", "third_party/run.py": run}
    (tmp_path / "third_party").mkdir()
    for name, text in {**texts, "README.md": readme}.items():
        (tmp_path / name).write_text(text)
    facts = Facts(Project(str(tmp_path), [str(tmp_path / name) for name in texts]))
    module = facts.project.module(str(tmp_path / "third_party" / "lib.py"))
    assert module is not None
    assert is_unused(facts, module.scopes["step"]) is left
