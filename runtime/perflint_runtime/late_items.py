"""Device values that are read when somebody looks: what `.item()` gives, copies of what it is read from until then.

A copy of one number on its device takes a kernel and no wait. When somebody looks, or when there are many, all are read in one
wait, and Python does with the numbers what the plain code would have done, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

MOST_KEPT = 4096
"""So many numbers are kept on a device, 512 bytes each, before they are read."""
READ_ALIKE = frozenset(
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
PLAIN = frozenset((int, float, complex, bool, str, type(None)))
"""Types whose objects stay as they are."""


class LateItem:
    """What `value.item()` gives, read when somebody asks for it.

        value = LateItem(loss)                               # value = loss.item()
        value = LateItem(loss, of=float)                     # value = float(loss)
        value = LateItem(hits, mask, of=lambda a, b: a / b)  # value = hits.item() / mask.item()
        if step % 100 == 0:
            print(value.item())                              # print(value)

    Plain tensors of one element on CUDA and on the CPU are copied on their device, so that later writes do not matter. Whatever
    else comes is read at once, with the errors that `.item()` raises.
    """

    __slots__ = ("_number", "_of", "_parts")

    def __init__(self, value: Any, *more: Any, of: Callable[..., Any] | None = None) -> None:
        """Take the number that `value` holds now, or what `of` makes of the numbers of all values.

        `of` computes with numbers alone; others that it needs are defaults of its parameters: `lambda a, n=n: a / n`.
        """
        values = (value, *more)
        self._of = of
        self._parts = _parts(values, of)
        self._number: Any = _at_once(values, of) if self._parts is None else None

    def item(self) -> Any:
        """The number. Waits for the device, the first time."""
        if self._parts is not None:
            read_together((self,))
        return self._number

    @property
    def waits(self) -> bool:
        """Whether nobody has read the number yet."""
        return self._parts is not None

    @property
    def tensors(self) -> list[Tensor]:
        """What is to be read for it, in order."""
        found: list[Tensor] = []
        for part in self._parts or ():
            found += [part] if isinstance(part, Tensor) else part.tensors
        return found

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the tensor whose `.item()` it gives, where it waits for nothing else."""
        alone = self._parts[0] if self._of is None and self._parts else None
        return alone.dtype if isinstance(alone, (Tensor, LateItem)) else None

    def settle(self, read: Mapping[int, Any]) -> Any:
        """Take what has been read from its tensors, by their `id`, and give the number."""
        if self._parts is not None:
            given = [read[id(part)] if isinstance(part, Tensor) else part.settle(read) for part in self._parts]
            self._number = given[0] if self._of is None else self._of(*given)
            self._parts = None
        return self._number

    def __repr__(self) -> str:
        return f"LateItem({self.item()!r})"


def read_together(items: Iterable[LateItem]) -> None:
    """Read all numbers that nobody has read yet, with one wait for all of a device."""
    waiting = [item for item in items if item.waits]
    tensors = {id(tensor): tensor for item in waiting for tensor in item.tensors}  # one may be part of several
    read = dict(zip(tensors, numbers([*tensors.values()]), strict=True))
    for item in waiting:
        item.settle(read)


def items_together(*values: Any) -> tuple[Any, ...]:
    """What `value.item()` gives for each of some values, in order, with one wait for all of a device.

        loss_item, norm_item = items_together(loss, norm)  # loss.item(), norm.item()

    Where one of them is no plain tensor of one element, each is asked by itself, with the errors that `.item()` raises.
    """
    if not all(map(is_readable, values)):
        return tuple(value.item() for value in values)
    return tuple(numbers([value.detach().reshape(()) for value in values]))


def copies_together(*values: Any) -> tuple[Any, ...]:
    """Copies on the host of values of one number each, with one wait for all of a device: for a writer that would copy each.

        loss_copy, norm_copy = copies_together(loss, norm)
        writer.add_scalar("loss", loss_copy, step)  # writer.add_scalar("loss", loss, step)
        writer.add_scalar("norm", norm_copy, step)

    Where one of them is no plain tensor of one element, all are handed on as they are.
    """
    if not all(map(is_readable, values)):
        return values
    found: list[Any] = [None] * len(values)
    for positions, row in _rows([value.detach().reshape(()) for value in values]):
        for position, copied in zip(positions, row.cpu().unbind(), strict=True):
            found[position] = copied
    return tuple(found)


