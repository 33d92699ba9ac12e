"""Device values that are read when somebody looks: what `.item()` gives, copies of what it is read from until then.

A copy of one number on its device takes a kernel and no wait. When somebody looks, or when there are many, all are read in one
wait, and Python does with the numbers what the plain code would have done, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

MOST_KEPT = 4096
"""So many numbers are kept on a device, 512 bytes each, before they are read."""
_READ_ALIKE = frozenset(
    (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
    )
)
"""Types of which `tolist` of many tensors gives what `item` of each does."""


class LateItem:
    """What `value.item()` gives, read when somebody asks for it.

        value = LateItem(loss)     # value = loss.item()
        if step % 100 == 0:
            print(value.item())    # print(value)

    A plain tensor of one element on CUDA and on the CPU is copied on its device, so that later writes do not matter. Whatever
    else comes is read at once, with the errors that `.item()` raises.
    """

    __slots__ = ("_number", "_tensor")

    def __init__(self, value: Any) -> None:
        """Take the number that `value` holds now."""
        self._tensor: Tensor | None = snapshot(value)
        self._number: Any = None if self._tensor is not None else value.item()

    def item(self) -> Any:
        """The number. Waits for the device, the first time."""
        if self._tensor is not None:
            self._number, self._tensor = self._tensor.item(), None
        return self._number

    @property
    def waits(self) -> bool:
        """Whether nobody has read the number yet."""
        return self._tensor is not None

    def __repr__(self) -> str:
        return f"LateItem({self.item()!r})"


def read_together(items: Iterable[LateItem]) -> None:
    """Read all numbers that nobody has read yet, with one wait for all of a type and a device."""
    waiting = [item for item in items if item._tensor is not None]
    for item, number in zip(waiting, numbers([item._tensor for item in waiting if item._tensor is not None]), strict=True):
        item._number, item._tensor = number, None


def snapshot(value: Any) -> Tensor | None:
    """A copy on the device of what `value.item()` would read; None where it has to be read at once."""
    if type(value) is LateItem:
        return value._tensor
    if type(value) is not Tensor or value.numel() != 1 or value.layout is not torch.strided:
        return None
    if value.device.type not in ("cuda", "cpu") or value.dtype not in _READ_ALIKE or value.is_quantized:
        return None
    if torch._C._functorch.is_functorch_wrapped_tensor(value) or (value.is_cuda and torch.cuda.is_current_stream_capturing()):
        return None  # `.item()` raises there
    return value.detach().reshape(()).clone()


def numbers(tensors: Sequence[Tensor]) -> list[Any]:
    """What `item` gives for each of some snapshots, with one wait for all of a type and a device."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for position, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype), []).append(position)
    found: list[Any] = [None] * len(tensors)
    for positions in groups.values():
        # The CPU waits for the GPU here.
        for position, number in zip(positions, torch.stack([tensors[p] for p in positions]).tolist(), strict=True):
            found[position] = number
    return found
