"""What torch does with the memory of its arguments, asked of torch itself: what hands it on is in the tables."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

from perflint.facts.api_tables import (  # noqa: E402
    ALIASING_FUNCTIONS,
    ALIASING_MODULES,
    HARMLESS_METHODS,
    MAY_ALIAS,
    VIEWS,
)

ARGUMENTS: list[tuple[object, ...]] = [
    (), (0,), (1,), (0, 0), (0, 1), (0, 0, 1), ((1,),), ((2, 2),), (0.5, False), (1, 1), (torch.float32,), ("cpu",), ([0], [0]),
    (2.0,), (None,), ("ij->ij",),
]  # fmt: skip
INPUTS = [torch.tensor(2.0), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 2])]
NOT_CALLED = frozenset(("compile", "save", "load", "fork", "wait", "seed", "numpy"))
"""They do something else than compute, or are known to share memory (`numpy`)."""


def shares_memory(call: Callable[..., object]) -> bool:
    """Whether a function gives its argument, or a view of it, for some arguments."""
    for given in INPUTS:
        for arguments in ARGUMENTS:
            tensor = given.clone()
            with contextlib.suppress(Exception):
                if any(
                    part.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
                    for part in tensors(call(tensor, *arguments))
                ):
                    return True
    return False


def tensors(value: object) -> Iterator[torch.Tensor]:
    """The tensors of a result that have numbers."""
    if isinstance(value, torch.Tensor) and value.numel():
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors(part)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_rng_state(state)


def test_functions_that_hand_on_their_argument() -> None:
    known = VIEWS | MAY_ALIAS | ALIASING_FUNCTIONS
    places = (torch, torch.nn.functional)
    names = {
        (place, name)
        for place in places
        for name in dir(place)
        if name not in known and not name.startswith(("_", "set_", "is_", "get_", "init", "import")) and not name.endswith("_")
        if name not in NOT_CALLED and name.islower() and type(getattr(place, name)).__name__ == "builtin_function_or_method"
    }
    assert {name for place, name in names if shares_memory(getattr(place, name))} == set()


def test_methods_that_hand_on_their_receiver() -> None:
    names = HARMLESS_METHODS - VIEWS - MAY_ALIAS - NOT_CALLED
    assert {name for name in names if shares_memory(lambda x, *given, name=name: getattr(x, name)(*given))} == set()


def test_layers_that_hand_on_their_input() -> None:
    found = set()
    for name in dir(torch.nn):
        layer = getattr(torch.nn, name)
        if isinstance(layer, type) and issubclass(layer, torch.nn.Module) and name not in ALIASING_MODULES:
            with contextlib.suppress(Exception):  # a layer that needs arguments computes something
                built = layer().eval()
                if name != "Sequential" and shares_memory(lambda x, *given, built=built: built(x)):
                    found.add(name)
    assert found == set()
