"""Numbers for TensorBoard that are written when the device has got to them.

for step, (x, y) in enumerate(loader):
    loss = train_step(x, y)
    late_scalar(writer, "loss", LateItem(loss), step)    # writer.add_scalar("loss", loss.item(), step)
writer.close()
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from perflint_runtime.late_items import PLAIN, LateItem, is_readable, snapshot
from perflint_runtime.scalars import HostCopy

MOST_WAITING = 256
"""So many events wait for the device before the oldest is waited for."""
_WRITERS = frozenset(("torch.utils.tensorboard.writer.SummaryWriter", "tensorboardX.writer.SummaryWriter"))
_EXACT = 2**53
"""Up to here a float64, by way of which a number comes, holds every integer."""


def late_scalar(writer: Any, tag: Any, value: Any, *more: Any, **named: Any) -> None:
    """What `writer.add_scalar(tag, value, *more, **named)` writes, without a wait, usually a step later.

    A `SummaryWriter` of torch or of tensorboardX gets all events in the same order and with the same times, and whatever it
    writes after a number that has not arrived waits with it. `flush`, `close` and the end of the program write all of them;
    what kills a program loses at most the last steps, as it loses what a writer has not flushed. Whatever else comes (another
    writer, several elements, another device) is `writer.add_scalar(...)` itself, with the errors that it raises.
    """
    tensors = _tensors(value)
    plain = type(tag) is str and all(type(given) in PLAIN for given in (*more, *named.values()))
    events = _events(writer) if tensors and plain else None
    if events is None:
        writer.add_scalar(tag, value.item() if type(value) is LateItem else value, *more, **named)
        return
    if len(more) > 1 and more[1] is None:
        more = (more[0], time.time(), *more[2:])
    elif len(more) < 2 and named.get("walltime") is None:
        named["walltime"] = time.time()
    item = value if type(value) is LateItem else None
    events.add_late(_Scalar(writer, tag, item, tensors, HostCopy(tensors), more, named))


def _tensors(value: Any) -> list[Tensor]:
    """Copies on the device of what a number is read from; none where it has to be written at once."""
    if type(value) is LateItem:
        return value.tensors
    copied = snapshot(value) if is_readable(value) and value.dtype is not torch.bfloat16 else None  # numpy has no bfloat16
    return [] if copied is None else [copied]


def _events(writer: Any) -> _LateEvents | None:
    """What takes a writer's events, made to keep some of them back; None where the writer is of another kind."""
    cls = type(writer)
    if f"{cls.__module__}.{cls.__qualname__}" not in _WRITERS or "add_scalar" in vars(writer):
        return None
    file_writer = writer._get_file_writer()
    events = getattr(file_writer, "event_writer", None)
    if type(events) is _LateEvents:
        return events
    is_known = all(hasattr(events, name) for name in ("add_event", "flush", "close"))
    if not is_known or getattr(file_writer, "_default_metadata", None):
        return None
    file_writer.event_writer = late = _LateEvents(events)
    return late


class _Scalar:
    """A number that is on its way to the host, and what is to be written with it."""

    def __init__(
        self,
        writer: Any,
        tag: str,
        item: LateItem | None,
        tensors: Sequence[Tensor],
        copy: HostCopy,
        more: tuple[Any, ...],
        named: dict[str, Any],
    ) -> None:
        self._writer, self._tag, self._item, self._tensors, self.copy = writer, tag, item, tensors, copy
        self._more, self._named = more, named

    def write(self) -> None:
        """Write it. Waits for the copy if it is not there yet."""
        numbers = [_number(*pair) for pair in zip(self._tensors, self.copy.numbers(), strict=True)]
        read = {id(tensor): number for tensor, number in zip(self._tensors, numbers, strict=True)}
        value = numbers[0] if self._item is None else self._item.settle(read)
        self._writer.add_scalar(self._tag, value, *self._more, **self._named)


def _number(tensor: Tensor, number: float) -> Any:
    """What `tensor.item()` gives, of which the number has come as a float64."""
    if tensor.dtype is torch.bool:
        return bool(number)
    if tensor.dtype.is_floating_point:
        return number
    return int(number) if abs(number) < _EXACT else tensor.item()


class _LateEvents:
    """In the place of what takes a file's events: they wait behind a number that has not arrived, and keep their order."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self._waiting: deque[Any] = deque()
        self._is_writing = False
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    def add_event(self, event: Any) -> None:
        with self._lock:
            if self._is_writing or not self._waiting:
                self._events.add_event(event)
            else:
                self._waiting.append(event)
                self.catch_up(MOST_WAITING)

    def add_late(self, scalar: _Scalar) -> None:
        with self._lock:
            self._waiting.append(scalar)
            _WAITING.add(self)
            self.catch_up(MOST_WAITING)

    def flush(self) -> None:
        self.catch_up()
        self._events.flush()

    def close(self) -> None:
        self.catch_up()
        self._events.close()

    def catch_up(self, leave: int = 0) -> None:
        """Write what has arrived, and wait for more until `leave` are under way."""
        with self._lock:
            while self._waiting and not self._is_writing:
                first = self._waiting[0]
                if isinstance(first, _Scalar) and len(self._waiting) <= leave and not first.copy.arrived():
                    return
                self._waiting.popleft()
                self._write(first)
            if not self._waiting:
                _WAITING.discard(self)

    def forget(self) -> None:
        """In a process that was forked: the other one writes them."""
        self._waiting.clear()
        self._lock = threading.RLock()

    def _write(self, event: Any) -> None:
        self._is_writing = True
        try:
            event.write() if isinstance(event, _Scalar) else self._events.add_event(event)
        finally:
            self._is_writing = False


_WAITING: set[_LateEvents] = set()
"""Those that have something to write: nobody else may hold their writer any more."""


def _finish() -> None:
    for events in [*_WAITING]:
        events.catch_up()


def _forget() -> None:
    for events in [*_WAITING]:
        events.forget()
    _WAITING.clear()


atexit.register(_finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
