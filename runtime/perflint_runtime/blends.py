"""Parameters of one network that follow those of another, all of them in a handful of kernels.

blend_parameters(net.parameters(), target.parameters(), lambda: (tau, 1 - tau), into=1)
# for p, q in zip(net.parameters(), target.parameters()):
#     q.data.copy_(tau * p.data + (1 - tau) * q.data)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from types import GeneratorType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from perflint_runtime.pinned import is_unwatched

_MOST_BYTES = 2**26
"""So much of the parameters is blended at once: twice as much memory is taken until it is done."""
_LARGEST = 2.0**53
"""Torch converts weights up to here to any type of a parameter, whichever kernel asks."""

_LAUNCHED = frozenset(("cuda",))
"""Devices on which a kernel for each parameter costs more than to look at all of them first; on the CPU it does not."""
_FOUND_BY = frozenset(("named_parameters", "_named_members", "named_modules", "__getattribute__"))
"""By what `parameters()` finds what it gives."""


def blend_parameters(
    first: Any,
    second: Any,
    weights: Callable[[], tuple[Any, Any]],
    *,
    into: Literal[0, 1],
    begins: Literal[0, 1] = 0,
    behind: bool = False,
) -> None:
    """Do `pair[into].data.copy_(x * p.data + y * q.data)` for each pair `p, q` of two iterables, where `x, y = weights()`.

    begins: which of the pair the sum begins with. behind: `p.data * x` instead of `x * p.data`.

    Ordinary float32 and float64 parameters on CUDA, whose memory no other of them shares, are blended together: each element is
    multiplied and added as in the plain code, to the same bits. Whatever else comes (the CPU, half precision, a subclass,
    several devices, memory that is shared, iterables that run other code, weights that are no ordinary numbers) goes through
    the plain code, pair by pair, which also raises what the plain code raises.
    """
    pairs: Iterable[Any] = zip(first, second)  # noqa: B905  # as in the plain code
    if _runs_nothing(first) and _runs_nothing(second):
        pairs = list(pairs)
        if pairs and all(map(_is_plain, pairs)) and _are_apart(pairs):
            x, y = weights()
            if _is_ordinary(x) and _is_ordinary(y):
                for some in _stretches(pairs):
                    _blend(some, (x, y), into, begins)
                return
            pairs = iter(pairs)
            _blend_pair(next(pairs), (x, y), into, begins, behind)
    for pair in pairs:
        _blend_pair(pair, weights(), into, begins, behind)


def _blend_pair(pair: Any, weights: tuple[Any, Any], into: int, begins: int, behind: bool) -> None:
    p, q = pair
    x, y = weights
    parts = [
        lambda: p.data * x if behind else x * p.data,
        lambda: q.data * y if behind else y * q.data,
    ]
    (q if into else p).data.copy_(parts[begins]() + parts[1 - begins]())


def _blend(pairs: list[tuple[Tensor, Tensor]], weights: tuple[float, float], into: int, begins: int) -> None:
    sides = [[pair[side].data for pair in pairs] for side in (0, 1)]
    products = [torch._foreach_mul(side, weight) for side, weight in zip(sides, weights, strict=True)]
    torch._foreach_add_(products[begins], products[1 - begins])
    torch._foreach_copy_(sides[into], products[begins])


def _runs_nothing(parameters: Any) -> bool:
    """Whether going through something runs no code of the program: a list, or what torch's own `parameters()` gives."""
    if type(parameters) in (list, tuple):
        return True
    if type(parameters) is not GeneratorType or parameters.gi_code is not nn.Module.parameters.__code__:
        return False
    frame = parameters.gi_frame
    module = frame.f_locals.get("self") if frame is not None else None
    if not isinstance(module, nn.Module):
        return False
    kinds = [kind for kind in type(module).__mro__ if kind not in (nn.Module, object)]
    return all(_FOUND_BY.isdisjoint(vars(held)) for held in (module, *kinds))


def _is_plain(pair: tuple[Any, Any]) -> bool:
    """Whether two tensors are multiplied and added alike by every kernel."""
    p, q = pair
    if not all(type(one) in (Tensor, nn.Parameter) and type(one.data) is Tensor for one in pair):
        return False
    return (
        p.dtype in (torch.float32, torch.float64)
        and (p.dtype, p.device, p.shape) == (q.dtype, q.device, q.shape)
        and p.device.type in _LAUNCHED
        and all(one.layout is torch.strided and one.is_contiguous() and not one.is_neg() for one in pair)
        and is_unwatched(p)
        and is_unwatched(q)
    )


def _are_apart(pairs: list[tuple[Tensor, Tensor]]) -> bool:
    """Whether all lie on one device, and none in memory of another: then their order does not matter."""
    found = [one for pair in pairs for one in pair if one.numel()]
    places = sorted((one.data_ptr(), one.data_ptr() + one.nbytes) for one in found)
    return len({one.device for one in found}) <= 1 and all(end <= begin for (_, end), (begin, _) in pairwise(places))


def _is_ordinary(weight: Any) -> bool:
    return type(weight) in (float, int) and abs(weight) <= _LARGEST


def _stretches(pairs: list[tuple[Tensor, Tensor]]) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """The pairs, so many at a time as the memory for their products allows, those of one type."""
    some: list[tuple[Tensor, Tensor]] = []
    size = 0
    for pair in pairs:
        if some and (size + pair[0].nbytes > _MOST_BYTES or pair[0].dtype is not some[0][0].dtype):
            yield some
            some, size = [], 0
        some.append(pair)
        size += pair[0].nbytes
    yield some
