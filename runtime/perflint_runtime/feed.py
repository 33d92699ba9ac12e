"""What a trainer's steps are fed with: windows of batches, on the device, as many in each process."""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from perflint_runtime import sharding
from perflint_runtime.distributed import Processes
from perflint_runtime.interrupts import Interrupts
from perflint_runtime.positions import DataPosition
from perflint_runtime.prefetch import DevicePrefetcher


class Feed:
    """The windows of an epoch, as lists of batches: one optimizer step each.

    Args:
        loader: the training loader, whose share for this process it gives.
        position: where in the loader training stands; it is moved on.
        device: where batches go.
        processes: those that train together.
        accumulation_steps: batches per window; the last one of an epoch may hold fewer.
        in_step_by_batch: whether processes wait for each other in each batch (FSDP2), not in each window (DDP).
        is_divided: the program says that each process has samples of its own.
        interrupts: Ctrl-C also ends a loader's workers; then the epoch ends here.

    """

    def __init__(
        self,
        loader: Iterable[Any],
        position: DataPosition,
        device: torch.device,
        processes: Processes,
        *,
        accumulation_steps: int,
        in_step_by_batch: bool,
        is_divided: bool,
        interrupts: Interrupts,
    ) -> None:
        self.loader = loader
        self._position = position
        self._device = device
        self._processes = processes
        self._accumulation_steps = accumulation_steps
        self._in_step_by_batch = in_step_by_batch
        self._checks_first_batch = processes.world_size > 1 and not is_divided
        self._interrupts = interrupts

    def windows(self) -> Iterator[list[Any]]:
        """The rest of the present epoch.

        Raises:
            ValueError: the processes have different numbers of windows, or all the same first batch.

        """
        position, processes, loader = self._position, self._processes, self.loader
        is_alone = processes.world_size == 1
        if not is_alone:
            sharding.refuse_uneven(loader, processes, 1 if self._in_step_by_batch else self._accumulation_steps)
        asks_each_step = not is_alone and sharding.length_of(loader) is None
        batches = position.batches(on_device(loader, self._device), loader)
        while True:
            num_batches = position.num_batches
            try:
                window = list(itertools.islice(batches, self._accumulation_steps))
            except RuntimeError:
                if not self._interrupts.requested:
                    raise
                position.num_batches = num_batches  # the window that was being loaded is loaded again after a resume
                return
            if asks_each_step:
                sharding.refuse_ragged(window, processes)
            if not window:
                return
            if self._checks_first_batch:
                sharding.refuse_same_batch(window[0], processes)
                self._checks_first_batch = False
            yield window

    def num_steps(self, epochs: int, max_steps: int | None) -> int | None:
        """The optimizer steps of a whole training, where the loader has a length."""
        steps = None
        with contextlib.suppress(TypeError):
            steps = math.ceil(len(self.loader) / self._accumulation_steps) * epochs  # type: ignore[arg-type]  # TypeError
        return min((n for n in (steps, max_steps) if n is not None), default=None)


def on_device(loader: Iterable[Any], device: torch.device) -> Iterable[Any]:
    """The loader's batches on the device, in the order and with the random numbers of the loader alone."""
    if device.type == "cpu":
        return loader
    # without workers, loading ahead would change which random numbers the dataset and the model draw
    return DevicePrefetcher(loader, device, depth=2 if getattr(loader, "num_workers", 0) else 0)
