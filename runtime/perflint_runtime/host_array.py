"""An array that grows by what the host reads from the device, which it waits for only when somebody looks at the array.

predictions = HostArray(np.array([]))
for x, y in loader:
    predictions.add_array(model(x).argmax(1))    # predictions = np.append(predictions, model(x).argmax(1).cpu().numpy())
print((predictions.value() == labels).mean())
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from perflint_runtime.host_list import HostList, called


class HostArray:
    """An array that takes `np.append(array, value.cpu().numpy())`: same bits and types, same errors.

    Plain tensors on CUDA are copied to pinned memory, which nothing waits for, and are joined when somebody looks: each once,
    where `np.append` copies all that is there each time. Whatever else comes is read and appended where it is added, as in
    the plain code, which also raises what the plain code raises.
    """

    __slots__ = ("_taken", "_value")

    def __init__(self, start: Any) -> None:
        """Begin with what the plain code begins with."""
        self._value = start
        self._taken = HostList()

    def add_array(self, value: Any, *through: str) -> None:
        """Append `value.cpu().numpy()`, or `value.cpu().detach().numpy()` through "detach"."""
        if _joins_as_one(self._value) and self._taken.starts_array(value, *through):
            return
        array = called(value, "cpu", *through, "numpy")
        self._value = np.append(self.value(), array)

    def value(self) -> Any:
        """The array that the plain code would hold, the same one until more is added. Waits for the device."""
        taken, self._taken = self._taken.values(), HostList()
        # one by one, `np.append` takes the type of all that is there on to the next: the same for arrays of one type
        for _, alike in groupby(taken, key=attrgetter("dtype")):
            self._value = np.concatenate([np.ravel(self._value), *map(np.ravel, alike)])
        return self._value

    def __repr__(self) -> str:
        return f"HostArray({self.value()!r})"


def _joins_as_one(start: Any) -> bool:
    """Whether numbers can be appended to something: it is a plain array of such, or an empty list."""
    if type(start) is np.ndarray:
        return start.dtype.kind in "biufc" and start.dtype.isnative
    return type(start) is list and not start
