"""A running total of what `.item()` gives, which the CPU waits for only when somebody looks at it.

total = ItemSum(0.0)
for x, y in loader:
loss = train_step(x, y)
total.add(loss)             # total += loss.item()
total.add(loss, len(x))     # total += loss.item() * len(x)
print(total.value() / len(loader))
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
_NARROW_INTEGERS = frozenset((torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32))
_EXACT = 2**53
"""Up to here float64 holds every integer."""
_MASK = 2**32 - 1
_MANY = 2**31
"""So many numbers of 32 bits fit into a sum of 64."""


class ItemSum:
    """What `total += value.item() * weight` makes of a Python number, to the last bit and with the same errors.

    Plain tensors of one element on CUDA and on the CPU are added up on their device: floats as float64, which is what a Python
    float is, integers in two halves of 32 bits, so that nothing overflows. Whatever else comes (a number, several elements,
    a complex number, a tensor subclass, MPS, another device than before, an integer with a weight) is read where it is added,
    as in the plain code, which also raises what the plain code raises.
    """

    __slots__ = ("_adds", "_high", "_total", "_value")

    def __init__(self, start: Any = 0) -> None:
        """Begin with a number, of the type that an empty total shall have."""
        self._value: Any = start
        self._total: Tensor | None = None
        self._high: Tensor | None = None
        self._adds = 0

    def add(self, value: Any, weight: Any = 1) -> None:
        """Do `total += value.item() * weight`, without the product where the weight is 1. As a rule, waits for nothing."""
        if self._adds_on_device(value, weight):
            return
        before = self.value()
        item = value.item()
        self._value = before + (item if type(weight) is int and weight == 1 else item * weight)
        self._total = self._high = None

    def _adds_on_device(self, value: Any, weight: Any) -> bool:
        """Add where that gives the same number as on the host; else do nothing."""
        if type(value) is not Tensor or value.numel() != 1 or value.layout is not torch.strided:
            return False
        if value.device.type not in ("cuda", "cpu"):
            return False
        if value.dtype in _FLOATS:
            if not (type(weight) is float or (type(weight) is int and abs(weight) <= _EXACT)) or not self._is_float_on(value):
                return False
            self._add_float(value, weight)
            return True
        if type(weight) is not int or weight != 1 or value.dtype not in _NARROW_INTEGERS | {torch.int64}:
            return False
        if self._total is not None and self._high is None and self._total.device == value.device:
            self._add_float(value, 1)
            return True
        if not self._is_integer_on(value):
            return False
        self._add_integer(value)
        return True

    def value(self) -> Any:
        """The total as the Python number that the plain code would hold. Waits for the device."""
        if self._total is not None:
            # The CPU waits for the GPU here.
            low = self._total.item()
            self._value = low if self._high is None else int(self._high.item()) * (_MASK + 1) + int(low)
            self._total = self._high = None
        return self._value

    def _is_float_on(self, value: Tensor) -> bool:
        """Whether the total is, or can be, a float64 number on the value's device."""
        if self._total is not None:
            if self._high is None and self._total.device == value.device:
                return True
            self.value()
        kind = type(self._value)
        if not (kind is float or (kind is int and abs(self._value) <= _EXACT)):
            return False
        with torch.inference_mode(False):
            self._total = torch.full((), float(self._value), dtype=torch.float64, device=value.device)
        return True

    def _add_float(self, value: Tensor, weight: float) -> None:
        assert self._total is not None
        with torch.no_grad():
            number = value.detach().reshape(()).to(torch.float64)
            # two kernels: one would multiply and add without rounding in between, as Python does
            self._total.add_(number if type(weight) is int and weight == 1 else number * weight)

    def _is_integer_on(self, value: Tensor) -> bool:
        """Whether the total is, or can be, an exact integer on the value's device."""
        if self._total is not None:
            if self._high is not None and self._total.device == value.device and self._adds < _MANY:
                return True
            self.value()
        if type(self._value) is not int or abs(self._value) >= 2**62:
            return False
        with torch.inference_mode(False):
            self._total = torch.full((), self._value & _MASK, dtype=torch.int64, device=value.device)
            self._high = torch.full((), self._value >> 32, dtype=torch.int64, device=value.device)
        self._adds = 1
        return True

    def _add_integer(self, value: Tensor) -> None:
        assert self._total is not None
        assert self._high is not None
        self._adds += 1
        with torch.no_grad():
            number = value.detach().reshape(())
            if value.dtype in _NARROW_INTEGERS:
                self._total.add_(number)
            else:
                self._total.add_(number & _MASK)
                self._high.add_(number >> 32)

    def __repr__(self) -> str:
        return f"ItemSum({self.value()!r})"
