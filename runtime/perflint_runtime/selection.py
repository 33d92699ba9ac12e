"""What a boolean mask selects, looked for once."""

from typing import Any

import torch
from torch import Tensor


def selected(mask: Any) -> Any:
    """What to give in the place of `mask` in `x[mask]` and `x[mask] = y`: where it is true, so that nobody searches it again.

        rows = selected(labels != -100)
        loss = criterion(logits[rows], labels[rows])  # criterion(logits[labels != -100], labels[labels != -100])

    The CPU waits for the device here, to learn how many there are. With the mask it waits at each use, and once more in the
    backward pass. The results and the gradients are the same to the last bit. An ordinary tensor of bools with a dimension
    gives its places; whatever else comes is given back as it is.
    """
    if type(mask) is not Tensor or mask.dtype is not torch.bool or mask.layout is not torch.strided or not mask.dim():
        return mask
    if torch._C._functorch.is_functorch_wrapped_tensor(mask) or torch.compiler.is_compiling() or mask.is_meta:
        return mask
    if any(getattr(mask, "names", ())):  # names of dimensions, which later versions of torch do not have
        return mask
    return mask.nonzero(as_tuple=True)
