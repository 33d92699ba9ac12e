"""make_loader: what it chooses, what it refuses, and that an explicit argument wins."""

from __future__ import annotations

import random
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from perflint_runtime import LengthBucketSampler, loaders, make_loader
from perflint_runtime.cores import cgroup_cpu_quota, usable_cores
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, SequentialSampler, Subset, TensorDataset

TENSORS = TensorDataset(torch.arange(10))


class Files(Dataset):
    """Stands for data that is read and decoded."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        return index


class Drawing(Files):
    """Augments with numbers from all three global generators."""

    def __getitem__(self, index: int) -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))


class Stream(IterableDataset):
    def __iter__(self) -> object:
        return iter(range(4))


class WithEpochs(Files):
    def set_epoch(self, epoch: int) -> None: ...


class WithGenerator(Files):
    def __init__(self) -> None:
        self.noise = np.random.default_rng(0)


class WithLock(Files):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.large = torch.zeros(10)


@pytest.fixture
def six_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaders, "usable_cores", lambda: 6)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


@pytest.mark.parametrize(
    ("dataset", "batch_size", "expected"),
    [
        (Files(), 1, 5),
        (Files(), 32, 2),
        (TENSORS, 1, 0),
        (Subset(TENSORS, [1, 2]), 1, 0),
        (ConcatDataset([TENSORS, TENSORS]), 1, 0),
        (ConcatDataset([TENSORS, Files()]), 1, 5),
        ([1, 2, 3], 1, 0),
        (np.ones((5, 2)), 1, 0),
        (Stream(), 1, 0),
    ],
)
@pytest.mark.usefixtures("six_cores")
def test_workers_for_data_that_must_be_read_not_for_data_in_memory(dataset: object, batch_size: int, expected: int) -> None:
    loader = make_loader(dataset, batch_size)
    assert isinstance(loader, DataLoader)
    assert loader.num_workers == expected
    assert loader.persistent_workers == (expected > 0)


@pytest.mark.usefixtures("six_cores")
def test_processes_of_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert make_loader(Files()).num_workers == 2


@pytest.mark.usefixtures("six_cores")
def test_an_explicit_argument_wins() -> None:
    loader = make_loader(TENSORS, 5, num_workers=2, prefetch_factor=7, persistent_workers=False, pin_memory=True, device="cpu")
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers, loader.pin_memory) == (2, 7, False, True)
    assert make_loader(Files(), num_workers=0).num_workers == 0


@pytest.mark.usefixtures("six_cores")
def test_workers_are_not_kept_when_the_dataset_wants_to_hear_of_epochs() -> None:
    assert make_loader(WithEpochs()).persistent_workers is False


@pytest.mark.parametrize(
    ("device", "expected"), [("cuda", True), (None, True), ("cuda:1", True), ("cpu", False), ("mps", False)]
)
def test_memory_is_pinned_for_an_accelerator(monkeypatch: pytest.MonkeyPatch, device: str | None, expected: bool) -> None:
    assert make_loader(TENSORS, device=device).pin_memory is False
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    assert make_loader(TENSORS, device=device).pin_memory is expected


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"non_blocking": True}, TypeError, r"no argument 'non_blocking': it belongs to the copy: batch.to\(device"),
        ({"colate_fn": list}, TypeError, "no argument 'colate_fn': see torch.utils.data.DataLoader"),
        ({"num_workers": 0, "prefetch_factor": 2}, ValueError, "prefetch_factor concerns workers, and num_workers is 0"),
        ({"num_workers": 0, "persistent_workers": True}, ValueError, "persistent_workers concerns workers"),
        ({"num_workers": 0, "multiprocessing_context": "spawn"}, ValueError, "multiprocessing_context concerns workers"),
        ({"num_workers": 0, "timeout": 3}, ValueError, "timeout concerns workers"),
        (
            {"prefetch_factor": 2},
            ValueError,
            r"none are used for this TensorDataset \(its data is in memory.*BatchedTensorLoader",
        ),
        ({"num_workers": 1, "prefetch_factor": 0}, ValueError, "prefetch_factor is at least 1 batch per worker, got 0"),
        ({"num_workers": -1}, ValueError, "num_workers is at least 0, got -1"),
        ({"batch_size": 0}, ValueError, "batch_size is at least 1, got 0"),
        ({"shuffle": True, "sampler": SequentialSampler(TENSORS)}, ValueError, "shuffle=True and a sampler exclude each other"),
        (
            {"batch_sampler": [[1]], "batch_size": 2, "drop_last": True},
            ValueError,
            "a batch_sampler makes whole batches: leave out batch_size, drop_last",
        ),
        ({"seed": 1, "sampler": [1]}, ValueError, "leave out sampler and generator"),
        ({"world_size": 2}, ValueError, "rank and world_size need seed"),
        ({"seed": 1, "batch_sampler": [[1]]}, ValueError, "list lacks epoch, set_epoch"),
    ],
)
def test_combinations_that_cannot_work(arguments: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make_loader(TENSORS, **arguments)


def test_an_iterable_dataset_decides_its_own_order() -> None:
    with pytest.raises(ValueError, match="an IterableDataset decides its own order"):
        make_loader(Stream(), shuffle=True)
    with pytest.raises(ValueError, match="needs a map-style dataset"):
        make_loader(Stream(), seed=1)
    assert [batch.tolist() for batch in make_loader(Stream(), 3)] == [[0, 1, 2], [3]]


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_what_cannot_be_sent_to_spawned_workers_is_said_before_they_start(start: str) -> None:
    with pytest.raises(ValueError, match=r"collate_fn cannot be sent to workers, which are spawned here.*no lambda"):
        make_loader(Files(), num_workers=1, multiprocessing_context=start, collate_fn=lambda samples: samples)
    with pytest.raises(ValueError, match=r"dataset cannot be sent to workers.*lock"):
        make_loader(WithLock(), num_workers=1, multiprocessing_context=start)
    make_loader(WithLock(), num_workers=1, multiprocessing_context="fork", collate_fn=lambda samples: samples)


def test_tensors_are_not_copied_to_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "__reduce_ex__", lambda *_: pytest.fail("a tensor was pickled"))
    make_loader(TENSORS, num_workers=1, multiprocessing_context="spawn")


def test_spawned_workers_load() -> None:
    loader = make_loader(Files(), 32, num_workers=1, multiprocessing_context="spawn")
    assert torch.cat(list(loader)).tolist() == list(range(64))


def test_torch_seeds_all_generators_of_workers() -> None:
    rows = torch.cat([torch.stack(batch, 1) for batch in make_loader(Drawing(), 8, num_workers=2)])
    assert len(rows.unique(dim=0)) == 64
    assert all(len(column.unique()) == 64 for column in rows.T)


def test_a_generator_in_the_dataset_is_warned_of_with_workers() -> None:
    with pytest.warns(UserWarning, match="WithGenerator.noise is a random generator: every worker gets a copy"):
        make_loader(WithGenerator(), num_workers=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_loader(WithGenerator(), num_workers=0)
        make_loader(WithGenerator(), num_workers=2, worker_init_fn=print)


def test_dropping_the_only_batch_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="no batch at all: 10 samples are fewer than batch_size=16"):
        make_loader(TENSORS, 16, drop_last=True)


def test_a_batch_sampler_is_used() -> None:
    sampler = LengthBucketSampler(range(1, 11), max_tokens=12)
    loader = make_loader(TENSORS, batch_sampler=sampler)
    assert sorted(torch.cat([batch for (batch,) in loader]).tolist()) == list(range(10))


def test_cores_are_what_the_scheduler_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert 1 <= usable_cores() <= 3


def control_groups(root: Path, membership: str, files: dict[str, str]) -> Path:
    for path, text in {"proc/self/cgroup": membership, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2.5),
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "400000 100000\n"}, 4.0),
        ("0::/only/on/the/host\n", {"sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1.0),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        (
            "4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
            1.5,
        ),
        (
            "4:cpu:/\n",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
            None,
        ),
        ("0::/\n", {}, None),
    ],
)
def test_the_quota_of_a_container(tmp_path: Path, membership: str, files: dict[str, str], expected: float | None) -> None:
    assert cgroup_cpu_quota(control_groups(tmp_path, membership, files)) == expected


def test_no_control_groups(tmp_path: Path) -> None:
    assert cgroup_cpu_quota(tmp_path) is None
