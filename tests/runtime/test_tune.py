"""tune_loader: it picks by what it measured, within its time, and leaves the program as it was."""

from __future__ import annotations

import os
import random
import sys
import time

import numpy as np
import pytest
import torch
from conftest import HANG_S
from perflint_runtime import tune_loader
from perflint_runtime.resumable import ResumableLoader
from perflint_runtime.tune import LoaderTiming, choose, default_candidates
from torch.utils.data import Dataset, IterableDataset


class Clock:
    """A clock of one process that moves when it is asked, and when something says that it sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


clock = Clock()


@pytest.fixture(autouse=True)
def _made_up_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measuring process is a fork and has this clock, too; a worker has its own, so that reading there is free."""
    if not hasattr(os, "fork"):
        pytest.skip("needs a measuring process that is a fork")
    monkeypatch.setattr(sys.modules["perflint_runtime.tune"], "time", clock)


class Slow(Dataset):
    """Reads for some time, and notes what was read."""

    def __init__(self, read_s: float = 10.0) -> None:
        self.read_s = read_s
        self.read: list[int] = []

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        clock.sleep(self.read_s)
        self.read.append(index)
        random.random()
        return index


class Broken(Slow):
    def __getitem__(self, index: int) -> int:
        raise OSError("the disk is gone")


def test_workers_win_where_samples_are_slow_to_read_and_nothing_else_changes() -> None:
    dataset = Slow()
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    tuned = tune_loader(dataset, 4, budget_s=HANG_S, candidates=[(0, None), (2, 2)], progress=False, shuffle=True)
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    assert dataset.read == []
    assert tuned.settings == {"num_workers": 2, "prefetch_factor": 2}
    assert tuned.loader.num_workers == 2
    none, two = tuned.timings
    assert none.wait_ms == pytest.approx(41_000, rel=0.2)  # four samples and a look at the clock
    assert two.wait_ms == pytest.approx(1000, rel=0.2)  # the look alone
    assert none.batches > 10
    assert tuned.table().splitlines()[2].endswith("<- chosen")


class Hanging(Slow):
    def __getitem__(self, index: int) -> int:
        time.sleep(HANG_S)
        raise AssertionError("it was waited for")


def test_it_keeps_to_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["perflint_runtime.tune"], "time", time)
    with pytest.raises(RuntimeError, match=r"no candidate delivered two batches in its share of 0.4 s"):
        tune_loader(Hanging(), 4, budget_s=0.4, candidates=[(0, None)], progress=False)


def test_an_error_in_the_dataset_is_named() -> None:
    with pytest.raises(RuntimeError, match="measured nothing: OSError: the disk is gone"):
        tune_loader(Broken(), 4, budget_s=HANG_S, candidates=[(0, None)], progress=False)


def test_the_loader_is_made_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    tuned = tune_loader(Slow(0), 8, budget_s=HANG_S, candidates=[(0, None)], seed=3, step_s=3.0)
    assert isinstance(tuned.loader, ResumableLoader)
    assert len(tuned.loader) == 5
    assert "tune_loader" in capsys.readouterr().err


def timing(num_workers: int, prefetch_factor: int | None, wait_ms: float) -> LoaderTiming:
    return LoaderTiming(num_workers, prefetch_factor, 0.1, wait_ms, 10)


def test_fewer_workers_win_if_they_are_close() -> None:
    slow, good, best, more = timing(0, None, 9.0), timing(2, 2, 1.04), timing(4, 2, 1.0), timing(4, 4, 1.0)
    assert choose([slow, more, best, good]) is good
    assert choose([slow, more, best]) is best


@pytest.mark.parametrize(
    ("cores", "expected"),
    [(1, [(0, None), (1, 2), (1, 4)]), (6, [(0, None), (1, 2), (2, 2), (4, 2), (6, 2), (6, 4)])],
)
def test_candidates_double_up_to_the_cores(cores: int, expected: list[tuple[int, int | None]]) -> None:
    assert default_candidates(cores) == expected


class Stream(IterableDataset):
    def __iter__(self) -> object:
        return iter(range(4))


@pytest.mark.parametrize(
    ("dataset", "settings", "text"),
    [
        (Slow(), {"budget_s": 0}, "budget_s is a positive number of seconds, got 0"),
        (Slow(), {"candidates": []}, "candidates is empty"),
        (Stream(), {}, "needs a map-style dataset"),
    ],
)
def test_what_is_refused(dataset: Dataset, settings: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tune_loader(dataset, 4, progress=False, **settings)
