"""Reading numbers off the GPU without waiting for it: log lines a step late, and nan or inf found at the next log line.

    log, guard = AsyncScalars(), NonFiniteGuard()
    for step, batch in enumerate(loader):
        loss = train_step(batch)
        guard.watch(step, loss)
        if step % 50 == 0:
            log.submit(step, {"loss": loss, "lr": lr})
            guard.check_later()
        for record in log.poll():
            writer.add_scalar("loss", record.values["loss"], record.step)
    guard.check()
    for record in log.flush():
        ...

A copy to pinned host memory is queued behind the work that computes the number, and an event behind the copy; asking the
event whether it has passed waits for nothing. CUDA's branch of `HostCopy` is tested with stand-ins for pinned memory and
events; docs/gpu.md of the repository says what has run on a card.
"""

from __future__ import annotations

import array
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from perflint_runtime.metrics import has_float64


@dataclass(frozen=True)
class ScalarRecord:
    """The numbers submitted for a step, now Python numbers: floats, and ints for integer and bool tensors."""

    step: int
    values: dict[str, float]


class AsyncScalars:
    """Numbers for the log, delivered when the device has got to them: usually one step after they were submitted.

    `submit` and `poll` never wait on CUDA and on the CPU. Numbers are carried as float64, so integers are exact to 2**53. On
    other devices (MPS: float32, integers exact to 2**24) the numbers are copied on the device and read by `poll`, which waits.
    """

    def __init__(self, max_in_flight: int = 64) -> None:
        """At `max_in_flight` records that the device has not got to yet, `submit` waits for the oldest.

        Raises ValueError if that is below 1.
        """
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight={max_in_flight}: at least one record has to be under way")
        self._max_in_flight = max_in_flight
        self._in_flight: deque[_Submitted] = deque()
        self._finished: list[ScalarRecord] = []

    def submit(self, step: int, values: Mapping[str, Tensor | float]) -> None:
        """Send one-element tensors (any shape) and numbers on their way; later in-place changes do not reach them.

        Raises ValueError if a tensor has more or fewer elements.
        """
        for name, value in values.items():
            if isinstance(value, Tensor) and value.numel() != 1:
                raise ValueError(f"{name!r} has shape {tuple(value.shape)}; only tensors of one element can be logged")
        self._collect(leave=self._max_in_flight - 1)
        self._in_flight.append(_Submitted(step, dict(values), HostCopy([v for v in values.values() if isinstance(v, Tensor)])))

    def poll(self) -> list[ScalarRecord]:
        """The records that have arrived since the last call, in the order of their submission."""
        self._collect(leave=len(self._in_flight))
        finished, self._finished = self._finished, []
        return finished

    def flush(self) -> list[ScalarRecord]:
        """All remaining records. Waits for the device: for the end of training, and before a checkpoint."""
        self._collect(leave=0)
        return self.poll()

    def _collect(self, leave: int) -> None:
        """Take in what has arrived, and wait for more until `leave` are under way."""
        while self._in_flight and (len(self._in_flight) > leave or self._in_flight[0].copy.arrived()):
            self._finished.append(self._in_flight.popleft().record())


class NonFiniteError(FloatingPointError):
    """A watched number was nan or infinite. Carries `step`, `value` and `name`."""

    def __init__(self, step: int, value: float, name: str) -> None:
        """State what was found, and where."""
        self.step, self.value, self.name = step, value, name
        super().__init__(
            f"{name} is {value} at step {step}; what was trained since then is spoiled: go back to a checkpoint before it, and "
            "look for a learning rate that is too high, log or division of zero, or fp16 overflow"
        )

    def __reduce__(self) -> tuple[type[NonFiniteError], tuple[int, float, str]]:
        """Pickle for processes that send their errors to each other."""
        return NonFiniteError, (self.step, self.value, self.name)


