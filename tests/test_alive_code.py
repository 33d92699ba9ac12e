"""Which code of a project anybody runs: what texts name, copies of other projects, names that find files, calls that fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perflint.facts.facts import Facts
from perflint.facts.training.unstartable import cannot_start
from perflint.facts.training.unused import is_unused
from perflint.project.project import Project
from perflint.project.told import named_scripts
from perflint.source.uses import is_behind_exit

pytestmark = pytest.mark.usefixtures("waits_told")

TRAINS = "from net import Net\n\ndef main():\n    for x in data:\n        Net()(x).backward()\n        opt.step()\n\nmain()\n"
RUN = "if __name__ == '__main__':\n    main()\n"
STEP = "import torch\n\ndef step(x):\n    return x.item()\n"


def written(folder: Path, texts: dict[str, str]) -> Facts:
    """A project with these files."""
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Facts(Project(str(folder), [str(folder / name) for name in texts if name.endswith((".py", ".ipynb"))]))


def unused(facts: Facts, name: str) -> set[str]:
    """The functions of a file that nobody runs, and `top` where that is its own code."""
    module = facts.project.module(f"{facts.project.root}/{name}")
    assert module is not None
    scopes = {"top": module.top, **{scope.qualname: scope for scope in module.functions()}}
    return {name for name, scope in scopes.items() if is_unused(facts, scope)}


FILES = [
    "train.py",
    "main.py",
    "tools/train.py",
    "sub/main.py",
    "sub/pkg/run.py",
    "old/pkg/run.py",
    "lib/__main__.py",
    "newer2013.py",
]


@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [
        ("README.md", "python train.py", {"train.py"}),
        ("README.md", "python tools/train.py", {"tools/train.py"}),
        ("README.md", "python ./tools/../train.py", {"train.py"}),
        ("README.md", "cd tools\npython train.py", {"train.py", "tools/train.py"}),
        ("README.md", "cd sub && cd pkg && python run.py", {"sub/pkg/run.py"}),
        ("README.md", "python run.py", {"sub/pkg/run.py", "old/pkg/run.py"}),
        ("README.md", "python $ROOT/code/tools/train.py", {"tools/train.py"}),
        ("README.md", "python -m tools.train", {"tools/train.py"}),
        ("README.md", "python -m lib", {"lib/__main__.py"}),
        ("README.md", "python -m torch.distributed.run", set()),
        ("README.md", "python -m torch.distributed.launch --nproc 2 main.py", {"main.py"}),
        ("README.md", "python other.py", set()),
        ("README.md", "python newer.py", {"newer2013.py"}),
        ("sub/README.md", "python main.py", {"sub/main.py"}),
        ("sub/README.md", "python train.py", {"train.py"}),
        ("sub/README.md", "python run.py", {"sub/pkg/run.py"}),
        ("scripts/run.sh", "python tools\\train.py", {"tools/train.py"}),
        ("scripts/run.sh", "python ../train.py", {"train.py"}),
    ],
)
def test_what_a_text_means(text: str, said: str, expected: set[str]) -> None:
    files = [(f"/p/{file}", b"") for file in FILES]
    assert {script for _, script in named_scripts("/p", [(f"/p/{text}", said.encode())], files)} == {
        f"/p/{e}" for e in expected
    }


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("os.system('python tools/train.py')", {"tools/train.py"}),
        ("# main.py\nimport os", set()),
        ('"""Usage: python main.py --lr 1"""', {"main.py"}),
        ("open(join(root, 'train.py'))", {"train.py"}),
    ],
)
def test_what_a_python_file_names(code: str, expected: set[str]) -> None:
    files = [(f"/p/{file}", code.encode() if file == "main.py" else b"") for file in FILES]
    assert {script for _, script in named_scripts("/p", [], files)} == {f"/p/{e}" for e in expected}


@pytest.mark.parametrize(
    ("readme", "folder", "expected"),
    [("README.md", "", True), ("first/README.md", "first/", False)],
    ids=["of-all", "of-one-folder"],
)
def test_a_text_tells_of_the_programs_of_its_folder(tmp_path: Path, readme: str, folder: str, expected: bool) -> None:
    texts = {f"{folder}train.py": TRAINS, f"{folder}net.py": "class Net:\n    pass\n", "second/trials.py": STEP}
    facts = written(tmp_path, {**texts, readme: "python train.py"})
    assert ("step" in unused(facts, "second/trials.py")) is expected


COPY = {
    "train.py": TRAINS,
    "README.md": "python train.py",
    "net.py": "from nets.flow.models import Net\n",
    "nets/flow/models.py": "class Net:\n    def forward(self, x):\n        return x\n",
    "nets/flow/main.py": "from models import Net\n\ndef train():\n    Net().backward()\n\ntrain()\n",
    "nets/flow/README.md": "git clone it\npython main.py",
}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({}, {"top", "train"}),
        ({"nets/flow/README.md": "The networks. python main.py"}, set()),
        ({"nets/flow/README.md": "The networks. python main.py", "nets/flow/LICENSE": "MIT"}, {"top", "train"}),
        ({"README.md": "python train.py\npython nets/flow/main.py"}, set()),
        ({"README.md": "See nets/flow."}, set()),
        ({"nets/flow/models.py": "from helpers import x\n\nclass Net:\n    pass\n", "helpers.py": "x = 1\n"}, set()),
        ({"net.py": "class Net:\n    pass\n"}, set()),
        (
            {"net.py": "from flows.models import Net\n", "nets/flow/setup.py": "", "nets/flow/flows/models.py": ""},
            {"top", "train"},
        ),
    ],
    ids=["copy", "own-folder", "licensed", "told", "nothing-told", "not-alone", "example", "installed"],
)
def test_scripts_of_a_copied_project_are_not_run(tmp_path: Path, others: dict[str, str], expected: set[str]) -> None:
    facts = written(tmp_path, {**COPY, **others})
    assert unused(facts, "nets/flow/main.py") == expected
    if "net.py" not in others and "README.md" not in others:
        assert not unused(facts, "nets/flow/models.py")


MODEL = "import torch\n\nclass Unet:\n    def step(self, x):\n        return x.item()\n"
FOUND = "import importlib\n\ndef build(name):\n    return importlib.import_module('models.' + name + '_model')\n"


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({}, True),
        ({"configs/base.yaml": "model: unet_model\n"}, False),
        ({"configs/base.yaml": "_target_: models.unet_model.Unet\n"}, False),
        ({"configs/base.yaml": "model: UNet\n"}, False),
        ({"configs/base.yaml": "model: resnet\n"}, True),
        ({"README.md": "python train.py --model unet"}, False),
        ({"options.py": "DEFAULT = 'unet'\n"}, False),
        ({"options.py": "# unet\nDEFAULT = 'resnet'\n"}, True),
        ({"lister.py": "import importlib, os\nfor f in os.listdir('x'):\n    importlib.import_module(f)\n"}, False),
    ],
    ids=["nowhere", "file", "target", "in-parts", "another", "command", "quoted", "comment", "listed"],
)
def test_a_file_that_is_found_by_its_name_has_it_in_some_text(tmp_path: Path, others: dict[str, str], expected: bool) -> None:
    texts = {"train.py": f"from zoo import build\n{TRAINS}", "net.py": "class Net:\n    pass\n", "zoo.py": FOUND}
    facts = written(tmp_path, {"README.md": "python train.py", **texts, "models/unet_model.py": MODEL, **others})
    assert ("Unet.step" in unused(facts, "models/unet_model.py")) is expected


def test_the_other_parts_of_a_name_stand_in_quotes_too(tmp_path: Path) -> None:
    plain = FOUND.replace(" + '_model'", "")
    texts = {"train.py": f"from zoo import build\n{TRAINS}", "net.py": "class Net:\n    pass\n", "zoo.py": plain}
    facts = written(tmp_path, {"README.md": "python train.py --model unet", **texts, "models/unet_model.py": MODEL})
    assert "Unet.step" in unused(facts, "models/unet_model.py")


@pytest.mark.parametrize(
    ("setup", "expected"),
    [("find_packages(exclude=['trainers'])", True), ("find_packages()", False)],
    ids=["left-out", "packed"],
)
def test_a_package_that_setup_leaves_out_is_for_nobody_else(tmp_path: Path, setup: str, expected: bool) -> None:
    texts = {"train.py": TRAINS, "net.py": "class Net:\n    pass\n", "trainers/__init__.py": "", "trainers/other.py": STEP}
    facts = written(tmp_path, {**texts, "README.md": "python train.py", "setup.py": f"setup(packages={setup})"})
    assert ("step" in unused(facts, "trainers/other.py")) is expected


def test_what_a_comment_looks_up_is_not_looked_up(tmp_path: Path) -> None:
    main = "if __name__ == '__main__':\n    print(1)\n"
    text = f"# net = globals()[args.model]()\ndef left():\n    pass\n\ndef test():\n    left()\n\n{main}"
    assert unused(written(tmp_path, {"main.py": text}), "main.py") == {"left", "test"}


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ("from models.gone.losses import Loss", True),
        ("import models.gone.losses as losses", True),
        ("from models.losses import Loss", False),
        ("from .gone import Loss", True),
        ("from .losses import Loss", False),
        ("from . import losses", False),
        ("from losses import Other", True),
        ("from .loss_cuda import Loss", False),
        ("from torch.gone import Loss", False),
        ("import sys\nsys.path.append('../yolo')\nfrom models.gone import Loss", False),
        ("import sys\nsys.path.append('..')\nfrom models.losses import Loss\nfrom models.gone import Loss", False),
        ("try:\n    from models.gone import Loss\nexcept ImportError:\n    pass", False),
        ("try:\n    from models.gone import Loss\nexcept ImportError:\n    pass\nLoss()", True),
        ("try:\n    from models.gone import Loss\nexcept ImportError:\n    Loss = None\nLoss()", False),
        ("try:\n    from models.gone import Loss\nexcept ImportError:\n    pass\nif ready:\n    Loss()", False),
        ("from models.data import Loss", False),
    ],
)
def test_a_module_of_the_project_that_is_not_there(tmp_path: Path, taken: str, expected: bool) -> None:
    texts = {"models/net.py": f"{taken}\n\nclass Net:\n    pass\n", "models/losses.py": "class Loss:\n    pass\n"}
    facts = written(tmp_path, {**texts, "main.py": "from models.losses import Loss\nfrom models.net import Net\n"})
    assert cannot_start(facts, f"{tmp_path}/models/net.py") is expected
    assert cannot_start(facts, f"{tmp_path}/main.py") is expected


NOTEBOOK_PATH = "import sys\nsys.path.append('..')\n"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["from src.losses import Loss", "from src.gone import Net", "Net().backward()"], True),
        (["from src.losses import Loss", "Loss().backward()", "from src.gone import plot"], False),
        (["from src.losses import Loss", "Loss().fit(1)", "from src.gone import plot"], False),
        (["from src.losses import Loss", "from src.data.sets import Data"], False),
        (["from src.gone import Net"], False),
    ],
    ids=["stale", "trained", "fitted", "left-out", "another"],
)
def test_a_notebook_ends_where_a_module_of_the_project_is_gone(tmp_path: Path, cells: list[str], expected: bool) -> None:
    """Where the path is changed, a package is the project's if another module of it is there."""
    parts = [{"cell_type": "code", "source": source} for source in (NOTEBOOK_PATH, *cells)]
    texts = {"src/__init__.py": "", "src/losses.py": "class Loss:\n    pass\n"}
    facts = written(tmp_path, {**texts, "look/a.ipynb": json.dumps({"cells": parts, "nbformat": 4, "metadata": {}})})
    assert cannot_start(facts, f"{tmp_path}/look/a.ipynb") is expected


