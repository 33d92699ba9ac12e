"""A tensor of joined rows is the tensor that torch makes of the rows themselves, errors included."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from perflint_runtime import joined

DTYPES = "?bBhHiIlLqQefdgFDmMSO"
MAKERS: dict[str, Callable[[Any], torch.Tensor]] = {
    "tensor": torch.tensor,
    "Tensor": torch.Tensor,
    "FloatTensor": torch.FloatTensor,
    "DoubleTensor": torch.DoubleTensor,
    "float32": lambda rows: torch.tensor(rows, dtype=torch.float32),
    "float64": lambda rows: torch.tensor(rows, dtype=torch.float64),
}
INTEGER_MAKERS: dict[str, Callable[[Any], torch.Tensor]] = {
    "LongTensor": torch.LongTensor,
    "int64": lambda rows: torch.tensor(rows, dtype=torch.int64),
}


class Own(np.ndarray[Any, Any]):
    """An array class of its own."""


def _of(char: str) -> list[Any]:
    kind = np.dtype(char).kind
    if kind in "mMSO":
        return [np.zeros(2, dtype=char)] * 2
    numbers: list[Any] = [0, 1, 100, 1]
    if kind in "il" and np.dtype(char).itemsize == 8:
        numbers = [2**53, -5, -(2**53), 7]
    if kind == "f":
        numbers = [-0.0, np.inf, 1.1, -65504.0]
    return [np.array(numbers).astype(char), np.array(numbers[::-1]).astype(char)]


def _lists() -> dict[str, Any]:
    lists: dict[str, Any] = {char: _of(char) for char in DTYPES}
    lists |= {f"{char} in two dimensions": [row.reshape(2, 2) for row in _of(char)] for char in "lfd?"}
    lists |= {
        "large integers": [np.array([2**53 + 1, 2**62 + 3]), np.array([3, -(2**53) - 1])],
        "nan": [np.array([1.0, np.nan]), np.array([2.0, 3.0])],
        "other bytes": [np.array([1.0, 2.0]).astype(">f8")] * 2,
        "empty": [],
        "empty rows": [np.zeros(0), np.zeros(0)],
        "no dimension": [np.array(1.5), np.array(2.5)],
        "scalars": [np.float32(1.5), np.float64(2.5)],
        "two types": [np.zeros(2), np.ones(2, dtype=np.float32)],
        "two kinds": [np.zeros(2, dtype=np.int64), np.ones(2)],
        "two sizes": [np.zeros(2), np.ones(3)],
        "own class": [np.zeros(2).view(Own)] * 2,
        "masked": [np.ma.array([1.0, 2.0], mask=[0, 1])] * 2,
        "a tuple": (np.zeros(2), np.ones(2)),
        "an array": np.ones((2, 2)),
        "numbers": [1.0, 2.0],
        "images": [np.arange(24.0).reshape(2, 4, 3).transpose(2, 0, 1)] * 3,
        "strided": [np.arange(6.0)[::2], np.arange(6.0)[1::2]],
        "read-only": [np.broadcast_to(np.float32(2), (3,))] * 2,
        "none": None,
    }
    return lists


def _outcome(make: Callable[[], torch.Tensor]) -> Any:
    try:
        made = make()
    except Exception as error:
        return type(error), str(error)
    return made.dtype, made.shape, made.stride(), made.numpy().tobytes()


@pytest.mark.parametrize("name", _lists())
def test_the_tensor_is_the_same(name: str) -> None:
    rows = _lists()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for (maker, make), integers in itertools.chain(
            itertools.product(MAKERS.items(), [False]), itertools.product(INTEGER_MAKERS.items(), [True])
        ):
            assert _outcome(lambda make=make, integers=integers: make(joined(rows, integers=integers))) == _outcome(
                lambda make=make: make(rows)
            ), maker


def test_common_arrays_are_joined_in_memory_of_their_own() -> None:
    rows = [np.arange(3, dtype=np.float32), np.ones(3, dtype=np.float32)]
    whole = joined(rows)
    assert type(whole) is np.ndarray
    assert not np.shares_memory(whole, rows[0])
    assert joined(rows, integers=True) is rows
