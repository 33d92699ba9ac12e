"""A `DataLoader` whose order and random numbers are a function of (seed, epoch, batch), so that it resumes mid-epoch.

Why not restore generators: each worker has its own, and what a worker has drawn depends on how far it has run ahead. So
each batch is loaded under a seed of its own, in whichever process loads it, and resuming only needs two numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from perflint_runtime.sampling import LengthBucketSampler


@runtime_checkable
class ResumableBatchSampler(Protocol):
    """What `ResumableLoader` asks of a batch sampler; `LengthBucketSampler` is one."""

    epoch: int

    def __iter__(self) -> Iterator[list[int]]: ...
    def __len__(self) -> int: ...
    def set_epoch(self, epoch: int) -> None: ...
    def state_dict(self) -> dict[str, int]: ...
    def load_state_dict(self, state: Mapping[str, int]) -> None: ...


class ResumableLoader(DataLoader[object]):
    """Made by `make_loader(dataset, batch_size, shuffle=True, seed=0)`.

    `set_epoch(e)` picks the epoch; without it, one that was iterated to its end is followed by the next. `state_dict()`
    is the position of what the loop has received, however far workers have run ahead, as two numbers and what the
    sampler says of itself; `load_state_dict` makes the next iteration yield the rest of that epoch, none if all batches
    had been received. No batch is loaded only to be skipped.

    While a batch is loaded, `random` and the global generators of numpy and torch (CPU) are seeded from (seed, epoch,
    batch). In the main process (`num_workers=0`) they are put back after each batch. So augmentations are the same with
    any number of workers, and after a resume. A generator object that the dataset holds itself is out of reach.

    `loader.dataset` is the dataset in a thin wrapper, with the same items and length.

    Raises:
        ValueError: a batch_sampler without `set_epoch`, `state_dict` and `load_state_dict`, or as `DataLoader` does.

    """

    def __init__(
        self,
        dataset: Dataset[object] | Sequence[object],
        *,
        batch_size: int | None,
        shuffle: bool,
        batch_sampler: Iterable[list[int]] | None,
        seed: int,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        **dataloader_arguments: object,
    ) -> None:
        if batch_sampler is None:
            # samples of one length: what is left of bucketing is a permutation for each epoch, cut into batches
            batch_sampler = LengthBucketSampler(
                np.ones(len(dataset), dtype=np.int64),  # type: ignore[arg-type] # a map-style dataset has a length
                batch_size,
                seed=seed,
                shuffle=shuffle,
                drop_last=drop_last,
                rank=rank,
                world_size=world_size,
            )
        elif world_size != 1:
            raise ValueError("a batch_sampler makes whole batches: give rank and world_size to it")
        if not isinstance(batch_sampler, ResumableBatchSampler):
            raise ValueError(
                f"a loader with seed=... resumes its batch_sampler, but {type(batch_sampler).__name__} lacks epoch, set_epoch, "
                "state_dict or load_state_dict: use LengthBucketSampler"
            )
        self.seed = seed
        self._batches = _SeededBatches(batch_sampler, seed, rank)
        super().__init__(
            _SeededDataset(dataset),
            batch_sampler=self._batches,
            # at the start of an iteration DataLoader draws a number; from the global generator it would shift the
            # random numbers of a resumed run against those of one that was not interrupted
            generator=torch.Generator(),
            **dataloader_arguments,  # type: ignore[arg-type] # make_loader has checked them
        )

    def __iter__(self) -> Iterator[object]:  # type: ignore[override] # torch's type names its private iterator
        self._batches.start()
        return self._received(super().__iter__(), self._batches.epoch)

    def _received(self, batches: Iterator[object], epoch: int) -> Iterator[object]:
        position = self._batches
        for batch in batches:
            position.received += 1
            yield batch
        if position.epoch == epoch:
            position.set_epoch(epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Begin this epoch with the next iteration. A position in it that was loaded is kept."""
        self._batches.set_epoch(epoch)

    @property
    def place(self) -> tuple[int, int] | None:
        """The rank of this process and the number of processes that share the data; None if the sampler does not tell."""
        sampler = self._batches.sampler
        return (sampler.rank, sampler.world_size) if isinstance(sampler, LengthBucketSampler) else None

    def share(self, rank: int, world_size: int) -> None:
        """Load this process's share only, as if `rank` and `world_size` had been given when the loader was made.

        Raises:
            TypeError: the sampler is none of this package, and cannot be divided.

        """
        sampler = self._batches.sampler
        if not isinstance(sampler, LengthBucketSampler):
            raise TypeError(f"a {type(sampler).__name__} cannot be divided: give rank and world_size to it")
        sampler.share(rank, world_size)
        self._batches.rank = rank

    def state_dict(self) -> dict[str, int]:
        """Where the training loop stands; plain numbers."""
        return {**self._batches.sampler.state_dict(), "epoch": self._batches.epoch, "next_batch": self._batches.received}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next iteration yield the rest of the saved epoch.

        Raises:
            ValueError: the state is of another seed, number of samples or of ranks, or size of batches.

        """
        self._batches.sampler.load_state_dict(state)
        self._batches.epoch, self._batches.received, self._batches.resumed = state["epoch"], state["next_batch"], True


class _SeededBatches:
    """Batches of indices that carry what to seed from; knows the epoch and how many batches the loop has received."""

    def __init__(self, sampler: ResumableBatchSampler, seed: int, rank: int) -> None:
        self.sampler = sampler
        self.seed = seed
        self.rank = rank
        self.epoch = sampler.epoch
        self.received = 0
        self.resumed = False
        self.batch_size: int | None = getattr(sampler, "batch_size", None)
        self.drop_last: bool = getattr(sampler, "drop_last", False)

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch or not self.resumed:
            self.epoch, self.received, self.resumed = epoch, 0, False

    def start(self) -> None:
        """Put the sampler where the loop stands: workers may have let it run ahead in an iteration that was broken off."""
        if not self.resumed:
            self.received = 0
        self.resumed = False
        self.sampler.load_state_dict({**self.sampler.state_dict(), "epoch": self.epoch, "next_batch": self.received})

    def __len__(self) -> int:
        if self.sampler.epoch != self.epoch:
            self.sampler.set_epoch(self.epoch)
        return len(self.sampler)

    def __iter__(self) -> Iterator[list[int]]:
        epoch = self.epoch
        for number, indices in enumerate(self.sampler, start=self.received):
            yield _SeededIndices(indices, f"{self.seed} {self.rank} {epoch} {number}")


class _SeededIndices(list[int]):
    def __init__(self, indices: Iterable[int] = (), draw: str = "") -> None:
        super().__init__(indices)
        self.draw = draw


class _SeededDataset(Dataset[object]):
    """The dataset, read under the seed that comes with the indices."""

    def __init__(self, dataset: Dataset[object] | Sequence[object]) -> None:
        self.dataset = dataset
        self.spare_bits = np.random.MT19937(0)

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type] # a map-style dataset has a length

    def __getitem__(self, index: int) -> object:
        return self.dataset[index]

    def __getattr__(self, name: str) -> object:
        if name == "dataset":  # not there yet while a worker unpickles
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __getitems__(self, indices: list[int]) -> Sequence[object]:
        with _seeded(getattr(indices, "draw", ""), self.spare_bits):
            fetch = getattr(self.dataset, "__getitems__", None)
            return fetch(list(indices)) if fetch else [self.dataset[index] for index in indices]


@contextlib.contextmanager
def _seeded(draw: str, spare_bits: np.random.MT19937) -> Iterator[None]:
    """Seed the global generators of the CPU; the main process gets them back as they were.

    numpy's is exchanged for a spare one: to save and restore its state costs 80 us, exchanging it less than 1.
    """
    seed = int.from_bytes(hashlib.blake2b(draw.encode(), digest_size=8).digest(), "little") >> 1
    in_worker = get_worker_info() is not None
    before = None
    if not in_worker:
        bits = np.random.get_bit_generator()  # type: ignore[attr-defined] # numpy's types lack it
        before = (random.getstate(), bits, torch.get_rng_state())
        np.random.set_bit_generator(spare_bits)  # type: ignore[attr-defined] # numpy's types lack it
    random.seed(seed)
    np.random.seed([seed & 0xFFFFFFFF, seed >> 32])
    torch.default_generator.manual_seed(seed)  # not torch.manual_seed: it would seed the accelerators as well
    try:
        yield
    finally:
        if before is not None:
            random.setstate(before[0])
            np.random.set_bit_generator(before[1])  # type: ignore[attr-defined] # numpy's types lack it
            torch.set_rng_state(before[2])
