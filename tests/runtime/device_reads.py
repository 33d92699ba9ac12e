"""Counts the places where a program reads values of the device, on a machine that has none.

A read makes the CPU wait for a GPU; on the CPU it costs nothing, but torch calls the same operations:

    with count_reads(model) as reads:
        train(model, loader)
    assert reads == []

With modules or tensors given, only what was computed from their values counts: loaders, samplers and Adam's step counters
compute on the host in any case. Without, everything counts. Not seen: in-place copies between devices
(`cpu_buffer[k] = cuda_scalar`), whose two sides look alike here, code that reads `data_ptr()`, and other threads.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from perflint_probe.counters import CONVERSIONS, reads_values
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

TORCH = Path(torch.__file__).parent
HERE = Path(__file__)


@dataclass(frozen=True)
class Read:
    """A read: the operation, and the line of the program that asked for it."""

    operation: str
    where: str


@contextmanager
def count_reads(*of: nn.Module | Tensor) -> Iterator[list[Read]]:
    """The reads made inside of the block, of everything or of what depends on `of`."""
    reads: list[Read] = []
    device = _Device(of) if of else None
    with _Conversions(reads, device), _Operations(reads, device):
        yield reads


class _Device:
    """The memory that stands for the device's: of the given tensors, and of all that is computed from them."""

    def __init__(self, of: Iterable[nn.Module | Tensor]) -> None:
        self._storages: set[StorageWeakRef] = set()  # weak references keep addresses from being used again
        for part in of:
            for tensor in [part] if isinstance(part, Tensor) else [*part.parameters(), *part.buffers()]:
                self.add(tensor)

    def add(self, tensor: Tensor) -> None:
        self._storages.update(map(StorageWeakRef, _storages(tensor)))

    def __contains__(self, tensor: Tensor) -> bool:
        return any(StorageWeakRef(storage) in self._storages for storage in _storages(tensor))


def _storages(tensor: Tensor) -> list[torch.UntypedStorage]:
    if tensor.layout is torch.sparse_coo:
        return [part.untyped_storage() for part in (tensor._indices(), tensor._values())]
    return [tensor.untyped_storage()] if tensor.layout is torch.strided else []


class _Operations(TorchDispatchMode):
    def __init__(self, reads: list[Read], device: _Device | None) -> None:
        super().__init__()
        self._reads, self._device = reads, device

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        on_device = _any_on(self._device, (args, kwargs))
        if on_device and reads_values(func, args, kwargs):
            self._reads.append(Read(str(func), _asked_from()))
        result = func(*args, **kwargs)
        if on_device and self._device is not None:
            for tensor in tree_iter(result):
                if isinstance(tensor, Tensor):
                    self._device.add(tensor)
        return result


class _Conversions(TorchFunctionMode):
    def __init__(self, reads: list[Read], device: _Device | None) -> None:
        super().__init__()
        self._reads, self._device = reads, device

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in CONVERSIONS and _any_on(self._device, args[0]):
            self._reads.append(Read(func.__name__, _asked_from()))
        return func(*args, **(kwargs or {}))


def _any_on(device: _Device | None, tree: object) -> bool:
    return device is None or any(isinstance(leaf, Tensor) and leaf in device for leaf in tree_iter(tree))


def _asked_from() -> str:
    """The innermost line outside of torch and of this file."""
    for frame in reversed(traceback.extract_stack()):
        path = Path(frame.filename)
        if path != HERE and TORCH not in path.parents and frame.filename != "<__array_function__ internals>":
            return f"{path.name}:{frame.lineno}: {frame.line}"
    return "?"
