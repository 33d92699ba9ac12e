"""A trainer's steps inside of an epoch loop by hand: the same bits, and the program keeps what it does beside them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from device_reads import count_reads
from perflint_runtime import Callback, Trainer, TrainingSettings
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def loader(num: int = 70) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(num, 6, generator=generator), torch.randint(0, 3, (num,), generator=generator)
    return DataLoader(TensorDataset(x, y), 8, shuffle=True)


def by_hand(every: int = 1, at_end: bool = False, clip: float | None = None) -> tuple[list[float], nn.Module]:
    """The losses of two passes, and the network afterwards."""
    model, batches, losses = network(), loader(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(5)
    for _ in range(2):
        for i, (x, y) in enumerate(batches):
            loss = functional.cross_entropy(model(x), y) / every
            loss.backward()
            losses.append(loss.item())
            if (i + 1) % every == 0 or (at_end and i + 1 == len(batches)):
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
    return losses, model


def by_trainer(every: int = 1, **options: Any) -> tuple[Trainer, Any]:
    """A trainer over the same network, and its loss function."""

    def training_step(model: nn.Module, batch: Any) -> Any:
        x, y = batch
        logits = model(x)
        return functional.cross_entropy(logits, y) / every, logits

    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return Trainer(model, optimizer, training_step, device="cpu", **options), model


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize("clip", [None, 0.5])
def test_steps_are_those_of_the_loop_by_hand(clip: float | None) -> None:
    expected, reference = by_hand(clip=clip)
    trainer, model = by_trainer(settings=TrainingSettings(max_grad_norm=clip))
    batches, losses = loader(), []
    torch.manual_seed(5)
    for _ in range(2):
        for loss, logits, (x, _) in trainer.steps(batches):
            assert logits.shape == (len(x), 3)
            assert all(p.grad is None for p in model.parameters())
            losses.append(loss.item())
    assert losses == expected
    assert same(model, reference)
    assert trainer.step == 18


@pytest.mark.parametrize("at_end", [False, True])
def test_several_batches_make_an_update_and_leftovers_wait_for_the_next_pass(at_end: bool) -> None:
    """9 batches, 4 to an update: without `at_end`, the gradients of the last one are added to those of the next pass."""
    expected, reference = by_hand(4, at_end)
    trainer, model = by_trainer(4)
    batches, losses = loader(), []
    torch.manual_seed(5)
    for _ in range(2):
        losses += [loss.item() for loss, _, _ in trainer.steps(batches, update_every=4, update_at_end=at_end)]
    assert losses == expected
    assert same(model, reference)
    assert trainer.step == (6 if at_end else 4)


def test_gradients_of_the_time_before_do_not_count() -> None:
    expected, _ = by_hand()
    trainer, model = by_trainer()
    model(torch.ones(2, 6)).sum().backward()
    torch.manual_seed(5)
    assert next(loss.item() for loss, _, _ in trainer.steps(loader())) == expected[0]
    assert [loss.item() for loss, _, _ in trainer.steps([])] == []


def test_leaving_early_leaves_the_weights_of_the_steps_taken() -> None:
    trainer, model = by_trainer()
    before = [p.clone() for p in model.parameters()]
    for _ in trainer.steps(loader()):
        break
    assert trainer.step == 1
    assert not torch.equal(before[0], next(model.parameters()))


def test_no_step_waits_for_the_device() -> None:
    trainer, model = by_trainer(settings=TrainingSettings(max_grad_norm=1.0, ema_decay=0.9))
    with count_reads(model) as reads:
        for _ in trainer.steps(loader()):
            pass
    assert reads == []


def test_callbacks_see_the_gradients_and_a_scaler_of_the_program_is_used() -> None:
    class Norms(Callback):
        def __init__(self) -> None:
            self.values: list[float] = []

        def before_step(self, trainer: Trainer) -> None:
            self.values.append(sum(float(p.grad.norm()) for p in trainer.module.parameters() if p.grad is not None))

    calls: list[str] = []

    class Scaler(torch.amp.GradScaler):
        def scale(self, outputs: Any) -> Any:
            calls.append("scale")
            return super().scale(outputs)

        def update(self, new_scale: Any = None) -> None:
            calls.append("update")
            super().update(new_scale)

    norms, scaler = Norms(), Scaler("cpu", enabled=True)
    trainer, _ = by_trainer(callbacks=[norms], scaler=scaler)
    expected, plain = Norms(), by_trainer()[0]
    plain.callbacks.append(expected)
    for each in (trainer, plain):
        torch.manual_seed(5)
        for _ in each.steps(loader()):
            pass
    assert calls == ["scale", "update"] * 9
    assert norms.values == pytest.approx(expected.values, rel=1e-5)


def test_what_is_no_loader_is_refused() -> None:
    trainer, _ = by_trainer()
    with pytest.raises(TypeError, match="gives samples: pass batches"):
        list(trainer.steps(loader().dataset))
