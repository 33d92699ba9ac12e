"""The losses and metrics of the steps since the last log record, kept on the device until they are read together."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from perflint_runtime.distributed import Processes


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
        losses = _stacked(self._losses)
        weights = _weights(self._counts, losses)
        sums = {"loss": ((losses * weights).sum(), weights.sum())}
        for name, parts in self._metrics.items():
            values = _stacked([value.detach() for value, _ in parts])
            sums[name] = (values.sum(), _weights([count for _, count in parts], values).sum())
        if processes.world_size > 1:
            together = processes.sum(torch.stack([number for pair in sums.values() for number in pair]))
            sums = {name: (together[2 * i], together[2 * i + 1]) for i, name in enumerate(sums)}
        return {name: total / count for name, (total, count) in sums.items()}

    def losses(self) -> Tensor:
        """The losses in the order of their batches: 1-d, on the device."""
        return torch.stack(self._losses)

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
        self._losses = [loss.to(device) for loss in state["losses"]]
        self._counts = [_on(count, device) for count in state["counts"]]
        self._metrics = {
            name: [(_on(value, device), _on(count, device)) for value, count in parts]
            for name, parts in state["metrics"].items()
        }


def samples_in(batch: Any) -> int:
    """The samples of a batch: the first dimension of the first tensor in it, through dicts, lists and tuples.

    Raises:
        TypeError: there is no tensor with a dimension; pass `count=` to the trainer.

    """
    found = _first_tensor(batch)
    if found is None:
        raise TypeError(f"cannot tell how many samples a {type(batch).__name__} holds; pass count= to the Trainer")
    return found.shape[0]


def _first_tensor(batch: Any) -> Tensor | None:
    if isinstance(batch, Tensor):
        return batch if batch.dim() else None
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return next((found for item in batch if (found := _first_tensor(item)) is not None), None)
    return None


def as_wide(number: Any) -> Any:
    """A tensor as float64, so that sums and shares keep their digits (MPS has float32 only); a Python number as it is."""
    if not isinstance(number, Tensor):
        return number
    return number.float() if number.device.type == "mps" else number.double()


def _stacked(values: Sequence[Tensor]) -> Tensor:
    stacked: Tensor = as_wide(torch.stack([value if value.dim() == 0 else value.reshape(()) for value in values]))
    return stacked


def _weights(counts: Sequence[Tensor | int], like: Tensor) -> Tensor:
    """The counts as a vector on the device of `like`, without a copy that waits."""
    if any(isinstance(count, Tensor) for count in counts):
        return torch.stack([torch.as_tensor(count).to(like.device, like.dtype, non_blocking=True) for count in counts])
    if len(set(counts)) == 1:
        return torch.full_like(like, counts[0])  # type: ignore[arg-type]  # no tensor is among them here
    host = torch.tensor(counts, dtype=like.dtype)
    if like.is_cuda:
        host = host.pin_memory()
    return host.to(like.device, non_blocking=True)


def _on(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value
