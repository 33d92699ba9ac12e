"""Which tensors go through pinned memory as they would go without."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LARGEST_STAGED = 2**26
"""So many bytes go through pinned memory at most; of more, the copy on the host takes as long as the wait that it saves."""


def is_plain(value: Any, place: str) -> bool:
    """Whether something is an ordinary tensor, of no class of its own, on the host (`cpu`) or on a GPU (`cuda`)."""
    return type(value) is Tensor and value.device.type == place


def may_be_staged(value: Any, place: str) -> bool:
    """Whether a copy of `value`, which lies on `place`, is the same tensor whether or not it goes through pinned memory."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch 2.13 leaves it untyped
        return False
    if not is_plain(value, place) or value.layout is not torch.strided:
        return False
    if value.requires_grad or value.is_complex() or value.is_quantized or value.is_neg() or not _is_dense(value):
        return False
    if any(getattr(value, "names", ())):  # names of dimensions, which later versions of torch do not have
        return False
    return value.nbytes <= LARGEST_STAGED and is_unwatched(value)


def _is_dense(value: Tensor) -> bool:
    """Whether a copy has the same strides, whoever makes it."""
    return value.is_contiguous() or (value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last))


def is_unwatched(value: Tensor) -> bool:
    """Whether nothing looks at each operation: no transform of functions, no mode, no capture of a CUDA graph."""
    if torch._C._functorch.is_functorch_wrapped_tensor(value):
        return False
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        return False
    if torch.compiler.is_compiling():
        return False
    is_in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch 2.13 leaves it untyped
    return not (is_in_use and torch.cuda.is_current_stream_capturing())
