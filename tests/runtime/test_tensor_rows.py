"""A row of `TensorRows` reads as the plain row does, errors included, with one wait for all rows of a tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from perflint_runtime import TensorRows, pinned, tensor_rows
from test_tensor_items import INDICES, VALUES, outcome
from torch import Tensor

ROWS = VALUES | {
    "matrix": torch.arange(6.0).reshape(3, 2),
    "nan and infinities": torch.tensor([[float("nan"), -0.0], [float("inf"), float("nan")], [float("-inf"), 5e-324]]),
    "columns": torch.arange(6).reshape(2, 3).T,
    "halves": torch.ones(3, 2, dtype=torch.float16),
    "whole numbers": torch.tensor([[1, 2**53 + 1], [-(2**63), 2**63 - 1], [0, 0]]),
    "matrix with a graph": torch.ones(3, 2, requires_grad=True) * 2,
    "list of lists": [[1.0, 2.0], [3.0], []],
}


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain tensors on the CPU stand for such on CUDA."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(tensor_rows, "may_be_staged", lambda value, place: pinned.may_be_staged(value, "cpu"))
    monkeypatch.setattr(tensor_rows, "is_plain", lambda value, place: False)


def read(row: Any) -> Any:
    """What a function reads of a row."""
    return [row.tolist(), row.numel(), row.argmax().item(), row.item() if row.numel() == 1 else row[0].item()]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.usefixtures("copied")
def test_each_row_reads_as_the_plain_row(name: str) -> None:
    values, rows = ROWS[name], TensorRows()
    for index in INDICES + INDICES:
        assert outcome(lambda i=index: read(rows[values, i])) == outcome(lambda i=index: read(values[i])), index


@pytest.mark.parametrize("name", ROWS)
def test_without_cuda_a_row_is_the_plain_one(name: str) -> None:
    values = ROWS[name]
    if isinstance(values, Tensor) and values.dim() and len(values) and values.layout is torch.strided:
        assert TensorRows()[values, 0].data_ptr() == values[0].data_ptr()


@pytest.mark.usefixtures("copied")
def test_one_copy_serves_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[Tensor] = []
    plain = Tensor.cpu
    monkeypatch.setattr(Tensor, "cpu", lambda value: (copies.append(value), plain(value))[1])
    first, second, rows = torch.randn(50, 3), torch.randn(50, 3), TensorRows()
    for i in range(50):
        assert rows[first, i].tolist() == first[i].tolist()
        assert rows[second, -1 - i].tolist() == second[-1 - i].tolist()
    assert [copy.data_ptr() for copy in copies] == [first.data_ptr(), second.data_ptr()]


@pytest.mark.usefixtures("copied")
def test_a_write_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "cpu", Tensor.clone)
    values, rows = torch.zeros(3, 2), TensorRows()
    assert rows[values, 1].tolist() == [0.0, 0.0]
    values.view(-1)[3] = 5.0
    assert rows[values, 1].tolist() == [0.0, 5.0]


@pytest.mark.usefixtures("copied")
def test_tensors_that_come_and_go_are_not_mistaken_for_each_other() -> None:
    rows = TensorRows()
    for number in range(100):
        assert rows[torch.full((2, 2), float(number)), 1].tolist() == [number, number]
    assert len(rows._copies) <= 16
