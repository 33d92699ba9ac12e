"""Features that are kept: what a loop by hand computes, once, and never when they would be stale."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from perflint_runtime import CachedFeatures, DevicePrefetcher
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Counted(nn.Linear):
    """A network that counts its forward passes."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


def network() -> Counted:
    torch.manual_seed(3)
    return Counted(6, 4).eval()


def dataset(num: int = 22) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(num, 6, generator=generator), torch.arange(num))


def by_hand(model: nn.Module, loader: DataLoader[Any], epochs: int) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(5)
    with torch.no_grad():
        return [(model(x), y) for _ in range(epochs) for x, y in loader]


def kept(model: nn.Module, loader: DataLoader[Any], epochs: int) -> list[tuple[Tensor, Tensor]]:
    cached = CachedFeatures(model, loader)
    assert len(cached) == len(loader)
    torch.manual_seed(5)
    return [(features, y) for _ in range(epochs) for features, y in cached]


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"shuffle": True, "drop_last": True}, {"num_workers": 2}])
def test_batches_are_those_of_the_loop_by_hand(options: dict[str, Any]) -> None:
    model = network()
    loader: DataLoader[Any] = DataLoader(dataset(), 4, **options)
    expected = by_hand(model, loader, 3)
    state = torch.get_rng_state()
    found = kept(model, loader, 3)
    assert torch.equal(torch.get_rng_state(), state)
    assert [y.tolist() for _, y in found] == [y.tolist() for _, y in expected]
    for (ours, _), (theirs, _) in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
        assert not ours.requires_grad


def test_later_passes_compute_and_load_nothing() -> None:
    model, loader = network(), DataLoader(dataset(), 4, shuffle=True)
    cached = CachedFeatures(model, loader)
    for _ in range(3):
        list(cached)
    assert model.calls == len(loader) == 6


def test_a_prefetcher_is_looked_through() -> None:
    model, loader = network(), DataLoader(dataset(), 4)
    cached = CachedFeatures(model, DevicePrefetcher(loader, "cpu"))
    for _ in range(2):
        list(cached)
    assert model.calls == 6


def test_written_weights_are_noticed() -> None:
    model, loader = network(), DataLoader(dataset(), 4)
    cached = CachedFeatures(model, loader)
    before = list(cached)
    with torch.no_grad():
        model.weight.mul_(2)
    after = list(cached)
    assert model.calls == 12
    assert not torch.equal(before[0][0], after[0][0])


class Augmented(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.randn(6), index


def train_mode() -> tuple[Counted, Any]:
    return network().train(), DataLoader(dataset(), 4)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: (network(), DataLoader(Augmented(), 4)), "other samples"),
        (train_mode, "train mode"),
        (lambda: (network(), [(torch.ones(2, 6), 0)]), "no index"),
    ],
)
def test_what_cannot_be_kept_is_computed_in_each_pass(made: Any, why: str) -> None:
    model, loader = made()
    cached = CachedFeatures(model, loader)
    for _ in range(2):
        with pytest.warns(UserWarning, match=why):
            list(cached)
    assert model.calls == 2 * len(loader)


def test_looking_for_augmentation_draws_nothing() -> None:
    model, loader = network(), DataLoader(Augmented(), 4)
    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [features for features, _ in CachedFeatures(model, loader)]
    torch.manual_seed(7)
    with torch.no_grad():
        assert all(torch.equal(ours, model(x)) for ours, (x, _) in zip(found, loader, strict=True))


def test_other_parts_that_are_no_tensors_are_loaded_again() -> None:
    model = network()
    samples = [(torch.ones(6) * i, f"name {i}") for i in range(8)]
    loader: DataLoader[Any] = DataLoader(samples, 4)  # type: ignore[arg-type]  # a list will do
    cached = CachedFeatures(model, loader)
    for _ in range(2):
        assert [list(names) for _, names in cached] == [[f"name {i}" for i in range(n, n + 4)] for n in (0, 4)]


def test_a_network_that_gives_no_rows_is_refused() -> None:
    class Sums(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum()

    with pytest.raises(TypeError, match="a row for each sample"):
        list(CachedFeatures(Sums().eval(), DataLoader(dataset(), 4)))
