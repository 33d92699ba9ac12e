"""The trainer computes what a loop written by hand computes, bit for bit, and never waits for the device in between."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from device_reads import count_reads
from perflint_runtime import (
    Callback,
    CrossEntropy,
    ExponentialMovingAverage,
    JsonlLogger,
    ModelSettings,
    NonFiniteError,
    Trainer,
    TrainingSettings,
    accuracy,
)
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset


def network(dropout: float = 0.2) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3))


def data(num: int = 70) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(num, 6, generator=generator), torch.randint(0, 3, (num,), generator=generator))


def loader(num: int = 70, batch_size: int = 8, **options: Any) -> DataLoader[Any]:
    return DataLoader(data(num), batch_size, shuffle=True, **options)


def settings(**changes: Any) -> TrainingSettings:
    return TrainingSettings(**{"progress": False, "log_every": 1, **changes})


class Losses(Callback):
    """The losses as they were logged."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.records: list[tuple[int, dict[str, float]]] = []

    def on_log(self, trainer: Trainer, step: int, values: Any) -> None:
        self.values.append(values["loss"])
        self.records.append((step, dict(values)))


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def fused(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2, fused=True)


def trained(model: nn.Module, **options: Any) -> tuple[Losses, Trainer]:
    losses = Losses()
    train_loader = options.pop("loader", None) or loader()
    val_loader = options.pop("val_loader", None)
    callbacks = [losses, *options.pop("callbacks", [])]
    optimizer = options.pop("optimizer", None) or adam(model)
    loss = options.pop("loss", None) or CrossEntropy()
    trainer = Trainer(model, optimizer, loss, options.pop("settings", settings()), callbacks=callbacks, device="cpu", **options)
    torch.manual_seed(5)
    trainer.fit(train_loader, val_loader)
    return losses, trainer


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize("clip", [None, 0.5])
def test_it_is_the_plain_loop_bit_for_bit(clip: float | None) -> None:
    by_hand = network()
    optimizer = adam(by_hand)
    batches = loader()
    torch.manual_seed(5)
    expected = []
    for _ in range(3):
        for x, y in batches:
            loss = functional.cross_entropy(by_hand(x), y)
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(by_hand.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
            expected.append(loss.item())
    model = network()
    losses, trainer = trained(model, settings=settings(epochs=3, max_grad_norm=clip))
    assert losses.values == expected
    assert same(model, by_hand)
    assert trainer.step == len(expected) == 27


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_step_waits_for_the_device(precision: str) -> None:
    """With all that usually makes a loop wait: progress bar, metrics, clipping, averages, a schedule, the check for nan."""
    model = network()
    options: dict[str, Any] = {
        "settings": settings(
            progress=True, max_grad_norm=0.5, ema_decay=0.9, log_every=3, epochs=3, accumulation_steps=2, precision=precision
        ),
        "metrics": {"accuracy": accuracy},
        "loss": CrossEntropy(label_smoothing=0.1, class_weights=[1.0, 2.0, 1.0]),
        "scheduler": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20),
    }
    with count_reads(model) as reads:
        losses, trainer = trained(model, **options)
    assert trainer.step == 15
    assert len(losses.values) == 5
    assert reads == []


def test_a_read_in_a_step_would_be_counted() -> None:
    class Impatient(Callback):
        def on_step(self, trainer: Trainer) -> None:
            float(next(iter(trainer.module.parameters())).sum())

    model = network()
    with count_reads(model) as reads:
        trained(model, callbacks=[Impatient()])
    assert len(reads) == 9


@pytest.mark.parametrize("num", [70, 64, 5])
def test_accumulated_gradients_are_those_of_the_whole_window(num: int) -> None:
    """Also of the last window, which is shorter and ends with a smaller batch: neither dropped, leaked nor scaled down."""
    whole = network(0.0).double()
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    x, y = data(num).tensors
    expected = []
    for start in range(0, num, 24):
        loss = functional.cross_entropy(whole(x[start : start + 24].double()), y[start : start + 24])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    model = network(0.0).double()
    dataset = TensorDataset(x.double(), y)
    losses, trainer = trained(
        model,
        loader=DataLoader(dataset, 8),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        settings=settings(accumulation_steps=3),
    )
    assert trainer.step == math.ceil(num / 24)
    assert losses.values == pytest.approx(expected, rel=1e-12)
    for a, b in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    assert all(p.grad is None for p in model.parameters())


