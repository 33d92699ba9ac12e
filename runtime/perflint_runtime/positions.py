"""Where in its data a run stands, so that a killed one goes on with the very next batch and the same random numbers."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from perflint_runtime.resumable import ResumableLoader
from perflint_runtime.state import RandomState, random_state, set_random_state
from perflint_runtime.tensor_loader import BatchedTensorLoader


class DataPosition:
    """The epoch, the batches taken from it, and the random state that the epoch began with.

    After a kill the epoch is begun again from that state, and the batches that were trained on are read once more and
    passed over: this repeats the shuffling and, in worker processes and in the main process, the random augmentations. A
    `ResumableLoader` (`make_loader(..., seed=...)`) knows each batch by its number, and reads none of them again.

    Out of reach: an iterable dataset or a sampler that, in the main process and batch by batch, decides about the *order* by
    random numbers of a generator from which the model (dropout on the CPU) or an evaluation draws in between. Give it a
    generator of its own, as `loader.generator` or `sampler.generator`.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.num_batches = 0
        self._start: dict[str, Any] | None = None
        self._resumed_random: RandomState | None = None

    def batches(self, source: Iterable[Any], loader: Any) -> Iterator[Any]:
        """The rest of the epoch: batches of `source`, which iterates over `loader` (a DataLoader or any iterable).

        Calls `set_epoch(epoch)` of the loader, its sampler, its batch sampler and its dataset where they have it.
        """
        for part in _parts(loader):
            if hasattr(part, "set_epoch"):
                part.set_epoch(self.epoch)
        if self._resumed_random is not None and self._start is not None:
            _restore(loader, self._start)
        else:
            self._start = _capture(loader)
            self.num_batches = 0  # an epoch that was broken off in this process begins anew
        num_passed_over = self.num_batches
        if isinstance(loader, ResumableLoader) and self.num_batches:
            loader.load_state_dict({**loader.state_dict(), "next_batch": self.num_batches})
            num_passed_over = 0
        iterator = iter(source)
        if self._resumed_random is not None:
            for _ in range(num_passed_over):
                if next(iterator, _END) is _END:
                    raise RuntimeError(
                        f"the loader ended before batch {self.num_batches}, where the checkpoint stands: is it the same data?"
                    )
            set_random_state(self._resumed_random)
            self._resumed_random = None
        for batch in iterator:
            self.num_batches += 1
            yield batch

    def end_epoch(self) -> None:
        """Go on to the next epoch."""
        self.epoch += 1
        self.num_batches = 0
        self._start = None

    def state_dict(self) -> dict[str, Any]:
        """The position and the random state of now."""
        return {"epoch": self.epoch, "num_batches": self.num_batches, "start": self._start, "random": random_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`: the random state is taken over when the next epoch's batches are asked for."""
        self.epoch = state["epoch"]
        self.num_batches = state["num_batches"]
        self._start = state["start"]
        self._resumed_random = state["random"]
        if self._start is None:  # between two epochs: nothing to repeat
            set_random_state(state["random"])
            self._resumed_random = None


def warn_of_lasting_workers(loader: Any) -> None:
    """Say so if a loader's workers outlive an epoch: their random state then cannot be found again after a kill."""
    if isinstance(loader, DataLoader) and loader.persistent_workers and not isinstance(loader, ResumableLoader):
        warnings.warn(
            "the loader's workers are persistent and carry their random state from epoch to epoch: after a kill, random "
            "augmentations will differ from the uninterrupted run; make the loader with make_loader(..., seed=0), or pass "
            "persistent_workers=False",
            stacklevel=3,
        )


_END = object()


def _capture(loader: Any) -> dict[str, Any]:
    return {
        "random": random_state(),
        "generators": [generator.get_state() for generator in _generators(loader)],
        "parts": [part.state_dict() for part in _parts(loader) if _has_state(part)],
    }


def _restore(loader: Any, start: Mapping[str, Any]) -> None:
    set_random_state(start["random"])
    for generator, state in zip(_generators(loader), start["generators"], strict=True):
        generator.set_state(state)
    for part, state in zip((part for part in _parts(loader) if _has_state(part)), start["parts"], strict=True):
        part.load_state_dict(state)


def _parts(loader: Any) -> list[Any]:
    """The loader and what decides about its order, each once."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    candidates = [
        loader,
        getattr(loader, "sampler", None),
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
        getattr(loader, "dataset", None),
    ]
    return list({id(part): part for part in candidates if part is not None}.values())


def _generators(loader: Any) -> list[torch.Generator]:
    found = (getattr(part, "generator", None) for part in _parts(loader))
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())


def _has_state(part: Any) -> bool:
    # its state is that of its last iteration, which may have been broken off; its random numbers are all that an epoch needs
    if isinstance(part, BatchedTensorLoader):
        return False
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
