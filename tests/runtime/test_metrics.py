"""Sums that stay on the device, against sums of Python numbers: the same bits."""

from __future__ import annotations

import json
import multiprocessing
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import perflint_runtime.metrics as metrics
import pytest
import torch
from conftest import HANG_S
from hypothesis import given, settings
from hypothesis import strategies as st
from perflint_runtime import DeviceSum, LossMeter
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.bool]

anything = st.floats(width=64)
integers = st.integers(-(2**26), 2**26)  # 30 products with weights stay within int64


@st.composite
def tensors(draw: st.DrawFn, dtypes: Sequence[torch.dtype]) -> Tensor:
    """A one-element tensor of any of the types: any shape, sometimes part of a graph."""
    dtype = draw(st.sampled_from(dtypes))
    number = torch.tensor(draw(anything if dtype.is_floating_point else integers))
    tensor = number.to(dtype).reshape(draw(st.sampled_from([(), (1,), (1, 1)])))
    return tensor.requires_grad_() if dtype.is_floating_point and draw(st.booleans()) else tensor


weights = st.one_of(
    st.just(1), st.integers(-(2**31), 2**31), st.floats(width=64), st.booleans(), tensors([torch.int64, torch.float32])
)
updates = st.lists(st.tuples(tensors(FLOATS + INTEGERS), weights) | st.tuples(anything | integers, weights), max_size=30)


def bits(number: float) -> tuple[type, bytes]:
    """Type and bits of a number; all nans are one."""
    if isinstance(number, int):
        return int, str(number).encode()
    return float, b"nan" if number != number else struct.pack("d", number)


def in_python(start: float, steps: Sequence[tuple[Tensor | float, Tensor | float]]) -> float:
    """What the loop with `.item()` computes."""
    total = start
    for value, weight in steps:
        value = value.item() if isinstance(value, Tensor) else value
        total += value * (weight.item() if isinstance(weight, Tensor) else weight)
    return total


@pytest.mark.parametrize("without_float64", [False, True])
@settings(max_examples=400)
@given(start=st.sampled_from([0, 0.0, 3, -0.0]), steps=updates)
def test_a_sum_has_the_bits_of_pythons_sum(without_float64: bool, start: float, steps: list[tuple[Tensor, float]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if without_float64:
            patch.setattr(metrics, "has_float64", lambda device: False)
            patch.setattr(metrics, "_KEPT", 7)
        total = DeviceSum(start)
        for value, weight in steps:
            total.update(value, weight)
        assert bits(total.value()) == bits(in_python(start, steps))
        assert bits(total.value()) == bits(total.tensor().item())


@pytest.mark.parametrize("dtype", FLOATS)
def test_20_000_steps_have_the_bits_of_pythons_sum(dtype: torch.dtype) -> None:
    """Where a float32 sum is off by 2e-6 and a bfloat16 one stops at 256."""
    losses = (torch.rand(20_000, generator=torch.Generator().manual_seed(1)) * 7).to(dtype)
    total, expected = DeviceSum(), 0
    for step, loss in enumerate(losses):
        total.update(loss, 1 + step % 64)
        expected += loss.item() * (1 + step % 64)
    assert total.value() == expected


@pytest.mark.parametrize("start", [0, 0.0])
def test_an_empty_loop_ends_with_what_the_total_began_with(start: float) -> None:
    value = DeviceSum(start).value()
    assert value == 0
    assert type(value) is type(start)


def test_counts_stay_integers_beyond_what_a_float_holds() -> None:
    total = DeviceSum()
    total.update(torch.tensor(2**53))
    for _ in range(3):
        total.update(torch.tensor(True))
    assert total.value() == 2**53 + 3
    assert isinstance(total.value(), int)
    total.update(torch.tensor(0.5))
    assert isinstance(total.value(), float)


def test_a_weight_of_zero_hides_no_infinity() -> None:
    total = DeviceSum(0.0)
    total.update(torch.tensor(1.0))
    total.update(torch.tensor(float("inf")), 0)
    assert total.value() != total.value()


def test_small_integer_types_do_not_wrap() -> None:
    total = DeviceSum()
    for _ in range(10):
        total.update(torch.tensor(200, dtype=torch.uint8), 300)
    assert total.value() == 600_000


def test_a_tensor_changed_after_its_update_does_not_change_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        total = DeviceSum()
        loss = torch.tensor(8.0)
        for _ in range(3):
            total.update(loss)
            loss /= 4
        assert total.value() == 8 + 2 + 0.5
        monkeypatch.setattr(metrics, "has_float64", lambda device: False)


def test_the_graph_of_a_loss_is_not_kept() -> None:
    weight = torch.ones(3, requires_grad=True)
    total = DeviceSum()
    for _ in range(2):
        loss = (weight * 2).sum()
        total.update(loss)
        loss.backward()
    assert not total.tensor().requires_grad
    assert total.value() == 12.0


def test_a_sum_goes_through_inference_mode_and_back() -> None:
    total, count = DeviceSum(), DeviceSum()
    with torch.inference_mode():
        total.update(torch.tensor(1.5))
        count.update(torch.tensor(3))
    total.update(torch.tensor(2.0, requires_grad=True))
    with torch.inference_mode():
        count.update(torch.tensor(0.5))
    count.update(torch.tensor(1))
    assert (total.value(), count.value()) == (3.5, 4.5)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (torch.ones(3), ValueError, r"shape \(3,\)"),
        (torch.ones(0), ValueError, r"shape \(0,\)"),
        (torch.tensor(1j), TypeError, "complex"),
    ],
)
def test_what_is_no_number_is_refused(value: Tensor, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        DeviceSum().update(value)
    with pytest.raises(error, match=text):
        DeviceSum().update(1, value)


def test_numpy_numbers_count_as_python_numbers() -> None:
    total = DeviceSum()
    total.update(np.float32(0.1), np.int64(3))
    total.update(torch.tensor(0.1), np.int64(3))
    assert total.value() == float(np.float32(0.1)) * 3 * 2
    assert type(total.state_dict()["total"]) is float


def test_a_sum_goes_on_from_a_checkpoint() -> None:
    losses = torch.rand(100).bfloat16()
    whole, first = DeviceSum(), DeviceSum()
    for loss in losses:
        whole.update(loss, 3)
    for loss in losses[:50]:
        first.update(loss, 3)
    second = DeviceSum()
    second.load_state_dict(first.state_dict())
    for loss in losses[50:]:
        second.update(loss, 3)
    assert second.value() == whole.value()
    second.reset()
    assert second.value() == 0


def test_a_mean_has_the_bits_of_the_loop_with_item() -> None:
    losses, sizes = torch.rand(500), torch.randint(1, 64, (500,))
    total, seen, meter, on_device = 0.0, 0, LossMeter(), LossMeter()
    for loss, size in zip(losses, sizes, strict=True):
        total += loss.item() * size.item()
        seen += int(size)
        meter.update(loss, int(size))
        on_device.update(loss, size)
    assert meter.mean() == on_device.mean() == total / seen
    assert meter.mean_tensor().item() == on_device.mean_tensor().item() == total / seen
    restored = LossMeter()
    restored.load_state_dict(meter.state_dict())
    assert restored.mean() == meter.mean()
    assert restored.state_dict() == {"weighted": {"total": total}, "count": {"total": seen}}


def test_the_mean_of_nothing() -> None:
    meter = LossMeter()
    assert meter.mean_tensor().isnan()
    with pytest.raises(ZeroDivisionError, match="update"):
        meter.mean()
    meter.update(2.5, 4)
    assert meter.mean() == meter.mean_tensor().item() == 2.5
    meter.reset()
    with pytest.raises(ZeroDivisionError):
        meter.mean()


def test_a_mean_on_a_device_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "has_float64", lambda device: False)
    meter = LossMeter()
    meter.update(torch.tensor(2.0), torch.tensor(3))
    assert meter.mean_tensor().item() == meter.mean() == 2.0
    meter.update(torch.tensor(6.0), 1)
    assert meter.mean_tensor().item() == meter.all_reduce().mean() == meter.mean() == 3.0


