"""A list of what the host reads later is the list of what it would have read at once, errors included."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import perflint_runtime.host_list as host_list
import pytest
import torch
from device_reads import count_reads
from perflint_runtime import HostList, LateItem
from torch import Tensor, nn


class Own(Tensor):
    """A tensor class whose `item` gives something else."""

    def item(self) -> float:
        return 42.0


def _values() -> list[Any]:
    return [
        torch.tensor(1.5),
        torch.tensor([-0.0]),
        torch.tensor(float("nan")),
        torch.tensor(float("inf"), dtype=torch.float16),
        torch.tensor(0.1, dtype=torch.bfloat16),
        torch.tensor(0.1, dtype=torch.float64),
        torch.tensor(True),
        torch.tensor(2**62 + 1),
        torch.tensor(7, dtype=torch.uint8),
        torch.tensor(7, dtype=torch.uint16),
        torch.tensor(1 + 2j),
        torch.tensor(2.5).as_subclass(Own),
        nn.Parameter(torch.tensor(0.5)),
        torch.ones(2, 3),
        torch.zeros(0),
        torch.zeros((), device="meta"),
        torch.tensor([3.0]).to_sparse(),
        (torch.ones(3, requires_grad=True) * 2).sum(),
        3,
        2.5,
        None,
        np.float32(0.5),
    ]


def _outcome(run: Callable[[], Any]) -> Any:
    """What a call gives, or the error that it raises."""
    try:
        return run()
    except Exception as error:
        return type(error), str(error)


def _shown(values: list[Any]) -> list[tuple[type, str]]:
    return [(type(value), repr(value)) for value in values]


WAYS = ["item", "late", "copy", "array", "list", "elements of the array", "elements of the list", "as it is"]
WAYS += [
    "list of the copy",
    "elements of the list of the array",
    "array without a graph",
    "elements of it",
    "copy without a graph",
]


def _plainly(plain: list[Any], value: Any, way: str) -> None:
    match way:
        case "item" | "late":
            plain.append(value.item())
        case "copy":
            plain.append(value.cpu())
        case "array":
            plain.append(value.cpu().numpy())
        case "copy without a graph":
            plain.append(value.cpu().detach())
        case "array without a graph":
            plain.append(value.cpu().detach().numpy())
        case "elements of it":
            plain.extend(value.cpu().detach().numpy())
        case "list":
            plain.append(value.tolist())
        case "list of the copy":
            plain.append(value.cpu().tolist())
        case "elements of the list of the array":
            plain.extend(value.cpu().numpy().tolist())
        case "elements of the array":
            plain.extend(value.cpu().numpy())
        case "elements of the list":
            plain.extend(value.tolist())
        case _:
            plain.append(value)


def _lately(late: HostList, value: Any, way: str) -> None:
    match way:
        case "item":
            late.add_item(value)
        case "late":
            late.add_item(LateItem(value))
        case "copy":
            late.add_copy(value)
        case "array":
            late.add_array(value)
        case "copy without a graph":
            late.add_copy(value, "detach")
        case "array without a graph":
            late.add_array(value, "detach")
        case "elements of it":
            late.extend_array(value, "detach")
        case "list":
            late.add_list(value)
        case "list of the copy":
            late.add_list(value, "cpu")
        case "elements of the list of the array":
            late.extend_list(value, "cpu", "numpy")
        case "elements of the array":
            late.extend_array(value)
        case "elements of the list":
            late.extend_list(value)
        case _:
            late.append(value)


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_gives_what_python_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(host_list, "MOST_KEPT", draw.choice([2, 5, 4096]))
    plain: list[Any] = []
    late = HostList()
    for _ in range(40):
        value, way = draw.choice(_values()), draw.choice(WAYS)
        assert _outcome(partial(_lately, late, value, way)) == _outcome(partial(_plainly, plain, value, way))
        if draw.random() < 0.2:
            assert _shown(late.values()) == _shown(plain)
    assert _shown(late.values()) == _shown(plain)
    assert repr(late) == f"HostList({plain!r})"


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_gives_what_python_gives_with_a_card(
    seed: int, card: type[_Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(host_list, "_MOST_BYTES", draw.choice([0, 20, 2**26]))
    plain: list[Any] = []
    late = HostList()
    kinds = torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool
    for _ in range(40):
        shape = draw.choice([(), (1,), (3,), (0,), (2, 2)])
        value = (
            draw.choice([torch.tensor(float("nan")), torch.tensor(-0.0), torch.tensor(2.6)])
            .expand(shape)
            .to(draw.choice(kinds))
        )
        value, way, card.passed = value.contiguous(), draw.choice(WAYS), draw.random() < 0.3
        expected = _outcome(partial(_plainly, plain, value if way == "as it is" else value.clone(), way))
        assert _outcome(partial(_lately, late, value, way)) == expected
        if way != "as it is":
            value.zero_()
        if draw.random() < 0.2:
            assert _shown(late.values()) == _shown(plain)
    assert _shown(late.values()) == _shown(plain)


def test_it_is_one_list_however_often_it_is_looked_at() -> None:
    losses = HostList()
    losses.add_item(torch.tensor(1.0))
    found = losses.values()
    losses.add_item(torch.tensor(2.0))
    assert losses.values() is found
    assert found == [1.0, 2.0]


def test_nothing_waits_before_somebody_looks() -> None:
    losses = HostList()
    with count_reads() as reads:
        for step in range(20):
            losses.add_item(torch.tensor(0.5 * step))
    assert reads == []
    assert losses.values() == [0.5 * step for step in range(20)]


def test_a_number_is_what_the_tensor_held_then() -> None:
    losses, buffer = HostList(), torch.tensor(1.0)
    for step in range(3):
        buffer.fill_(step)
        losses.add_item(buffer)
    assert losses.values() == [0.0, 1.0, 2.0]


class _Event:
    """A stand-in for CUDA's: it has passed when the test says so."""

    passed = False
    waited = 0

    def record(self, stream: object) -> None:
        assert stream == "stream"

    def query(self) -> bool:
        return type(self).passed

    def synchronize(self) -> None:
        type(self).waited += 1


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> type[_Event]:
    """Stand-ins for CUDA: tensors of the host count as those of a card, pinned memory is ordinary memory."""
    empty_like = torch.empty_like
    monkeypatch.setattr(host_list, "may_be_staged", lambda value, place: type(value) is Tensor and not value.requires_grad)
    monkeypatch.setattr(torch, "empty_like", lambda value, pin_memory, device=None: empty_like(value))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "stream")

    class Event(_Event):
        pass

    monkeypatch.setattr(torch.cuda, "Event", Event)
    return Event


