"""BatchedTensorLoader against DataLoader(TensorDataset): the same batches and the same random numbers afterwards."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable

import pytest
import torch
from perflint_runtime import BatchedTensorLoader
from torch.utils.data import DataLoader, TensorDataset

X = torch.randn(103, 3, 2, generator=torch.Generator().manual_seed(0))
Y = torch.arange(103)


def taken(loader: Iterable[list[torch.Tensor]], stop_after: int | None = None) -> list[list[torch.Tensor]]:
    batches = []
    for batch in loader:
        batches.append(batch)
        if len(batches) == stop_after:
            break
    return batches


def same(ours: list[list[torch.Tensor]], theirs: list[list[torch.Tensor]]) -> bool:
    return len(ours) == len(theirs) and all(
        type(a) is type(b)
        and len(a) == len(b)
        and all(torch.equal(p, q) and p.dtype == q.dtype for p, q in zip(a, b, strict=True))
        for a, b in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("samples", [1, 7, 100, 103])
@pytest.mark.parametrize("batch_size", [1, 10, 103, 200])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("stop_after", [None, 1])
def test_batches_and_generators_are_those_of_dataloader(
    samples: int, batch_size: int, shuffle: bool, drop_last: bool, own_generator: bool, stop_after: int | None
) -> None:
    results = []
    for kind in ("torch", "ours"):
        torch.manual_seed(5)
        generator = torch.Generator().manual_seed(6) if own_generator else None
        settings = {"batch_size": batch_size, "shuffle": shuffle, "drop_last": drop_last, "generator": generator}
        if kind == "torch":
            loader = DataLoader(TensorDataset(X[:samples], Y[:samples]), **settings)
        else:
            loader = BatchedTensorLoader(X[:samples], Y[:samples], **settings)
        epochs = [taken(loader, stop_after) for _ in range(3)]
        state = generator.get_state() if generator is not None else torch.empty(0)
        results.append((epochs, torch.get_rng_state(), state, len(loader)))
    (theirs, global_state, state, length), (ours, our_global_state, our_state, our_length) = results
    assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    assert torch.equal(global_state, our_global_state)
    assert torch.equal(state, our_state)
    assert length == our_length


def test_a_dict_of_tensors_gives_dicts() -> None:
    loader = BatchedTensorLoader({"x": X, "y": Y}, batch_size=50)
    batch = next(iter(loader))
    assert isinstance(batch, dict)
    assert torch.equal(batch["x"], X[:50])
    assert torch.equal(batch["y"], Y[:50])


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_batch_changed_in_place_leaves_the_data_alone(shuffle: bool) -> None:
    x = X.clone()
    for (batch,) in BatchedTensorLoader(x, batch_size=8, shuffle=shuffle):
        batch.zero_()
    assert torch.equal(x, X)


@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("done", [0, 1, 6, 11])
def test_resume_in_mid_epoch_is_exact(own_generator: bool, shuffle: bool, done: int) -> None:
    def loader() -> BatchedTensorLoader:
        generator = torch.Generator().manual_seed(1) if own_generator else None
        return BatchedTensorLoader(X, Y, batch_size=10, shuffle=shuffle, generator=generator)

    torch.manual_seed(2)
    whole = loader()
    epochs = [taken(whole) for _ in range(3)]
    end = torch.get_rng_state()

    torch.manual_seed(2)
    killed = loader()
    taken(killed)
    iterator = iter(killed)
    for _ in range(done):
        next(iterator)
    saved = io.BytesIO()
    torch.save({"loader": killed.state_dict(), "rng": torch.get_rng_state()}, saved)

    torch.manual_seed(99)
    saved.seek(0)
    checkpoint = torch.load(saved, weights_only=True)
    resumed = loader()
    resumed.load_state_dict(checkpoint["loader"])
    torch.set_rng_state(checkpoint["rng"])
    if done:
        assert same(taken(resumed), epochs[1][done:])
        assert same(taken(resumed), epochs[2])
        assert torch.equal(torch.get_rng_state(), end)


def test_a_state_saved_between_epochs_goes_on_with_the_next() -> None:
    generator = torch.Generator().manual_seed(1)
    loader = BatchedTensorLoader(Y, batch_size=10, shuffle=True, generator=generator)
    taken(loader)
    state = loader.state_dict()
    second = taken(loader)
    resumed = BatchedTensorLoader(Y, batch_size=10, shuffle=True, generator=torch.Generator())
    resumed.load_state_dict(state)
    assert same(taken(resumed), second)


def test_gradients_reach_the_data_as_with_dataloader() -> None:
    x = X.clone().requires_grad_()
    sum(batch.sum() for (batch,) in BatchedTensorLoader(x, batch_size=10, shuffle=True)).backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.ones_like(x))


def test_it_can_be_pickled() -> None:
    loader = pickle.loads(pickle.dumps(BatchedTensorLoader(X, batch_size=50)))
    assert torch.equal(next(iter(loader))[0], X[:50])


@pytest.mark.parametrize(
    ("tensors", "settings", "error", "text"),
    [
        ((), {}, ValueError, "got no tensors"),
        ((X, Y[:5]), {}, ValueError, r"first dimensions differ: \[103, 5\]"),
        ((X,), {"batch_size": 0}, ValueError, "batch_size is at least 1, got 0"),
        (([1, 2],), {}, TypeError, "takes tensors, or one dict of tensors, not list"),
        (({"x": [1]},), {}, TypeError, "not list"),
        ((torch.tensor(1.0),), {}, ValueError, "without dimensions"),
        ((X[:0],), {"shuffle": True}, ValueError, "no samples to shuffle"),
    ],
)
def test_what_is_refused(tensors: tuple[object, ...], settings: dict[str, int], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        BatchedTensorLoader(*tensors, **settings)  # type: ignore[arg-type] # wrong on purpose


def test_a_state_of_other_data_is_refused() -> None:
    state = BatchedTensorLoader(X).state_dict()
    with pytest.raises(ValueError, match="the saved loader had 103 samples, this one 5"):
        BatchedTensorLoader(X[:5]).load_state_dict(state)


def test_no_samples_are_no_batches() -> None:
    assert list(BatchedTensorLoader(X[:0])) == []
