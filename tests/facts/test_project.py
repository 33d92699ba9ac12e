"""What imports mean, the oldest versions that a project admits, and files as bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ask import ROOT, Program

from perflint.facts.operations.versions import depends_on, is_held_below, oldest_versions
from perflint.project.imports import MAX_NEIGHBOURS
from perflint.project.project import Project
from perflint.project.texts import MAX_BYTES_HELD
from perflint.source.source import Position, Source, SourceError, split_lines
from perflint.source.stored import stored_attributes

FILES = {
    "pkg/__init__.py": "from .a import x\n",
    "pkg/a.py": "",
    "pkg/sub/__init__.py": "",
    "pkg/sub/b.py": "from ..a import x\n",
    "src/lib.py": "",
    "user.py": "import pkg\n",
}


@pytest.mark.parametrize(
    ("dotted", "importer", "level", "target"),
    [
        ("pkg", "main.py", 0, "pkg/__init__.py"), ("pkg.a", "main.py", 0, "pkg/a.py"), ("a", "pkg/sub/b.py", 2, "pkg/a.py"),
        ("", "pkg/a.py", 1, "pkg/__init__.py"), ("sub.b", "pkg/a.py", 1, "pkg/sub/b.py"), ("lib", "main.py", 0, "src/lib.py"),
        ("pkg.a", "pkg/sub/b.py", 0, "pkg/a.py"), ("torch", "main.py", 0, None), ("nothing", "pkg/a.py", 1, None),
    ],
)  # fmt: skip
def test_resolve(dotted: str, importer: str, level: int, target: str | None) -> None:
    found = Program("", FILES).project.resolve(dotted, f"{ROOT}/{importer}", level)
    assert found == (target and f"{ROOT}/{target}")


@pytest.mark.parametrize("end", ["\\\n    ", "\\\r\n", ""])
def test_an_import_may_go_on_in_the_next_line(end: str) -> None:
    program = Program(f"from nets import first, {end}second\nprint(1)", {"nets/first.py": "", "nets/second.py": ""})
    assert program.project.importers(f"{ROOT}/nets/second.py") == {f"{ROOT}/main.py"}


def test_a_package_comes_before_a_file_of_its_name() -> None:
    project = Program("import pkg\n", {"pkg.py": "", "pkg/__init__.py": ""}).project
    assert project.resolve("pkg", f"{ROOT}/main.py") == f"{ROOT}/pkg/__init__.py"


PACKAGED = {
    "agents/__init__.py": "", "agents/torch/__init__.py": "", "agents/torch/sac.py": "import torch\n",
    "agents/core/__init__.py": "", "agents/core/run.py": "import torch\n", "agents/plain.py": "",
}  # fmt: skip


def test_a_folder_called_torch_in_a_package_is_not_torch() -> None:
    project = Program("import agents.torch.sac\n", PACKAGED).project
    assert project.resolve("torch", f"{ROOT}/agents/torch/sac.py") is None
    assert project.resolve("torch", f"{ROOT}/agents/core/run.py") is None
    assert project.resolve("agents.torch", f"{ROOT}/agents/core/run.py") == f"{ROOT}/agents/torch/__init__.py"


@pytest.mark.parametrize("script", ["if __name__ == '__main__':\n    from core import run\n", "from core import run\n"])
def test_a_script_in_a_package_finds_what_is_beside_it_by_its_own_name(script: str) -> None:
    project = Program("", {**PACKAGED, "agents/train.py": script}).project
    assert project.resolve("plain", f"{ROOT}/agents/core/run.py") == f"{ROOT}/agents/plain.py"


def test_a_folder_that_is_put_first_may_have_a_module_of_the_same_name() -> None:
    files = {"heads.py": "", "other/heads.py": "", "lib/tools.py": ""}
    changing = Program("import sys\n\nsys.path.insert(0, 'other')\nimport heads, tools\n", files).project
    assert changing.resolve("heads", f"{ROOT}/main.py") is None
    assert changing.resolve("tools", f"{ROOT}/main.py") == f"{ROOT}/lib/tools.py"
    assert Program("import heads\n", files).project.resolve("heads", f"{ROOT}/main.py") == f"{ROOT}/heads.py"


CHANGING = {
    "train.py": "import _init_paths\nimport nets.unet\n",
    "_init_paths.py": "import sys\nsys.path.insert(0, 'lib')\n",
    "lib/nets/unet.py": "from losses.dice import dice\nimport logging\n",
    "lib/losses/dice.py": "",
    "lib/logging.py": "",
    "lib/twice.py": "",
    "other/twice.py": "",
    "tools/test.py": "import nets.unet\n",
}
"""A program that puts a folder on `sys.path`, and one that does not."""


@pytest.mark.parametrize(
    ("dotted", "importer", "target"),
    [
        ("nets.unet", "train.py", "lib/nets/unet.py"), ("losses.dice", "lib/nets/unet.py", "lib/losses/dice.py"),
        ("twice", "train.py", None), ("nets.unet", "tools/test.py", None), ("logging", "lib/nets/unet.py", None),
        ("nets.vnet", "train.py", None),
    ],
)  # fmt: skip
def test_resolve_where_the_path_is_changed(dotted: str, importer: str, target: str | None) -> None:
    found = Program("", CHANGING).project.resolve(dotted, f"{ROOT}/{importer}")
    assert found == (target and f"{ROOT}/{target}")


def test_a_path_that_is_no_longer_changed() -> None:
    files = {f"{ROOT}/{name}": text.encode() for name, text in CHANGING.items()}
    project = Project(ROOT, list(files), files.get)
    assert project.resolve("nets.unet", f"{ROOT}/train.py") == f"{ROOT}/lib/nets/unet.py"
    files[f"{ROOT}/_init_paths.py"] = b""
    project.changed(f"{ROOT}/_init_paths.py")
    assert project.resolve("nets.unet", f"{ROOT}/train.py") is None


def test_a_root_that_is_a_package() -> None:
    files = {f"{ROOT}/__init__.py": b"", f"{ROOT}/nets/__init__.py": b"", f"{ROOT}/nets/unet.py": b""}
    project = Project(ROOT, list(files), files.get)
    assert project.resolve("project.nets.unet", f"{ROOT}/__init__.py") == f"{ROOT}/nets/unet.py"


def test_importers_go_through_packages() -> None:
    found = Program("", FILES).project.importers(f"{ROOT}/pkg/a.py")
    assert found == {f"{ROOT}/{name}" for name in ("pkg/__init__.py", "pkg/sub/b.py", "user.py")}


HANDED_ON = {
    "from helpers import f": True,
    "from helpers import g": False,
    "from helpers import *": True,
    "import helpers": True,
    "from other import f": True,
    "from other import h": False,
}


@pytest.mark.parametrize("line", HANDED_ON)
def test_importers_of_what_another_file_hands_on(line: str) -> None:
    texts = {"core.py": "", "helpers.py": "from core import f\ndef g(): pass\n", "other.py": "from helpers import f, g as h\n"}
    project = Program(line + "\n", texts).project
    assert (f"{ROOT}/main.py" in project.importers(f"{ROOT}/core.py")) is HANDED_ON[line]


def test_importers_follow_what_a_changed_file_takes() -> None:
    texts = {"core.py": b"", "helpers.py": b"from core import f\n", "main.py": b"from helpers import g\n"}
    files = {f"{ROOT}/{name}": text for name, text in texts.items()}
    project = Project(ROOT, list(files), files.get)
    assert project.importers(f"{ROOT}/core.py") == {f"{ROOT}/helpers.py"}
    files[f"{ROOT}/helpers.py"] = b"from core import f, g\n"
    project.changed(f"{ROOT}/helpers.py")
    assert project.importers(f"{ROOT}/core.py") == {f"{ROOT}/helpers.py", f"{ROOT}/main.py"}


def test_holders_have_a_module_and_not_only_names_from_it() -> None:
    texts = {
        "lib.py": b"def act(): pass\n",
        "whole.py": b"import lib\n",
        "renamed.py": b"import lib as library\n",
        "names.py": b"from lib import act\n",
        "by_name.py": b"import importlib\nlib = importlib.import_module('lib')\n",
        "pkg/__init__.py": b"",
        "pkg/part.py": b"x = 1\n",
        "part.py": b"from pkg import part\n",
        "package.py": b"import pkg\n",
    }
    project = Project("/p", [f"/p/{name}" for name in texts], reader=lambda path: texts[path.removeprefix("/p/")])
    assert {*project.holders("/p/lib.py")} == {"/p/whole.py", "/p/renamed.py", "/p/by_name.py"}
    assert {*project.holders("/p/pkg/part.py")} == {"/p/part.py", "/p/package.py"}


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        (b"lib.act = f", {b"act"}),
        (b"self.act = f", set()),
        (b"lib.act, other = f, 1", {b"act"}),
        (b"(lib.act, net.head) = f, 1", {b"act", b"head"}),
        (b"self.act, self.other = f, 1", set()),
        (b"f(lib.act, level=1)", set()),
        (b"x = lib.act, net.head", set()),
        (b"(\n    lib.act,  # the new one\n    other,\n) = f, 1", {b"act"}),
        (b"[lib\n .act] = [f]", {b"act"}),
        (b"lib.act, \\\n    net.head = f, 1", {b"act", b"head"}),
        (b"pair = lib.act, other = f, 1", {b"act"}),
        (b"get().act, nets[find(0)].head = f, 1", {b"act", b"head"}),
        (b"lib.act: object = f", {b"act"}),
        (b"lib.level += 1", {b"level"}),
        (b"for i, lib.act in enumerate([f]):\n    pass", {b"act"}),
        (b"[0 for lib.act in [f]]", {b"act"}),
        (b"with opened() as (net.head, other):\n    pass", {b"head"}),
        (b"run(find(\n    lib.act, 1), level=1)", set()),
        (b"x = run(lib.act,\n    net.head)\ny = 1", set()),
        (b"for x in run(lib.act, net.head):\n    y = 1", set()),
    ],
)
def test_attributes_stored(text: bytes, stored: set[bytes]) -> None:
    assert stored_attributes(text) == stored


def test_near_training() -> None:
    files = {"train.py": "import lib\nloss.backward()", "lib.py": "import deep", "deep.py": "", "other.py": ""}
    project = Program("", files).project
    assert [project.near_training(f"{ROOT}/{name}.py") for name in ("train", "lib", "deep", "other")] == [
        True,
        True,
        True,
        False,
    ]


def test_a_changed_file_is_asked_anew() -> None:
    texts = {"lib.py": b"", "train.py": b"", "gan.py": b"import lib\n"}
    files = {f"{ROOT}/{name}": text for name, text in texts.items()}
    project = Project(ROOT, list(files), files.get)
    word = re.compile(rb"hook")

    def answers() -> tuple[object, ...]:
        lib = f"{ROOT}/lib.py"
        names = sorted(Path(path).stem for path in project.importers(lib))
        helpers = project.backward_helpers(["fit"])
        return names, project.near_training(lib), project.program_holds(lib, word), project.holds(lib, word), helpers

    assert answers() == (["gan"], False, False, False, frozenset())
    files[f"{ROOT}/train.py"] = b"import lib\ndef fit(loss):\n    loss.backward()  # hook\n"
    project.changed(f"{ROOT}/train.py")
    assert answers() == (["gan", "train"], True, True, False, {"fit"})
    files[f"{ROOT}/train.py"] = b""
    project.changed(f"{ROOT}/train.py")
    assert answers() == (["gan"], False, False, False, frozenset())


def test_a_file_has_been_read_when_its_text_is_no_longer_held() -> None:
    files = {f"{ROOT}/a.py": b"x = 1\n", f"{ROOT}/b.py": b"#" * MAX_BYTES_HELD}
    project = Project(ROOT, list(files), files.get)
    for path in files:
        project.read(path)
    assert project.has_read(f"{ROOT}/a.py", b"x = 1\n")
    assert not project.has_read(f"{ROOT}/a.py", b"x = 2\n")


@pytest.mark.parametrize("users", [MAX_NEIGHBOURS, MAX_NEIGHBOURS + 1])
def test_a_program_that_is_not_looked_through_may_hold_anything(users: int) -> None:
    files = {"lib.py": "", **{f"m{n}.py": "import lib" for n in range(users)}}
    project = Program("", files).project
    assert not project.program_holds(f"{ROOT}/lib.py", re.compile(rb"hook"))
    assert project.program_may_hold(f"{ROOT}/lib.py", re.compile(rb"hook")) == (users > MAX_NEIGHBOURS)


def test_versions(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\ndependencies = ['torch>=2.1,<3', 'perflint_torch', 'numpy']\n")
    (tmp_path / "requirements-dev.txt").write_text("torch==2.0.1  # why\nnot a requirement !!\npandas~=1.5\n")
    (tmp_path / "environment.yml").write_text("dependencies:\n  - scipy=1.9\n")
    versions = {name: str(version) for name, version in oldest_versions(str(tmp_path)).items()}
    assert versions == {"torch": "2.0.1", "pandas": "1.5", "scipy": "1.9"}
    assert depends_on(str(tmp_path), "perflint-torch")
    assert not depends_on(str(tmp_path), "torchvision")


def test_broken_configuration_admits_everything(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    assert oldest_versions(str(tmp_path)) == {}


@pytest.mark.parametrize(
    "data",
    [b"x = 1\n", b"\xef\xbb\xbfx = 1\n", b"# coding: latin-1\nx = '\xe9'\n", "x = 'é日'\r\ny = 1".encode(), b"", b"x\ry\n\f\n"],
)
def test_bytes_survive(data: bytes) -> None:
    source = Source.decode("a.py", data)
    assert source.encode(source.raw) == data
    assert "".join(split_lines(source.body.decode())) == source.body.decode()
    for offset in range(len(source.body)):
        assert source.starts[source.row_at(offset) - 1] <= offset


@pytest.mark.parametrize("data", [b"x\0", b"'\xff'", b"# coding: nonsense\n'\xff'", b"\xef\xbb\xbf# coding: latin-1\n"])
def test_what_is_no_text_raises(data: bytes) -> None:
    with pytest.raises(SourceError):
        Source.decode("a.py", data)


def test_columns_are_characters() -> None:
    source = Source.decode("a.py", "x = 'é日'; y\n".encode())
    assert source.position(source.body.index(b"y")) == Position(1, 11)


def test_projects_that_share_texts_read_each_file_once() -> None:
    files = {
        f"{ROOT}/app/main.py": b"from net import build\n\n\ndef fit(loss):\n    loss.backward()\n",
        f"{ROOT}/app/net.py": b"def build(): pass\n",
        f"{ROOT}/tool.py": b"import app.net\n",
    }
    read: list[str] = []

    def reader(path: str) -> bytes | None:
        read.append(path)
        return files.get(path)

    outer = Project(ROOT, list(files), reader)
    inner = Project(f"{ROOT}/app", list(files), reader, outer.texts)
    net = f"{ROOT}/app/net.py"
    for project in (outer, inner):
        assert project.importers(net) == {f"{ROOT}/app/main.py", f"{ROOT}/tool.py"}
        assert project.backward_helpers(["fit", "build"]) == {"fit"}
        assert not project.near_training(f"{ROOT}/tool.py")
        project.forget_texts()
    assert sorted(read) == sorted(files)

    files[f"{ROOT}/app/main.py"] = b"import other\n"
    inner.changed(f"{ROOT}/app/main.py")
    assert inner.importers(net) == {f"{ROOT}/tool.py"}
    assert not inner.backward_helpers(["fit"])


def test_a_part_of_a_part_of_a_model_is_near_the_loop_that_trains_it() -> None:
    files = {
        f"{ROOT}/train.py": b"from a import f\nloss.backward()\noptimizer.step()\n",
        f"{ROOT}/a.py": b"from b import g\ndef f(): return g()\n",
        f"{ROOT}/b.py": b"from c import h\ndef g(): return h()\n",
        f"{ROOT}/c.py": b"from model import A\nfrom other import k\ndef h(): return A(), k(1)\n",
        f"{ROOT}/model.py": b"class A:\n    def forward(self, x): return x\n",
        f"{ROOT}/other.py": b"def k(x): return x\n",
    }
    project = Project(ROOT, list(files), files.get)
    assert project.near_training(f"{ROOT}/model.py")
    assert not project.near_training(f"{ROOT}/other.py")


def test_helpers_of_helpers_by_names_that_are_imported() -> None:
    files = {
        f"{ROOT}/helpers.py": b"def update(loss): loss.backward()\ndef other(loss): print(loss)\n",
        f"{ROOT}/agent.py": b"from helpers import update, other\ndef learn(x): update(x)\ndef show(x): other(x)\n",
        f"{ROOT}/apart.py": b"def fit(x): update(x)\n",
    }
    project = Project(ROOT, list(files), files.get)
    assert project.backward_helpers(["learn", "update", "show", "fit"]) == {"learn", "update"}
    files[f"{ROOT}/agent.py"] = b"from helpers import other\ndef learn(x): update(x)\n"
    project.changed(f"{ROOT}/agent.py")
    assert project.backward_helpers(["learn", "update"]) == {"update"}


def test_an_optimizer_that_nobody_imports_is_one_to_choose_from() -> None:
    files = {
        f"{ROOT}/train.py": b"model.to(device)\n",
        f"{ROOT}/lion.py": b"import torch\nclass Lion(torch.optim.Optimizer): pass\n",
        f"{ROOT}/toy.py": b"class Own(Optimizer): pass\nloss.backward()\n",
        f"{ROOT}/text.py": b"class Own(Parser): pass\n",
    }
    project = Project(ROOT, list(files), files.get)
    assert [file for file in sorted(files) if project.uses_accelerator(file)] == [f"{ROOT}/lion.py", f"{ROOT}/train.py"]


@pytest.mark.parametrize(
    ("file", "text", "oldest"),
    [
        ("environment.yml", "dependencies:\n  - pytorch=1.9.0\n", "1.9.0"),
        ("requirements.txt", "torch<1.11\n", "1.11.dev0"),
        ("requirements.txt", "torch<=1.10.2\n", "1.10.2"),
        ("requirements.txt", "torch>=1.8,<3\n", "1.8"),
        ("setup.py", "setup(install_requires=['numpy', 'torch==1.9.0'])\n", "1.9.0"),
        ("setup.py", 'setup(install_requires=["torch >= 2.0, < 3"])\n', "2.0"),
        ("setup.py", "setup(version='1.9.0', install_requires=['torch'])\n", None),
        ("requirements.txt", "torch<3\n", "2.0"),
        ("requirements.txt", "torch\n", "2.0"),
        ("requirements.txt", "torch==1.7.1 \\\n    --hash=sha256:12\n", "1.7.1"),
        (
            "requirements.txt",
            "https://example.org/whl/torch-1.7.1%2Bcu110-cp37-cp37m-linux_x86_64.whl\n",
            "1.7.1",
        ),
        ("environment.yml", "dependencies:\n  - pytorch==1.7.1=py3.7_cuda\n", "1.7.1"),
        ("environment.yml", "dependencies:\n  - pytorch::pytorch=1.7.1\n", "1.7.1"),
        ("environment.yml", "dependencies:\n  - pip:\n    - torch>=1.5\n", "1.5"),
        ("conda_env.yaml", "dependencies:\n  - pytorch=1.12\n", "1.12"),
        ("pyproject.toml", "[tool.poetry.dependencies]\ntorch = '^1.13'\n", "1.13"),
        ("pyproject.toml", "[tool.poetry.dependencies]\ntorch = {version = '1.13.1', source = 'x'}\n", "1.13.1"),
        ("Dockerfile", "FROM pytorch/pytorch:1.12.1-cuda11.3-cudnn8-runtime\n", "1.12.1"),
        ("requirements.txt", "torchvision==0.15.2\npytorch-lightning==1.9\n", None),
    ],
)
def test_the_oldest_torch_that_a_project_admits(tmp_path: Path, file: str, text: str, oldest: str | None) -> None:
    (tmp_path / file).write_text(text)
    found = oldest_versions(str(tmp_path)).get("torch")
    assert (str(found) if found is not None else None) == oldest


@pytest.mark.parametrize(
    ("line", "held"),
    [
        ("pytorch_lightning==1.4.0", True),
        ("pytorch-lightning==1.4.*", True),
        ("pytorch-lightning<1.5", True),
        ("pytorch-lightning>=1.2,<=1.4.9", True),
        ("pytorch-lightning~=1.4.2", True),
        ("pytorch-lightning~=1.4", False),
        ("pytorch-lightning<=1.5", False),
        ("pytorch-lightning==1.9", False),
        ("pytorch-lightning>=1.2", False),
        ("pytorch-lightning", False),
        ("torch==1.4.0", False),
    ],
)
def test_requirements_that_admit_no_newer_version(tmp_path: Path, line: str, held: bool) -> None:
    (tmp_path / "requirements.txt").write_text(f"{line}\n")
    assert is_held_below(str(tmp_path), "pytorch-lightning", "1.5") is held


def test_lists_of_requirements_may_stand_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "base.txt").write_text("torch==1.7.1\n")
    assert str(oldest_versions(str(tmp_path))["torch"]) == "1.7.1"
