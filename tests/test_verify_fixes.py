"""`verify --bisect` and `--keep-faster`: which of the fixes is to blame, and which are worth keeping."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import Project, in_subprocess
from probe_in_fork import run_in_fork

from perflint.verify import verification
from perflint.verify.fixes import Place, apply_fixes
from perflint.verify.runs import Program
from perflint.verify.sandbox import Sandbox
from perflint.verify.timing import Speed
from perflint.verify.verification import Plan, blame, faster_places, verify

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="programs run in forks")

PROGRAM = """
    import torch
    from torch import nn

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


    def make():
        torch.manual_seed(0)
        return nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)]).to(device)


    def train(model, optimizer):
        for step in range(6):
            x = torch.randn(8, 4).to(device)
            optimizer.zero_grad(set_to_none=False)
            loss = model[step > 2](x).square().mean()
            loss.backward()
            optimizer.step()


    def log(model, optimizer):
        total = 0.0
        for step in range(6):
            x = torch.randn(8, 4).to(device)
            optimizer.zero_grad()
            loss = model[0](x).square().mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
            print(f"{step} {loss.item():.3f}")
        print(total)


    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    log(model, optimizer)
    train(model, optimizer)
"""
"""After the unsafe fix in `train`, weight decay no longer moves the layer that is not used there: a different model."""

SETTINGS = '[tool.perflint]\nextend-select = ["duplicate-item-read"]\n'

GUILTY = Place("train.py", "train", "zero-grad-to-zeros")
INNOCENT = Place("train.py", "log", "duplicate-item-read")


@pytest.fixture
def plan(project: Project, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The program, whose versions run in forks of this process."""
    project.write({"train.py": PROGRAM, "pyproject.toml": SETTINGS})

    def run(sandbox: Sandbox, version: str, program: Program, mode: Any, options: Any = ()) -> Any:
        found = run_in_fork((sandbox.tree(version) / program.script).read_text(encoding="utf-8"), mode)
        return type(found)(version, mode, {**found.data, "modules": ["train.py"]}, found.output, {})

    monkeypatch.setattr(verification, "run", run)
    return Plan(project.root, Program(Path("train.py")), repeats=2, unsafe=True)


@pytest.fixture
def sandbox(plan: Plan) -> Any:
    sandbox = Sandbox(plan.root)
    yield sandbox
    sandbox.close()


def test_bisection_finds_the_fix_that_changes_the_results(plan: Plan, sandbox: Sandbox) -> None:
    outcome = verify(sandbox, plan)
    assert outcome.comparison is not None
    assert outcome.comparison.verdict == "different"
    assert outcome.applied is not None
    assert {GUILTY, INNOCENT} <= set(outcome.applied.places)
    assert blame(sandbox, plan, outcome) == [GUILTY]


def test_what_is_kept_is_equal_and_faster(plan: Plan, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timing is made up: every changed version is faster, so that equality alone decides; then none is."""
    faster = Speed("step", 2.0, 1.0, 2.0, 1.5, 2.5, 0.97, 1.1)
    monkeypatch.setattr(verification, "speed", lambda originals, changed: faster)
    outcome = verify(sandbox, plan)
    kept = faster_places(sandbox, plan, outcome)
    assert INNOCENT in kept
    assert GUILTY not in kept
    monkeypatch.setattr(verification, "speed", lambda originals, changed: Speed("step", 1.0, 1.0, 1.0, 0.9, 1.1, 0.75, 1.1))
    assert faster_places(sandbox, plan, outcome) == []


@pytest.mark.parametrize("here", [".", ".."])
def test_only_the_wanted_places_are_fixed(project: Project, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write({"train.py": PROGRAM, "pyproject.toml": SETTINGS})
    monkeypatch.chdir(project.root / here)
    applied = apply_fixes(project.root, ["train.py"], unsafe=True, only=[INNOCENT], is_copy=False)
    text = (project.root / "train.py").read_text()
    assert applied.fixed_by_rule == {"duplicate-item-read": 1}
    assert text.count("loss.item()") == 1
    assert "set_to_none=False" in text
    assert not (project.root / ".git").exists()
    assert applied.changed["train.py"][0].decode() == textwrap.dedent(PROGRAM)


def test_a_copy_is_fixed_as_one_project_and_stays_without_a_repository(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    apply_fixes(tmp_path, ["train.py"], unsafe=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


@pytest.mark.slow
def test_the_command_names_the_guilty_fix(project: Project) -> None:
    project.write({"train.py": PROGRAM, "pyproject.toml": SETTINGS})
    arguments = ["--unsafe-fixes", "--select", "zero-grad-to-zeros,duplicate-item-read", "--bisect", "--repeats", "2"]
    done = in_subprocess("verify", "-q", "train.py", *arguments, "--json", "record.json", cwd=project.root)
    assert done.returncode == 1, done.stderr
    assert b"to blame: zero-grad-to-zeros in train.py, train" in done.stdout
    assert json.loads((project.root / "record.json").read_text())["blamed"] == ["zero-grad-to-zeros in train.py, train"]


def test_unsafe_fixes_import_nothing_that_the_program_may_lack(tmp_path: Path) -> None:
    loop = "    for x in batches:\n        model(x.cuda()).sum().backward()\n        optimizer.step()\n"
    (tmp_path / "train.py").write_text(f"import torch\n\n\ndef train(model, optimizer, batches):\n{loop}")
    apply_fixes(tmp_path, ["train.py"], unsafe=True, overrides={"select": ("blocking-h2d-in-loop",)})
    fixed = (tmp_path / "train.py").read_text()
    assert "x.cuda(non_blocking=True)" in fixed
    assert "perflint_runtime" not in fixed
