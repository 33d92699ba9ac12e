"""`moved` and `moved_copy` are `to`, whatever they are given; only what a tensor's memory allows is asynchronous."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from perflint_runtime import moved, moved_copy, moved_copy_to_cuda, moved_to_cuda, uploaded
from torch import Tensor, nn


class Batch:
    def to(self, *where: object, **how: object) -> tuple[object, ...]:
        return "moved", where, how


class Phone:
    def cuda(self, *where: object) -> tuple[object, ...]:
        return "moved", *where


class Own(Tensor):
    pass


VALUES = {
    "float": torch.ones(2),
    "differentiated": torch.ones(2, requires_grad=True),
    "half": torch.ones(2, dtype=torch.bfloat16),
    "negative": torch.ones(2, dtype=torch.complex64).conj().imag,
    "sparse": torch.eye(2).to_sparse(),
    "view": torch.ones(3, 4)[:, ::2],
    "own": torch.ones(2).as_subclass(Own),
    "parameter": nn.Parameter(torch.ones(2)),
    "network": nn.Linear(2, 2),
    "batch": Batch(),
    "phone": Phone(),
    "nothing": None,
    "dict": {"x": 1},
    "number": 3,
}


@pytest.fixture(params=VALUES)
def value(request: pytest.FixtureRequest) -> Any:
    return VALUES[request.param]


ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("cpu",), {}),
    ((torch.device("cpu"),), {}),
    (("meta",), {}),
    (("nowhere",), {}),
    (("cuda",), {}),
    ((torch.float64,), {}),
    ((torch.ones(1, dtype=torch.float16),), {}),
    ((None,), {}),
    ((1.5,), {}),
    (("cpu", torch.float64), {}),
    (("cpu", torch.float64, True), {}),
    ((), {}),
    ((), {"device": "cpu", "dtype": torch.float64}),
    ((), {"device": "cpu", "copy": True}),
    ((), {"size": 3}),
]


@pytest.mark.parametrize("helper", [moved, moved_copy])
@pytest.mark.parametrize(("where", "how"), ARGUMENTS)
def test_it_gives_and_raises_what_to_does(
    helper: Callable[..., Any], value: Any, where: tuple[Any, ...], how: dict[str, Any]
) -> None:
    assert outcome(value, lambda: helper(value, *where, **how)) == outcome(value, lambda: value.to(*where, **how))


def outcome(value: object, run: Any) -> Any:
    """What a call gives or raises; of a tensor, what tells it from others."""
    try:
        found = run()
    except Exception as error:
        return type(error), str(error)
    if isinstance(found, Tensor):
        return found is value, type(found), found.dtype, found.device, found.requires_grad, found.layout
    return found


@pytest.mark.parametrize("helper", [moved_to_cuda, moved_copy_to_cuda])
@pytest.mark.parametrize("device", [(), (0,), ("cpu",), (None,), (1.5,)])
def test_it_gives_and_raises_what_cuda_does(helper: Callable[..., Any], value: Any, device: tuple[Any, ...]) -> None:
    assert outcome(value, lambda: helper(value, *device)) == outcome(value, lambda: value.cuda(*device))


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


class Card:
    """Stand-ins for CUDA: pinned memory is ordinary memory, and a copy to the card is a copy that is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copies: list[tuple[Tensor, tuple[Any, ...], dict[str, Any]]] = []
        empty_like = torch.empty_like
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        monkeypatch.setattr(torch, "empty_like", lambda value, pin_memory: empty_like(value))
        monkeypatch.setattr(Tensor, "to", lambda tensor, *where, **how: self.copy(tensor, *where, **how))
        monkeypatch.setattr(Tensor, "cuda", lambda tensor, *where, **how: self.copy(tensor, *where, **how))

    def copy(self, tensor: Tensor, *where: Any, **how: Any) -> Tensor:
        self.copies.append((tensor, where, how))
        return tensor


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    return Card(monkeypatch)


