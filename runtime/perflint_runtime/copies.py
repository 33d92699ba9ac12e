"""A copy to a device that the CPU does not wait for where nobody can tell the difference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def moved(value: Any, device: Any) -> Any:
    """What `value.to(device)` gives, without a wait where a tensor in pinned memory is copied to a CUDA device.

    Whatever else `value` or `device` may be (a batch class with its own `to`, a tensor subclass, a dtype, MPS), it is
    `value.to(device)` that runs, with the errors that it raises. Nobody may write to the pinned memory before the copy is
    done: `perflint fix` writes this call only where that is proved, as for a loader's batches.
    """
    if _is_pinned(value):
        if isinstance(device, (str, int, torch.device)) and torch.device(device).type == "cuda":
            return value.to(device, non_blocking=True)
    return value.to(device)


def moved_to_cuda(value: Any, *device: Any) -> Any:
    """What `value.cuda(*device)` gives, without a wait where a tensor is in pinned memory; see `moved`."""
    return value.cuda(*device, non_blocking=True) if _is_pinned(value) else value.cuda(*device)


def _is_pinned(value: Any) -> bool:
    return type(value) is Tensor and value.device.type == "cpu" and value.is_pinned()