def test_all_reduce_without_processes_is_a_copy() -> None:
    meter = LossMeter()
    with torch.inference_mode():
        meter.update(torch.tensor(2.0), 3)
        everywhere = meter.all_reduce()
    everywhere.update(torch.tensor(4.0), 1)
    assert (meter.mean(), everywhere.mean()) == (2.0, 2.5)


@pytest.mark.parametrize("device", ["cuda:0", "mps"])
def test_nothing_is_read_on_another_device(device: str) -> None:
    """Fake tensors have the rules of the device, without one, and raise where a value is read."""
    with FakeTensorMode():
        total, meter = DeviceSum(), LossMeter()
        for dtype in [*(FLOATS if device == "cuda:0" else FLOATS[:3]), *INTEGERS]:
            value = torch.ones((), device=device, dtype=dtype)
            for weight in (1, 3, 2**40, 0.5, True, torch.ones(1, device=device), torch.ones((), device=device).int()):
                total.update(value, weight)
                total.update(value.reshape(1, 1), weight)
            meter.update(value, 3)
            meter.update(value, torch.ones((), device=device, dtype=torch.int64))
        with pytest.raises(DataDependentOutputException):
            total.value()


def test_sums_go_from_the_host_to_a_card_and_between_cards() -> None:
    with FakeTensorMode():
        total, meter = DeviceSum(), LossMeter()
        total.update(2)
        total.update(torch.ones((), dtype=torch.int64))
        total.update(torch.ones((), device="cuda:1"))
        total.update(torch.ones((), device="cuda:0"), torch.ones((), device="cuda:1"))
        total.update(torch.ones(()), torch.ones((), device="cuda:0"))
        total.update(0.5)
        assert total.tensor().device == torch.device("cuda:1")
        assert total.tensor().dtype is torch.float64
        meter.update(torch.ones((), device="cuda:0"), 3)
        assert meter.mean_tensor().device == torch.device("cuda:0")


def reduce_in_a_process(rank: int, folder: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2)
    meter = LossMeter()
    if rank == 1:  # the other one has nothing to give
        meter.update(torch.tensor(2.0), 3)
        meter.update(torch.tensor(6.0), torch.tensor(1))
    everywhere = meter.all_reduce()
    again = meter.all_reduce()
    (folder / str(rank)).write_text(json.dumps([everywhere.mean(), again.mean()]))
    torch.distributed.destroy_process_group()
    os._exit(0)  # Python's own exit aborts now and then, see train_distributed.py


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forks")
def test_all_reduce_over_two_processes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=reduce_in_a_process, args=(rank, tmp_path)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(HANG_S)
    assert [process.exitcode for process in processes] == [0, 0]
    assert [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)] == [[3.0, 3.0]] * 2