@pytest.mark.parametrize(
    ("where", "how"),
    [
        (("cuda",), {}),
        (("cuda:0", torch.float64), {}),
        ((), {"device": torch.device("cuda"), "dtype": torch.int8}),
    ],
)
def test_what_is_written_later_does_not_reach_the_card(card: Card, where: tuple[Any, ...], how: dict[str, Any]) -> None:
    value = torch.tensor([1.0, -0.0, float("nan"), float("inf")])
    seen = value.clone()
    moved_copy(value, *where, **how)
    moved_copy_to_cuda(value)
    value.zero_()
    (staged, *first), (again, *second) = card.copies
    assert first == [where, {**how, "non_blocking": True}]
    assert second == [(), {"non_blocking": True}]
    for copy in (staged, again):
        assert copy.view(torch.int32).equal(seen.view(torch.int32))
        assert copy.data_ptr() != value.data_ptr()


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool, torch.uint8])
def test_the_copy_is_the_tensor_that_it_would_have_been(card: Card, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = [torch.ones(shape).type(dtype)]
    if len(shape) == 4:
        values.append(values[0].contiguous(memory_format=torch.channels_last))
    for value in values:
        moved_copy(value, "cuda")
        staged = card.copies[-1][0]
        assert staged is not value
        assert (staged.shape, staged.dtype, staged.stride()) == (value.shape, value.dtype, value.stride())
        assert staged.equal(value)


@pytest.mark.parametrize("name", ["differentiated", "negative", "sparse", "view", "own", "parameter"])
def test_what_might_come_out_otherwise_goes_the_plain_way(card: Card, name: str) -> None:
    moved_copy(VALUES[name], "cuda")
    assert card.copies[-1][0] is VALUES[name]
    assert card.copies[-1][2] == {}


@pytest.mark.parametrize(
    ("where", "how"),
    [
        (("cpu",), {}),
        ((torch.float64,), {}),
        (("cuda", torch.float64, False), {}),
        (("cuda",), {"copy": True}),
        (("cuda",), {"non_blocking": False}),
    ],
)
def test_other_arguments_go_the_plain_way(card: Card, where: tuple[Any, ...], how: dict[str, Any]) -> None:
    value = torch.ones(2)
    moved_copy(value, *where, **how)
    assert card.copies == [(value, where, how)]


def test_where_something_looks_at_each_operation_it_sees_what_it_saw(card: Card) -> None:
    value = torch.ones(2)
    with torch.device("cpu"):  # a mode
        moved_copy(value, "cuda")
    assert card.copies == [(value, ("cuda",), {})]


def test_no_pinned_memory_is_no_error(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(value: Tensor, pin_memory: bool) -> Tensor:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch, "empty_like", full)
    value = torch.ones(2)
    moved_copy(value, "cuda")
    assert card.copies == [(value, ("cuda",), {})]


DATA = [[1, 2], [1.5, -0.0], [True], 3, (), np.ones(2, dtype=np.float32), torch.ones(2), "text", None, [[1], 2]]


@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor])
@pytest.mark.parametrize("data", DATA, ids=repr)
@pytest.mark.parametrize("how", [{}, {"dtype": torch.float64}, {"dtype": "int"}, {"requires_grad": True}])
@pytest.mark.parametrize("device", ["cpu", None, "meta", "nowhere", 1.5])
def test_what_is_uploaded_is_what_would_have_been_made(
    make: Callable[..., Any], data: Any, how: dict[str, Any], device: Any
) -> None:
    assert outcome(data, lambda: uploaded(make, data, device=device, **how)) == outcome(
        data, lambda: make(data, device=device, **how)
    )


def test_data_that_is_written_to_later_does_not_reach_the_card(card: Card) -> None:
    data = np.ones(3)
    uploaded(torch.as_tensor, data, dtype=torch.float64, device="cuda")
    data[:] = 0
    ((staged, where, how),) = card.copies
    assert staged.tolist() == [1, 1, 1]
    assert (staged.dtype, where, how) == (torch.float64, ("cuda",), {"non_blocking": True})
