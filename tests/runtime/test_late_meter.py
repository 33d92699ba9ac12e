"""A meter that counts late is what the plain code's meter would be, whatever it is given, errors included."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from device_reads import count_reads
from perflint_runtime import LateItem, LateMeter
from test_item_sum import _float, _integer, _odd, _weight, outcome, same
from torch import Tensor


class Average:
    def __init__(self, name: str = "loss") -> None:
        self.name = name
        self.reset()

    def reset(self) -> None:
        self.last: Any = 0
        self.total: Any = 0
        self.count: Any = 0
        self.mean: Any = 0

    def update(self, value: Any, n: Any = 1) -> None:
        self.last = value
        self.total += value * n
        self.count += n
        self.mean = self.total / self.count if self.count else 0

    def grow(self) -> Any:
        self.total += 1
        return self.total

    def __str__(self) -> str:
        return f"{self.name} {self.mean}"


class Listing(Average):
    def reset(self) -> None:
        super().reset()
        self.all: list[Any] = []

    def update(self, value: Any, n: Any = 1) -> None:
        self.all.append(value)


def state(meter: Any) -> list[Any]:
    return [meter.last, meter.total, meter.count, meter.mean, str(meter), f"{meter:}", getattr(meter, "all", None)]


@pytest.mark.parametrize("seed", range(40))
def test_any_sequence_gives_what_the_plain_meter_gives(seed: int) -> None:
    draw = random.Random(seed)
    kinds = draw.choice([[_float], [_integer], [_float, _integer], [_float, _integer, _odd]])
    for _ in range(30):
        cls = draw.choice([Average, Average, Listing])
        plain, late = cls(), LateMeter(cls())
        for _ in range(draw.randint(0, 12)):
            value, weight = draw.choice(kinds)(draw), draw.choice([1, 8, _weight(draw)])

            def plainly(plain: Any = plain, value: Any = value, weight: Any = weight) -> Any:
                return plain.update(value.item(), n=weight)

            def lately(late: Any = late, value: Any = value, weight: Any = weight) -> Any:
                late.update(LateItem(value), n=weight)
                return None if draw.random() < 0.7 else [late.mean, None][1]

            expected = outcome(plainly)
            raised = outcome(lately)
            if isinstance(expected, tuple):
                looked = raised if raised is not None else outcome(lambda late=late: late.mean)
                assert looked == expected
                break
            assert raised is None
            if draw.random() < 0.2:
                assert same(late.grow(), plain.grow())
            if draw.random() < 0.1:
                late.count = plain.count = draw.choice([3, 0.5])
            if draw.random() < 0.1:
                plain.reset()
                late.reset()
            if draw.random() < 0.3:
                assert list(map(repr, state(late))) == list(map(repr, state(plain)))
        else:
            assert list(map(repr, state(late))) == list(map(repr, state(plain)))


def test_nothing_waits_before_somebody_looks() -> None:
    losses, meter = [torch.tensor(0.5 * step) for step in range(20)], LateMeter(Average())
    value = LateItem(losses[0])
    with count_reads() as reads:
        for loss in losses:
            meter.update(LateItem(loss), 16)
        meter.update(n=2, value=value)
    assert reads == []
    assert (meter.total, meter.count, value.item()) == (sum(0.5 * s * 16 for s in range(20)), 322, 0.0)
    assert meter.mean == meter.total / 322


def test_a_tensor_that_is_written_to_later_counts_as_it_was() -> None:
    meter, buffer = LateMeter(Average()), torch.tensor(1.0)
    for step in range(3):
        buffer.fill_(step)
        meter.update(LateItem(buffer))
    assert meter.total == 3.0


def test_what_holds_more_than_numbers_is_called_at_once() -> None:
    plain = Average()
    plain.total = np.zeros(2)
    held, meter = plain.total, LateMeter(plain)
    meter.update(LateItem(torch.tensor(2.0)))
    assert held.tolist() == [2.0, 2.0]  # in place, and others see it
    later, weight = LateMeter(Average()), torch.tensor([2.0])
    later.update(LateItem(torch.tensor(2.0)), weight)
    weight.zero_()
    assert isinstance(later.total, Tensor)
    assert later.total.tolist() == [4.0]


def test_what_is_not_as_its_class_was_written_is_called_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Average):
        def shown(self, value: Any, n: Any = 1) -> None:
            seen.append(value)

    class Watching(Average):
        def __setattr__(self, name: str, value: Any) -> None:
            seen.append(name)
            super().__setattr__(name, value)

    seen: list[Any] = []
    late = LateMeter(Other())
    late.update(LateItem(torch.tensor(1.0)))
    assert late.total == 1.0
    monkeypatch.setattr(Other, "update", Other.shown)
    late.update(LateItem(torch.tensor(2.0)))
    assert seen == [2.0]
    watching = LateMeter(Watching())
    seen.clear()
    watching.update(LateItem(torch.tensor(1.0)))
    assert seen == ["last", "total", "count", "mean"]


def test_a_method_that_asks_for_an_attribute_of_its_class_is_called_at_once() -> None:
    class Scaled(Average):
        scale, unit = 2.0, "m"

        def update(self, value: Any, n: Any = 1) -> None:
            super().update(value * self.scale, n)

    late = LateMeter(Scaled())
    late.update(LateItem(torch.tensor(1.0)))
    Scaled.scale = 3.0
    late.update(LateItem(torch.tensor(1.0)))
    Scaled.scale = 4.0
    assert late.total == 5.0


def test_so_many_calls_wait_and_no_more() -> None:
    meter = Average()
    late = LateMeter(meter)
    for _ in range(4095):
        late.update(LateItem(torch.tensor(1.0)))
    assert meter.count == 0
    late.update(LateItem(torch.tensor(1.0)))
    assert meter.count == 4096


def test_attributes_that_are_not_there_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"'Average' object has no attribute 'median'"):
        LateMeter(Average()).median  # noqa: B018  # the error is asked for
    late = LateMeter(Average())
    del late.mean
    with pytest.raises(AttributeError, match="mean"):
        late.mean  # noqa: B018  # as above
