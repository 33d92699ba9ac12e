"""A list of what the host reads from the device, step by step, which it waits for only when somebody looks at the list.

losses, predictions = HostList(), HostList()
for x, y in loader:
loss, output = train_step(x, y)
losses.add_item(loss)                        # losses.append(loss.item())
predictions.add_array(output.detach())       # predictions.append(output.detach().cpu().numpy())
print(sum(losses.values()), numpy.concatenate(predictions.values()))
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from perflint_runtime.late_items import MOST_KEPT, LateItem, late, read_together
from perflint_runtime.pinned import may_be_staged

_MOST_BYTES = 2**26
"""So much pinned memory is held by copies that are under way, before the oldest is waited for."""


class HostList:
    """A list to which `.item()`, `.cpu()` and `.cpu().numpy()` of tensors are appended: same bits, same errors.

    Single numbers of plain tensors wait on their device until somebody looks, or until there are 4,096. Plain tensors on CUDA
    are copied to pinned memory, which nothing waits for, and from there to ordinary memory when the copy is done. Whatever else
    comes is read where it is added, as in the plain code, which also raises what the plain code raises.
    """

    __slots__ = ("_bytes", "_copies", "_items", "_values")

    def __init__(self) -> None:
        """Begin with an empty list."""
        self._values: list[Any] = []
        self._items: list[tuple[int, LateItem]] = []
        self._copies: deque[tuple[int, _Copy]] = deque()
        self._bytes = 0

    def append(self, value: Any) -> None:
        """Append a value as it is."""
        self._values.append(value)

    def add_item(self, value: Any) -> None:
        """Do `append(value.item())`. As a rule, waits for nothing."""
        kept = late(value)
        if kept is None:
            self._values.append(value.item())
            return
        self._items.append((len(self._values), kept))
        self._values.append(None)
        if len(self._items) >= MOST_KEPT:
            self._read_items()

    def add_copy(self, value: Any) -> None:
        """Do `append(value.cpu())`. As a rule, waits for nothing on CUDA."""
        if not self._starts_copy(value, is_array=False):
            self._values.append(value.cpu())

    def add_array(self, value: Any) -> None:
        """Do `append(value.cpu().numpy())`. As a rule, waits for nothing on CUDA."""
        if not self._starts_copy(value, is_array=True):
            self._values.append(value.cpu().numpy())

    def values(self) -> list[Any]:
        """The list that the plain code would hold, the same one each time. Waits for the device."""
        self._read_items()
        while self._copies:
            self._finish()
        return self._values

    def __repr__(self) -> str:
        return f"HostList({self.values()!r})"

    def _read_items(self) -> None:
        kept, self._items = self._items, []
        read_together(item for _, item in kept)
        for position, item in kept:
            self._values[position] = item.item()

    def _starts_copy(self, value: Any, is_array: bool) -> bool:
        """Begin a copy to the host that nobody waits for; do nothing where it might give something else."""
        if not may_be_staged(value, "cuda") or torch.is_inference_mode_enabled():
            return False
        if is_array and value.dtype is torch.bfloat16:
            return False  # numpy does not know it, and says so
        self._copies.append((len(self._values), _Copy(value, is_array)))
        self._values.append(None)
        self._bytes += value.nbytes
        while self._copies and (self._bytes > _MOST_BYTES or self._copies[0][1].arrived()):
            self._finish()
        return True

    def _finish(self) -> None:
        position, copy = self._copies.popleft()
        self._bytes -= copy.nbytes
        self._values[position] = copy.result()


class _Copy:
    """A plain tensor on its way from CUDA to the host."""

    def __init__(self, value: Tensor, is_array: bool) -> None:
        self.nbytes = value.nbytes
        self._is_array = is_array
        self._pinned = torch.empty_like(value, device="cpu", pin_memory=True)
        self._pinned.copy_(value, non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch 2.13 leaves it untyped
        self._event.record(torch.cuda.current_stream(value.device))

    def arrived(self) -> bool:
        """Whether `result` would not wait."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]  # as above

    def result(self) -> Any:
        """The copy in ordinary memory, as a tensor or as an array."""
        self._event.synchronize()  # the CPU waits for the GPU here, unless the copy has arrived
        copy = torch.empty_like(self._pinned, pin_memory=False).copy_(self._pinned)
        return copy.numpy() if self._is_array else copy
