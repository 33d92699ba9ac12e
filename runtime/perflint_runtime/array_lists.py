"""Lists of arrays that torch would read number by number: one array where that gives the same tensor.

rows = [row.numpy() for row in batch]
x = torch.tensor(joined(rows))    # torch.tensor(rows)
"""

from __future__ import annotations

from typing import Any

import numpy as np

_EXACT = 2**53
"""Up to here a float64 holds every integer, by way of which torch makes a float32 of one."""


def joined(rows: Any, integers: bool = False) -> Any:
    """One array of all rows where torch makes the same tensor of it, by `torch.tensor` and its like; else the rows themselves.

    That is a list of arrays of the same shape and of the same type, one of numpy's common ones, without nan, whose bits torch
    does not keep on its way through Python. With `integers=True`, for a tensor of integers, only arrays of integers are joined:
    torch may refuse others. For whatever else comes (an empty list, numbers, subclasses, arrays of several types) torch does
    what it does, errors included.
    """
    if type(rows) is not list or not rows or not all(type(row) is np.ndarray for row in rows):
        return rows
    first = rows[0]
    if first.ndim == 0 or first.size == 0 or first.dtype.char not in ("bBhil" if integers else "bBhil?efd"):
        return rows
    if not first.dtype.isnative or any(row.dtype != first.dtype or row.shape != first.shape for row in rows):
        return rows
    whole = np.ascontiguousarray(np.stack(rows))  # a tensor made number by number is in the usual order
    if first.dtype.kind == "f":
        return rows if np.isnan(whole).any() else whole
    if first.dtype.itemsize == 8 and not (whole.min() >= -_EXACT and whole.max() <= _EXACT):
        return rows
    return whole
