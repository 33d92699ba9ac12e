"""What a run has trained, kept in a file, and how far that of two runs is apart: `python tensors.py ORIGINAL CHANGED`."""

import gc
import json
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MOST_MIB = 256
"""More is not kept: writing it would take longer than what is learnt from it is worth."""

Named = list[tuple[str, "torch.Tensor"]]


def keep(path: Path, optimizers: Iterable[Any]) -> None:
    """Write the parameters and the state of a run's optimizers, with their names, unless they are too large."""
    import torch

    names = _names()
    parameters: Named = []
    state: Named = []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = names.get(id(parameter), f"parameter {len(parameters) + 1}")
                parameters.append((name, parameter))
                held = sorted(optimizer.state.get(parameter, {}).items())
                state += [(f"{key} of {name}", value) for key, value in held if isinstance(value, torch.Tensor)]
    if sum(tensor.numel() * tensor.element_size() for _, tensor in (*parameters, *state)) <= MOST_MIB * 2**20:
        torch.save({"parameters": _on_host(parameters), "optimizer_state": _on_host(state)}, path)


def _names() -> dict[int, str]:
    """The longest name that a module has for each parameter, by its identity."""
    import torch

    found: dict[int, str] = {}
    for module in gc.get_objects():
        if issubclass(type(module), torch.nn.Module):
            for name, parameter in module.named_parameters():
                if len(name) > len(found.get(id(parameter), "")):
                    found[id(parameter)] = name
    return found


def _on_host(tensors: Named) -> Named:
    import torch

    whole = ((name, tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor) for name, tensor in tensors)
    dense = ((name, tensor if tensor.layout is torch.strided else tensor.to_dense()) for name, tensor in whole)
    return [(name, tensor.detach().cpu()) for name, tensor in dense]


def apart(original: Path, changed: Path) -> dict[str, dict[str, Any]]:
    """For parameters and state: the largest distance of two numbers at the same place, the place, how many tensors differ."""
    import torch

    before, after = (torch.load(path, map_location="cpu", weights_only=True) for path in (original, changed))
    return {kind: _apart(before[kind], after[kind]) for kind in before}


def _apart(before: Named, after: Named) -> dict[str, Any]:
    if [(tensor.shape, tensor.dtype) for _, tensor in before] != [(tensor.shape, tensor.dtype) for _, tensor in after]:
        return {"largest": None, "where": "", "extent": f"other tensors: {len(before)} and {len(after)}"}
    found = list(_distances(before, after))
    largest, where = max(found, key=lambda pair: pair[0], default=(None, ""))
    return {"largest": largest, "where": where, "extent": f"{len(found)} of {len(before)} tensors differ"}


def _distances(before: Named, after: Named) -> Iterator[tuple[float, str]]:
    """Of each pair of tensors that are not the same: the largest distance, and its place."""
    import torch

    for (name, a), (_, b) in zip(before, after, strict=True):
        kind = torch.complex128 if a.is_complex() else torch.float64
        a, b = a.to(kind), b.to(kind)
        distance = (a - b).abs()
        distance[a == b] = 0  # infinities, too
        distance[a.isnan() & b.isnan()] = 0
        distance = distance.nan_to_num(nan=math.inf)
        if distance.numel() and bool((distance > 0).any()):
            at = int(distance.argmax())
            place = ", ".join(str(int(i)) for i in torch.unravel_index(torch.tensor(at), distance.shape))
            yield float(distance.flatten()[at]), f"{name}[{place}]" if place else name


if __name__ == "__main__":
    print(json.dumps(apart(*map(Path, sys.argv[1:3]))))