def test_windows_of_uneven_token_counts_are_exact_when_tokens_are_counted() -> None:
    """Labels of -100 do not count: `CrossEntropy.count` says how many items each micro-batch's mean is over."""
    torch.manual_seed(0)
    x, y = torch.randn(6, 4, 6).double(), torch.randint(0, 3, (6, 4))
    y[0, 1:] = -100
    y[3, :2] = -100
    smooth = CrossEntropy(label_smoothing=0.1, class_weights=torch.tensor([1.0, 2.0, 0.5]).double())
    whole = network(0.0).double()
    smooth(whole, (x, y))[0].backward()
    expected = [p.grad.clone() for p in whole.parameters() if p.grad is not None]
    model = network(0.0).double()
    seen: list[Tensor] = []

    class Grads(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            seen.extend(p.grad.clone() for p in model.parameters() if p.grad is not None)

    trained(
        model,
        loader=DataLoader(TensorDataset(x, y), 2),
        optimizer=Grads(model.parameters(), lr=0.1),
        loss=smooth,
        settings=settings(accumulation_steps=3),
    )
    for a, b in zip(seen, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-14)


def test_schedulers_step_with_the_optimizer_and_not_with_skipped_steps() -> None:
    class Overflow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(6, 3))
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x @ self.weight * (math.inf if self.calls in (2, 3) else 1.0)

    model = Overflow()
    rates: list[float] = []

    class Rates(Callback):
        def on_step(self, trainer: Trainer) -> None:
            rates.append(trainer.optimizer.param_groups[0]["lr"])

    trained(
        model,
        loader=DataLoader(data(40), 8),
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5),
        settings=settings(precision="fp16", log_every=5, check_finite=True),
        loss=lambda model, batch: functional.cross_entropy(model(batch[0]).float(), batch[1]),
        callbacks=[Rates()],
    )
    assert rates == [0.5, 0.5, 0.5, 0.25, 0.125]


def test_bf16_runs_the_forward_pass_in_bf16_and_keeps_float32_weights() -> None:
    seen: list[torch.dtype] = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        logits = model(batch[0])
        seen.append(logits.dtype)
        return functional.cross_entropy(logits, batch[1])

    _, trainer = trained(network(), loss=loss, settings=settings(precision="bf16"))
    assert set(seen) == {torch.bfloat16}
    assert {p.dtype for p in trainer.module.parameters()} == {torch.float32}


def test_a_loss_that_is_not_finite_ends_training_and_names_its_step() -> None:
    calls = iter(range(100))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        value = functional.cross_entropy(model(batch[0]), batch[1])
        return value * math.nan if next(calls) == 5 else value

    with pytest.raises(NonFiniteError, match="step 3"):
        trained(network(), loss=loss, settings=settings(log_every=4, accumulation_steps=2, epochs=5))
    calls = iter(range(100))
    trained(network(), loss=loss, settings=settings(log_every=4, check_finite=False))


def test_no_checkpoint_is_written_of_lost_weights(tmp_path: Path) -> None:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1]) * math.nan

    with pytest.raises(NonFiniteError, match="step 1"):
        trained(network(), loss=loss, settings=settings(log_every=50, checkpoint_every=3), checkpoints=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_evaluation_leaves_the_model_as_it_was_and_averages_over_samples() -> None:
    model = network()
    model[2].eval()  # frozen by its owner
    flags = [m.training for m in model.modules()]
    trainer = Trainer(model, adam(model), CrossEntropy(), metrics={"accuracy": accuracy}, device="cpu")
    values = trainer.evaluate(DataLoader(data(21), 8))
    x, y = data(21).tensors
    model.eval()
    with torch.no_grad():
        logits = model(x)
    assert values["val_loss"] == pytest.approx(functional.cross_entropy(logits, y).item(), rel=1e-6)
    assert values["val_accuracy"] == (logits.argmax(-1) == y).double().mean().item()
    model[0].train()
    trainer.evaluate(DataLoader(data(21), 8))
    assert [m.training for m in model.modules()] != flags
    with pytest.raises(ValueError, match="gave no batch"):
        trainer.evaluate([])


def test_averaged_weights_are_evaluated_and_the_own_ones_trained() -> None:
    model = network(0.0)
    averages = [p.detach().clone() for p in model.parameters()]
    seen: list[bool] = []

    class Watch(Callback):
        def on_step(self, trainer: Trainer) -> None:
            for average, p in zip(averages, model.parameters(), strict=True):
                average.lerp_(p.detach(), 1 - 0.9)
            before = [p.detach().clone() for p in model.parameters()]
            assert trainer.ema is not None
            with trainer.ema.applied():
                seen.append(all(torch.equal(a, p) for a, p in zip(averages, model.parameters(), strict=True)))
            assert all(torch.equal(a, p) for a, p in zip(before, model.parameters(), strict=True))

    plain = network(0.0)
    trained(plain)
    trained(model, settings=settings(ema_decay=0.9), callbacks=[Watch()])
    assert all(seen)
    assert same(model, plain)


def test_averages_of_another_model_are_refused() -> None:
    averages = ExponentialMovingAverage(network(), 0.9)
    with pytest.raises(ValueError, match="do not belong to this model"):
        averages.load_state_dict({"0.weight": torch.zeros(1)})


def test_early_stopping_ends_training_after_patience() -> None:
    model = network()
    _, trainer = trained(
        model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        val_loader=DataLoader(data(20), 8),
        settings=settings(epochs=50, early_stopping_patience=3),
    )
    assert trainer.epoch == 4


def test_a_plateau_scheduler_sees_the_evaluations() -> None:
    model = network()
    _, trainer = trained(
        model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1e-5),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, threshold=0.1),
        val_loader=DataLoader(data(20), 8),
        settings=settings(epochs=4),
    )
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(1e-6)


