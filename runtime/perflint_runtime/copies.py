"""Copies to a device that the CPU does not wait for where nobody can tell the difference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_LARGEST_STAGED = 2**26
"""So many bytes are copied on the host at most; of more, the copy on the host takes as long as the wait that it saves."""


def moved(value: Any, *where: Any, **how: Any) -> Any:
    """What `value.to(*where, **how)` gives, without a wait where a tensor in pinned memory is copied to a CUDA device.

    Whatever else `value` or `where` may be (a batch class with its own `to`, a tensor subclass, a dtype, MPS), it is
    `value.to(...)` that runs, with the errors that it raises. Nobody may write to the pinned memory before the copy is done:
    `perflint fix` writes this call only where that is proved, as for a loader's batches; else it writes `moved_copy`.
    """
    if _is_host_tensor(value) and value.is_pinned() and _is_plainly_to_cuda(where, how):
        return value.to(*where, non_blocking=True, **how)
    return value.to(*where, **how)


def moved_to_cuda(value: Any, *device: Any) -> Any:
    """What `value.cuda(*device)` gives, without a wait where a tensor is in pinned memory; see `moved`."""
    if _is_host_tensor(value) and value.is_pinned():
        return value.cuda(*device, non_blocking=True)
    return value.cuda(*device)


def moved_copy(value: Any, *where: Any, **how: Any) -> Any:
    """What `value.to(*where, **how)` gives now, without a wait, whoever may write to the memory of `value` afterwards.

    A plain tensor on its way from the host to a CUDA device is copied into pinned memory that nobody else has, and from there
    to the device; the memory is used again when that is done. Whatever else comes, and what is larger than 64 MiB, is
    `value.to(...)`, with the errors that it raises.
    """
    staged: Any = _staged(value) if _may_be_staged(value) and _is_plainly_to_cuda(where, how) else None
    return value.to(*where, **how) if staged is None else staged.to(*where, non_blocking=True, **how)


def moved_copy_to_cuda(value: Any, *device: Any) -> Any:
    """What `value.cuda(*device)` gives now, without a wait; see `moved_copy`."""
    staged: Any = _staged(value) if _may_be_staged(value) else None
    return value.cuda(*device) if staged is None else staged.cuda(*device, non_blocking=True)


def _is_host_tensor(value: Any) -> bool:
    return type(value) is Tensor and value.device.type == "cpu"


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


def _may_be_staged(value: Any) -> bool:
    """Whether a copy in pinned memory would go to a CUDA device as the tensor itself does."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch 2.13 leaves it untyped
        return False
    if not _is_host_tensor(value) or value.layout is not torch.strided:
        return False
    if value.requires_grad or value.is_complex() or value.is_quantized or value.is_neg() or not _is_dense(value):
        return False
    if any(getattr(value, "names", ())):  # names of dimensions, which later versions of torch do not have
        return False
    return value.numel() * value.element_size() <= _LARGEST_STAGED and _is_unwatched(value)


def _staged(value: Tensor) -> Tensor | None:
    """The numbers of a tensor in pinned memory of their own; None where there is none."""
    try:
        staged = torch.empty_like(value, pin_memory=True)
    except RuntimeError:  # no more memory that could be pinned
        return None
    return staged.copy_(value)


def _is_dense(value: Tensor) -> bool:
    """Whether a copy has the same strides, whoever makes it."""
    return value.is_contiguous() or (value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last))


def _is_unwatched(value: Tensor) -> bool:
    """Whether nothing looks at each operation: no transform of functions, no mode, no capture of a CUDA graph."""
    if torch._C._functorch.is_functorch_wrapped_tensor(value):
        return False
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        return False
    return not torch.compiler.is_compiling() and not torch.cuda.is_current_stream_capturing()
