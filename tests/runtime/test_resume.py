"""Kill -9 at any moment, resume: the losses are bit for bit those of a run that nobody killed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from perflint_runtime import Callback, CrossEntropy, JsonlLogger, Trainer, TrainingSettings, accuracy, make_loader, set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUM_KILLS = int(os.environ.get("PERFLINT_KILLS", "6"))
"""Random kills in the test below; CHANGELOG and README quote a run with 100."""


class Augmented(Dataset[Any]):
    """Noise from three generators for every sample, as augmentations draw it."""

    def __init__(self, num: int = 90) -> None:
        self.num = num

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        x = torch.full((6,), float(i % 3)) + torch.randn(6) + random.random() + float(np.random.normal())
        return x, i % 3


def make_trainer(folder: Path, **changes: Any) -> Trainer:
    set_seed(11)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    settings = {
        "epochs": 3,
        "accumulation_steps": 2,
        "max_grad_norm": 1.0,
        "ema_decay": 0.9,
        "early_stopping_patience": 50,
        "log_every": 3,
        "eval_every": 5,
        "checkpoint_every": 4,
        "progress": False,
        **changes,
    }
    return Trainer(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-2),
        CrossEntropy(),
        TrainingSettings(**settings),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100),
        metrics={"accuracy": accuracy},
        callbacks=[Slow()],
        loggers=[JsonlLogger(folder / "log.jsonl")],
        checkpoints=folder / "checkpoints",
        device="cpu",
    )


class Slow(Callback):
    """Gives a killer time to hit a step."""

    seconds = 0.0

    def on_step(self, trainer: Trainer) -> None:
        time.sleep(self.seconds)


def run(folder: Path, num_workers: int, **changes: Any) -> Trainer:
    trainer = make_trainer(folder, **changes)
    train_loader = DataLoader(Augmented(), 7, shuffle=True, num_workers=num_workers)
    trainer.fit(train_loader, DataLoader(Augmented(20), 7), resume=True)
    return trainer


def outcome(folder: Path, trainer: Trainer) -> tuple[list[Any], dict[str, Any]]:
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return records, trainer.module.state_dict()


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def assert_same(one: tuple[list[Any], dict[str, Any]], other: tuple[list[Any], dict[str, Any]]) -> None:
    assert one[0] == other[0]
    assert all(torch.equal(one[1][name], other[1][name]) for name in one[1])


class Killed(RuntimeError):
    """In place of a signal, where the test wants an exact step."""


class KillAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, trainer: Trainer) -> None:
        if trainer.step == self.step:
            raise Killed


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("step", [4, 7, 8, 9, 14, 20])
def test_a_run_that_ended_at_any_step_goes_on_exactly(step: int, num_workers: int, tmp_path: Path) -> None:
    """Seven steps per epoch, a checkpoint every four: in mid-epoch, at an epoch's end, between log records."""
    if num_workers and step not in (7, 9):
        pytest.skip("workers take time to start; two places are enough")
    expected = outcome(tmp_path / "whole", run(tmp_path / "whole", num_workers))
    interrupted = make_trainer(tmp_path / "killed")
    interrupted.callbacks.append(KillAt(step))
    interrupted._on_step.append(interrupted.callbacks[-1].on_step)
    with pytest.raises(Killed):
        interrupted.fit(DataLoader(Augmented(), 7, shuffle=True, num_workers=num_workers), DataLoader(Augmented(20), 7))
    assert_same(outcome(tmp_path / "killed", run(tmp_path / "killed", num_workers)), expected)


class Counted(Augmented):
    def __init__(self) -> None:
        super().__init__()
        self.read: list[int] = []

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        self.read.append(i)
        return super().__getitem__(i)


def test_a_loader_with_a_seed_reads_no_batch_again(tmp_path: Path) -> None:
    def fit(folder: Path, dataset: Dataset[Any], stop_at: int | None) -> Trainer:
        trainer = make_trainer(folder, epochs=2)
        if stop_at is not None:
            trainer._on_step.append(KillAt(stop_at).on_step)
        batches = make_loader(dataset, 7, shuffle=True, seed=1, num_workers=0)
        trainer.fit(batches, DataLoader(Augmented(20), 7), resume=True)
        return trainer

    expected = outcome(tmp_path / "whole", fit(tmp_path / "whole", Augmented(), None))
    with pytest.raises(Killed):
        fit(tmp_path / "killed", Augmented(), 13)
    dataset = Counted()
    trainer = fit(tmp_path / "killed", dataset, None)
    assert_same(outcome(tmp_path / "killed", trainer), expected)
    assert len(dataset.read) == 20  # the checkpoint is of step 12: two batches of seven and the last one of six are left


def test_checkpoints_at_the_ends_of_epochs_and_fp16_go_on_exactly(tmp_path: Path) -> None:
    changes = {"checkpoint_every": None, "precision": "fp16", "eval_every": None}
    expected = outcome(tmp_path / "whole", run(tmp_path / "whole", 0, **changes))
    interrupted = make_trainer(tmp_path / "killed", **changes)
    interrupted._on_step.append(KillAt(16).on_step)
    with pytest.raises(Killed):
        interrupted.fit(DataLoader(Augmented(), 7, shuffle=True), DataLoader(Augmented(20), 7))
    assert_same(outcome(tmp_path / "killed", run(tmp_path / "killed", 0, **changes)), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_random_kills_during_training_and_saving(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    options: dict[str, Any] = {"epochs": 6, "checkpoint_every": 1}
    expected = outcome(tmp_path / "whole", run(tmp_path / "whole", 0, **options))
    folder = tmp_path / "killed"
    kills = 0
    Slow.seconds = 0.002
    try:
        while kills < NUM_KILLS:
            child = os.fork()
            if child == 0:
                try:
                    run(folder, 0, **options)
                finally:
                    os._exit(0)
            time.sleep(random.uniform(0.02, 0.12))
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            records = [json.loads(line) for line in lines_of(folder / "log.jsonl") if line.endswith("}")]
            assert records == expected[0][: len(records)]
            if os.WIFSIGNALED(status):
                kills += 1
            else:  # it was done: begin anew
                assert_same(
                    outcome(folder, make_trainer(folder)), (expected[0], make_trainer(tmp_path / "x").module.state_dict())
                )
                for path in sorted(folder.rglob("*"), reverse=True):
                    path.unlink() if path.is_file() else path.rmdir()
    finally:
        Slow.seconds = 0.0
    assert_same(outcome(folder, run(folder, 0, **options)), expected)


def test_a_new_run_does_not_overwrite_an_old_one(tmp_path: Path) -> None:
    run(tmp_path, 0, epochs=1)
    with pytest.raises(FileExistsError, match="pass resume=True, or another folder"):
        make_trainer(tmp_path).fit(DataLoader(Augmented(), 7))


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    first = run(tmp_path, 0)
    again = run(tmp_path, 0)
    assert again.step == first.step
    assert again.results == first.results


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    run(tmp_path, 0, max_steps=5)
    with pytest.raises(RuntimeError, match="another scheduler, precision, averaging or callbacks"):
        run(tmp_path, 0, ema_decay=None)
    trainer = make_trainer(tmp_path)
    with pytest.raises(RuntimeError, match="is it the same data"):
        trainer.fit(DataLoader(Augmented(10), 7), resume=True)


def test_persistent_workers_are_named_as_an_obstacle(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, max_steps=1)
    with pytest.warns(UserWarning, match="persistent_workers=False"):
        trainer.fit(DataLoader(Augmented(), 7, num_workers=1, persistent_workers=True))