def late(value: Any) -> LateItem | None:
    """What gives `value.item()` when somebody asks; None where it has to be read at once."""
    if type(value) is not LateItem:
        kept = snapshot(value)
        if kept is None:
            return None
        item = LateItem.__new__(LateItem)
        item._of, item._parts = None, [kept]
        return item
    return value if value.waits else None


def _parts(values: tuple[Any, ...], of: Callable[..., Any] | None) -> list[Tensor | LateItem] | None:
    """What a number is made of later; None where it has to be made at once."""
    if not all(type(given) in PLAIN for given in getattr(of, "__defaults__", None) or ()):
        return None
    parts: list[Tensor | LateItem] = []
    for value in values:
        is_late = type(value) is LateItem and (value.waits or type(value.item()) in PLAIN)
        part = value if is_late else snapshot(value)
        if part is None or (of is int and (is_late or part.dtype.is_floating_point)):  # nan and inf are errors
            return None
        parts.append(part)
    if of is float and isinstance(parts[0], Tensor) and values[0].requires_grad:
        _warn_as_torch_does()
    return parts


def _at_once(values: tuple[Any, ...], of: Callable[..., Any] | None) -> Any:
    if of is None:
        return values[0].item()
    if of is float or of is int:
        return of(values[0].item() if type(values[0]) is LateItem else values[0])
    return of(*(value.item() for value in values))


def _warn_as_torch_does() -> None:
    """The warning that `float` of a tensor gives that belongs to a graph: once in a process, as a rule."""
    global _has_warned
    if not _has_warned or torch.is_warn_always_enabled():
        _has_warned = True
        float(torch.zeros((), requires_grad=True))


_has_warned = False


def snapshot(value: Any) -> Tensor | None:
    """A copy on the device of what `value.item()` would read; None where it has to be read at once."""
    return value.detach().reshape(()).clone() if is_readable(value) else None


def is_readable(value: Any) -> bool:
    """Whether `value.item()` gives what `tolist` of many such tensors gives, and no error."""
    if type(value) is not Tensor or value.numel() != 1 or value.layout is not torch.strided:
        return False
    if value.device.type not in ("cuda", "cpu") or value.dtype not in READ_ALIKE or value.is_quantized:
        return False
    # `.item()` raises there
    return not (
        torch._C._functorch.is_functorch_wrapped_tensor(value) or (value.is_cuda and torch.cuda.is_current_stream_capturing())
    )


def numbers(tensors: Sequence[Tensor]) -> list[Any]:
    """What `item` gives for each of some snapshots, with one wait for all of a device."""
    if len(tensors) == 1:
        return [tensors[0].item()]
    found: list[Any] = [None] * len(tensors)
    for positions, row in _rows(tensors):
        for position, number in zip(positions, row.tolist(), strict=True):
            found[position] = number
    return found


def _rows(tensors: Sequence[Tensor]) -> Iterator[tuple[list[int], Tensor]]:
    """The numbers of some tensors of one element, those of one type and device as a tensor, with their positions.

    Lazily: a device is looked at when what comes before has been read, so a copy that this waited for has arrived on the host.
    """
    devices: dict[torch.device, dict[torch.dtype, list[int]]] = {}
    for position, tensor in enumerate(tensors):
        devices.setdefault(tensor.device, {}).setdefault(tensor.dtype, []).append(position)
    for types in devices.values():
        groups = sorted(types.values(), key=lambda positions: -tensors[positions[0]].element_size())
        yield from zip(groups, _on_host([torch.stack([tensors[p] for p in g]) for g in groups]), strict=True)


def _is_far(tensor: Tensor) -> bool:
    """Whether a copy to the host waits."""
    return tensor.is_cuda


def _on_host(stacked: list[Tensor]) -> Sequence[Tensor]:
    """Rows of numbers of several types, the widest first; those on a GPU come in one copy, byte for byte."""
    if len(stacked) == 1 or not _is_far(stacked[0]):
        return stacked
    sizes = [row.numel() * row.element_size() for row in stacked]
    # The CPU waits for the GPU here.
    together = torch.cat([row.view(torch.uint8) for row in stacked]).cpu()
    return [part.view(row.dtype) for part, row in zip(torch.split(together, sizes), stacked, strict=True)]
