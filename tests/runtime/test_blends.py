"""`blend_parameters` leaves the same bits as the loop that it stands for, whatever it is given, and raises the same."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from perflint_runtime import blend_parameters, blends
from perflint_runtime.blends import _are_apart, _is_plain
from torch import Tensor, nn


@pytest.fixture(autouse=True, params=["cuda alone", "cpu, too"])
def _launched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done on CUDA is done on the CPU, too, once."""
    if request.param == "cpu, too":
        monkeypatch.setattr(blends, "_LAUNCHED", frozenset(("cuda", "cpu")))


class Own(Tensor):
    pass


class Watched(nn.Linear):
    def named_parameters(self, *given: Any, **named: Any) -> Iterator[tuple[str, nn.Parameter]]:
        for name, parameter in super().named_parameters(*given, **named):
            parameter.data.mul_(2)
            yield name, parameter


def pair_of(make: Callable[[], nn.Module]) -> list[list[Any]]:
    torch.manual_seed(0)
    return [list(make().parameters()), list(make().parameters())]


def shared() -> list[list[Any]]:
    memory = torch.randn(12)
    return [[memory[:4], memory[4:8]], [memory[2:6], memory[6:10]]]


def odd() -> list[list[Any]]:
    first, second = pair_of(lambda: nn.Linear(2, 2))
    first[0].data[0, 0], second[0].data[0, 0], second[0].data[1, 1] = torch.nan, -0.0, torch.inf
    return [first, second]


PAIRS: dict[str, Callable[[], list[list[Any]]]] = {
    "linear": lambda: pair_of(lambda: nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))),
    "double": lambda: pair_of(lambda: nn.Linear(3, 5).double()),
    "mixed": lambda: pair_of(lambda: nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2).double())),
    "half": lambda: pair_of(lambda: nn.Linear(3, 5).bfloat16()),
    "channels": lambda: pair_of(lambda: nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)),
    "longer": lambda: [pair_of(lambda: nn.Linear(3, 3))[0], pair_of(lambda: nn.Linear(3, 3))[1][:1]],
    "shapes": lambda: [[torch.randn(2, 3), torch.randn(3)], [torch.randn(3), torch.randn(2)]],
    "integers": lambda: [[torch.arange(4)], [torch.arange(4) + 3]],
    "own": lambda: [[torch.ones(3).as_subclass(Own)], [torch.full((3,), 2.0)]],
    "shared": shared,
    "odd": odd,
    "same": lambda: [pair_of(lambda: nn.Linear(3, 3))[0]] * 2,
    "numbers": lambda: [[1.0], [2.0]],
    "nothing": lambda: [[], []],
}
WEIGHTS: list[tuple[Any, Any]] = [
    (0.005, 1 - 0.005),
    (1, 0),
    (True, 0.5),
    (float("nan"), 1.0),
    (1e300, 1.0),
    (torch.tensor(0.1), 0.9),
    (torch.tensor(0.1, dtype=torch.float64).numpy()[()], 0.9),
    ("a", 1.0),
]


def plain(first: Any, second: Any, weights: Any, into: int, begins: int, behind: bool) -> None:
    for p, q in zip(first, second, strict=False):
        x, y = weights()
        a = p.data * x if behind else x * p.data
        b = q.data * y if behind else y * q.data
        (q if into else p).data.copy_(b + a if begins else a + b)


def outcome(do: Callable[..., None], name: str, *how: Any) -> tuple[str, list[bytes]]:
    torch.manual_seed(0)
    pairs = PAIRS[name]()
    try:
        do(*pairs, *how)
        said = ""
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    values = [one for side in pairs for one in side if isinstance(one, Tensor)]
    return said, [one.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for one in values]


def called(first: Any, second: Any, weights: Any, into: Any, begins: Any, behind: bool) -> None:
    blend_parameters(first, second, weights, into=into, begins=begins, behind=behind)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_the_same_bits_and_errors_as_the_loop(name: str, weights: tuple[Any, Any]) -> None:
    for into in (0, 1):
        for begins in (0, 1):
            for behind in (False, True):
                how = (lambda: weights, into, begins, behind)
                assert outcome(called, name, *how) == outcome(plain, name, *how)


def test_what_is_blended_together() -> None:
    def together(name: str) -> bool:
        pairs = list(zip(*PAIRS[name](), strict=False))
        return all(map(_is_plain, pairs)) and _are_apart(pairs)

    taken = {"linear", "double", "mixed", "longer", "odd"} if "cpu" in blends._LAUNCHED else set()
    assert {name for name in PAIRS if together(name)} == {*taken, "nothing"}


def test_all_parameters_take_a_handful_of_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    multiply = torch._foreach_mul
    monkeypatch.setattr(torch, "_foreach_mul", lambda some, by: taken.append(len(some)) or multiply(some, by))
    first = nn.Sequential(*(nn.Linear(3, 3) for _ in range(5)))
    second = copy.deepcopy(first)
    versions = [p._version for p in second.parameters()]
    blend_parameters(first.parameters(), second.parameters(), lambda: (0.1, 0.9), into=1)
    assert taken == ([10, 10] if "cpu" in blends._LAUNCHED else [])
    assert [p._version for p in second.parameters()] == versions


def test_parameters_that_run_code_go_one_by_one() -> None:
    torch.manual_seed(0)
    first, second = Watched(3, 3), Watched(3, 3)
    others = copy.deepcopy((first, second))
    blend_parameters(first.parameters(), second.parameters(), lambda: (0.1, 0.9), into=1)
    plain(others[0].parameters(), others[1].parameters(), lambda: (0.1, 0.9), 1, 0, False)
    assert all(map(torch.equal, second.state_dict().values(), others[1].state_dict().values()))
