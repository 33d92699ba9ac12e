"""A `HostArray` holds what `np.append` would have made, bits, types and errors, and waits when somebody looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from perflint_runtime import HostArray, host_array, host_list
from torch import Tensor

STARTS: dict[str, Callable[[], Any]] = {
    "floats": lambda: np.array([]),
    "integers": lambda: np.array([], dtype=int),
    "bytes": lambda: np.empty(0, dtype=np.int8),
    "halves": lambda: np.zeros(0, dtype=np.float16),
    "matrix": lambda: np.ones((2, 2), dtype=np.float32),
    "list": list,
    "list of numbers": lambda: [1, 2],
    "other byte order": lambda: np.array([1], dtype=">i4"),
    "text": lambda: np.array([], dtype="U3"),
    "masked": lambda: np.ma.array([1, 2], mask=[0, 1]),
    "none": lambda: None,
}

TAKEN: dict[str, list[Any]] = {
    "nothing": [],
    "labels": [torch.tensor([1, 2]), torch.tensor([3])],
    "scalars": [torch.tensor(1.5), torch.tensor(-0.0), torch.tensor(float("nan"))],
    "matrices": [torch.ones(2, 2), torch.zeros(1, 3), torch.zeros(0, 3)],
    "types": [
        torch.tensor([2**53 + 1]),
        torch.tensor([True]),
        torch.tensor([0.1], dtype=torch.float16),
        torch.tensor([0.1]),
        torch.tensor([2**53 + 1]),
        torch.tensor([1], dtype=torch.uint8),
        torch.tensor([1 + 2j]),
    ],
    "no type of numpy": [torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.bfloat16)],
    "with a graph": [torch.tensor([1.0]), torch.ones(2, requires_grad=True)],
    "no tensor": [torch.tensor([1.0]), 2.0],
    "sparse": [torch.tensor([0.0, 1.0]).to_sparse()],
}


@pytest.fixture(params=["host", "card"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU, and stand-ins for CUDA: tensors of the host count as those of a card, whose copies are under way."""
    if request.param == "host":
        return
    empty_like = torch.empty_like

    class Event:
        def record(self, stream: object) -> None: ...

        def query(self) -> bool:
            return False

        def synchronize(self) -> None: ...

    def may_be_staged(value: Any, place: str) -> bool:
        return type(value) is Tensor and value.layout is torch.strided and not value.requires_grad

    monkeypatch.setattr(host_list, "may_be_staged", may_be_staged)
    monkeypatch.setattr(torch, "empty_like", lambda value, pin_memory, device=None: empty_like(value))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "stream")
    monkeypatch.setattr(torch.cuda, "Event", Event)


def outcome(make: Callable[[], Any]) -> Any:
    try:
        made = make()
    except Exception as error:
        return type(error), str(error)
    if isinstance(made, np.ndarray):
        return type(made), made.dtype, made.shape, repr(made.tolist()) if made.dtype.hasobject else made.tobytes()
    return type(made), repr(made)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.usefixtures("place")
def test_it_is_the_array_that_append_makes(start: str, taken: str) -> None:
    def plain() -> Any:
        array = STARTS[start]()
        for value in TAKEN[taken]:
            array = np.append(array, value.cpu().numpy())
        return array

    def late(looks: bool) -> Any:
        array = HostArray(STARTS[start]())
        for value in TAKEN[taken]:
            array.add_array(value)
            if looks:
                array.value()
        return array.value()

    assert outcome(lambda: late(False)) == outcome(lambda: late(True)) == outcome(plain)


@pytest.mark.usefixtures("place")
def test_later_writes_do_not_matter() -> None:
    array, buffer = HostArray(np.array([])), torch.zeros(2)
    for step in range(3):
        array.add_array(buffer.fill_(step))
    buffer.fill_(9)
    assert array.value().tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.usefixtures("place")
def test_it_is_one_object_until_more_is_added() -> None:
    array = HostArray(np.array([]))
    array.add_array(torch.ones(1))
    held = array.value()
    assert array.value() is held
    array.add_array(torch.ones(1))
    assert (len(held), len(array.value())) == (1, 2)


def test_it_names_what_it_joins() -> None:
    assert host_array._joins_as_one([])
    assert not host_array._joins_as_one([1])
