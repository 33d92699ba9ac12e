"""Indices on the host for tensors on a device, which are copied there without a wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from perflint_runtime.copies import moved_copy
from perflint_runtime.pinned import is_unwatched


def device_index(index: Any, value: Any) -> Any:
    """What to give in the place of `index` in `value[index]` and `value[index] = x`, so that the CPU does not wait.

        rows = np.random.permutation(len(features))
        shuffled = features[device_index(rows, features)]  # features[rows]

    Of a plain tensor on CUDA, tensors, lists, ranges and arrays of numpy that hold integers, alone or in a tuple, are copied
    to it from pinned memory. All else (masks, numbers, slices, a tensor on the host) is given back as it is, and so is what
    raises an error, which torch then raises.
    """
    if not _is_far(value):
        return index
    if type(index) is tuple:
        return tuple(_copied(part, value.device) for part in index)
    return _copied(index, value.device)


def _is_far(value: Any) -> bool:
    """Whether an index on the host is copied, and the CPU waits for it."""
    return type(value) in (Tensor, nn.Parameter) and value.is_cuda and is_unwatched(value)


def _copied(part: Any, device: torch.device) -> Any:
    on_host = _tensor(part)
    return part if on_host is None else moved_copy(on_host, device)


def _tensor(part: Any) -> Tensor | None:
    """The tensor that torch makes of an index; None where that says something else, or where it is no copy that would wait."""
    if type(part) is Tensor:  # one number is no copy: its row is a view
        is_copied = part.device.type == "cpu" and part.dtype is torch.int64 and part.dim() > 0 and not part.requires_grad
        return part if is_copied else None
    if type(part) is np.ndarray:
        if part.ndim != 1 or not part.size or part.dtype.char not in "bhilq" or not part.dtype.isnative or part.strides[0] < 0:
            return None
        return torch.from_numpy(part.astype(np.int64))
    if type(part) not in (list, range) or not part or (type(part) is list and any(type(n) is not int for n in part)):
        return None
    try:
        return torch.tensor(part, dtype=torch.int64, device="cpu")
    except (OverflowError, RuntimeError, ValueError):
        return None
