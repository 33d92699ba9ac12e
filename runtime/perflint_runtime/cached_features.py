"""Features of a frozen network: computed in the first pass over a loader, looked up in those after it."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from perflint_runtime.prefetch import DevicePrefetcher, to_device
from perflint_runtime.state import random_state, set_random_state


class CachedFeatures:
    """`for features, y in CachedFeatures(network, loader, device):` instead of `network(x)` under `no_grad` in each epoch.

    Yields batches in the loader's order, with the random numbers that it draws, on the device: the first part, `x`, is replaced
    by what the network gives for it. The first pass computes batch by batch, as a loop by hand does, and keeps a row for each
    sample on the device; later passes take rows, and load nothing if the other parts are tensors. A row is the one of the batch
    that its sample was first in: with other neighbours the last bits may have been others.

    What would make rows stale is looked at in each pass. Weights or buffers that were written to: all is computed anew. A
    module in train mode, a loader without an index of samples, or a data set whose samples are others when they are read again
    (augmentation; two of them are read twice): nothing is kept, with a warning, and each pass computes.

    Args:
        network: called with the first part of a batch, without a graph. Nothing puts it in eval mode.
        loader: of tuples or lists, whose first part is the network's input.
        device: where batches go; by default where the network's parameters are.

    Raises:
        TypeError: (in a pass) the network gives no tensor with a row for each sample.

    """

    def __init__(self, network: nn.Module, loader: Any, device: torch.device | str | None = None) -> None:
        if isinstance(loader, DevicePrefetcher):
            loader, device = loader.loader, loader.device if device is None else device
        found = next((p.device for p in network.parameters()), torch.device("cpu"))
        self.network, self.loader = network, loader
        self.device = found if device is None else torch.device(device)
        self._versions: list[tuple[int, int]] = []
        self._rows: list[Tensor] = []
        self._is_kept = torch.zeros(0, dtype=torch.bool)
        self._repeats: bool | None = None

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[list[Any]]:
        why_not = self._why_not()
        if why_not is not None:
            warnings.warn(f"features are computed in each epoch: {why_not}", stacklevel=2)
            yield from (self._computed(batch) for batch in self.loader)
            return
        versions = [(id(t), t._version) for t in (*self.network.parameters(), *self.network.buffers())]
        if versions != self._versions:
            self._versions, self._rows = versions, []
            self._is_kept = torch.zeros(len(self.loader.dataset), dtype=torch.bool)
        if bool(self._is_kept.all()) and self._rows:
            for indices in self._numbered(range(len(self._is_kept)), torch.tensor):
                taken = indices.to(self.device, non_blocking=True)
                yield [rows[taken] for rows in self._rows]
        else:
            for indices, batch in self._numbered(_Numbered(self.loader.dataset), _Collate(self.loader.collate_fn)):
                parts = self._computed(batch)
                self._keep(indices, parts)
                yield parts

    def _why_not(self) -> str | None:
        loader = self.loader
        if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
            return "the loader has no index of samples"
        if any(module.training for module in self.network.modules()):
            return "the network, or a part of it, is in train mode"
        if self._repeats is None:
            self._repeats = _repeats(loader.dataset)
        return None if self._repeats else "the data set gives other samples when it is read again"

    def _numbered(self, dataset: Any, collate: Callable[[list[Any]], Any]) -> DataLoader[Any]:
        """A loader that draws the same random numbers; workers are of use only where samples are read."""
        loader = self.loader
        workers = loader.num_workers if isinstance(dataset, _Numbered) else 0
        return DataLoader(
            dataset,
            batch_sampler=loader.batch_sampler,
            num_workers=workers,
            collate_fn=collate,
            pin_memory=loader.pin_memory,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context if workers else None,
            generator=loader.generator,
        )

    def _computed(self, batch: Sequence[Any]) -> list[Any]:
        first, *rest = to_device(batch, self.device)
        with torch.no_grad():
            features = self.network(first)
        if (
            not isinstance(features, Tensor)
            or features.dim() == 0
            or (isinstance(first, Tensor) and len(features) != len(first))
        ):
            raise TypeError("the network has to give a tensor with a row for each sample, to be kept as features")
        return [features, *rest]

    def _keep(self, indices: Tensor, parts: list[Any]) -> None:
        if not all(isinstance(part, Tensor) and part.dim() and len(part) == len(indices) for part in parts):
            return  # what is no row of a tensor is loaded in each pass
        if not self._rows:
            self._rows = [part.new_empty((len(self._is_kept), *part.shape[1:])) for part in parts]
        taken = indices.to(self.device, non_blocking=True)
        for rows, part in zip(self._rows, parts, strict=True):
            rows[taken] = part
        self._is_kept[indices] = True


class _Numbered(Dataset[Any]):
    """Samples with their numbers."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        return index, self.dataset[index]


class _Collate:
    """Collates numbered samples as the loader collates samples."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: list[tuple[int, Any]]) -> tuple[Tensor, Any]:
        return torch.tensor([index for index, _ in samples]), self.collate([sample for _, sample in samples])


def _repeats(dataset: Any) -> bool:
    """Whether two samples are the same when they are read again. Draws no random number that anybody else would draw."""
    state = random_state()
    numbers = (0, len(dataset) - 1) if len(dataset) else ()
    once, again = ([dataset[number] for number in numbers] for _ in range(2))
    set_random_state(state)
    return _same(once, again)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return isinstance(other, (tuple, list)) and len(one) == len(other) and all(map(_same, one, other))
    equal = one == other
    return bool(equal.all()) if hasattr(equal, "all") else bool(equal)