PIPELINES = """
class Pipeline:
    def train(self, run=None):
        self.run_epoch(0, run)

class Whole(Pipeline):
    def run_epoch(self, epoch, run):
        return epoch

class Short(Pipeline):
    def run_epoch(self, epoch):
        return self.part(epoch)

    def part(self, epoch):
        return epoch

def evaluate(net, *, num_class):
    return net

class Data:
    def __init__(self, size):
        self.size = size

    def read(self):
        return self.size
"""


def test_a_module_beside_is_another_one_in_a_package(tmp_path: Path) -> None:
    texts = {"core/__init__.py": "", "core/utils.py": "x = 1\n", "core/net.py": "from utils import y\n", "utils.py": "y = 1\n"}
    assert not cannot_start(written(tmp_path, texts), f"{tmp_path}/core/net.py")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", {"Short.run_epoch", "Short.part"}),
        ("    Whole.run_epoch(short, 0)\n", set()),
        ("    run(callback=short.run_epoch)\n", set()),
        ("    evaluate(1, num_classes=3)\n", {"Short.run_epoch", "Short.part", "evaluate"}),
        ("    evaluate(1, **options)\n", {"Short.run_epoch", "Short.part"}),
        ("    Data().read()\n", {"Short.run_epoch", "Short.part", "Data.__init__", "Data.read"}),
        ("    Data(3).read()\n", {"Short.run_epoch", "Short.part"}),
    ],
    ids=["method", "by-class", "handed-on", "keyword", "spread", "constructor", "made"],
)
def test_what_every_call_hands_other_arguments_than_it_takes(tmp_path: Path, more: str, expected: set[str]) -> None:
    uses = "    short = Short()\n    Whole().train()\n    short.train()\n"
    facts = written(tmp_path, {"main.py": f"{PIPELINES}\nif __name__ == '__main__':\n{uses}{more}"})
    left = {"evaluate"} if "evaluate" not in more else set()
    left |= {"Data.__init__", "Data.read"} if "Data" not in more else set()
    assert unused(facts, "main.py") - left == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def main():\n\n    a()\n    exit()\n    left()\n", True),
        ("def main():\n    a()\n    sys.exit(0)\n\n    for x in y:\n        left()\n", True),
        ("def main():\n    if a:\n        exit()\n    left()\n", False),
        ("def main():\n    # exit()\n    left()\n", False),
        ("def main():\n    left()\n    exit()\n", False),
        ("def other():\n    exit()\n\ndef main():\n    left()\n", False),
        ("class Main:\n    exit()\n    left()\n", False),
        ("if __name__ == '__main__':\n    exit()\n    left()\n", True),
    ],
)
def test_what_stands_behind_an_exit(text: str, expected: bool) -> None:
    assert is_behind_exit(text.index("left"), text.encode()) is expected


