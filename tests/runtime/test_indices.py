"""`value[device_index(index, value)]` is `value[index]`, whatever the index is; integers are copied by the runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import perflint_runtime.indices
import pytest
import torch
from perflint_runtime import device_index
from torch import Tensor, nn

VALUE = torch.arange(120.0).reshape(5, 4, 6)
ROWS = np.array([3, 0, 3])
COPIED: dict[str, Any] = {
    "list": [0, 2, 2],
    "range": range(1, 4),
    "array": ROWS,
    "short": ROWS.astype(np.int8),
    "every other": np.arange(5)[::2],
    "tensor": torch.tensor([4, -1]),
    "table": torch.tensor([[0, 1], [2, 3]]),
    "tuple": (range(3), [3, 1, 0]),
    "where": np.where(np.arange(5) > 2),
    "with a number": (ROWS, 1),
}
KEPT: dict[str, Any] = {
    "number": 2,
    "slice": slice(1, 3),
    "nothing": None,
    "mask": torch.tensor([True, False, True, True, False]),
    "list of truths": [True, False, True, True, False],
    "bytes": np.array([1, 0, 1, 1, 0], dtype=np.uint8),
    "one number in a tensor": torch.tensor(3),
    "nested": [[0, 1], [2, 3]],
    "table": np.array([[0, 1], [2, 3]]),
    "empty": [],
    "int32": torch.tensor([1, 2], dtype=torch.int32),
    "of numpy": [np.int64(1), np.int64(2)],
    "backwards": np.arange(5)[::-1],
    "large": [2**70],
    "floats": np.ones(2),
    "text": "a",
}


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What is copied to where `VALUE` lies, as if that were a card."""
    found: list[Tensor] = []

    def moved_copy(value: Tensor, device: torch.device) -> Tensor:
        assert device == VALUE.device
        found.append(value)
        return value.clone()

    monkeypatch.setattr(perflint_runtime.indices, "_is_far", lambda value: True)
    monkeypatch.setattr(perflint_runtime.indices, "moved_copy", moved_copy)
    return found


def outcome(index: Any) -> Any:
    """What an index gives, or the error that it raises."""
    try:
        return VALUE[index]
    except (IndexError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        return type(error)


@pytest.mark.parametrize("name", COPIED)
def test_the_copy_of_an_index_selects_the_same(copies: list[Tensor], name: str) -> None:
    index = COPIED[name]
    given = device_index(index, VALUE)
    assert copies
    assert all(copy.dtype is torch.int64 for copy in copies)
    assert VALUE[given].equal(VALUE[index])
    first, second = VALUE.clone(), VALUE.clone()
    first[index], second[given] = -1.0, -1.0
    assert first.equal(second)


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.filterwarnings("ignore")
def test_what_says_something_else_is_given_back(copies: list[Tensor], name: str) -> None:
    index = KEPT[name]
    given = device_index(index, VALUE)
    assert given is index
    assert not copies
    expected = outcome(index)
    assert outcome(given).equal(expected) if isinstance(expected, Tensor) else outcome(given) is expected


def test_an_index_that_is_written_to_later_selects_as_before(copies: list[Tensor]) -> None:
    rows = np.array([3, 0, 3])
    given = device_index(rows, VALUE)
    rows[:] = 1
    assert VALUE[given].equal(VALUE[[3, 0, 3]])


@pytest.mark.parametrize("value", [torch.ones(3), nn.Parameter(torch.ones(3)), [1, 2, 3], None, np.ones(3)])
def test_on_the_host_nothing_is_copied(value: Any) -> None:
    index = [0, 2]
    assert device_index(index, value) is index
