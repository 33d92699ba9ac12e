"""Batches of similar length, in an order that is a function of (seed, epoch) and can be resumed in its middle.

numpy only: no torch is imported. The draws come from `numpy.random.RandomState`, whose streams numpy has frozen
(NEP 19), so a run that is resumed after an upgrade of numpy still sees the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

_Int64s = npt.NDArray[np.int64]


class LengthBucketSampler:
    """A batch sampler: `DataLoader(dataset, batch_sampler=LengthBucketSampler(lengths, batch_size=32))`.

    An epoch is one permutation of all samples, cut into megabatches of `megabatch` batches. Each megabatch is sorted by
    length and cut into batches, and the batches are shuffled. So neighbours in length share a batch, yet which samples
    meet differs from epoch to epoch. The cost is one sort per epoch, O(n log n), in numpy.

    Args:
        lengths: of each sample, in tokens; sample i of the dataset has `lengths[i]`.
        batch_size: samples per batch and rank. Exactly one of `batch_size` and `max_tokens` is given.
        max_tokens: the largest padded size of a batch on a rank, samples x longest sample.
        seed: with the epoch it decides the order; 0 to 2**32 - 1.
        shuffle: False keeps the order of the dataset but for the sort inside each megabatch.
        megabatch: batches per sorted group; larger is less padding and less randomness. Small data sets get smaller
            groups, four at least: sorted as a whole, the same samples would meet in every epoch.
        drop_last: with `batch_size`, leaves out the last, incomplete batch. With `max_tokens`, where no batch size is
            the full one, leaves out only what would have to be repeated for the ranks (below).
        longest_first: puts the batch with the longest sample first, so that running out of memory shows at step 1.
        rank, world_size: this process, and how many there are. A step's batches on all ranks are neighbours in length.
            All ranks have the same number of batches of the same sizes; like `DistributedSampler`, up to
            `world_size - 1` samples of the epoch are repeated so that the count divides (`drop_last=True` drops them).

    The incomplete batch, if there is one, comes last. An epoch that was iterated to its end moves on to the next epoch
    by itself; `set_epoch` overrides. In a `DataLoader` with workers the sampler runs ahead of the training loop: save
    the position with the loader (`make_loader(..., seed=...)`), which counts what has arrived.

    Raises:
        ValueError: both or none of batch_size and max_tokens, a sample longer than max_tokens, a rank outside the
            world, a negative length.

    """

    def __init__(
        self,
        lengths: Sequence[int] | npt.NDArray[np.integer],
        batch_size: int | None = None,
        *,
        max_tokens: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        megabatch: int = 50,
        drop_last: bool = False,
        longest_first: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.lengths: _Int64s = np.asarray(lengths, dtype=np.int64)
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.seed = seed
        self.shuffle = shuffle
        self.megabatch = megabatch
        self.drop_last = drop_last
        self.longest_first = longest_first
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0
        self._check()
        self._next_batch = 0
        self._resumed = False
        self._planned_epoch: int | None = None
        self._indices: _Int64s = np.empty(0, np.int64)
        self._ends: _Int64s = np.empty(0, np.int64)

    def _check(self) -> None:
        if (self.batch_size is None) == (self.max_tokens is None):
            raise ValueError(
                "LengthBucketSampler needs exactly one of batch_size and max_tokens, "
                f"got batch_size={self.batch_size} and max_tokens={self.max_tokens}"
            )
        for name, value in [("batch_size", self.batch_size), ("max_tokens", self.max_tokens), ("megabatch", self.megabatch)]:
            if value is not None and value < 1:
                raise ValueError(f"{name} is at least 1, got {value}")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank is from 0 to world_size - 1 = {self.world_size - 1}, got {self.rank}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is from 0 to 2**32 - 1, got {self.seed}")
        if self.lengths.ndim != 1:
            raise ValueError(f"lengths is one number per sample, got an array of shape {self.lengths.shape}")
        if self.lengths.size and self.lengths.min() < 0:
            worst = int(self.lengths.argmin())
            raise ValueError(f"lengths[{worst}] is {self.lengths[worst]}; a length is at least 0")
        if self.max_tokens is not None and self.lengths.size and self.lengths.max() > self.max_tokens:
            worst = int(self.lengths.argmax())
            raise ValueError(
                f"sample {worst} has {self.lengths[worst]} tokens, more than max_tokens={self.max_tokens}: "
                "truncate it, leave it out, or raise max_tokens"
            )

    def share(self, rank: int, world_size: int) -> None:
        """Make the batches of this rank among `world_size`, as if they had been given when the sampler was made.

        Raises:
            ValueError: the rank is outside of the world.

        """
        self.rank, self.world_size = rank, world_size
        self._check()
        self._planned_epoch = None

    def set_epoch(self, epoch: int) -> None:
        """Begin this epoch with the next iteration, from its first batch. A resumed position in this epoch is kept."""
        if epoch == self.epoch and self._resumed:
            return
        self.epoch = epoch
        self._next_batch = 0
        self._resumed = False

    def __len__(self) -> int:
        """Batches of the present epoch on this rank, those already handed out included."""
        self._plan()
        return len(self._ends)

    def __iter__(self) -> Iterator[list[int]]:
        if not self._resumed:
            self._next_batch = 0
        self._resumed = False
        self._plan()
        epoch, indices, ends = self.epoch, self._indices, self._ends
        for batch in range(self._next_batch, len(ends)):
            self._next_batch = batch + 1
            yield indices[ends[batch - 1] if batch else 0 : ends[batch]].tolist()
        if self.epoch == epoch:
            self.set_epoch(epoch + 1)

    def state_dict(self) -> dict[str, int]:
        """Where the sampler stands: plain numbers, fit for a checkpoint that is loaded with `weights_only=True`."""
        return {
            "epoch": self.epoch,
            "next_batch": self._next_batch,
            "seed": self.seed,
            "samples": len(self.lengths),
            "world_size": self.world_size,
            "batch_size": self.batch_size or 0,
            "max_tokens": self.max_tokens or 0,
        }

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next iteration yield the batches of the saved epoch that were not handed out.

        Raises:
            ValueError: the state was saved with another seed, number of samples or of ranks, or size of batches.

        """
        ours = self.state_dict()
        for name in ("seed", "samples", "world_size", "batch_size", "max_tokens"):
            if state.get(name, ours[name]) != ours[name]:
                raise ValueError(f"cannot resume: the saved sampler has {name}={state[name]}, this one {ours[name]}")
        self.epoch = state["epoch"]
        self._next_batch = state["next_batch"]
        self._resumed = True

    def _plan(self) -> None:
        """Work out all batches of the epoch; `_ends` are positions in `_indices` after each batch of this rank."""
        if self._planned_epoch == self.epoch:
            return
        random = np.random.RandomState([self.seed, self.epoch])
        count, ranks = len(self.lengths), self.world_size
        order = random.permutation(count) if self.shuffle else np.arange(count)
        if self.drop_last:
            order = order[: count - count % ranks]
        elif count % ranks:
            order = np.resize(order, count + ranks - count % ranks)  # repeats from the start, as DistributedSampler does
        starts, order = self._batch_starts(order)
        ends = np.append(starts[1:], len(order))[: len(starts)]
        if len(starts):
            order, ends = self._order_batches(random, order, starts, ends)
        # every global batch has a multiple of `ranks` samples: rank r takes each ranks-th, so lengths are alike on all
        self._indices = order[self.rank :: ranks].astype(np.int64)
        self._ends = ends // ranks
        self._planned_epoch = self.epoch

    def _batch_starts(self, order: _Int64s) -> tuple[_Int64s, _Int64s]:
        """Sort each megabatch by length, longest first, and cut it; returns where global batches start, and the order."""
        ranks = self.world_size
        if self.batch_size is not None:
            step = self.batch_size * ranks
            if self.drop_last:
                order = order[: len(order) - len(order) % step]
            order = self._sorted_in_groups(order, step * self._batches_in_group(len(order) // step))
            return np.arange(0, len(order), step), order
        assert self.max_tokens is not None
        mean_length = max(1.0, float(self.lengths.mean())) if len(self.lengths) else 1.0
        step = max(1, int(self.max_tokens / mean_length)) * ranks
        group = step * self._batches_in_group(len(order) // step)
        order = self._sorted_in_groups(order, group)
        longest_of_rest = np.maximum(self.lengths[order], 1).tolist()
        starts = []
        for group_start in range(0, len(order), group):
            start, group_end = group_start, min(group_start + group, len(order))
            while start < group_end:
                starts.append(start)
                start += self.max_tokens // longest_of_rest[start] * ranks
        return np.array(starts, dtype=np.int64), order

    def _batches_in_group(self, batches: int) -> int:
        return max(1, min(self.megabatch, batches // 4))

    def _sorted_in_groups(self, order: _Int64s, group: int) -> _Int64s:
        by_length_in_group = np.lexsort((-self.lengths[order], np.arange(len(order)) // group))
        return order[by_length_in_group]

    def _order_batches(
        self, random: np.random.RandomState, order: _Int64s, starts: _Int64s, ends: _Int64s
    ) -> tuple[_Int64s, _Int64s]:
        """Shuffle whole batches; the incomplete one stays last, and the one with the longest sample goes first."""
        sizes = ends - starts
        incomplete_last = self.batch_size is not None and sizes[-1] != sizes[0]
        movable = len(starts) - int(incomplete_last)
        batches = np.arange(len(starts))
        if self.shuffle:
            batches[:movable] = random.permutation(movable)
        if self.longest_first and movable:
            longest = int(self.lengths[order[starts[batches[:movable]]]].argmax())
            batches[[0, longest]] = batches[[longest, 0]]
        sizes = sizes[batches]
        ends = np.cumsum(sizes)
        inside = np.arange(len(order)) - np.repeat(ends - sizes, sizes)
        return order[np.repeat(starts[batches], sizes) + inside], ends
