"""Kill -9 at any moment, resume: the losses are bit for bit those of a run that nobody killed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from perflint_runtime import (
    BatchedTensorLoader,
    Callback,
    CrossEntropy,
    JsonlLogger,
    Trainer,
    TrainingSettings,
    accuracy,
    feed,
    make_loader,
    set_seed,
)
from perflint_runtime.distributed import load_full_state
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
            trainer.callbacks.append(KillAt(stop_at))
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
    interrupted.callbacks.append(KillAt(16))
    with pytest.raises(Killed):
        interrupted.fit(DataLoader(Augmented(), 7, shuffle=True), DataLoader(Augmented(20), 7))
    assert_same(outcome(tmp_path / "killed", run(tmp_path / "killed", 0, **changes)), expected)


@pytest.mark.slow
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
        make_trainer(tmp_path).fit(DataLoader(Augmented(), 7), DataLoader(Augmented(20), 7))


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    first = run(tmp_path, 0)
    again = run(tmp_path, 0)
    assert again.step == first.step
    assert again.results == first.results


def test_a_run_whose_last_checkpoint_was_at_its_last_step_is_not_evaluated_again(tmp_path: Path) -> None:
    changes = {"checkpoint_every": 7, "eval_every": None}
    first = run(tmp_path, 0, **changes)
    trainer = make_trainer(tmp_path, **changes)
    trainer.fit(DataLoader(Augmented(), 7, shuffle=True), iter([]), resume=True)  # an empty loader could not be evaluated
    assert trainer.results == first.results


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    run(tmp_path, 0, max_steps=5)
    with pytest.raises(
        RuntimeError,
        match="with AdamW, ExponentialMovingAverage, OneCycleLR; this one has AdamW, One",
    ):
        run(tmp_path, 0, ema_decay=None)
    trainer = make_trainer(tmp_path)
    with pytest.raises(RuntimeError, match=r"of a run with samples 90 \(now 10\)"):
        trainer.fit(DataLoader(Augmented(10), 7), DataLoader(Augmented(20), 7), resume=True)


def test_persistent_workers_are_named_as_an_obstacle(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, max_steps=1)
    with pytest.warns(UserWarning, match="persistent_workers=False"):
        trainer.fit(DataLoader(Augmented(), 7, num_workers=1, persistent_workers=True), DataLoader(Augmented(20), 7))


def test_a_loader_that_was_peeked_into_goes_on_exactly(tmp_path: Path) -> None:
    def fit(folder: Path, stop_at: int | None, with_generator: bool) -> Trainer:
        trainer = make_trainer(folder, accumulation_steps=1, epochs=2)
        x, y = torch.randn(45, 6, generator=torch.Generator().manual_seed(0)), torch.arange(45) % 3
        generator = torch.Generator().manual_seed(1) if with_generator else None
        batches = BatchedTensorLoader(x, y, batch_size=7, shuffle=True, generator=generator)
        next(iter(batches))  # as programs do to see a shape
        if stop_at is not None:
            trainer.callbacks.append(KillAt(stop_at))
        trainer.fit(batches, DataLoader(Augmented(20), 7), resume=True)
        return trainer

    for with_generator in (False, True):
        folder = tmp_path / str(with_generator)
        expected = outcome(folder / "whole", fit(folder / "whole", None, with_generator))
        with pytest.raises(Killed):
            fit(folder / "killed", 6, with_generator)
        assert_same(outcome(folder / "killed", fit(folder / "killed", None, with_generator)), expected)


def test_a_checkpoint_at_the_last_step_of_an_epoch_repeats_no_record(tmp_path: Path) -> None:
    changes = {"checkpoint_every": 7, "eval_every": None}
    expected = outcome(tmp_path / "whole", run(tmp_path / "whole", 0, **changes))
    assert [r["step"] for r in expected[0] if "val_loss" in r] == [7, 14, 21]

    class KillAtEvaluation(Callback):
        def on_evaluate(self, trainer: Trainer, values: Any) -> None:
            if trainer.step == 14:
                raise Killed

    trainer = make_trainer(tmp_path / "killed", **changes)
    trainer.callbacks.append(KillAtEvaluation())
    with pytest.raises(Killed):
        trainer.fit(DataLoader(Augmented(), 7, shuffle=True), DataLoader(Augmented(20), 7))
    assert_same(outcome(tmp_path / "killed", run(tmp_path / "killed", 0, **changes)), expected)
    assert_same(outcome(tmp_path / "killed", run(tmp_path / "killed", 0, **changes)), expected)


def test_going_on_in_the_same_process_forgets_what_was_on_its_way(tmp_path: Path) -> None:
    expected = outcome(tmp_path / "whole", run(tmp_path / "whole", 0))
    trainer = make_trainer(tmp_path / "killed")
    trainer.callbacks.append(KillAt(6))  # the record of step 6 is submitted, and not delivered
    train_loader, val_loader = DataLoader(Augmented(), 7, shuffle=True), DataLoader(Augmented(20), 7)
    with pytest.raises(Killed):
        trainer.fit(train_loader, val_loader)
    trainer.callbacks.pop()
    trainer.fit(train_loader, val_loader, resume=True)
    assert_same(outcome(tmp_path / "killed", trainer), expected)


def test_an_epoch_that_was_broken_off_begins_anew_without_a_resume(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.callbacks.append(KillAt(3))
    with pytest.raises(Killed):
        trainer.fit(DataLoader(Augmented(), 7), DataLoader(Augmented(20), 7))
    trainer.callbacks[-1] = KillAt(5)
    with pytest.raises(Killed):
        trainer.fit(DataLoader(Augmented(), 7), DataLoader(Augmented(20), 7))
    assert trainer.position.num_batches == 4


def test_a_run_that_a_callback_ended_goes_on_and_one_that_stopped_early_does_not(tmp_path: Path) -> None:
    class Preempted(Callback):
        def on_step(self, trainer: Trainer) -> None:
            trainer.should_stop = trainer.step == 6

    trainer = make_trainer(tmp_path / "ended")
    trainer.callbacks.append(Preempted())
    trainer.fit(DataLoader(Augmented(), 7, shuffle=True), DataLoader(Augmented(20), 7))
    assert trainer.step == 6
    assert run(tmp_path / "ended", 0).step == 21

    def patient() -> Trainer:
        trainer = make_trainer(tmp_path / "early", early_stopping_patience=1, early_stopping_mode="max", eval_every=2)
        trainer.fit(DataLoader(Augmented(), 7), [(torch.zeros(2, 6), torch.tensor([0, 1]))], resume=True)
        return trainer

    stopped = patient().step
    assert stopped < 21
    assert patient().step == stopped


def test_a_checkpoint_of_something_else_is_one_line(tmp_path: Path) -> None:
    def fit(width: int, optimizer: Any, resume: bool = True) -> None:
        model = nn.Sequential(nn.Linear(6, width), nn.Linear(width, 3))
        trainer = Trainer(
            model, optimizer, CrossEntropy(), TrainingSettings(progress=False), checkpoints=tmp_path, device="cpu"
        )
        trainer.fit(DataLoader(Augmented(), 7), resume=resume)

    sgd = lambda model: torch.optim.SGD(model.parameters(), lr=0.1)
    fit(4, sgd, resume=False)
    with pytest.raises(
        RuntimeError, match=r"step-000000013\.pt does not fit the model and optimizer: .*size mismatch"
    ) as caught:
        fit(5, sgd)
    assert "\n" not in str(caught.value)
    with pytest.raises(RuntimeError, match=r"is of a run with SGD; this one has Adam$"):
        fit(4, lambda model: torch.optim.Adam(model.parameters()))
    with pytest.raises(RuntimeError, match="different number of parameter groups"):
        fit(4, lambda model: torch.optim.SGD([{"params": [p]} for p in model.parameters()], lr=0.1))


def test_a_state_that_cannot_be_saved_is_named_before_training(tmp_path: Path) -> None:
    class Seen(Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"seen": {1, 2}}

        def load_state_dict(self, state: Any) -> None: ...

    trainer = make_trainer(tmp_path)
    trainer.callbacks.append(Seen())
    with pytest.raises(TypeError, match=r"the state of Seen\['seen'\] is a set: a checkpoint holds"):
        trainer.fit(DataLoader(Augmented(), 7), DataLoader(Augmented(20), 7))
    assert trainer.step == 0


def test_an_fp16_overflow_just_before_a_checkpoint_does_not_end_training(tmp_path: Path) -> None:
    calls = iter(range(100))
    model = nn.Linear(6, 3)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        value = nn.functional.cross_entropy(model(batch[0]).float(), batch[1])
        return value * float("inf") if next(calls) == 3 else value

    settings = TrainingSettings(precision="fp16", log_every=3, checkpoint_every=4, progress=False)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), loss, settings, checkpoints=tmp_path, device="cpu")
    trainer.fit(DataLoader(Augmented(), 7))
    assert trainer.step == 13


def test_a_learning_rate_that_is_a_tensor_stays_on_its_device() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    saved = {**optimizer.state_dict()}
    saved["param_groups"] = [{**saved["param_groups"][0], "lr": torch.tensor(0.1)}]
    optimizer.param_groups[0]["lr"] = torch.tensor(0.1, device="meta")  # in place of a card
    load_full_state(model, optimizer, (model.state_dict(), saved))
    assert optimizer.param_groups[0]["lr"].is_meta


class Lookahead:
    """Fetches two batches ahead, as DevicePrefetcher does where there is a card."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        waiting: deque[Any] = deque()
        for batch in self.loader:
            waiting.append(batch)
            if len(waiting) > 2:
                yield waiting.popleft()
        yield from waiting


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("step", [9, 13])
def test_batches_that_were_fetched_ahead_are_not_lost(
    seed: int | None, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint stands where the loop stands, at 8 and at 12 of 13 batches: there the loader is at its end already."""

    def fit(folder: Path, stop_at: int | None) -> Trainer:
        trainer = make_trainer(folder, accumulation_steps=1, epochs=2)
        if stop_at is not None:
            trainer.callbacks.append(KillAt(stop_at))
        batches = make_loader(Augmented(), 7, shuffle=True, seed=seed, num_workers=1, persistent_workers=False)
        trainer.fit(batches, DataLoader(Augmented(20), 7), resume=True)
        return trainer

    expected = outcome(tmp_path / "whole", fit(tmp_path / "whole", None))
    monkeypatch.setattr(feed, "on_device", lambda loader, device: Lookahead(loader))
    with pytest.raises(Killed):
        fit(tmp_path / "killed", step)
    assert_same(outcome(tmp_path / "killed", fit(tmp_path / "killed", None)), expected)
