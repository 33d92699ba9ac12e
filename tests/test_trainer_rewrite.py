"""Whole programs whose training loops `canonical-train-loop` gives to the runtime's trainer print the same to the last bit."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import FIXTURES, HANG_S, ROOT

from perflint.cli import run_for_tests

NEEDS = {"codebert": ["pandas", "transformers"], "image": [], "lstm": ["pandas"], "spans": ["pandas", "transformers"]}


def output(folder: Path) -> str:
    """What a program prints."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("", "runtime"))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_a_program_computes_the_same_with_the_trainer(name: str, tmp_path: Path) -> None:
    for module in ("torch", *NEEDS[name]):
        pytest.importorskip(module)
    folder = shutil.copytree(FIXTURES / "programs" / name, tmp_path / name)
    expected = output(folder)
    run = run_for_tests(
        ["fix", "--no-cache", "--isolated", "--runtime", "--unsafe-fixes", "--select", "canonical-train-loop", str(folder)]
    )
    assert run.exit_code == 0, run.output
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    assert any("trainer.steps(" in text for text in texts)
    assert not any("zero_grad()" in text for text in texts)
    assert output(folder) == expected


class Meter:
    """Prints what it is given."""

    def update(self, value: float, count: int) -> None:
        print(value.hex(), count)


def trained(path: Path, name: str) -> tuple[str, list[Any]]:
    """What one of the cases prints and returns, and the weights that it leaves."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    scope: dict[str, Any] = {"__name__": path.stem}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 3), nn.LogSoftmax(1))
    x, y = torch.randn(22, 4), torch.randint(0, 3, (22,))
    regression = name not in ("fit", "one_epoch", "divided_at_the_end")
    given = {
        "model": model,
        "loader": DataLoader(TensorDataset(x, torch.randn(22, 3) if regression else y), 4, shuffle=True),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01),
        "criterion": nn.NLLLoss(),
        "device": torch.device("cpu"),
        "args": SimpleNamespace(log_interval=2, dry_run=False),
        "meter": Meter(),
        **{"epochs": 2, "epoch": 1, "every": 4},
    }
    given["train_loader"] = given["loader"]
    function = scope[name]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for _ in range(2):  # what is left of a pass counts in the next one
            print(function(**{parameter: given[parameter] for parameter in inspect.signature(function).parameters}))
    return printed.getvalue(), [value.tolist() for value in model.state_dict().values()]


@pytest.mark.parametrize(
    "name", ["fit", "one_epoch", "divided_at_the_end", "on_the_host", "number_of_the_batch", "penalty_lives_on"]
)
def test_a_case_computes_the_same_with_the_trainer(name: str) -> None:
    for module in ("torch", "tqdm"):
        pytest.importorskip(module)
    folder = FIXTURES / "canonical-train-loop" / "runtime"
    assert trained(folder / "loops.fixed.py", name) == trained(folder / "loops.py", name)