def test_copies_of_a_card_are_waited_for_when_somebody_looks(card: type[_Event]) -> None:
    found = HostList()
    for step in range(4):
        buffer = torch.full((2,), float(step))
        found.add_array(buffer)
        found.add_copy(buffer)
        buffer.zero_()
    assert card.waited == 0
    values = found.values()
    assert card.waited == 8
    assert [type(value) for value in values] == [np.ndarray, Tensor] * 4
    assert [float(value[0]) for value in values] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_what_has_arrived_is_put_in_its_place(card: type[_Event]) -> None:
    found = HostList()
    found.add_copy(torch.ones(2))
    card.passed = True
    found.add_copy(torch.ones(2))
    assert (len(found._copies), found._bytes) == (0, 0)


def test_little_memory_is_pinned_at_a_time(card: type[_Event], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_list, "_MOST_BYTES", 20)
    found = HostList()
    for step in range(5):
        found.add_array(torch.full((2,), float(step)))
        assert found._bytes <= 20
    assert card.waited == 3
    assert [float(value[0]) for value in found.values()] == [0, 1, 2, 3, 4]


def test_numpy_says_what_it_does_not_know(card: type[_Event]) -> None:
    with pytest.raises(TypeError, match="BFloat16"):
        HostList().add_array(torch.ones(2, dtype=torch.bfloat16))


def test_in_inference_mode_copies_are_tensors_of_it(card: type[_Event]) -> None:
    found = HostList()
    with torch.inference_mode():
        found.add_copy(torch.ones(2))
        found.extend_list(torch.ones(2))
    assert found.values()[0].is_inference()
    assert (found.values()[1:], card.waited) == ([1.0, 1.0], 1)


def test_what_has_no_item_under_a_transform_raises_as_item_does() -> None:
    def plainly(value: Tensor) -> Tensor:
        value.item()
        return value

    def lately(value: Tensor) -> Tensor:
        HostList().add_item(value)
        return value

    found = [_outcome(partial(torch.vmap(run), torch.ones(3))) for run in (plainly, lately)]
    assert found[0] == found[1]
    assert found[0][0] is RuntimeError
