"""A loader made with a seed: order and random numbers by (seed, epoch, batch), resumed in mid-epoch."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
from perflint_runtime import LengthBucketSampler, make_loader
from perflint_runtime.resumable import ResumableLoader
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Augmented(Dataset):
    """Sample i with noise from three generators."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> list[float]:
        return [index, random.random(), float(np.random.rand()), float(torch.rand(()))]


def rows(loader: DataLoader[object], stop_after: int | None = None) -> list[list[list[float]]]:
    batches = []
    for batch in loader:
        batches.append(torch.stack(batch, 1).tolist())
        if len(batches) == stop_after:
            break
    return batches


def loader(num_workers: int = 0, **arguments: object) -> DataLoader[object]:
    return make_loader(Augmented(), **{"batch_size": 4, "shuffle": True, "seed": 7, "num_workers": num_workers, **arguments})


WHOLE = [rows(whole) for whole in [loader()] * 3]


def test_epochs_differ_and_hold_every_sample() -> None:
    for epoch in WHOLE:
        assert sorted(int(row[0]) for batch in epoch for row in batch) == list(range(23))
        assert [len(batch) for batch in epoch] == [4, 4, 4, 4, 4, 3]
    assert WHOLE[0] != WHOLE[1] != WHOLE[2]
    assert len({row[1] for epoch in WHOLE for batch in epoch for row in batch}) == 69


@pytest.mark.parametrize("settings", [{"num_workers": 1}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": False}])
def test_the_number_of_workers_changes_nothing(settings: dict[str, int]) -> None:
    with_workers = loader(**settings)
    assert isinstance(with_workers, ResumableLoader)
    assert [rows(with_workers) for _ in range(3)] == WHOLE


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("done", [1, 3, 6])
def test_resume_in_mid_epoch_is_exact_although_workers_ran_ahead(num_workers: int, done: int) -> None:
    killed = loader(num_workers)
    rows(killed)
    iterator = iter(killed)
    for _ in range(done):
        next(iterator)
    saved = json.loads(json.dumps(killed.state_dict()))
    assert (saved["epoch"], saved["next_batch"]) == (1, done)
    resumed = loader(num_workers)
    resumed.load_state_dict(saved)
    resumed.set_epoch(1)
    assert rows(resumed) == WHOLE[1][done:]
    assert rows(resumed) == WHOLE[2]


def test_a_state_saved_between_epochs_goes_on_with_the_next() -> None:
    finished = loader()
    rows(finished)
    resumed = loader()
    resumed.load_state_dict(finished.state_dict())
    assert rows(resumed) == WHOLE[1]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_broken_off_starts_again(num_workers: int) -> None:
    broken = loader(num_workers)
    assert rows(broken, stop_after=5) == WHOLE[0][:5]
    assert rows(broken) == WHOLE[0]


def test_set_epoch_picks_one() -> None:
    picking = loader()
    for epoch in (2, 0, 1):
        picking.set_epoch(epoch)
        assert rows(picking) == WHOLE[epoch]


def test_generators_of_the_program_are_left_alone() -> None:
    def states() -> list[object]:
        return [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]

    before = states()
    rows(loader(), stop_after=3)
    rows(loader(1))
    assert states() == before


def test_an_error_in_the_dataset_gives_the_generators_back() -> None:
    class Failing(Augmented):
        def __getitem__(self, index: int) -> list[float]:
            raise OSError("unreadable")

    before = torch.get_rng_state()
    with pytest.raises(OSError, match="unreadable"):
        rows(make_loader(Failing(), 4, seed=0, num_workers=0))
    assert torch.equal(torch.get_rng_state(), before)


def test_ranks_share_the_samples_and_draw_differently() -> None:
    ranks = [rows(loader(rank=rank, world_size=2)) for rank in range(2)]
    seen = [int(row[0]) for batches in ranks for batch in batches for row in batch]
    assert set(seen) == set(range(23))
    assert len(seen) == 24
    assert len({row[1] for batches in ranks for batch in batches for row in batch}) == 24


def test_buckets_resume_too() -> None:
    def bucketed() -> DataLoader[object]:
        return make_loader(Augmented(), batch_sampler=LengthBucketSampler(range(1, 24), max_tokens=60), seed=1, num_workers=0)

    whole = bucketed()
    assert len(whole) == len(rows(whole))
    whole.set_epoch(0)
    epoch = rows(whole)
    killed = bucketed()
    rows(killed, stop_after=2)
    resumed = bucketed()
    resumed.load_state_dict(killed.state_dict())
    assert rows(resumed) == epoch[2:]


def test_the_dataset_is_reachable() -> None:
    made = make_loader(TensorDataset(torch.arange(5)), 2, seed=0)
    assert len(made.dataset) == 5
    assert made.dataset[3] == (torch.tensor(3),)
    assert made.dataset.tensors[0].shape == (5,)
    assert len(made) == 3
    assert torch.cat([batch for (batch,) in made]).tolist() == [0, 1, 2, 3, 4]


def test_a_dataset_that_fetches_batches_is_asked_for_batches() -> None:
    class Fetching(Augmented):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [index * 10 for index in indices]

    assert next(iter(make_loader(Fetching(), 3, seed=0, num_workers=0))).tolist() == [0, 10, 20]


def test_a_state_of_another_loader_is_refused() -> None:
    with pytest.raises(ValueError, match="seed=7, this one 8"):
        loader(seed=8).load_state_dict(loader().state_dict())


def test_spawned_workers_draw_the_same() -> None:
    assert rows(loader(1, multiprocessing_context="spawn")) == WHOLE[0]