class NonFiniteGuard:
    """Finds the first nan or inf among losses and gradient norms without a wait in each step.

    `watch` copies the number on its device (a reference would not do: the next step may write to the same buffer, as a CUDA
    graph does). `check_later` sends what was watched to the host and looks at what arrived from earlier calls, without a
    wait; `check` looks at everything, with one. Either raises NonFiniteError for the first bad step. The steps between it
    and the check have run on spoiled parameters: a program that skips bad steps must look at each loss itself.

    With a GradScaler, watch the loss before scaling, not the norm of gradients: infinite ones are part of how it works.
    """

    def __init__(self, window: int = 1024) -> None:
        """After `window` numbers without a check, `watch` calls `check_later`. Raises ValueError if that is below 1."""
        if window < 1:
            raise ValueError(f"window={window}: at least one number has to be kept")
        self._window = window
        self._labels: list[tuple[int, str]] = []
        self._watched: list[Tensor] = []
        self._sent: deque[tuple[list[tuple[int, str]], HostCopy]] = deque()

    def watch(self, step: int, value: Tensor, name: str = "loss") -> None:
        """Remember a one-element tensor for the next check. Raises ValueError if it has more or fewer elements."""
        if value.numel() != 1:
            raise ValueError(f"{name!r} has shape {tuple(value.shape)}; only tensors of one element can be watched")
        self._labels.append((step, name))
        self._watched.append(value.detach().clone())
        if len(self._watched) >= self._window:
            self.check_later()

    def check_later(self) -> None:
        """Send off what was watched and look at what has arrived; waits for nothing on CUDA and the CPU."""
        self._send()
        self._look(leave=len(self._sent))

    def check(self) -> None:
        """Look at everything that was watched; waits for the device once."""
        self._send()
        self._look(leave=0)

    def _send(self) -> None:
        if self._watched:
            self._sent.append((self._labels, HostCopy(self._watched)))
            self._labels, self._watched = [], []

    def _look(self, leave: int) -> None:
        while self._sent and (len(self._sent) > leave or self._sent[0][1].arrived()):
            labels, copy = self._sent.popleft()
            for (step, name), number in zip(labels, copy.numbers(), strict=True):
                if not math.isfinite(number):
                    raise NonFiniteError(step, number, name)


@dataclass(frozen=True)
class _Submitted:
    step: int
    values: dict[str, Tensor | float]
    copy: HostCopy

    def record(self) -> ScalarRecord:
        """The numbers in place of the tensors. Waits for the copy if it is not there yet."""
        arrived = iter(self.copy.numbers())
        numbers: dict[str, float] = {}
        for name, value in self.values.items():
            if not isinstance(value, Tensor):
                numbers[name] = value
            else:
                number = next(arrived)
                numbers[name] = number if value.dtype.is_floating_point else int(number)
        return ScalarRecord(self.step, numbers)


class HostCopy:
    """One-element tensors on their way to host memory, one transfer per device."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        groups: dict[torch.device, list[int]] = {}
        for position, tensor in enumerate(tensors):
            groups.setdefault(tensor.device, []).append(position)
        self._count = len(tensors)
        self._transfers = [
            (positions, _Transfer(_packed([tensors[position] for position in positions]))) for positions in groups.values()
        ]

    def arrived(self) -> bool:
        """Whether `numbers` would not wait."""
        return all(transfer.arrived() for _, transfer in self._transfers)

    def numbers(self) -> list[float]:
        """The numbers in the order of the tensors."""
        numbers = [0.0] * self._count
        for positions, transfer in self._transfers:
            for position, number in zip(positions, transfer.numbers(), strict=True):
                numbers[position] = number
        return numbers


class _Transfer:
    """A 1-d tensor on its way to host memory."""

    def __init__(self, packed: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        self._host: array.array[float] | Tensor = packed
        if packed.is_cuda:
            self._host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
            self._host.copy_(packed, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch 2.13 leaves it untyped
            self._event.record(torch.cuda.current_stream(packed.device))
        elif packed.device.type == "cpu":
            # Into memory that Python reads by itself: whoever counts reads of tensors sees none.
            self._host = array.array("d", bytes(8 * len(packed)))
            torch.frombuffer(self._host, dtype=torch.float64).copy_(packed)

    def arrived(self) -> bool:
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]  # as above

    def numbers(self) -> list[float]:
        if self._event is not None:
            self._event.synchronize()  # the CPU waits for the GPU here, unless the copy has arrived
        numbers: list[float] = self._host.tolist()  # on a device that is neither CUDA nor the CPU, the wait is here
        return numbers


def _packed(tensors: Sequence[Tensor]) -> Tensor:
    """Numbers of one device as one 1-d tensor of floats."""
    wide = torch.float64 if has_float64(tensors[0].device) else torch.float32
    numbers = [tensor.detach().reshape(()) for tensor in tensors]
    if len({number.dtype for number in numbers}) > 1:
        numbers = [number.to(wide) for number in numbers]
    return torch.stack(numbers).to(wide)
