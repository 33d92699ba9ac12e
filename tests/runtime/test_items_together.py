"""`items_together`: what `.item()` gives for each, whatever types stand together."""

import math
import random

import pytest
import torch
from perflint_runtime import copies_together, items_together, late_items
from torch import Tensor

TYPES = sorted(late_items.READ_ALIKE, key=str)
NUMBERS = (0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 1e-40, 255.0, 65504.0)


def drawn(draw: random.Random) -> Tensor:
    number, dtype = draw.choice(NUMBERS), draw.choice(TYPES)
    if not dtype.is_floating_point:
        number = draw.choice((0, 1, 127)) if dtype is not torch.int64 else draw.choice((2**53 + 1, -(2**63), 2**63 - 1))
    value = torch.tensor([number, 1], dtype=dtype)[:1]
    return value.reshape(draw.choice(((), (1,), (1, 1))))


def same(ours: object, plain: object) -> bool:
    return type(ours) is type(plain) and repr(ours) == repr(plain)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("is_far", [False, True])
def test_each_is_what_item_gives(seed: int, is_far: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_items, "_is_far", lambda tensor: is_far)
    draw = random.Random(seed)
    values = [drawn(draw) for _ in range(draw.randint(1, 9))]
    if seed % 3 == 0:
        values[0] = values[0].clone().float().requires_grad_()
    found = items_together(*values)
    assert all(same(ours, value.item()) for ours, value in zip(found, values, strict=True))


class Counted:
    """No tensor."""

    def __init__(self) -> None:
        self.asked = 0

    def item(self) -> int:
        self.asked += 1
        return self.asked


def test_what_is_no_plain_tensor_is_asked_in_order() -> None:
    counted = Counted()
    assert items_together(counted, torch.tensor(2), counted, torch.tensor(1j)) == (1, 2, 2, 1j)


def test_errors_are_those_of_item() -> None:
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        items_together(torch.tensor(1.0), torch.ones(2))
    with pytest.raises(AttributeError, match="item"):
        items_together(torch.tensor(1.0), 2.0)


def test_nothing_is_read_of_nothing() -> None:
    assert items_together() == ()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_far", [False, True])
def test_each_copy_is_what_a_writer_would_copy(seed: int, is_far: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_items, "_is_far", lambda tensor: is_far)
    draw = random.Random(seed)
    values = [drawn(draw) for _ in range(draw.randint(1, 9))]
    values[0] = values[0].clone().float().requires_grad_()
    found = copies_together(*values)
    for ours, value in zip(found, values, strict=True):
        assert (ours.dtype, ours.device.type, ours.requires_grad) == (value.dtype, "cpu", False)
        assert same(ours.item(), value.item())
        assert ours.data_ptr() != value.data_ptr()


def test_what_cannot_be_copied_together_is_handed_on() -> None:
    values = torch.tensor(1.0), 2.0, torch.ones(2)
    assert all(ours is value for ours, value in zip(copies_together(*values), values, strict=True))
