"""Two processes compute what one computes with both their batches: DDP and FSDP2 through torchrun, gloo, on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import HANG_S, ROOT
from torch.utils.data import DataLoader, Subset

sys.path.insert(0, str(Path(__file__).parent))
from perflint_runtime import Callback, CrossEntropy, Trainer, accuracy
from train_distributed import Layers, adam, settings, tensors

PROGRAM = Path(__file__).with_name("train_distributed.py")


def torchrun(*arguments: object, expect: int = 0, program: Path = PROGRAM) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", program, *arguments]
    path = os.pathsep.join(filter(None, [str(ROOT / "runtime"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode == 0) == (expect == 0), done.stderr[-4000:]


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


class Records(Callback):
    def __init__(self) -> None:
        self.values: list[dict[str, Any]] = []

    def on_log(self, trainer: Trainer, step: int, values: Any) -> None:
        self.values.append({"step": step, **values})

    def on_evaluate(self, trainer: Trainer, values: Any) -> None:
        self.values.append({"step": trainer.step, **values})


def in_one_process() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Batches of eight, whose halves are those of the two processes; windows as the processes have them together."""
    dataset = tensors()
    order = [i for start in range(0, 44, 8) for rank in (0, 1) for i in range(start + rank, min(start + 8, 44), 2)]
    log = Records()
    model = Layers().double()
    trainer = Trainer(
        model,
        adam,
        CrossEntropy(),
        settings("none", checkpoint_every=None),
        metrics={"accuracy": accuracy},
        callbacks=[log],
        device="cpu",
    )
    loader = DataLoader(Subset(dataset, order), 8)
    trainer.fit(loader, loader)
    return log.values, model.state_dict()


def assert_close(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    key = lambda record: (record["step"], "val_loss" in record)
    found, expected = sorted(found, key=key), sorted(expected, key=key)
    assert [sorted(r) for r in found] == [sorted(r) for r in expected]
    for a, b in zip(found, expected, strict=True):
        assert a == pytest.approx(b, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_processes_train_like_one_and_go_on_exactly_after_an_end(strategy: str, tmp_path: Path) -> None:
    torchrun(strategy, tmp_path / "whole")
    expected, weights = in_one_process()
    found = records(tmp_path / "whole")
    assert_close(found, expected)
    whole = torch.load(tmp_path / "whole" / "weights.pt", weights_only=True)
    for name, value in weights.items():
        torch.testing.assert_close(whole[name], value, rtol=1e-9, atol=1e-12)

    torchrun(strategy, tmp_path / "ended", 5, expect=3)
    torchrun(strategy, tmp_path / "ended")
    assert records(tmp_path / "ended") == found
    resumed = torch.load(tmp_path / "ended" / "weights.pt", weights_only=True)
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


@pytest.mark.slow
def test_a_checkpoint_of_two_processes_is_refused_by_one(tmp_path: Path) -> None:
    torchrun("ddp", tmp_path)
    model = Layers().double()
    trainer = Trainer(model, adam, CrossEntropy(), settings("none"), checkpoints=tmp_path / "checkpoints", device="cpu")
    with pytest.raises(RuntimeError, match="is of 2 processes, not 1"):
        trainer.fit(DataLoader(tensors(), 4), DataLoader(tensors(), 4), resume=True)


@pytest.mark.slow
def test_data_are_divided_among_processes_or_refused(tmp_path: Path) -> None:
    torchrun(tmp_path, program=Path(__file__).with_name("train_undivided.py"))
    one, other = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    for mode in ("seeded", "unused", "by hand"):
        assert one[mode]["error"] == other[mode]["error"] == ""
        assert sorted(one[mode]["seen"] + other[mode]["seen"]) == list(range(64))
    for mode, message in (
        ("scheduled", "the scheduler counts steps"),
        ("plain", "each of the 2 processes would train on all samples of this DataLoader"),
        ("tensors", "each of the 2 processes would train on all samples of this BatchedTensorLoader"),
        ("same", "all 2 processes got the same first batch"),
        ("uneven", "the processes have 8, 7 batches"),
    ):
        assert message in one[mode]["error"]
        assert one[mode]["error"] == other[mode]["error"]
        assert one[mode]["seen"] == []
    assert "this process has a batch left, while another has none" in one["ragged"]["error"]
    assert "this process has no batch left, while another has" in other["ragged"]["error"]
