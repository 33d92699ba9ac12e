"""`check --min-cost`: findings of code that runs often enough."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import in_process

PROGRAM = """\
import torch
from torch.utils.data import DataLoader


def train(model, dataset, optimizer):
    loader = DataLoader(dataset, pin_memory=True, num_workers=2, drop_last=True, batch_size=None)
    for epoch in range(10):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            for parameter in model.parameters():
                print(parameter.grad.norm().item())
            optimizer.step()
            print(loss.item())
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def rates(*arguments: str) -> set[str]:
    """How often the code of the reported findings runs."""
    done = in_process("check", "--output-format", "json", "--select", "all", *arguments)
    assert done.exit_code in (0, 1), done.output
    return {finding["rate"] for finding in json.loads(done.stdout)}


def test_what_runs_less_often_is_left_out_and_counted() -> None:
    everything = rates()
    assert {"per parameter", "per step", "unknown"} <= everything
    assert rates("--min-cost", "per-step") == everything - {"per logging interval", "per epoch", "unknown"}
    assert rates("--min-cost", "per-parameter") == {"per parameter"}
    done = in_process("check", "--select", "all", "--min-cost", "per-parameter")
    assert "left out: their code runs less often than per parameter" in done.output


def test_it_decides_about_the_exit_code() -> None:
    assert in_process("check", "--select", "dataloader-recreate-workers").exit_code == 1
    assert in_process("check", "--select", "dataloader-recreate-workers", "--min-cost", "per-step").exit_code == 0


@pytest.mark.parametrize("option", ["--fix", "--add-ignores", "--update-baseline"])
def test_it_goes_with_nothing_that_changes_files(option: str) -> None:
    done = in_process("check", "--min-cost", "per-step", option)
    assert done.exit_code == 2
    assert "--min-cost chooses what is reported" in done.output
