"""The examples of runtime/README.md run, and every name is in one of them."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import perflint_runtime
import pytest
import torch
from conftest import ROOT
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

README = (ROOT / "runtime/README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def after(block: str) -> str:
    """What to write instead; a block without a comparison is all of it."""
    return re.split(r"^# after.*\n", block, flags=re.M)[-1]


class AverageMeter:
    """A meter of the project."""

    def __init__(self) -> None:
        self.total, self.count, self.avg = 0.0, 0, 0.0

    def update(self, value: float, n: int) -> None:
        """Count `n` more."""
        self.total, self.count = self.total + value * n, self.count + n
        self.avg = self.total / self.count


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the examples take for granted, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    x, y = torch.randn(64, 8), torch.randint(0, 2, (64,))
    pd.DataFrame({"text": [f"{'long ' * 90}\n{i}" for i in range(20)], "label": range(20)}).to_csv("rows.csv", index=False)
    Path("config.yaml").write_text("training: {epochs: 2, learning_rate: 1e-3, progress: false}\n")
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    loss = functional.cross_entropy(model(x), y)
    names = {name: getattr(perflint_runtime, name) for name in perflint_runtime.__all__}
    return {
        **names,
        **{
            "np": np,
            "torch": torch,
            "nn": nn,
            "os": os,
            "partial": partial,
            "likeliest": lambda row: row.argmax().item(),
            "functional": functional,
            "DataLoader": DataLoader,
        },
        **{"x": x, "y": y, "i": 3, "step": 1, "path": "rows.csv", "device": "cpu", "model": model, "loss": loss},
        "dataset": TensorDataset(x, y),
        "train_loader": DataLoader(TensorDataset(x, y), 32),
        "val_loader": DataLoader(TensorDataset(x, y), 32),
        "sequences": [{"input_ids": list(range(1, n)), "labels": list(range(1, n))} for n in range(3, 40)],
        "scalars": perflint_runtime.AsyncScalars(),
        "guard": perflint_runtime.NonFiniteGuard(),
        "writer": SimpleNamespace(add_scalar=lambda tag, value, step: None),
        "optimizer": torch.optim.Adam(model.parameters()),
        "AverageMeter": AverageMeter,
        "evaluate": lambda: None,
    }


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_an_example_runs(block: str, world: dict[str, Any]) -> None:
    if "dataloaders_from_hf" in block:
        pytest.importorskip("datasets")
        pytest.skip("needs a tokenizer: test_hf.py runs it")
    if "to_arrow" in block:
        pytest.importorskip("pyarrow")
    if "TensorBoardLogger" in block:
        pytest.importorskip("tensorboard")
    exec(compile(after(block), "README.md", "exec"), world)


def test_every_name_is_shown() -> None:
    assert set(perflint_runtime.__all__) - {"NonFiniteError"} <= set(re.findall(r"\w+", README))
