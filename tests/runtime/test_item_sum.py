"""A total on the device is what the plain code's Python number would be, whatever is added, errors included."""

from __future__ import annotations

import math
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from device_reads import count_reads
from perflint_runtime import HostList, ItemSum, LateItem
from perflint_runtime.late_items import numbers, read_together
from torch import Tensor, nn


class Own(Tensor):
    """A tensor class whose `item` gives something else."""

    def item(self) -> float:
        return 42.0


def _float(draw: random.Random) -> Tensor:
    number = draw.choice(
        [draw.uniform(-3, 3), draw.uniform(-1, 1) * 10 ** draw.randint(-300, 300), 0.0, -0.0, math.inf, math.nan]
    )
    dtype = draw.choice([torch.float16, torch.bfloat16, torch.float32, torch.float64])
    return torch.tensor(number, dtype=torch.float64).to(dtype).reshape(draw.choice([(), (1,), (1, 1)]))


def _integer(draw: random.Random) -> Tensor:
    dtype = draw.choice([torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool])
    if dtype == torch.bool:
        return torch.tensor(draw.random() < 0.5)
    info = torch.iinfo(dtype)
    return torch.tensor(draw.choice([info.min, info.max, draw.randint(info.min, info.max), 0, 1]), dtype=dtype)


def _odd(draw: random.Random) -> Any:
    return draw.choice(
        [
            lambda: 1.5,
            lambda: torch.zeros(2),
            lambda: torch.zeros(0),
            lambda: torch.tensor(1 + 2j),
            lambda: torch.tensor(2.5).as_subclass(Own),
            lambda: nn.Parameter(torch.tensor(0.5)),
            lambda: torch.tensor(7, dtype=torch.uint16),
            lambda: torch.zeros((), device="meta"),
            lambda: torch.tensor([3.0]).to_sparse(),
            lambda: (torch.ones(3, requires_grad=True) * 2).sum(),
            lambda: None,
        ]
    )()


def _weight(draw: random.Random) -> Any:
    return draw.choice([..., ..., ..., 1, 1.0, 2, 64, -3, 0, 0.1, 2**53 + 1, 10**400, True, math.nan, torch.tensor(2.0)])