def test_what_is_called_behind_an_exit_is_unused(tmp_path: Path) -> None:
    main = "from losses import step, other\n\ndef main():\n    other(1)\n    exit()\n    step(1)\n\nmain()\n"
    facts = written(tmp_path, {"main.py": main, "losses.py": f"{STEP}\ndef other(x):\n    return x\n"})
    assert unused(facts, "losses.py") == {"step"}


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({}, True),
        ({"losses.py": "Loss = 1\n"}, False),
        ({"main.py": "from core.train import x\n"}, False),
        ({"core/losses.py": "class Loss:\n    pass\n"}, False),
    ],
    ids=["script", "at-the-root", "imported", "whole"],
)
def test_what_a_script_finds_beside_it_is_in_no_package(tmp_path: Path, beside: dict[str, str], expected: bool) -> None:
    texts = {
        "core/__init__.py": "",
        "core/losses.py": "from .parts import part\n\nclass Loss:\n    pass\n",
        "core/parts.py": "",
    }
    facts = written(tmp_path, {**texts, "core/train.py": "from losses import Loss\n\nx = 1\n", **beside})
    assert cannot_start(facts, f"{tmp_path}/core/train.py") is expected


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        ("def step(x):\n    return args.net(x)\n\nif __name__ == '__main__':\n    args = parse()\n", True),
        ("def step(x, args):\n    return args.net(x)\n\nif __name__ == '__main__':\n    args = parse()\n", False),
        ("args = None\n\ndef step(x):\n    return args.net(x)\n\nif __name__ == '__main__':\n    args = parse()\n", False),
    ],
    ids=["by-itself", "given", "set-above"],
)
def test_what_works_by_itself_only_is_found_by_no_import(tmp_path: Path, trainer: str, expected: bool) -> None:
    finder = FOUND.replace("'models.' + ", "").replace(" + '_model'", "")
    texts = {"train.py": f"from zoo import build\n{TRAINS}", "net.py": "class Net:\n    pass\n", "zoo.py": finder}
    facts = written(tmp_path, {"README.md": "python train.py: a trainer", **texts, "others/trainer.py": trainer})
    assert ("top" in unused(facts, "others/trainer.py")) is expected


@pytest.mark.parametrize(
    ("config", "finder", "expected"),
    [
        ("_target_: models.parts.Net", "from hydra.utils import instantiate\n", {"left"}),
        ("_target_: models.parts.left", "from hydra.utils import instantiate\n", {"part"}),
        ("models.parts", "import importlib\nimportlib.import_module(name)\n", set()),
    ],
    ids=["class", "function", "module"],
)
def test_what_is_made_by_its_name_is_named(tmp_path: Path, config: str, finder: str, expected: set[str]) -> None:
    parts = "def part():\n    pass\n\nclass Net:\n    def forward(self):\n        part()\n\ndef left():\n    pass\n"
    texts = {"src/__init__.py": "", "src/parts.py": parts, "src/main.py": f"{finder}{TRAINS}{RUN}", "setup.py": "setup()"}
    facts = written(tmp_path, {**texts, "src/net.py": "class Net:\n    pass\n", "configs/base.yaml": config})
    assert unused(facts, "src/parts.py") & {"part", "left"} == expected
