"""What a trainer's steps are fed with: windows of batches, on the device, as many in each process."""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from perflint_runtime import sharding
from perflint_runtime.distributed import is_sharded
from perflint_runtime.prefetch import DevicePrefetcher

if TYPE_CHECKING:
    from perflint_runtime.trainer import Trainer


class Feed:
    """The windows of an epoch, as lists of batches: one optimizer step each.

    `is_divided`: the program says that each process has samples of its own.
    """

    def __init__(self, trainer: "Trainer", loader: Iterable[Any], is_divided: bool) -> None:
        self._trainer = trainer
        self._loader = loader
        self._checks_first_batch = trainer.processes.world_size > 1 and not is_divided

    def windows(self) -> Iterator[list[Any]]:
        """The rest of the present epoch.

        Raises:
            ValueError: the processes have different numbers of windows, or all the same first batch.

        """
        trainer, loader = self._trainer, self._loader
        position, processes = trainer.position, trainer.processes
        accumulation_steps = trainer.settings.accumulation_steps
        is_alone = processes.world_size == 1
        if not is_alone:
            # FSDP2 exchanges something in each forward pass, DDP in each step
            sharding.refuse_uneven(loader, processes, 1 if is_sharded(trainer.module) else accumulation_steps)
        asks_each_step = not is_alone and sharding.length_of(loader) is None
        batches = position.batches(on_device(loader, trainer.device), loader)
        while True:
            num_batches = position.num_batches
            try:
                window = list(itertools.islice(batches, accumulation_steps))
            except RuntimeError:
                if not trainer.interrupts.requested:  # Ctrl-C ends a loader's workers, too
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

    def num_steps(self) -> int | None:
        """The optimizer steps of the whole training, where the loader has a length."""
        settings = self._trainer.settings
        steps = None
        with contextlib.suppress(TypeError):
            steps = math.ceil(len(self._loader) / settings.accumulation_steps) * settings.epochs  # type: ignore[arg-type]  # TypeError
        return min((n for n in (steps, settings.max_steps) if n is not None), default=None)


def on_device(loader: Iterable[Any], device: torch.device) -> Iterable[Any]:
    """The loader's batches on the device, in the order and with the random numbers of the loader alone."""
    if device.type == "cpu":
        return loader
    # without workers, loading ahead would change which random numbers the dataset and the model draw
    return DevicePrefetcher(loader, device, depth=2 if getattr(loader, "num_workers", 0) else 0)
