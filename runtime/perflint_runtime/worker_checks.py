"""What can go wrong with a dataset in worker processes, found out before they start."""

from __future__ import annotations

import io
import multiprocessing
import random
import warnings
from collections.abc import Callable, Mapping
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler

import numpy as np
import torch
from torch import Tensor


def start_method(context: str | BaseContext | None) -> str:
    """How workers will start: "fork", "spawn" or "forkserver"."""
    if isinstance(context, str):
        return context
    if context is not None:
        return context.get_start_method()
    # asking for the method in force would fix it for the rest of the program
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


class _DryPickler(ForkingPickler):
    """Finds out whether an object can be sent to another process, without copying its tensors and arrays."""

    def reducer_override(self, obj: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        if isinstance(obj, Tensor | torch.UntypedStorage) or (isinstance(obj, np.ndarray) and not obj.dtype.hasobject):
            return int, ()
        unchanged: tuple[Callable[..., object], tuple[object, ...]] = NotImplemented
        return unchanged


class _Nowhere(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        return memoryview(data).nbytes  # type: ignore[arg-type] # the pickler hands over bytes


def refuse_unpicklable(**sent_to_workers: object) -> None:
    """Raise ValueError for an argument that spawned workers cannot be sent, before they start."""
    for name, value in sent_to_workers.items():
        try:
            _DryPickler(_Nowhere(), 4).dump(value)
        except RuntimeError:
            continue  # locks and queues of multiprocessing can be sent while a process is started, and only then
        except Exception as error:
            raise ValueError(
                f"{name} cannot be sent to workers, which are spawned here ({error}): define its functions and classes at "
                "the top of a module (no lambda, no local function, no open file or connection), or pass num_workers=0"
            ) from error


def warn_of_copied_generators(dataset: object) -> None:
    """Warn of random generators that a dataset holds: each worker gets a copy in the same state."""
    attributes: Mapping[str, object] = getattr(dataset, "__dict__", {})
    for name, value in attributes.items():
        if isinstance(value, np.random.Generator | np.random.RandomState | random.Random | torch.Generator):
            warnings.warn(
                f"{type(dataset).__name__}.{name} is a random generator: every worker gets a copy and draws the same numbers "
                "from it. Draw from numpy's or torch's global generator, which torch seeds for each worker, or reseed "
                "it in worker_init_fn",
                stacklevel=3,
            )
