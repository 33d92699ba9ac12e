"""A `HostDict` holds what the plain dict would hold, in the same order, whatever is written to it, errors included."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from device_reads import count_reads
from perflint_runtime import HostDict, LateItem
from torch import Tensor, nn


class Own(Tensor):
    """A tensor class whose `item` gives something else."""

    def item(self) -> float:
        return 42.0


VALUES: list[Callable[[], Any]] = [
    lambda: torch.tensor(1.5),
    lambda: torch.tensor(-0.0),
    lambda: torch.tensor(math.nan),
    lambda: torch.tensor([[7]]),
    lambda: torch.tensor(True),
    lambda: torch.tensor(2.5).bfloat16(),
    lambda: nn.Parameter(torch.tensor(0.5)),
    lambda: torch.tensor(2.5).as_subclass(Own),
    lambda: torch.zeros(2),
    lambda: np.float32(1.25),
    lambda: 3.0,
    lambda: None,
]
KEYS = ["a", "b", "number", "list", 0, 1.0, True, ("a", 1), [], None]


def outcome(run: Callable[[], Any]) -> Any:
    try:
        return repr(run())
    except Exception as error:
        return type(error), str(error)


def _set(plain: Any, key: Any, value: Any) -> None:
    plain[key] = value


def _add(plain: Any, key: Any, read: Callable[[], Any]) -> None:
    plain[key] += read()


@pytest.mark.parametrize("seed", range(40))
def test_any_writes_give_what_a_dict_holds(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(30):
        plain: dict[Any, Any] = {"number": draw.choice([0, 0.0, True, 2**60]), "list": []}
        kept = HostDict({key: [] if key == "list" else value for key, value in plain.items()})
        for _ in range(draw.randint(1, 12)):
            value, key = draw.choice(VALUES)(), draw.choice([*KEYS, "number", "list"])
            late = LateItem(value) if draw.random() < 0.2 and isinstance(value, Tensor) and value.numel() == 1 else value
            way = draw.choice(["set", "set", "add", "add", "append", "append", "plain", "grow", "look"])
            ways: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
                "set": (lambda d, k, v: _set(d, k, v.item()), lambda d, k, v: d.set_item(v, at=k)),
                "add": (lambda d, k, v: _add(d, k, lambda: v.item()), lambda d, k, v: d.add_item(v, at=k)),
                "append": (lambda d, k, v: d[k].append(v.item()), lambda d, k, v: d.append_item(v, at=k)),
                "plain": (lambda d, k, v: _set(d, k, 5), lambda d, k, v: _set(d, k, 5)),
                "grow": (lambda d, k, v: _add(d, k, lambda: 2), lambda d, k, v: _add(d, k, lambda: 2)),
                "look": (lambda d, k, v: d, lambda d, k, v: d.read()),
            }
            expected = outcome(functools.partial(ways[way][0], plain, key, value))
            assert outcome(functools.partial(ways[way][1], kept, key, late)) == expected, way
        assert repr(kept.read()) == repr(plain)


def test_nothing_waits_before_somebody_looks() -> None:
    kept = HostDict({"total": 0.0, "all": [], "seen": 0})
    with count_reads() as reads:
        for step in range(5):
            kept.set_item(torch.tensor(step), at="step")
            kept.add_item(torch.tensor(0.5), at="total")
            kept.append_item(torch.tensor(step), at="all")
            kept["seen"] += 16
            kept["lr"] = 0.1
    assert reads == []
    assert kept.read() == {"total": 2.5, "all": [0, 1, 2, 3, 4], "seen": 80, "step": 4, "lr": 0.1}
    assert list(kept.read()) == ["total", "all", "seen", "step", "lr"]
    assert kept.read() is kept.read()


def test_what_is_written_to_later_has_been_taken_as_it_was() -> None:
    kept, buffer = HostDict({}), torch.tensor(1.0)
    kept.set_item(buffer, at="loss")
    buffer.fill_(9.0)
    assert kept["loss"] == 1.0
    assert repr(kept) == "HostDict({'loss': 1.0})"


def test_many_numbers_are_read_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflint_runtime.host_dict.MOST_KEPT", 3)
    kept = HostDict({"all": []})
    for step in range(8):
        kept.append_item(torch.tensor(step), at="all")
        assert len(kept._late) < 3
    assert kept.read() == {"all": list(range(8))}