def same(a: Any, b: Any) -> bool:
    """Whether two numbers have the same type and bits; every nan is one."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)
    return repr(a) == repr(b)


def outcome(run: Callable[[], Any]) -> Any:
    """What a call gives, or the error that it raises."""
    try:
        return run()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("seed", range(40))
def test_any_sequence_gives_what_python_gives(seed: int) -> None:
    draw = random.Random(seed)
    kinds = draw.choice([[_float], [_integer], [_float, _integer], [_float, _integer, _odd]])
    for _ in range(50):
        start = draw.choice([0, 0.0, -0.0, 3, 2**62, -5, True])
        plain, total = start, ItemSum(start)
        for _ in range(draw.randint(0, 12)):
            value, weight, divisor = draw.choice(kinds)(draw), _weight(draw), draw.choice([..., ..., _weight(draw)])
            late = draw.random() < 0.3

            def plainly(plain: Any = plain, value: Any = value, weight: Any = weight, divisor: Any = divisor) -> Any:
                added = value.item()
                if weight is not ...:
                    added = added * weight
                if divisor is not ...:
                    added = added / divisor
                plain += added  # in place where it is a tensor by now
                return plain

            def kept(
                total: ItemSum = total, value: Any = value, weight: Any = weight, divisor: Any = divisor, late: bool = late
            ) -> Any:
                total.add(LateItem(value) if late else value, weight, divisor)

            expected = outcome(plainly)
            raised = outcome(kept)
            if isinstance(expected, tuple):
                assert raised == expected
            else:
                assert raised is None
                plain = expected
            if draw.random() < 0.3:
                assert same(total.value(), plain), (total.value(), plain)
        assert same(total.value(), plain), (total.value(), plain)


@pytest.mark.parametrize("seed", range(20))
def test_what_stands_first_says_itself_what_the_product_is(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(40):
        start = draw.choice([0, 0.0, 3, -0.0])
        plain, total = start, ItemSum(start)
        for _ in range(draw.randint(0, 8)):
            value = draw.choice([_float, _float, _integer, _odd])(draw)
            times, divisor = draw.choice(["ab", [1], None, *[_weight(draw)] * 8]), draw.choice([..., 3, 0])
            times = 2 if times is ... else times
            if isinstance(times, (str, list)):
                value = draw.choice([torch.tensor(2), torch.tensor(1.5)])  # a text of so many letters must fit in memory

            def plainly(plain: Any = plain, value: Any = value, times: Any = times, divisor: Any = divisor) -> Any:
                plain += times * value.item() if divisor is ... else times * value.item() / divisor
                return plain

            expected = outcome(plainly)
            raised = outcome(lambda v=value, t=times, d=divisor, total=total: total.add(v, divisor=d, times=t))
            if isinstance(expected, tuple):
                assert raised == expected
                break
            assert raised is None
            plain = expected
        else:
            assert same(total.value(), plain), (total.value(), plain)


@pytest.mark.parametrize("seed", range(20))
def test_powers_are_those_of_python(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(40):
        start = draw.choice([0, 0.0, 3, -0.0])
        plain, total = start, ItemSum(start)
        for _ in range(draw.randint(0, 8)):
            value = draw.choice([_float, _float, _integer, _odd])(draw)
            power = draw.choice([2, 2.0, 1.0, 3, 0.5, -1, 1.5, 7, 40, math.inf, math.nan, True, None, torch.tensor(2.0)])

            def plainly(plain: Any = plain, value: Any = value, power: Any = power) -> Any:
                plain += value.item() ** power
                return plain

            expected = outcome(plainly)
            raised = outcome(lambda total=total, value=value, power=power: total.add(value, power=power))
            if isinstance(expected, tuple):
                assert raised == expected
                break
            assert raised is None
            plain = expected
        assert same(total.value(), plain), (total.value(), plain)


def test_nothing_waits_before_somebody_looks() -> None:
    losses = [torch.tensor(0.5 * step) for step in range(20)]
    counts = [torch.tensor(step) for step in range(20)]
    loss, right = ItemSum(0.0), ItemSum()
    with count_reads() as reads:
        for number, count in zip(losses, counts, strict=True):
            loss.add(number, 16)
            right.add(count)
    assert reads == []
    assert (loss.value(), right.value()) == (sum(0.5 * s * 16 for s in range(20)), 190)


def test_tensors_of_inference_mode_are_added_in_and_outside_of_it() -> None:
    total = ItemSum(0.0)
    with torch.inference_mode():
        inside = torch.tensor(1.5)
        total.add(inside)
    total.add(inside)
    total.add(torch.tensor(2.0, requires_grad=True))
    assert total.value() == 5.0


def test_a_tensor_that_is_written_to_later_has_been_added_as_it_was() -> None:
    total, buffer = ItemSum(0.0), torch.tensor(1.0)
    for step in range(3):
        buffer.fill_(step)
        total.add(buffer)
    assert total.value() == 3.0


def test_a_total_that_is_an_array_by_now_grows_in_place() -> None:
    total, weight, plain = ItemSum(0.0), np.array([1.0, 2.0]), 0.0
    for number in (0.5, 1.5, 2.5):
        total.add(torch.tensor(number), weight)
        plain += number * weight
        if number == 1.5:
            seen, plain_seen = total.value(), plain
    assert seen is total.value()
    assert plain_seen is plain
    assert total.value().tolist() == plain.tolist()


def test_many_numbers_are_read_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflint_runtime.item_sum.MOST_KEPT", 3)
    total = ItemSum()
    for step in range(8):
        total.add(torch.tensor(step))
        assert len(total._kept) < 3
    assert total.value() == 28


@pytest.mark.parametrize(
    "value", [torch.tensor(2.5), torch.tensor([7]), torch.tensor(True), torch.tensor(-0.0).half(), 3, None]
)
def test_a_late_item_is_the_item(value: Any) -> None:
    assert repr(outcome(lambda: LateItem(value).item())) == repr(outcome(lambda: value.item()))


def test_a_late_item_is_what_the_tensor_held_then() -> None:
    value = torch.tensor(1.5)
    late = LateItem(value)
    value.fill_(9.0)
    assert (late.item(), late.item(), repr(late)) == (1.5, 1.5, "LateItem(1.5)")


def _late_inputs(draw: random.Random) -> Any:
    return draw.choice([_float, _integer, _float, _odd, lambda _: 2.5, lambda _: np.float32(1.5), lambda _: np.arange(3)])(draw)


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("seed", range(20))
def test_conversions_are_those_of_python(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(50):
        value, of = _late_inputs(draw), draw.choice([float, int])
        expected = outcome(lambda of=of, value=value: of(value))
        given = outcome(lambda of=of, value=value: LateItem(value, of=of).item())
        assert same(given, expected), (value, of)
        plain, total = 0.5, ItemSum(0.5)
        if not isinstance(expected, tuple):
            plain += expected * 3
            total.add(LateItem(value, of=of), 3)
            assert same(total.value(), plain)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_computed_is_what_python_computes(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(50):
        first, second, number = (
            _late_inputs(draw),
            _late_inputs(draw),
            draw.choice([2, 0.1, -0.0, 0, np.float64(3), np.ones(2)]),
        )
        formulas: list[Callable[..., Any]] = [
            lambda a, b, n=number: a + b * n,
            lambda a, b, n=number: round(a - b, 3) / n,
            lambda a, b: a / b,
            lambda a, b, n=number: n * a - (-b),
        ]
        of = draw.choice(formulas)
        with np.errstate(all="ignore"):
            expected = outcome(lambda of=of, a=first, b=second: of(a.item(), b.item()))
            given = outcome(lambda of=of, a=first, b=second: LateItem(LateItem(a), b, of=of).item())
        assert type(given) is type(expected)
        assert repr(given) == repr(expected) or same(given, expected)


def test_a_number_that_may_change_is_used_at_once() -> None:
    buffer, value = np.ones(1), torch.tensor(2.0)
    item = LateItem(value, of=lambda a, n=buffer: a * n)
    buffer[0], _ = 5.0, value.fill_(9.0)
    assert item.item() == 2.0


def test_each_part_is_what_its_tensor_held_when_it_was_given() -> None:
    value = torch.tensor(1.0)
    item = LateItem(LateItem(value), value.add_(1), of=lambda a, b: a - b)
    value.fill_(7.0)
    assert item.item() == -1.0


def test_a_float_of_a_graph_warns_as_torch_does() -> None:
    code = (
        "import torch\nfrom perflint_runtime import LateItem\nloss = torch.ones((), requires_grad=True) * 2\n"
        "read = (lambda x: LateItem(x, of=float).item()) if {late} else float\nprint([read(loss) for _ in range(3)])\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code.format(late=late)], capture_output=True, text=True, check=True)
        for late in (False, True)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert [run.stderr.count("Converting a tensor") for run in runs] == [1, 1]


def test_a_number_may_be_a_part_of_several() -> None:
    shared = LateItem(torch.tensor(5.0))
    halved, quartered = (LateItem(shared, torch.tensor(by), of=lambda a, b: a / b) for by in (2.0, 4.0))
    mixed = LateItem(shared, shared, torch.tensor(4.0), of=lambda a, b, c: a + b / c)
    read_together([halved, quartered, mixed, quartered])
    assert (halved.item(), quartered.item(), mixed.item(), shared.item()) == (2.5, 1.25, 6.25, 5.0)
    apart = LateItem(LateItem(torch.tensor(1.0)), torch.tensor(4.0), of=lambda a, b: a + b)
    assert apart.item() == 5.0


def test_several_numbers_wait_once(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [LateItem(LateItem(torch.tensor(float(n))), torch.tensor(float(n + 1)), of=lambda a, b: a / b) for n in range(5)]
    waits: list[int] = []
    monkeypatch.setattr("perflint_runtime.late_items.numbers", lambda tensors: waits.append(len(tensors)) or numbers(tensors))
    total, listed = ItemSum(0.0), HostList()
    for value in values:
        total.add(value)
        listed.add_item(value)
    assert listed.values() == [n / (n + 1) for n in range(5)]
    assert total.value() == sum(n / (n + 1) for n in range(5))
    assert waits[0] == 10
    assert sum(waits) == 10


def test_an_error_comes_again_whenever_somebody_asks() -> None:
    item = LateItem(torch.tensor(1.0), torch.tensor(0.0), of=lambda a, b: a / b)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            item.item()
