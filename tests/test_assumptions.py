"""Fixes that rest on what the owner of a project declares about it."""

from __future__ import annotations

import json

import pytest
from conftest import Project, in_process

from perflint.rule.assumptions import ASSUMPTIONS, ORDINARY, kinds_of
from perflint.rule.obligations import Kind

pytestmark = pytest.mark.usefixtures("waits_told")

TRAIN = """
import torch
from torch import nn

def train(loader, device, epochs):
    model = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        value = loss.item()
        total += value
    return total
"""
"""One fix, which needs a device with float64."""
ROUNDED = TRAIN.replace("0.0", "[]").replace("loss.item()", "round(loss.item(), 4)").replace("+= value", ".append(value)")
"""One fix, which needs the runtime."""


@pytest.fixture
def training(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(project.root)
    return project.write({"train.py": TRAIN})


def levels(project: Project, *arguments: str) -> list[tuple[str, list[str]]]:
    found = project.findings("--select", "item-every-step", *arguments)
    return [(f["fix"]["applicability"], f["fix"]["assumptions"]) for f in found]


def test_every_kind_that_can_be_declared_has_a_page() -> None:
    assert {a.kind for a in ASSUMPTIONS.values()} == {kind for kind in Kind if kind.is_declarable}
    for name in (*ASSUMPTIONS, ORDINARY):
        shown = in_process("explain", name)
        assert shown.exit_code == 0, shown.output
        assert shown.stdout.startswith(f"# {name}\n")


def test_a_fix_says_what_it_assumes_and_is_applied_only_if_that_is_declared(training: Project) -> None:
    assert levels(training) == [("assuming", ["cuda-or-cpu"])]
    assert "loss.item()" in training.fixed("train.py", "--isolated")
    assert "loss.item()" in training.fixed("train.py", "--isolated", "--assume", "one-stream,no-hooks")
    assert "loss.detach().clone().double()" in training.fixed("train.py", "--isolated", "--assume", "one-stream,cuda-or-cpu")


@pytest.mark.parametrize("names", ['["cuda-or-cpu"]', '["ordinary"]'])
def test_the_configuration_may_declare_it(training: Project, names: str) -> None:
    training.write({"perflint.toml": f"assume = {names}"})
    assert "loss.detach().clone().double()" in training.fixed("train.py")


def test_a_device_that_the_source_names_is_no_matter_of_assumptions(training: Project) -> None:
    training.write({"train.py": TRAIN + "\nDEVICE = 'mps' if torch.backends.mps.is_available() else 'cpu'\n"})
    assert levels(training) == [("unsafe", [])]
    assert "loss.item()" in training.fixed("train.py", "--isolated", "--assume", "ordinary")


def test_it_is_said_what_the_runtime_would_fix(training: Project) -> None:
    training.write({"train.py": ROUNDED, "bare.py": "x = 1\n"})
    shown = in_process("check", "--isolated", "--select", "item-every-step").stdout
    assert "assuming" in shown
    assert "runtime: the program may import perflint_runtime" in shown
    assert "1 fixable with `perflint fix --runtime` (see `perflint assumptions`)" in shown
    assert "--runtime" not in in_process("check", "--isolated", "--runtime", "--select", "item-every-step").stdout
    lines = in_process("assumptions", "--isolated").stdout.splitlines()
    assert "0 fixable as configured; 0 more with `--assume ordinary`; 1 more with `--runtime`, too." in lines[-1]


@pytest.mark.parametrize("told", [["--runtime"], ["--assume", "runtime"]])
def test_a_fix_that_imports_the_runtime_waits_for_leave(training: Project, told: list[str]) -> None:
    training.write({"train.py": ROUNDED})
    chosen = ("--isolated", "--select", "item-every-step", "--assume", "ordinary", "--exit-zero")
    for asked in ([], ["--unsafe-fixes"], ["--no-runtime"]):
        in_process("fix", *chosen, *asked)
        assert "perflint_runtime" not in (training.root / "train.py").read_text()
    in_process("fix", *chosen, *told)
    assert "perflint_runtime" in (training.root / "train.py").read_text()


def test_a_declaration_that_the_source_contradicts_is_an_error(training: Project) -> None:
    training.write({"streams.py": "import torch\n\nside = torch.cuda.Stream()\n", "perflint.toml": 'assume = ["one-stream"]'})
    result = in_process("check")
    assert result.exit_code == 2
    assert "streams.py:3 contradicts it" in result.stderr
    training.write({"perflint.toml": 'assume = ["ordinary"]'})
    assert in_process("check").exit_code == 1


@pytest.mark.parametrize(
    ("line", "contradicts"),
    [
        ("torch.relu = mine", True),
        ("torch.nn.functional.cross_entropy = mine", True),
        ("F.relu = mine", True),
        ("torch.Tensor.item = mine", True),
        ("F.relu.__code__ = mine", True),
        ("x.__class__ = mine", True),
        ("assert x.__class__ == mine", False),
        ("x: torch.Tensor = mine", False),
        ("x: str | torch.dtype = mine", False),
        ("torch.backends.cudnn.benchmark = mine", False),
        ("assert torch.float32 == mine", False),
    ],
)
def test_functions_of_torch_that_are_replaced_contradict_plain_modules(training: Project, line: str, contradicts: bool) -> None:
    training.write({"patched.py": f"import torch\nimport torch.nn.functional as F\n\n{line}\n"})
    found = json.loads(in_process("assumptions", "--isolated", "--output-format", "json", ".").stdout)
    (standing,) = [row for row in found if row["name"] == "plain-modules"]
    assert standing["contradicts"] is contradicts


@pytest.mark.parametrize("given", ["--assume", "perflint.toml"])
def test_an_unknown_name_is_an_error_with_the_nearest_one(training: Project, given: str) -> None:
    if given == "--assume":
        result = in_process("check", "--assume", "one-strem")
    else:
        training.write({"perflint.toml": 'assume = ["one-strem"]'})
        result = in_process("check")
    assert result.exit_code == 2
    assert "did you mean `one-stream`?" in result.stderr


def test_the_table_says_what_waits_and_what_speaks_against(training: Project) -> None:
    training.write({"streams.py": "import torch\n\nside = torch.cuda.Stream()\n"})
    found = {entry["name"]: entry for entry in json.loads(in_process("assumptions", "--output-format", "json").stdout)}
    assert found["cuda-or-cpu"]["fixes"] == 1
    assert found["one-stream"]["against"] == ["streams.py:3"]
    assert found["one-stream"]["contradicts"] is True
    shown = in_process("assumptions", "--assume", "cuda-or-cpu").stdout
    assert "1 fixable as configured; 0 more with `--assume ordinary`" in shown


def test_check_ends_with_what_a_declaration_would_buy(training: Project) -> None:
    shown = in_process("check", "--isolated", "--select", "item-every-step").stdout
    assert "1 fixable with `perflint fix --assume ordinary` (see `perflint assumptions`)" in shown


def test_ordinary_lets_no_number_of_an_evaluation_change() -> None:
    assert Kind.EVALUATION_ROUNDING not in kinds_of([ORDINARY])


SELECTED = ("--isolated", "--extend-select", "duplicate-item-read,item-every-step")
SHOWN_NOW_AND_THEN = (
    TRAIN.replace("for x, y in loader:", "for i, (x, y) in enumerate(loader):")
    .replace("total = 0.0", "total = []")
    .replace(
        "        value = loss.item()\n        total += value\n",
        "        total.append(loss.item())\n        if i % 100 == 0:\n            print(i, loss.item())\n",
    )
)


@pytest.mark.parametrize("more", [["--assume", "ordinary"], ["--unsafe-fixes"]])
def test_a_safe_fix_does_not_stand_in_the_way_of_one_that_rests_on_more(training: Project, more: list[str]) -> None:
    """Reading once what is shown now and then, too, is safe; that no step waits takes a word about the memory."""
    training.write({"train.py": SHOWN_NOW_AND_THEN})
    assert "loss_value = loss.item()" in training.fixed("train.py", *SELECTED)
    fixed = training.fixed("train.py", *SELECTED, *more)
    assert "loss.item()" not in fixed
    assert "loss.detach()" in fixed
    training.write({"train.py": SHOWN_NOW_AND_THEN})
    assert "loss.detach().clone()" in training.fixed("train.py", *SELECTED, *more)
    left = json.loads(in_process("check", *SELECTED, "--exit-zero", "--output-format", "json").stdout)
    assert not [f for f in left if f["fix"] is not None]
