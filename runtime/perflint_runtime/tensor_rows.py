"""Rows of a tensor for functions that read them number by number: on the host, copied there together.

rows = TensorRows()
for i in range(len(names)):
    start, end = best_span(rows[starts, i], rows[ends, i])    # best_span(starts[i], ends[i])
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from perflint_runtime.pinned import is_plain, may_be_staged

_MOST_TENSORS = 16
"""Copies of so many tensors are held: a loop that goes over more does not fill the memory of the host."""
_ALIKE = frozenset((torch.float32, torch.float64, torch.int32, torch.int64))
"""Types with which the host computes whatever the device does."""


class TensorRows:
    """`values[index]` for code that only reads its numbers, with one wait for the device where many rows are asked for.

    A plain tensor on CUDA is copied to the host as a whole when its first row is asked for, and again after torch has counted
    a write to it: its rows lie there, without a graph. Whatever else comes (half precision, a subclass, a list, more than
    64 MiB, an index that is no `int` or out of range) is indexed as in the plain code, which also raises what
    the plain code raises. A write that torch does not count is not noticed: `perflint fix` writes this call only where nothing
    that runs in the loop writes to a tensor, and what gets the rows does nothing but read them.
    """

    __slots__ = ("_copies",)

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._copies: dict[int, tuple[Tensor, int, Tensor]] = {}

    def __getitem__(self, wanted: tuple[Any, Any]) -> Any:
        """What `values[index]` gives, of a copy on the host where there is one. Waits for the device when it makes one."""
        values, index = wanted
        if type(index) is not int or not _is_same_on_host(values):
            return values[index]
        version = 0 if values.is_inference() else values._version
        held, known, copy = self._copies.get(id(values), (None, 0, values))
        if held is not values or known != version:
            if len(self._copies) >= _MOST_TENSORS:
                self._copies.clear()
            copy = values.detach().cpu()  # the CPU waits for the GPU here; a tensor on the CPU is its own copy
            self._copies[id(values)] = values, version, copy
        return copy[index]


def _is_same_on_host(values: Any) -> bool:
    """Whether nobody who only reads numbers can tell a copy on the host from a tensor."""
    if is_plain(values, "cpu"):
        return True
    return type(values) is Tensor and values.dtype in _ALIKE and may_be_staged(values.detach(), "cuda")
