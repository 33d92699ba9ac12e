"""`make_loader`: a `DataLoader` set up for this machine and this dataset, or a clear error why it cannot be."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.context import BaseContext

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Sampler, Subset, TensorDataset

from perflint_runtime.cores import usable_cores
from perflint_runtime.worker_checks import refuse_unpicklable, start_method, warn_of_copied_generators

MOST_WORKERS = 8
"""More are seldom of use and each holds `prefetch_factor` batches; `tune_loader` measures what is best."""

_NOT_OF_THE_DATALOADER = {
    "non_blocking": "it belongs to the copy: batch.to(device, non_blocking=True), or DevicePrefetcher(loader, device)",
    "async": "loading is asynchronous with num_workers > 0",
    "workers": "the argument is called num_workers",
    "prefetch": "the argument is called prefetch_factor",
}


def make_loader(
    dataset: Dataset[object] | Sequence[object],
    batch_size: int | None = None,
    *,
    shuffle: bool | None = None,
    sampler: Sampler[int] | Iterable[int] | None = None,
    batch_sampler: Iterable[list[int]] | None = None,
    num_workers: int | None = None,
    collate_fn: Callable[[list[object]], object] | None = None,
    pin_memory: bool | None = None,
    drop_last: bool = False,
    timeout: float = 0,
    worker_init_fn: Callable[[int], None] | None = None,
    multiprocessing_context: str | BaseContext | None = None,
    generator: torch.Generator | None = None,
    prefetch_factor: int | None = None,
    persistent_workers: bool | None = None,
    in_order: bool = True,
    device: torch.device | str | None = None,
    seed: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    **unknown: object,
) -> DataLoader[object]:
    """Build a `torch.utils.data.DataLoader`; what is not given is chosen, what is given always wins.

    Chosen are:

    - `num_workers`: 0 for data in memory (`TensorDataset`, lists, arrays, and subsets of them: two workers made an epoch
      over a `TensorDataset` 3.3 times slower, CPU, torch 2.13), for CUDA tensors, and for an `IterableDataset` (each
      worker would repeat the whole stream, unless it is a `datasets.IterableDataset`, which shards itself). Else one
      less than `usable_cores() / LOCAL_WORLD_SIZE`, at most 8 and at most one per batch. Workers have their own streams
      of random numbers, so augmentations drawn there differ from those with 0 workers, unless `seed` is given.
    - `pin_memory`: True if `device` (default: the accelerator, if there is one) is neither CPU nor MPS.
    - `persistent_workers`: True with workers. They keep the copy of the dataset that they started with, so False if the
      dataset has a `set_epoch`; pass False too if you change its attributes between epochs.
    - `prefetch_factor`: torch's 2 per worker.

    Workers are seeded by torch: `random`, torch's and numpy's global generators differ from worker to worker (read in
    torch 2.13, torch/utils/data/_utils/worker.py, and tested). A generator object that the dataset holds is copied, so that
    workers draw the same numbers from it: a warning says which.

    Args:
        dataset: map-style or iterable; a sequence will do.
        batch_size: samples per batch, 1 by default as in torch.
        device: where batches are going; it decides about pinning. Nothing is moved there: see `DevicePrefetcher`.
        seed: makes a `ResumableLoader`: the order, and random numbers drawn while loading, are a function of (seed,
            epoch, batch), whatever the number of workers, and `state_dict()` resumes mid-epoch exactly.
        rank: with `seed`, this process's place among those that share the data.
        world_size: with `seed`, how many processes share the data.
        shuffle: a new order in each epoch.
        sampler: of indices, as in `DataLoader`; excludes shuffle.
        batch_sampler: of lists of indices; excludes batch_size, shuffle, sampler and drop_last.
        num_workers: processes that load; see above.
        collate_fn: makes a batch of samples, as in `DataLoader`.
        pin_memory: page-locked batches; see above.
        drop_last: leave out the last batch if it is incomplete: its samples are not trained on in that epoch.
        timeout: seconds to wait for a worker's batch, 0 for ever.
        worker_init_fn: called in each worker with its number.
        multiprocessing_context: how workers start: "fork", "spawn", "forkserver".
        generator: of the shuffled order and of the workers' seeds.
        prefetch_factor: batches that each worker loads ahead.
        persistent_workers: keep workers from epoch to epoch; see above.
        in_order: False lets batches overtake each other, as in `DataLoader`; not with `seed`.
        unknown: only there to say where a wrong argument belongs.

    Raises:
        TypeError: an argument that `DataLoader` does not have.
        ValueError: arguments that exclude each other; a dataset, collate_fn or worker_init_fn that cannot be sent to
            workers which are spawned.

    """
    for name in unknown:
        hint = _NOT_OF_THE_DATALOADER.get(name, "see torch.utils.data.DataLoader for its arguments")
        raise TypeError(f"make_loader has no argument {name!r}: {hint}")
    _refuse_sampling_conflicts(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last, seed, generator, in_order)
    if world_size != 1 and seed is None:
        raise ValueError("rank and world_size need seed=..., by which all ranks agree on an order; or use a DistributedSampler")
    if num_workers is None:
        wants_workers = prefetch_factor is not None or bool(persistent_workers) or multiprocessing_context is not None
        num_workers = default_workers(dataset, batch_size or 1)
        if num_workers == 0 and wants_workers:
            raise ValueError(
                "prefetch_factor, persistent_workers and multiprocessing_context concern workers, and none are used for "
                f"this {type(dataset).__name__} ({_why_no_workers(dataset)}): leave them out or pass num_workers"
            )
    _refuse_worker_options_without_workers(num_workers, prefetch_factor, persistent_workers, multiprocessing_context, timeout)
    if num_workers:
        if start_method(multiprocessing_context) != "fork":
            refuse_unpicklable(dataset=dataset, collate_fn=collate_fn, worker_init_fn=worker_init_fn)
        if worker_init_fn is None and seed is None:
            warn_of_copied_generators(dataset)
    if persistent_workers is None:
        persistent_workers = num_workers > 0 and not hasattr(dataset, "set_epoch")
    if pin_memory is None:
        pin_memory = _is_pinning_of_use(device) and not _holds_device_tensors(dataset)
    if seed is not None:
        from perflint_runtime.resumable import ResumableLoader

        return ResumableLoader(
            dataset,
            batch_size=None if batch_sampler is not None else batch_size or 1,
            shuffle=bool(shuffle),
            batch_sampler=batch_sampler,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
        )
    return DataLoader(
        dataset,  # type: ignore[arg-type] # torch's types want a Dataset, a sequence does
        batch_size=batch_size or 1,
        shuffle=shuffle,
        sampler=sampler,
        batch_sampler=batch_sampler,
        num_workers=num_workers,
        collate_fn=collate_fn,
        pin_memory=pin_memory,
        drop_last=drop_last,
        timeout=timeout,
        worker_init_fn=worker_init_fn,
        multiprocessing_context=multiprocessing_context,
        generator=generator,
        prefetch_factor=prefetch_factor,
        persistent_workers=persistent_workers,
        in_order=in_order,
    )


def default_workers(dataset: object, batch_size: int) -> int:
    """How many workers `make_loader` uses for a dataset if nothing is said."""
    if _why_no_workers(dataset):
        return 0
    ranks_here = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))  # set by torchrun
    spare = usable_cores() // ranks_here - 1
    batches = -(-len(dataset) // batch_size) if hasattr(dataset, "__len__") else MOST_WORKERS
    return max(0, min(spare, MOST_WORKERS, batches))


def _why_no_workers(dataset: object) -> str:
    """Say why workers do not help, or return nothing."""
    if _is_in_memory(dataset):
        return "its data is in memory, workers would only copy it; see BatchedTensorLoader"
    if isinstance(dataset, IterableDataset) and not type(dataset).__module__.startswith("datasets."):
        return "each worker would repeat the whole stream unless it asks torch.utils.data.get_worker_info() for its part"
    return ""


def _is_in_memory(dataset: object) -> bool:
    if isinstance(dataset, ConcatDataset):
        return all(_is_in_memory(part) for part in dataset.datasets)
    if isinstance(dataset, Subset):
        return _is_in_memory(dataset.dataset)
    return isinstance(dataset, TensorDataset | list | tuple | range | Tensor | np.ndarray)


def _holds_device_tensors(dataset: object) -> bool:
    if isinstance(dataset, Subset):
        return _holds_device_tensors(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        return any(_holds_device_tensors(part) for part in dataset.datasets)
    tensors = dataset.tensors if isinstance(dataset, TensorDataset) else [dataset]
    return any(isinstance(tensor, Tensor) and tensor.device.type != "cpu" for tensor in tensors)


def _is_pinning_of_use(device: torch.device | str | None) -> bool:
    if not torch.accelerator.is_available():
        return False
    target = torch.accelerator.current_accelerator() if device is None else torch.device(device)
    return target is not None and target.type not in ("cpu", "mps", "meta")  # torch cannot pin for MPS


def _refuse_sampling_conflicts(
    dataset: object,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: object,
    batch_sampler: object,
    drop_last: bool,
    seed: int | None,
    generator: object,
    in_order: bool,
) -> None:
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size is at least 1, got {batch_size}")
    if sampler is not None and shuffle:
        raise ValueError("shuffle=True and a sampler exclude each other: the sampler decides the order")
    if batch_sampler is not None:
        given = [
            name
            for name, is_given in [
                ("batch_size", batch_size is not None),
                ("shuffle", bool(shuffle)),
                ("sampler", sampler is not None),
                ("drop_last", drop_last),
            ]
            if is_given
        ]
        if given:
            raise ValueError(f"a batch_sampler makes whole batches: leave out {', '.join(given)}")
    if isinstance(dataset, IterableDataset):
        if shuffle or sampler is not None or batch_sampler is not None:
            raise ValueError("an IterableDataset decides its own order: leave out shuffle, sampler and batch_sampler")
        if seed is not None:
            raise ValueError("seed=... needs a map-style dataset: where an IterableDataset stands cannot be known")
    if seed is not None and not in_order:
        raise ValueError("with seed=... batches come in the order of the seed: leave out in_order=False")
    if seed is not None and (sampler is not None or generator is not None):
        raise ValueError("with seed=... the order is a function of (seed, epoch): leave out sampler and generator")
    samples = len(dataset) if drop_last and hasattr(dataset, "__len__") else None
    if samples is not None and samples < (batch_size or 1):
        warnings.warn(
            f"drop_last=True leaves no batch at all: {samples} samples are fewer than batch_size={batch_size}", stacklevel=3
        )


def _refuse_worker_options_without_workers(
    num_workers: int, prefetch_factor: int | None, persistent_workers: bool | None, context: object, timeout: float
) -> None:
    if num_workers < 0:
        raise ValueError(f"num_workers is at least 0, got {num_workers}")
    if timeout < 0:
        raise ValueError(f"timeout is at least 0 seconds, got {timeout}")
    if num_workers:
        if prefetch_factor is not None and prefetch_factor < 1:
            raise ValueError(f"prefetch_factor is at least 1 batch per worker, got {prefetch_factor}")
        return
    for name, is_given in [
        ("prefetch_factor", prefetch_factor is not None),
        ("persistent_workers", bool(persistent_workers)),
        ("multiprocessing_context", context is not None),
        ("timeout", timeout > 0),
    ]:
        if is_given:
            raise ValueError(f"{name} concerns workers, and num_workers is 0: leave it out, or pass num_workers=1 or more")
