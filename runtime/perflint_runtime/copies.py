"""Copies to a device that the CPU does not wait for where nobody can tell the difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from perflint_runtime.pinned import is_plain, may_be_staged


def moved(value: Any, *where: Any, **how: Any) -> Any:
    """What `value.to(*where, **how)` gives, without a wait where a tensor in pinned memory is copied to a CUDA device.

    Whatever else `value` or `where` may be (a batch class with its own `to`, a tensor subclass, a dtype, MPS), it is
    `value.to(...)` that runs, with the errors that it raises. Nobody may write to the pinned memory before the copy is done:
    `perflint fix` writes this call only where that is proved, as for a loader's batches; else it writes `moved_copy`.
    """
    if is_plain(value, "cpu") and value.is_pinned() and _is_plainly_to_cuda(where, how):
        return value.to(*where, non_blocking=True, **how)
    return value.to(*where, **how)


def moved_to_cuda(value: Any, *device: Any) -> Any:
    """What `value.cuda(*device)` gives, without a wait where a tensor is in pinned memory; see `moved`."""
    if is_plain(value, "cpu") and value.is_pinned() and len(device) < 2:
        return value.cuda(*device, non_blocking=True)
    return value.cuda(*device)


def moved_copy(value: Any, *where: Any, **how: Any) -> Any:
    """What `value.to(*where, **how)` gives now, without a wait, whoever may write to the memory of `value` afterwards.

    A plain tensor on its way from the host to a CUDA device is copied into pinned memory that nobody else has, and from there
    to the device; the memory is used again when that is done. Whatever else comes, and what is larger than 64 MiB, is
    `value.to(...)`, with the errors that it raises.
    """
    staged: Any = _staged(value) if may_be_staged(value, "cpu") and _is_plainly_to_cuda(where, how) else None
    return value.to(*where, **how) if staged is None else staged.to(*where, non_blocking=True, **how)


def moved_copy_to_cuda(value: Any, *device: Any) -> Any:
    """What `value.cuda(*device)` gives now, without a wait; see `moved_copy`."""
    staged: Any = _staged(value) if may_be_staged(value, "cpu") and len(device) < 2 else None
    return value.cuda(*device) if staged is None else staged.cuda(*device, non_blocking=True)


def uploaded(make: Callable[..., Any], data: Any, *more: Any, device: Any = None, **how: Any) -> Any:
    """What `make(data, device=device, **how)` gives, where `make` is `torch.tensor` or `torch.as_tensor`, without a wait.

    On its way to a CUDA device, the tensor is made on the host, and copied like `moved_copy` does. Whatever else is asked for
    (another device, gradients) is `make(...)` itself, with the errors that it raises.
    """
    if more or not how.keys() <= {"dtype"} or not _names_cuda(device) or torch.empty(0).device.type != "cpu":
        return make(data, *more, device=device, **how)
    return moved_copy(make(data, **how), device)


def _names_cuda(device: Any) -> bool:
    """Whether a device is one of CUDA's, of which one is in use."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch 2.13 leaves it untyped
        return False
    return device.type == "cuda" if isinstance(device, torch.device) else str(device).partition(":")[0] == "cuda"


def _is_plainly_to_cuda(where: tuple[Any, ...], how: dict[str, Any]) -> bool:
    """Whether arguments of `to` name a CUDA device, and say nothing about waiting, copying or the order in memory."""
    if not how.keys() <= {"device", "dtype"} or len(where) > 2 or any(isinstance(given, bool) for given in where):
        return False
    device = where[0] if where else how.get("device")
    if type(device) is Tensor:
        device = device.device
    if not isinstance(device, (str, int, torch.device)):
        return False
    return torch.device(device).type == "cuda"


def _staged(value: Tensor) -> Tensor | None:
    """The numbers of a tensor in pinned memory of their own; None where there is none."""
    try:
        staged = torch.empty_like(value, pin_memory=True)
    except RuntimeError:  # no more memory that could be pinned
        return None
    return staged.copy_(value)
