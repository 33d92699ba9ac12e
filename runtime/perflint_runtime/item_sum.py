"""A running total of what `.item()` gives, which the CPU waits for only when somebody looks at it.

total = ItemSum(0.0)
for x, y in loader:
    loss = train_step(x, y)
    total.add(loss)             # total += loss.item()
    total.add(loss, len(x))     # total += loss.item() * len(x)
    total.add(loss, divisor=8)  # total += loss.item() / 8
    total.add(norm, power=2)    # total += norm.item() ** 2
    total.add(loss, times=n)    # total += n * loss.item()
print(total.value() / len(loader))
"""

from __future__ import annotations

from typing import Any

import torch

from perflint_runtime.late_items import MOST_KEPT, LateItem, late, read_together

_EXACT = 2**53
"""Up to here a float holds every integer, so that nothing that is computed from one overflows."""


class ItemSum:
    """What `total += times * value.item() ** power * weight / divisor` makes of a Python number: the same bits and errors.

    Copies of plain tensors of one element wait on their device, on CUDA and on the CPU, and are added up in Python when
    somebody looks, or when there are 4,096. Whatever else comes (a number, several elements, a complex number, a tensor
    subclass, MPS, a weight that is no ordinary number) is read where it is added, as in the plain code, which also raises what
    the plain code raises.
    """

    __slots__ = ("_kept", "_value")

    def __init__(self, start: Any = 0) -> None:
        """Begin with a number, of the type that an empty total shall have."""
        self._value: Any = start
        self._kept: list[tuple[LateItem, Any, Any, Any, Any]] = []

    def add(self, value: Any, weight: Any = ..., divisor: Any = ..., power: Any = ..., times: Any = ...) -> None:
        """Do `total += times * value.item() ** power * weight / divisor`, if given. As a rule, waits for nothing."""
        if _may_grow(self._value) and all(map(_is_ordinary, (weight, divisor, times))) and divisor != 0:
            kept = late(value)
            if kept is not None and (power is ... or _is_small(power, kept)):
                self._kept.append((kept, weight, divisor, power, times))
                if len(self._kept) >= MOST_KEPT:
                    self.value()
                return
        total = self.value()
        total += _scaled(value.item(), weight, divisor, power, times)  # in place where the total is an array by now
        self._value = total

    def value(self) -> Any:
        """The total as the Python number that the plain code would hold. Waits for the device."""
        if self._kept:
            kept, self._kept = self._kept, []
            read_together(item for item, *_ in kept)
            for item, *factors in kept:
                self._value += _scaled(item.item(), *factors)
        return self._value

    def __repr__(self) -> str:
        return f"ItemSum({self.value()!r})"


def _may_grow(total: Any) -> bool:
    """Whether any ordinary number can be added without an error, thousands of times."""
    return type(total) is float or (type(total) in (int, bool) and abs(total) < _EXACT**8)


def _is_ordinary(number: Any) -> bool:
    """Whether a number multiplies and divides any that a tensor holds without an error, or there is none."""
    return number is ... or type(number) is float or (type(number) is int and abs(number) <= _EXACT)


def _is_small(power: Any, kept: LateItem) -> bool:
    """Whether no number of a type can be too large for a float when it is raised to a power."""
    return type(power) in (int, float) and 1 <= power <= 4 and kept.dtype not in (None, torch.float64)


def _scaled(number: Any, weight: Any, divisor: Any, power: Any, times: Any) -> Any:
    if power is not ...:
        number = number**power
    if times is not ...:
        number = times * number
    if weight is not ...:
        number = number * weight
    return number if divisor is ... else number / divisor  # an integer divided by 1 is a float
