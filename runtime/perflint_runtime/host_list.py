"""A list of what the host reads from the device, step by step, which it waits for only when somebody looks at the list.

losses, predictions, classes = HostList(), HostList(), HostList()
for x, y in loader:
    loss, output = train_step(x, y)
    losses.add_item(loss)                        # losses.append(loss.item())
    predictions.add_array(output.detach())       # predictions.append(output.detach().cpu().numpy())
    classes.extend_list(output.argmax(1))        # classes.extend(output.argmax(1).tolist())
print(sum(losses.values()), numpy.concatenate(predictions.values()))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from perflint_runtime.late_items import MOST_KEPT, LateItem, late, read_together
from perflint_runtime.pinned import may_be_staged

_MOST_BYTES = 2**26
"""So much pinned memory is held by copies that are under way, before the oldest is waited for."""


class HostList:
    """A list that takes `.item()`, `.cpu()`, `.cpu().numpy()` and `.tolist()` of tensors: same bits, same errors.

    Single numbers of plain tensors wait on their device until somebody looks, or until there are 4,096. Plain tensors on CUDA
    are copied to pinned memory, which nothing waits for, and from there to ordinary memory when the copy is done. Whatever else
    comes is read where it is added, as in the plain code, which also raises what the plain code raises.
    """

    __slots__ = ("_bytes", "_copies", "_items", "_values")

    def __init__(self) -> None:
        """Begin with an empty list."""
        self._values: list[Any] = []
        self._items: list[tuple[int, LateItem]] = []
        self._copies: deque[tuple[slice, _Copy]] = deque()
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

    def extend(self, values: Iterable[Any]) -> None:
        """Append each of some values as it is."""
        self._values.extend(values)

    def add_copy(self, value: Any, *through: str) -> None:
        """Do `append(value.cpu())`, or `append(value.cpu().detach())` through "detach"."""
        if torch.is_inference_mode_enabled() or not self._starts_copy(value, _itself, through):
            self._values.append(called(value, "cpu", *through))

    def add_array(self, value: Any, *through: str) -> None:
        """Do `append(value.cpu().numpy())`, or `append(value.cpu().detach().numpy())` through "detach"."""
        if not self.starts_array(value, *through):
            self._values.append(called(value, "cpu", *through, "numpy"))

    def add_list(self, value: Any, *through: str) -> None:
        """Do `append(value.tolist())`, or `append(value.cpu().numpy().tolist())` through "cpu" and "numpy"."""
        if not self._starts_copy(value, Tensor.tolist, through):
            self._values.append(called(value, *through, "tolist"))

    def extend_array(self, value: Any, *through: str) -> None:
        """Do `extend(value.cpu().numpy())`, as `add_array` does."""
        if not self._starts_copy(value, Tensor.numpy, (*through, "numpy"), is_spread=True):
            self._values.extend(called(value, "cpu", *through, "numpy"))

    def extend_list(self, value: Any, *through: str) -> None:
        """Do `extend(value.tolist())`, or `extend(value.cpu().numpy().tolist())`, as `add_list` does."""
        if not self._starts_copy(value, Tensor.tolist, through, is_spread=True):
            self._values.extend(called(value, *through, "tolist"))

    def starts_array(self, value: Any, *through: str) -> bool:
        """Do what `add_array` does where that waits for nothing; do nothing, and say so, where it would."""
        return self._starts_copy(value, Tensor.numpy, (*through, "numpy"))

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

    def _starts_copy(
        self, value: Any, made: Callable[[Tensor], Any], through: tuple[str, ...], is_spread: bool = False
    ) -> bool:
        """Begin a copy to the host that nobody waits for; do nothing where it might give something else.

        made: what is made of the copy. through: what the plain code makes of it before. is_spread: whether the list takes its
        elements.
        """
        if "detach" in through and type(value) is Tensor:
            value = value.detach()
        if not may_be_staged(value, "cuda") or (is_spread and value.dim() == 0):
            return False
        if "numpy" in through and value.dtype is torch.bfloat16:
            return False  # numpy does not know it, and says so
        count = len(value) if is_spread else 1
        self._copies.append((slice(len(self._values), len(self._values) + count), _Copy(value, made, is_spread)))
        self._values += [None] * count
        self._bytes += value.nbytes
        while self._copies and (self._bytes > _MOST_BYTES or self._copies[0][1].arrived()):
            self._finish()
        return True

    def _finish(self) -> None:
        places, copy = self._copies.popleft()
        self._bytes -= copy.nbytes
        self._values[places] = copy.result()


class _Copy:
    """A plain tensor on its way from CUDA to the host."""

    def __init__(self, value: Tensor, made: Callable[[Tensor], Any], is_spread: bool) -> None:
        self.nbytes = value.nbytes
        self._made, self._is_spread = made, is_spread
        self._pinned = torch.empty_like(value, device="cpu", pin_memory=True)
        self._pinned.copy_(value, non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch 2.13 leaves it untyped
        self._event.record(torch.cuda.current_stream(value.device))

    def arrived(self) -> bool:
        """Whether `result` would not wait."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]  # as above

    def result(self) -> list[Any]:
        """What the list takes, made of a copy in ordinary memory."""
        self._event.synchronize()  # the CPU waits for the GPU here, unless the copy has arrived
        made = self._made(torch.empty_like(self._pinned, pin_memory=False).copy_(self._pinned))
        return [*made] if self._is_spread else [made]


def _itself(copy: Tensor) -> Tensor:
    return copy


def called(value: Any, *methods: str) -> Any:
    """What methods of a value give, each of what the last one gave."""
    for name in methods:
        value = getattr(value, name)()
    return value
