"""Several processes train on different samples, and on as many batches: seen to before they wait for each other for ever."""

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from perflint_runtime.distributed import Processes
from perflint_runtime.prefetch import tensors_of
from perflint_runtime.resumable import ResumableLoader
from perflint_runtime.tensor_loader import BatchedTensorLoader

_CURE = (
    "make_loader(dataset, batch_size, shuffle=True, seed=0) is divided by the trainer, "
    "DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset)) by torch"
)


def share(loader: Any, processes: Processes, counts_steps: bool) -> None:
    """Give each process its share of the training data where that can be done; refuse a loader that gives all to each.

    `counts_steps`: a schedule runs by optimizer steps, and was made for the steps of the loader as it was.

    Raises:
        ValueError: the loader is not divided among the processes, or among others than these.

    """
    if processes.world_size == 1:
        return
    own = (processes.rank, processes.world_size)
    place = _place(loader)
    if place is None or place == own:
        return
    if place[1] != 1:
        raise ValueError(f"the loader is for process {place[0]} of {place[1]}, this is process {own[0]} of {own[1]}")
    if not isinstance(loader, ResumableLoader):
        identities = processes.gather(_identity(loader))
        if None not in identities and len(set(identities)) > 1:
            return  # divided by hand
        raise ValueError(
            f"each of the {own[1]} processes would train on all samples of this {type(loader).__name__}: {_CURE}; pass "
            "divided=True to fit if each has its own samples already"
        )
    if counts_steps:
        raise ValueError(
            f"the scheduler counts steps, of which a process makes only a part when {own[1]} share the data: make the loader "
            "with make_loader(..., rank=int(os.environ['RANK']), world_size=int(os.environ['WORLD_SIZE'])), and the schedule "
            "for its length"
        )
    loader.share(*own)


def refuse_uneven(loader: Any, processes: Processes, batches_per_step: int) -> None:
    """See that all processes make as many steps, where the loader has a length.

    Raises:
        ValueError: they do not.

    """
    if processes.world_size == 1:
        return
    lengths = processes.gather(length_of(loader))
    if None not in lengths and len({math.ceil(length / batches_per_step) for length in lengths}) > 1:
        raise ValueError(
            f"the processes have {', '.join(map(str, lengths))} batches: those that end early would be waited for without end. "
            f"Divide the data evenly: {_CURE}; or pass drop_last=True"
        )


def length_of(loader: Any) -> int | None:
    """The number of batches, where it is sure: an iterable dataset may give fewer than it says."""
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return None
    try:
        return len(loader)
    except TypeError:
        return None


def refuse_ragged(window: list[Any], processes: Processes) -> None:
    """See that all processes have a next window, or none has: for loaders without a length. Waits for the other processes.

    Raises:
        ValueError: some have come to their end, and others not.

    """
    if processes.count(not window) not in (0, processes.world_size):
        state = "has no batch left, while another has" if not window else "has a batch left, while another has none"
        raise ValueError(f"this process {state}: give all as many ({_CURE})")


def refuse_same_batch(batch: Any, processes: Processes) -> None:
    """See that the processes have not all got the same first batch. Waits for the device.

    Raises:
        ValueError: they have.

    """
    tensors = [tensor for tensor in tensors_of(batch) if tensor.numel()]
    if processes.world_size == 1 or not tensors:
        return
    digests = processes.gather(_digest(tensors))
    if len(set(digests)) == 1:
        raise ValueError(f"all {processes.world_size} processes got the same first batch: divide the data, {_CURE}")


def _digest(tensors: Iterable[Tensor]) -> bytes:
    digest = hashlib.blake2b()
    for tensor in tensors:
        flat = tensor.detach().cpu().reshape(-1).clone(memory_format=torch.contiguous_format)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.digest()


def _identity(loader: DataLoader[Any] | BatchedTensorLoader) -> Any:
    """Something that differs where processes were given samples of their own; None if that cannot be seen."""
    if isinstance(loader, BatchedTensorLoader):
        return _digest(tensor[:1] for tensor in loader.tensors)
    dataset: Any = loader.dataset
    if isinstance(dataset, Subset):
        return tuple(dataset.indices[:64]), len(dataset)
    if isinstance(dataset, TensorDataset):
        return _digest(tensor[:1] for tensor in dataset.tensors)
    return getattr(dataset, "_fingerprint", None)  # of Hugging Face data sets, also of their shards


def _place(loader: Any) -> tuple[int, int] | None:
    """The process that a loader's data are for, and among how many; None if that is not known."""
    if isinstance(loader, ResumableLoader):
        return loader.place
    if isinstance(loader, BatchedTensorLoader):
        return 0, 1
    if not isinstance(loader, DataLoader):
        return None
    sampler: Any = loader.sampler
    if loader.batch_sampler is not None:
        if type(loader.batch_sampler) is not BatchSampler:
            return None
        sampler = loader.batch_sampler.sampler
    if isinstance(sampler, DistributedSampler):
        return sampler.rank, sampler.num_replicas
    return (0, 1) if type(sampler) in (RandomSampler, SequentialSampler) else None
