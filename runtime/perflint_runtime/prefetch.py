"""Batches on the device before they are asked for: copies on a stream of their own, while the device computes.

What needs CUDA cannot run on the machines of the continuous tests: there the order of operations is checked with
stand-ins for streams and events (tests/runtime/test_prefetch.py).
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

Batch = TypeVar("Batch")


def to_device(batch: Batch, device: torch.device | str, non_blocking: bool = True) -> Batch:
    """Copy every tensor in a batch to a device; containers are new, all other values are the same objects.

    Goes through mappings (also `transformers.BatchEncoding`), tuples, namedtuples, lists and dataclasses, as deep as they
    are nested. Objects with a method `to` (PackedSequence, torch_geometric's Data) are moved by it.

    Args:
        batch: what a loader yields.
        device: the target.
        non_blocking: the CPU does not wait for copies from pinned memory to a CUDA device. Copies to the CPU always
            wait: their values could be read before they have arrived.

    """
    target = torch.device(device)
    waits = target.type == "cpu" or not non_blocking
    return _map_tensors(batch, lambda tensor: tensor.to(target, non_blocking=not waits), target, not waits)


def _map_tensors(value: Batch, move: Callable[[Tensor], Tensor], device: torch.device, non_blocking: bool) -> Batch:
    """Apply `move` to each tensor, device's own `to` to each object that has one."""

    def again(item: object) -> object:
        return _map_tensors(item, move, device, non_blocking)

    result: object = value
    if isinstance(value, Tensor):
        result = move(value)
    elif isinstance(value, Mapping):
        items = {key: again(item) for key, item in value.items()}
        result = items
        if type(value) is not dict and isinstance(value, MutableMapping):
            result = copy.copy(value)  # keeps what else the mapping holds, as torch's pin_memory does
            for key, item in items.items():
                result[key] = item
    elif callable(getattr(value, "to", None)) and not isinstance(value, type):
        result = _moved_by_itself(value, device, non_blocking)
    elif isinstance(value, tuple):
        parts = [again(item) for item in value]
        make: Callable[..., object] = type(value)
        result = make(*parts) if hasattr(value, "_fields") else make(parts)
    elif isinstance(value, list):
        result = copy.copy(value)
        result[:] = [again(item) for item in value]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        result = copy.copy(value)
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                object.__setattr__(result, field.name, again(getattr(value, field.name)))  # also if it is frozen
    return result  # type: ignore[return-value] # each branch keeps the type


def _moved_by_itself(value: object, device: torch.device, non_blocking: bool) -> object:
    move = value.to  # type: ignore[attr-defined] # the caller has looked
    if non_blocking:
        try:
            return move(device, non_blocking=True)
        except TypeError:
            pass  # its `to` takes the device only
    return move(device)


def _parts(value: object) -> Iterator[object]:
    """All tensors of a batch, and the objects that move themselves, in the places where `to_device` finds them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _parts(item)
    elif callable(getattr(value, "to", None)) and not isinstance(value, type | PackedSequence):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _parts(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _parts(getattr(value, field.name, None))


def tensors_of(batch: object) -> Iterator[Tensor]:
    """All tensors of a batch, in the places where `to_device` finds them."""
    return (part for part in _parts(batch) if isinstance(part, Tensor))


def _is_safe_on_side_stream(batch: object) -> bool:
    """Whether nothing is still being computed on another device, and the memory of all copies can be guarded."""
    return all(
        part.device.type == "cpu" if isinstance(part, Tensor) else hasattr(part, "record_stream") for part in _parts(batch)
    )


class DevicePrefetcher(Generic[Batch]):
    """`for batch in DevicePrefetcher(loader, "cuda"):` yields the loader's batches on the device.

    On CUDA up to `depth` batches are fetched and their copies queued on a side stream before the loop needs them. The
    copies overlap with computing if the loader pins memory (`make_loader` does). The device waits for a copy by an
    event, the CPU never does. Memory on the device: `depth` batches more, and one for each step that the CPU has queued and
    the device not yet begun, until the allocator needs their memory (it waits then, before it reports being out of it).

    The order, the length, exceptions at the element where the loader raised them, and starting again are the loader's.
    Leaving the loop early leaves nothing behind: there is no thread. Objects that move themselves are copied ahead if they
    have a method `record_stream` (torch_geometric's have); else, as tensors that are on a device already, when their turn
    comes. Attributes such as `dataset`, `sampler`,
    `batch_size` and `set_epoch` are the loader's, and `state_dict()` is the loader's as it was after the batch that was
    yielded last, not after those fetched ahead.

    Two things to know. A loader without workers loads in this process, and fetching ahead puts its draws from the
    global random generator before those of the step (dropout on the CPU, say): `depth=0` keeps their order, copying
    on the current stream without lookahead. And on a CPU there is no lookahead at all, batches pass through as they are;
    on other accelerators (MPS, XPU) they are copied when asked for.

    Args:
        loader: any iterable of batches that can be iterated again.
        device: where batches go; "cuda" is the current CUDA device.
        depth: how many batches are on their way or waiting on the device.

    Raises:
        ValueError: a negative depth.

    """

    def __init__(self, loader: Iterable[Batch], device: torch.device | str, depth: int = 2) -> None:
        if depth < 0:
            raise ValueError(f"depth is at least 0 batches, got {depth}")
        self.loader = loader
        self.device = torch.device(device)
        self.depth = depth
        self._state: dict[str, object] | None = None

    def __iter__(self) -> Iterator[Batch]:
        self._state = None
        batches = iter(self.loader)
        if self.device.type == "cpu":
            return batches
        if self.device.type == "cuda" and self.depth:
            return _Lookahead(self, batches)
        # only for CUDA is it known that the memory of a non-blocking copy lives until the copy is done
        return _Moved(batches, self.device, non_blocking=self.device.type == "cuda")

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type] # raises TypeError where the loader has no length

    def __getattr__(self, name: str) -> object:
        if name in ("loader", "_state") or name.startswith("__"):  # not there yet while this object is unpickled
            raise AttributeError(name)
        if name == "state_dict":
            saved = self._state
            return getattr(self.loader, name) if saved is None else lambda: saved
        if name == "load_state_dict":
            self._state = None
        return getattr(self.loader, name)


class _Moved(Generic[Batch]):
    """Each batch is copied when it is asked for."""

    def __init__(self, batches: Iterator[Batch], device: torch.device, non_blocking: bool) -> None:
        self.batches = batches
        self.device = device
        self.non_blocking = non_blocking

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return to_device(next(self.batches), self.device, self.non_blocking)


@dataclasses.dataclass(frozen=True)
class _Fetched(Generic[Batch]):
    batch: Batch | None
    error: Exception | None
    copied: torch.cuda.Event | None
    """None: not copied yet, because it could not be guarded on another stream."""
    state: dict[str, object] | None


class _Lookahead(Generic[Batch]):
    """One iteration with copies on a side stream."""

    def __init__(self, owner: DevicePrefetcher[Batch], batches: Iterator[Batch]) -> None:
        self.owner = owner
        self.batches = batches
        self.stream = torch.cuda.Stream(owner.device)  # type: ignore[no-untyped-call] # torch has no types here
        self.waiting: deque[_Fetched[Batch]] = deque()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        # The step that used the previous batch is queued by now, so the device works while the loader is waited for.
        while len(self.waiting) < self.owner.depth and not (self.waiting and self.waiting[-1].error):
            self.waiting.append(self._fetch())
        fetched = self.waiting.popleft()
        if fetched.error is not None:
            if isinstance(fetched.error, StopIteration):
                self.waiting.append(fetched)  # an exhausted iterator stays so
                self.owner._state = None
                raise StopIteration
            raise fetched.error
        self.owner._state = fetched.state
        batch = fetched.batch
        if fetched.copied is None:
            return to_device(batch, self.owner.device)  # type: ignore[return-value] # a batch
        current = torch.cuda.current_stream(self.owner.device)
        current.wait_event(fetched.copied)  # the device waits, the CPU goes on
        for part in _parts(batch):
            # the memory belongs to the side stream: it may be used again there only after the step is through with it
            if not isinstance(part, Tensor) or part.device.type == "cuda":
                part.record_stream(current)  # type: ignore[attr-defined] # looked for before it was copied
        return batch  # type: ignore[return-value] # a batch

    def _fetch(self) -> _Fetched[Batch]:
        try:
            batch = next(self.batches)
        except StopIteration:
            return _Fetched(None, StopIteration(), None, None)
        except Exception as error:  # raised when its turn comes; without this frame, whose `self` would close a cycle
            ours = error.__traceback__
            return _Fetched(None, error.with_traceback(ours and ours.tb_next), None, None)
        state_dict = getattr(self.owner.loader, "state_dict", None)
        state = state_dict() if state_dict is not None else None
        if not _is_safe_on_side_stream(batch):  # then it is copied on the current stream when its turn comes
            return _Fetched(batch, None, None, state)
        with torch.cuda.stream(self.stream):
            # page-locked sources stay alive: torch's host allocator waits for the copies that it has seen
            moved = to_device(batch, self.owner.device)
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch has no types here
            copied.record(self.stream)
        return _Fetched(moved, None, copied, state)
