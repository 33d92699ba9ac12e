"""`moved` is `to`, whatever it is given; only a pinned tensor's copy to CUDA is asynchronous."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from perflint_runtime import moved, moved_to_cuda
from torch import Tensor, nn


class Batch:
    def to(self, device: object) -> tuple[str, object]:
        return "moved", device


class Phone:
    def cuda(self, *where: object) -> tuple[object, ...]:
        return "moved", *where


class Own(Tensor):
    pass


@pytest.mark.parametrize(
    "value", [torch.ones(2), torch.ones(2, requires_grad=True), nn.Linear(2, 2), Batch(), None, {"x": 1}, 3]
)
@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), "meta", "nowhere", torch.float64, None, 1.5])
def test_it_gives_and_raises_what_to_does(value: Any, device: Any) -> None:
    assert outcome(value, lambda: moved(value, device)) == outcome(value, lambda: value.to(device))


def outcome(value: object, run: Any) -> Any:
    """What a call gives or raises; of a tensor, what tells it from others."""
    try:
        found = run()
    except Exception as error:
        return type(error), str(error)
    if isinstance(found, Tensor):
        return found is value, found.dtype, found.device, found.requires_grad
    return found


@pytest.mark.parametrize(
    "value", [torch.ones(2), torch.ones(2).as_subclass(Own), nn.Linear(2, 2), Batch(), Phone(), None, [1], 3]
)
@pytest.mark.parametrize("device", [(), (0,), ("cpu",), (None,), (1.5,)])
def test_it_gives_and_raises_what_cuda_does(value: Any, device: tuple[Any, ...]) -> None:
    assert outcome(value, lambda: moved_to_cuda(value, *device)) == outcome(value, lambda: value.cuda(*device))


@pytest.mark.parametrize("is_pinned", [True, False])
def test_only_a_pinned_tensor_is_not_waited_for_by_cuda(monkeypatch: pytest.MonkeyPatch, is_pinned: bool) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(Tensor, "is_pinned", lambda self: is_pinned)
    monkeypatch.setattr(Tensor, "cuda", lambda self, *device, **named: asked.append((*device, named)))
    moved_to_cuda(torch.ones(2))
    moved_to_cuda(torch.ones(2), 1)
    named = {"non_blocking": True} if is_pinned else {}
    assert asked == [(named,), (1, named)]


@pytest.mark.parametrize(
    ("is_pinned", "device", "asynchronous"),
    [(True, "cuda", True), (True, "cuda:1", True), (False, "cuda", False), (True, "cpu", False)],
)
def test_only_a_pinned_tensor_on_its_way_to_cuda_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, is_pinned: bool, device: str, asynchronous: bool
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(Tensor, "is_pinned", lambda self: is_pinned)
    monkeypatch.setattr(Tensor, "to", lambda self, device, non_blocking=False: asked.append(non_blocking))
    moved(torch.ones(2), device)
    assert asked == [asynchronous]


def test_a_class_of_ones_own_decides_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "is_pinned", lambda self: pytest.fail("asked"))
    assert type(moved(torch.ones(2).as_subclass(Own), "cpu")) is Own