def test_logs_say_what_happened_at_each_step(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "log.jsonl"
    losses, _ = trained(
        network(),
        loggers=[JsonlLogger(path)],
        metrics={"accuracy": accuracy},
        val_loader=DataLoader(data(20), 8),
        settings=settings(log_every=4, max_grad_norm=1.0, epochs=2),
    )
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["step"] for r in records] == [4, 8, 9, 12, 16, 18, 18]  # the last two steps are logged, too
    assert set(records[0]) == {"step", "loss", "accuracy", "grad_norm", "lr", "epoch"}
    assert set(records[2]) == {"step", "val_loss", "val_accuracy"}
    assert [(step, values["loss"]) for step, values in losses.records] == [
        (r["step"], r["loss"]) for r in records if "loss" in r
    ]


def test_the_progress_bar_counts_steps(capsys: pytest.CaptureFixture[str]) -> None:
    trained(network(), settings=settings(progress=True, epochs=2, accumulation_steps=2))
    assert "10/10" in capsys.readouterr().err


class Blocks(nn.Module):
    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        blocks = [nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.3)) for _ in range(3)]
        if norm:
            blocks[1].append(nn.BatchNorm1d(6))
        self.layers = nn.ModuleList(blocks)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)  # type: ignore[no-any-return]  # torch types a module's result as Any


def test_gradient_checkpointing_recomputes_and_changes_nothing() -> None:
    plain, checkpointed = Blocks(), Blocks()
    expected, _ = trained(plain)
    keys = list(checkpointed.state_dict())
    counts = [0]

    def count(*_: Any) -> None:
        counts[0] += 1

    checkpointed.layers[0][0].register_forward_hook(count)
    losses, _ = trained(checkpointed, model_settings=ModelSettings(gradient_checkpointing=True))
    assert counts[0] == 18  # nine steps, each computed twice
    assert losses.values == expected.values
    assert same(plain, checkpointed)
    assert list(checkpointed.state_dict()) == keys


def test_gradient_checkpointing_refuses_what_it_would_change() -> None:
    for model, message in ((Blocks(norm=True), "BatchNorm"), (network(), "no nn.ModuleList")):
        with pytest.raises(ValueError, match=message):
            Trainer(model, adam(model), CrossEntropy(), model_settings=ModelSettings(gradient_checkpointing=True), device="cpu")


def test_compilation_keeps_the_keys_of_the_state_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: modes.append(options))
    model = network()
    Trainer(model, adam(model), CrossEntropy(), settings(compile_model=True), device="cpu")
    Trainer(model, adam(model), CrossEntropy(), model_settings=ModelSettings(use_torch_compile=True), device="cpu")
    Trainer(model, adam(model), CrossEntropy(), device="cpu")
    assert modes == [{"mode": "default"}, {"mode": "default"}]


def test_an_iterable_without_a_length_and_max_steps() -> None:
    def endless() -> Iterator[Any]:
        while True:
            yield from DataLoader(data(16), 8)

    _, trainer = trained(network(), loader=endless(), settings=settings(max_steps=7, progress=True))
    assert trainer.step == 7


def test_samples_seen_by_epoch_are_those_of_the_sampler() -> None:
    class Order(Dataset[Any]):
        def __init__(self) -> None:
            self.epochs: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

        def __len__(self) -> int:
            return 8

        def __getitem__(self, i: int) -> Any:
            return data(8)[i]

    dataset = Order()
    trained(network(), loader=DataLoader(dataset, 4), settings=settings(epochs=3))
    assert dataset.epochs == [0, 1, 2]
