"""The counter of device reads against what was measured for each expression (torch 2.13)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from device_reads import count_reads
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Given:
    """What the expressions are about: fresh tensors, as a step has them."""

    def __init__(self) -> None:
        self.t = torch.tensor(3)
        self.f = torch.tensor(0.5)
        self.x = torch.arange(12.0)
        self.r = torch.arange(12)
        self.mask = self.x > 3

    def check_positive(self) -> None:
        assert self.x.min() >= 0

    def branch(self) -> int:
        return 1 if self.t > 0 else 2

    def put(self) -> None:
        self.r[self.t] = 7

    def put_under_mask(self, values: float | Tensor) -> None:
        self.x[self.mask] = values

    def scalar_into_buffer(self) -> None:
        torch.zeros(3)[1] = self.f

    def clip(self, **arguments: Any) -> Tensor:
        parameter = nn.Parameter(torch.ones(3))
        parameter.grad = torch.ones(3)
        return nn.utils.clip_grad_norm_([parameter], 1.0, **arguments)


ONE: dict[str, Callable[[Given], object]] = {
    "item": lambda g: g.f.item(),
    "index": lambda g: g.r[g.t],
    "index put": lambda g: g.put(),
    "slice bound": lambda g: g.x[: g.t],
    "view": lambda g: g.x.view(g.t, -1),
    "split": lambda g: torch.split(g.x, [g.t, 9]),
    "zeros": lambda g: torch.zeros(g.t),
    "arange": lambda g: torch.arange(g.t),
    "range": lambda g: range(g.t),
    "full": lambda g: torch.full((3,), g.f),
    "alpha": lambda g: g.x.add_(1, alpha=g.f),
    "int": lambda g: int(g.t),
    "float": lambda g: float(g.f),
    "if": lambda g: g.branch(),
    "max": lambda g: max(1, g.t),
    "min": lambda g: min(g.t, 5),
    "sqrt": lambda g: math.sqrt(g.f),
    "f-string": lambda g: f"{g.f:.3f}",
    "percent f": lambda g: "%f" % g.f,  # noqa: UP031
    "format": lambda g: "{}".format(g.f),  # noqa: UP032
    "any": lambda g: bool(g.x.any()),
    "assert": lambda g: g.check_positive(),
    "clip, checked": lambda g: g.clip(error_if_nonfinite=True),
    "np.exp": lambda g: np.exp(g.f),
    "np.isnan": lambda g: np.isnan(g.f),
    "tolist": lambda g: g.x.tolist(),
    "numpy": lambda g: g.x.numpy(),
    "cpu": lambda g: g.x.cpu(),
    "equal": lambda g: torch.equal(g.x, g.x),
    "allclose": lambda g: torch.allclose(g.x, g.x),
    "boolean mask": lambda g: g.x[g.mask],
    "boolean mask, put": lambda g: g.put_under_mask(torch.zeros(8)),
    "where": lambda g: torch.where(g.mask),
    "unique": lambda g: g.r.unique(),
    "masked_select": lambda g: torch.masked_select(g.x, g.mask),
    "repeat_interleave": lambda g: torch.repeat_interleave(g.x, g.r),
    "print": lambda g: print(g.f),
    "percent s": lambda g: "%s" % g.f,  # noqa: UP031
    "is_nonzero": lambda g: torch.is_nonzero(g.t),
}
SEVERAL: dict[str, tuple[int, Callable[[Given], object]]] = {
    "in": (3, lambda g: g.t in [1, 2, 3]),
    "float of each": (12, lambda g: [float(v) for v in g.x]),
    "np.mean": (4, lambda g: np.mean([g.f, g.f])),  # as an array and as a number, each
    "one_hot": (2, lambda g: F.one_hot(g.r)),
    "and": (2, lambda g: bool(g.t > 0 and g.f > 0)),
}
NONE: dict[str, Callable[[Given], object]] = {
    "times": lambda g: g.x * g.f,
    "power": lambda g: g.x**g.f,
    "clamp": lambda g: g.x.clamp(max=g.f),
    "list": lambda g: list(g.x),
    "for": lambda g: [v * 1 for v in g.x],
    "sum": lambda g: sum([g.f, g.f]),
    "stack": lambda g: torch.stack([g.f, g.f]),
    "clip": lambda g: g.clip(),
    "dict key": lambda g: {3: 1}.get(g.t),
    "repeat_interleave, size given": lambda g: torch.repeat_interleave(g.x, g.r, output_size=66),
    "integer indices": lambda g: g.x[g.r],
    "number under a mask": lambda g: g.put_under_mask(0.0),
    "shape": lambda g: (len(g.x), g.x.shape, g.x.numel()),
    "masked_fill": lambda g: g.x.masked_fill(g.mask, 0.0),
    "into a buffer: not seen": lambda g: g.scalar_into_buffer(),
}


@pytest.mark.filterwarnings("ignore:__array_wrap__")
@pytest.mark.parametrize("name", ONE)
def test_one_read(name: str) -> None:
    given = Given()
    with count_reads() as reads:
        ONE[name](given)
    assert len(reads) == 1, reads
    assert reads[0].where.startswith("test_device_reads.py:")


@pytest.mark.parametrize("name", SEVERAL)
def test_several_reads(name: str) -> None:
    expected, expression = SEVERAL[name]
    given = Given()
    with count_reads() as reads:
        expression(given)
    assert len(reads) == expected, reads


@pytest.mark.parametrize("name", NONE)
def test_no_read(name: str) -> None:
    given = Given()
    with count_reads() as reads:
        NONE[name](given)
    assert reads == []


def test_only_what_is_computed_from_the_model_counts() -> None:
    """The loader's shuffling and Adam's counters are the host's own numbers."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(TensorDataset(torch.rand(8, 3)), shuffle=True, batch_size=4)

    def epoch(read: bool) -> None:
        for (x,) in loader:
            x.sum().item()  # the batch is on the host before it goes to the model
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if read:
                loss.detach().clone().double().item()

    with count_reads(model) as reads:
        epoch(read=False)
    assert reads == []
    with count_reads(model) as reads:
        epoch(read=True)
    assert [read.operation for read in reads] == ["aten._local_scalar_dense.default"] * 2
    assert "loss.detach().clone().double().item()" in reads[0].where
    with count_reads() as reads:
        epoch(read=False)
    assert len(reads) > 4


def test_gradients_count_as_the_models() -> None:
    model = nn.Linear(3, 1)
    model(torch.ones(2, 3)).sum().backward()
    with count_reads(model) as reads:
        model(torch.ones(2, 3)).sum().backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.norm().item()
    assert len(reads) == 2


def test_sparse_gradients_can_be_followed() -> None:
    model = nn.Embedding(10, 2, sparse=True)
    with count_reads(model) as reads:
        model(torch.tensor([1, 2])).sum().backward()
        assert reads == []
        assert model.weight.grad is not None
        model.weight.grad._values().sum().item()
    assert [read.operation for read in reads] == ["aten._local_scalar_dense.default"]
