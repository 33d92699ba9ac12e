"""The losses and metrics of the steps since the last log record, kept on the device until they are read together."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from perflint_runtime.distributed import Processes
from perflint_runtime.prefetch import to_device


class Window:
    """Mean loss and metrics over some batches: one reference kept per batch, one reduction per window, no read.

    A step costs a list entry instead of device operations, which is why the trainer keeps this and not a running sum.
    """

    def __init__(self) -> None:
        self._losses: list[Tensor] = []
        self._counts: list[Tensor | int] = []
        self._metrics: dict[str, list[tuple[Tensor, Tensor | int]]] = {}

    def __len__(self) -> int:
        return len(self._losses)

    def add(self, loss: Tensor, count: Tensor | int) -> None:
        """Take in a batch's mean loss (0-d, detached) over `count` items."""
        self._losses.append(loss)
        self._counts.append(count)

    def add_metric(self, name: str, value: Tensor | tuple[Tensor, Tensor | int], count: Tensor | int) -> None:
        """Take in a batch's metric: its mean over `count` items, or (sum, number of items)."""
        part = value if isinstance(value, tuple) else (value * count, count)
        self._metrics.setdefault(name, []).append(part)

    def means(self, processes: Processes) -> dict[str, Tensor]:
        """Each mean over the window and all processes: 0-d float64 tensors on the device (float32 on MPS)."""
        losses = self.losses()
        same = _same_number(self._counts)
        total = losses.sum() * same if same is not None else (losses * _weights(self._counts, losses)).sum()
        sums = {"loss": (total, _sum(self._counts, losses))}
        for name, parts in self._metrics.items():
            values, counts = zip(*parts, strict=True)
            sums[name] = (_sum(values, losses), _sum(counts, losses))
        if processes.world_size > 1:
            together = processes.sum(_weights([number for pair in sums.values() for number in pair], losses))
            return {name: together[2 * i] / together[2 * i + 1] for i, name in enumerate(sums)}
        return {name: total / count for name, (total, count) in sums.items()}

    def losses(self) -> Tensor:
        """The losses in the order of their batches: 1-d, on the device. 0 for those of nothing, whose mean is nan."""
        losses: Tensor = as_wide(torch.stack(self._losses))
        if _same_number(self._counts):
            return losses
        return torch.where(_weights(self._counts, losses) != 0, losses, 0)

    def clear(self) -> None:
        """Forget all batches."""
        self._losses.clear()
        self._counts.clear()
        self._metrics.clear()

    def state_dict(self) -> dict[str, Any]:
        """What was taken in, for a checkpoint."""
        return {
            "losses": list(self._losses),
            "counts": list(self._counts),
            "metrics": {name: [list(part) for part in parts] for name, parts in self._metrics.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Take over a `state_dict`, with its tensors on `device`."""
        self._losses = to_device(state["losses"], device)
        self._counts = to_device(state["counts"], device)
        self._metrics = {name: [(a, b) for a, b in parts] for name, parts in to_device(state["metrics"], device).items()}


def as_wide(number: Any) -> Any:
    """A tensor as float64, so that sums and shares keep their digits (MPS has float32 only); a Python number as it is."""
    if not isinstance(number, Tensor):
        return number
    return number.float() if number.device.type == "mps" else number.double()


def shares(counts: Sequence[Tensor | int], processes: Processes, device: torch.device) -> list[Any] | None:
    """What each micro-batch's mean counts for in the mean of a window over all processes; None: it is the whole.

    Multiplied by the number of processes, since DDP and FSDP2 divide the sum of the gradients by it. Reads nothing.
    """
    if processes.world_size == 1 and len(counts) == 1:
        return None
    wide = [as_wide(count) for count in counts]
    total = sum(wide)
    if processes.world_size > 1:
        # a fill is queued like any kernel; a copy of a Python number would wait for the device
        total = total.to(device) if isinstance(total, Tensor) else torch.full((), total, device=device)
        total = processes.sum(as_wide(total))
    return [count * processes.world_size / total for count in wide]


def _same_number(counts: Sequence[Tensor | float]) -> float | None:
    """The one number that all counts are, where they are numbers of the host."""
    first = counts[0]
    if isinstance(first, Tensor) or any(isinstance(count, Tensor) or count != first for count in counts):
        return None
    return first


def _sum(numbers: Sequence[Tensor | float], like: Tensor) -> Tensor:
    """The sum as a 0-d tensor on the device of `like` and with its dtype; numbers of the host are added there."""
    if any(isinstance(number, Tensor) for number in numbers):
        return _weights(numbers, like).sum()
    total: float = sum(numbers)  # type: ignore[arg-type]  # no tensor is among them here
    return torch.full((), total, dtype=like.dtype, device=like.device)


def _weights(counts: Sequence[Tensor | float], like: Tensor) -> Tensor:
    """The numbers as a vector on the device of `like` and with its dtype, without a copy that waits."""
    first = counts[0]
    if isinstance(first, Tensor) and all(_is_alike(count, first) for count in counts):
        return torch.stack(counts).detach().to(like.device, like.dtype, non_blocking=True)  # type: ignore[arg-type]  # tensors
    if any(isinstance(count, Tensor) for count in counts):
        tensors = [torch.as_tensor(count).detach().reshape(()) for count in counts]
        return torch.stack([tensor.to(like.device, like.dtype, non_blocking=True) for tensor in tensors])
    if len(set(counts)) == 1:
        return torch.full_like(like, counts[0])  # type: ignore[arg-type]  # no tensor is among them here
    host = torch.tensor(counts, dtype=like.dtype)
    if like.is_cuda:
        host = host.pin_memory()
    return host.to(like.device, non_blocking=True)


def _is_alike(number: Any, first: Tensor) -> bool:
    return isinstance(number, Tensor) and number.dtype is first.dtype and number.device == first.device and number.dim() == 0
