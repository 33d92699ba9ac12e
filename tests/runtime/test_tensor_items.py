"""An element of `TensorItems` is what the plain read of it gives, errors included, with one wait for many."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from device_reads import count_reads
from perflint_runtime import TensorItems, item_list
from torch import Tensor, nn

INDICES = [0, 1, 2, -1, -3, 3, -4, 10**30, True, 1.0, None, slice(0, 1), slice(0, 2), (0,), (1, 0), torch.tensor(1), "a"]


class Own(Tensor):
    """A tensor class whose `item` gives something else."""

    def item(self) -> float:
        return 42.0


def _made(make: Callable[[], Any]) -> Any:
    with torch.inference_mode():
        return make()


VALUES: dict[str, Any] = {
    **{
        str(dtype): torch.tensor([0, 1, 3]).to(dtype)
        for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint64)
    },
    **{
        str(dtype): torch.tensor([-0.0, float("nan"), float("-inf")], dtype=dtype)
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)
    },
    "float8": torch.tensor([0.5, 1.0, 2.0]).to(torch.float8_e4m3fn),
    "conjugated": torch.tensor([1 + 2j, 3j, 0j]).conj(),
    "negated": torch.tensor([1 + 2j, 3j, 0j]).conj().imag,
    "with a graph": torch.ones(3, requires_grad=True) * 2,
    "parameter": nn.Parameter(torch.tensor([1.0, 2.0, 3.0])),
    "one column": torch.tensor([[1.0], [2.0], [3.0]]),
    "every other": torch.arange(6.0)[::2],
    "the same thrice": torch.tensor(2.5).expand(3),
    "rows": torch.ones(3, 2),
    "single row": torch.ones(1, 3),
    "no dimension": torch.tensor(1.5),
    "empty": torch.zeros(0),
    "empty rows": torch.zeros(3, 0),
    "sparse": torch.tensor([0.0, 1.0, 2.0]).to_sparse(),
    "meta": torch.zeros(3, device="meta"),
    "own class": torch.tensor([1.0, 2.0, 3.0]).as_subclass(Own),
    "made for inference": _made(lambda: torch.tensor([1.0, 2.0, 3.0])),
    "array": np.array([1.0, 2.0, 3.0], dtype=np.float32),
    "list of tensors": [torch.tensor(1.0), torch.tensor([2]), torch.zeros(2)],
    "list of numbers": [1.0, 2.0, 3.0],
    "dict": {0: torch.tensor(1), "a": torch.tensor(2)},
    "none": None,
}


def outcome(read: Callable[[], Any]) -> tuple[Any, ...]:
    try:
        got = read()
    except Exception as error:
        return type(error), str(error)
    return type(got), struct.pack("d", got) if isinstance(got, float) else repr(got)


@pytest.mark.parametrize("name", VALUES)
def test_each_element_is_what_the_plain_read_gives(name: str) -> None:
    values = VALUES[name]
    items = TensorItems(values)
    for index in INDICES + INDICES:
        assert outcome(lambda i=index: items[i]) == outcome(lambda i=index: values[i].item()), index


def test_many_elements_are_one_wait() -> None:
    values = torch.arange(1000.0)
    with count_reads() as reads:
        items = TensorItems(values)
        assert sum(items[i] for i in range(1000)) == 499500.0
    assert len(reads) == 1


def test_nothing_is_read_before_an_element_is_asked_for() -> None:
    with count_reads() as reads:
        TensorItems(torch.ones(3))
    assert reads == []


def test_a_large_tensor_is_read_in_blocks() -> None:
    values = torch.arange(10_000)
    items = TensorItems(values)
    assert [items[i] for i in (0, 4095, 4096, 9999, -1, -10_000)] == [0, 4095, 4096, 9999, 9999, 0]


def test_a_write_is_seen() -> None:
    values = torch.zeros(3)
    items, alias = TensorItems(values), values.view(3)
    assert items[1] == 0.0
    values[1] = 5.0
    assert items[1] == 5.0
    alias.add_(1)
    assert items[1] == 6.0


def _all_of(read: Callable[[], list[Any]]) -> Any:
    try:
        got = read()
    except Exception as error:
        return type(error), str(error)
    return [outcome(lambda number=number: number) for number in got]


LISTS = VALUES | {
    "scalars": [torch.tensor(1.5), torch.tensor(-0.0), torch.tensor(float("nan"))],
    "scalars of several types": (torch.tensor(1.5), torch.tensor([2]), torch.tensor(True), torch.tensor([[2.5]]).half()),
    "no scalars": [],
    "a scalar of an own class": [torch.tensor(1.5), torch.tensor(2.5).as_subclass(Own)],
    "a scalar with a graph": [torch.tensor(1.5), nn.Parameter(torch.tensor(2.5))],
    "infinite": torch.tensor([1.0, float("inf")]),
    "large": torch.tensor([2**62, -(2**62) - 1]),
    "text": "123",
}


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_items_is_what_the_plain_reads_give(name: str) -> None:
    values = LISTS[name]
    assert _all_of(lambda: item_list(values)) == _all_of(lambda: [value.item() for value in values])
    assert _all_of(lambda: item_list(values, of=float)) == _all_of(lambda: [float(value) for value in values])
    assert _all_of(lambda: item_list(values, of=int)) == _all_of(lambda: [int(value) for value in values])


def test_an_iterator_is_gone_through_once() -> None:
    values = iter([torch.tensor(1), torch.tensor(2)])
    assert item_list(values) == [1, 2]
    assert list(values) == []


def test_a_list_of_scalars_is_one_wait() -> None:
    with count_reads() as reads:
        assert item_list([torch.tensor(float(n)) for n in range(50)]) == [float(n) for n in range(50)]
    assert len(reads) == 1
