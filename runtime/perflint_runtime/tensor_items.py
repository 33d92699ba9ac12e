"""The elements of a tensor as Python numbers, for a loop that looks at one after the other.

items = TensorItems(scores)
for i in range(len(scores)):
    if items[i] > threshold:    # scores[i].item() > threshold
        found.append(i)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from perflint_runtime.late_items import READ_ALIKE, is_readable, numbers

_BLOCK = 4096
"""So many elements are read at once: a loop that leaves early does not wait for a large tensor to be copied."""


class TensorItems:
    """`values[index].item()` for each index, with one wait for the device where many elements are asked for.

    The elements of a plain tensor with one number each (shape `[n]` or `[n, 1]`, on CUDA or on the CPU) are read in blocks, and
    read again after torch has counted a write to the tensor. Whatever else comes (a list, an array, a tensor subclass, rows of
    several numbers, an index that is no `int` or out of range) is indexed and read as in the plain code, which also raises what
    the plain code raises. A write that torch does not count (through `.data`, a graph replay, another process) is not noticed:
    `perflint fix` writes this call only where nothing that runs in the loop writes to a tensor.
    """

    __slots__ = ("_blocks", "_size", "_values", "_version")

    def __init__(self, values: Any) -> None:
        """Look at nothing yet."""
        self._values = values
        self._blocks: dict[int, list[Any]] = {}
        self._size = values.shape[0] if type(values) is Tensor and _has_numbers(values) else 0
        self._version = self._writes()

    def __getitem__(self, index: Any) -> Any:
        """What `values[index].item()` gives. Waits for the device if the element has not been read."""
        if type(index) is not int or not -self._size <= index < self._size:
            return self._values[index].item()
        if self._writes() != self._version:
            self._blocks, self._version = {}, self._writes()
        number, place = divmod(index % self._size, _BLOCK)
        block = self._blocks.get(number)
        if block is None:
            # The CPU waits for the GPU here.
            block = self._blocks[number] = self._values[number * _BLOCK : (number + 1) * _BLOCK].flatten().tolist()
        return block[place]

    def _writes(self) -> int:
        """How many writes torch has counted: none of tensors that were made under inference mode."""
        return 0 if self._size == 0 or self._values.is_inference() else self._values._version


def _has_numbers(values: Tensor) -> bool:
    """Whether each element along the first dimension is a single number that can be read with its neighbours."""
    shape = values.shape
    return (
        len(shape) > 0
        and values.numel() == shape[0]
        and values.layout is torch.strided
        and values.device.type in ("cuda", "cpu")
        and not values.is_quantized
        and not torch._C._functorch.is_functorch_wrapped_tensor(values)
    )


def item_list(values: Any, of: Callable[[Any], Any] | None = None) -> list[Any]:
    """What `[value.item() for value in values]` gives, or with `of=float` or `of=int` `[of(value) for value in values]`.

    Waits once for a plain tensor with one number each, and once for each type and device of a list or a tuple of plain tensors
    of one element. Whatever else comes is read one after the other, as in the plain code, which also raises what the plain
    code raises.
    """
    found: list[Any] | None = None
    if type(values) is Tensor and _has_numbers(values) and values.dtype in READ_ALIKE and _converts(values, of):
        # The CPU waits for the GPU here.
        found = values.flatten().tolist()
    elif type(values) in (list, tuple) and all(is_readable(value) and _converts(value, of) for value in values):
        found = numbers([value.detach().reshape(()) for value in values])
    if found is None:
        return [value.item() if of is None else of(value) for value in values]
    return found if of is None else [of(number) for number in found]


def _converts(value: Tensor, of: Callable[[Any], Any] | None) -> bool:
    """Whether `float` or `int` of a tensor gives what it makes of the number, without a warning and without an error."""
    return of is None or not (value.requires_grad or (of is int and value.is_floating_point()))
