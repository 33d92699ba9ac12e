"""What a user gets wrong is one clear line, before training where that is possible; what is odd but right just works."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from perflint_runtime import (
    BatchedTensorLoader,
    Callback,
    CrossEntropy,
    ModelSettings,
    NonFiniteError,
    Trainer,
    TrainingSettings,
    load_settings,
    make_loader,
)
from perflint_runtime.windows import Window
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset

X = torch.randn(36, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(36) % 3


def trainer_of(model: nn.Module | None = None, **options: Any) -> Trainer:
    model = nn.Linear(6, 3) if model is None else model
    optimizer = options.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1)
    settings = TrainingSettings(**{"progress": False, "log_every": 2, **options.pop("settings", {})})
    return Trainer(model, optimizer, options.pop("loss", None) or CrossEntropy(), settings, device="cpu", **options)


def loader() -> BatchedTensorLoader:
    return BatchedTensorLoader(X, Y, batch_size=8)


def losses(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: trainer_of(loss=losses).fit(loader()), r"the loss has the shape \(8,\): return the mean"),
        (lambda: trainer_of(loss=lambda m, b: losses(m, b).mean()[None]).fit(loader()), r"the loss has the shape \(1,\)"),
        (lambda: trainer_of(loss=lambda m, b: 1.0).fit(loader()), "the loss function returned float"),
        (lambda: trainer_of(loss=lambda m, b: {"loss": losses(m, b)}).fit(loader()), "the loss function returned dict"),
        (lambda: trainer_of(loss=nn.MSELoss()), r"MSELoss takes outputs and targets.*lambda model, batch: criterion"),
        (lambda: trainer_of(settings={"early_stopping_patience": 1}).fit(loader()), "pass a val_loader"),
        (lambda: trainer_of(scheduler=lr_scheduler.ReduceLROnPlateau).fit(loader()), "pass a val_loader"),
        (
            lambda: trainer_of(
                settings={"early_stopping_patience": 1, "early_stopping_metric": "val_f1", "early_stopping_mode": "max"}
            ),
            "`val_f1` is none of val_loss$",
        ),
        (
            lambda: trainer_of(optimizer=torch.optim.SGD(nn.Linear(6, 3).parameters(), lr=0.1)),
            "the optimizer holds none of the model's parameters",
        ),
        (
            lambda: trainer_of(scheduler=lr_scheduler.StepLR(torch.optim.SGD(nn.Linear(6, 3).parameters(), lr=0.1), 1)),
            "the scheduler is of another optimizer",
        ),
        (lambda: TrainingSettings(precision="bfloat16"), "`precision` is 'bfloat16'; it has to be one of fp32, bf16, fp16"),  # type: ignore[arg-type]  # that is the mistake
        (lambda: TrainingSettings(strategy="dp"), "`strategy` is 'dp'"),  # type: ignore[arg-type]  # as above
        (lambda: ModelSettings(torch_compile_mode="fast"), "`torch_compile_mode` is 'fast'"),  # type: ignore[arg-type]  # as above
        (lambda: trainer_of(settings={"strategy": "fsdp2"}), "torchrun"),
        (lambda: trainer_of(settings={"strategy": "ddp"}), "torchrun"),
        (lambda: trainer_of().fit(loader(), resume=True), "needs a folder"),
        (lambda: trainer_of().fit([]), "the training loader gave no batch"),
        (lambda: trainer_of().fit(loader(), []), "the evaluation loader gave no batch"),
    ],
)
def test_mistakes_are_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_a_fused_optimizer_is_refused_with_fp16() -> None:
    model = nn.Linear(6, 3)
    with pytest.raises(ValueError, match="fused"):
        trainer_of(model, optimizer=torch.optim.Adam(model.parameters(), fused=True), settings={"precision": "fp16"})


def test_a_nan_after_the_last_log_step_is_found() -> None:
    """Without checkpoints, too: the steps since the last record are logged at the end."""
    with pytest.raises(NonFiniteError, match="step 1"):
        trainer_of(loss=lambda m, b: losses(m, b).mean() * math.nan, settings={"log_every": 50}).fit(loader())


def test_a_short_training_logs_its_loss() -> None:
    steps: list[int] = []

    class Log(Callback):
        def on_log(self, trainer: Trainer, step: int, values: Any) -> None:
            steps.append(step)

    trainer_of(callbacks=[Log()], settings={"log_every": 50}).fit(loader())
    assert steps == [5]


@pytest.mark.parametrize("accumulation_steps", [1, 2])
def test_a_batch_without_a_label_that_counts_changes_nothing(accumulation_steps: int) -> None:
    """Its mean loss is nan, a mean of nothing; its gradient is zero."""
    model = nn.Linear(6, 3)
    seen: list[float] = []

    class Log(Callback):
        def on_log(self, trainer: Trainer, step: int, values: Any) -> None:
            seen.append(values["loss"])

    nothing = (X[:8], torch.full((8,), -100))
    batches = [(X[:8], Y[:8]), nothing]
    expected = functional.cross_entropy(model(X[:8]), Y[:8]).item()
    trainer = trainer_of(model, callbacks=[Log()], settings={"log_every": 2, "accumulation_steps": accumulation_steps})
    assert trainer.evaluate([*batches, nothing])["val_loss"] == pytest.approx(expected)
    trainer.fit(batches)
    assert seen == pytest.approx([expected])
    assert all(p.isfinite().all() for p in model.parameters())


def test_metrics_may_be_numbers_of_the_host() -> None:
    trainer = trainer_of(metrics={"half": lambda outputs, batch: 0.5, "pair": lambda outputs, batch: (3, 4)})
    values = trainer.evaluate(loader())
    assert (values["val_half"], values["val_pair"]) == (0.5, 0.75)


class Keeping(Dataset[Any]):
    """Keeps what it computed, as many datasets do."""

    def __init__(self) -> None:
        self.kept: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        if i not in self.kept:
            self.kept[i] = X[i : i + 8] * 2
        return self.kept[i], Y[:8]


def test_training_after_an_evaluation_finds_no_inference_tensors() -> None:
    batches = DataLoader(Keeping(), batch_size=None, collate_fn=list)
    trainer = trainer_of()
    trainer.evaluate(batches)
    trainer.fit(batches)


def test_class_weights_may_first_be_used_in_an_evaluation() -> None:
    loss = CrossEntropy(class_weights=[1.0, 2.0, 1.0])
    model = nn.Linear(6, 3, device="meta")  # in place of a card: the weights have to be copied there
    batch = (X.to("meta"), Y.to("meta"))
    with torch.inference_mode():
        loss(model, batch)
    loss(model, batch)[0].backward()


def test_a_loss_that_is_overwritten_later_keeps_its_value() -> None:
    """As a compiled model's is, by CUDA graphs: in training and in evaluation."""
    buffer = torch.zeros(())

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        value = losses(model, batch).mean()
        buffer.copy_(value.detach())
        value.data = buffer
        return value

    model = nn.Linear(6, 3)
    expected = trainer_of(model).evaluate(loader())
    assert trainer_of(model, loss=loss).evaluate(loader()) == pytest.approx(expected)


def test_callbacks_that_are_added_later_are_called() -> None:
    steps: list[int] = []
    logs: list[int] = []

    class Late(Callback):
        def on_step(self, trainer: Trainer) -> None:
            steps.append(trainer.step)

        def on_log(self, trainer: Trainer, step: int, values: Any) -> None:
            logs.append(step)

    trainer = trainer_of()
    trainer.callbacks.append(Late())
    trainer.fit(loader())
    assert (steps, logs) == ([1, 2, 3, 4, 5], [2, 4, 5])


def test_layers_that_are_unfrozen_later_are_clipped() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    norms: list[float] = []

    class Unfreeze(Callback):
        def on_step(self, trainer: Trainer) -> None:
            model[0].requires_grad_(True)

    class Sgd(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            norms.append(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]).item())

    trainer_of(model, optimizer=Sgd(model.parameters(), lr=0.1), callbacks=[Unfreeze()], settings={"max_grad_norm": 1e-3}).fit(
        loader()
    )
    assert norms == pytest.approx([1e-3] * 5, rel=1e-2)


def test_max_steps_below_what_was_done_ends_at_once() -> None:
    trainer = trainer_of(settings={"max_steps": 3})
    trainer.step = 5
    trainer.fit(loader())
    assert trainer.step == 5


def test_records_come_in_the_order_of_their_steps() -> None:
    order: list[tuple[str, int]] = []

    class Order(Callback):
        def on_log(self, trainer: Trainer, step: int, values: Any) -> None:
            order.append(("log", step))

        def on_evaluate(self, trainer: Trainer, values: Any) -> None:
            order.append(("evaluate", trainer.step))

    trainer_of(callbacks=[Order()], settings={"eval_every": 2}).fit(loader(), loader())
    assert order == [("log", 2), ("evaluate", 2), ("log", 4), ("evaluate", 4), ("log", 5), ("evaluate", 5)]


def test_settings_go_into_make_loader_as_they_are() -> None:
    settings = load_settings({"data": {"num_workers": 0, "drop_last": True}}, {"data.batch_size": 8})
    batches = make_loader(list(range(36)), shuffle=True, seed=0, **settings.data.loader_options())
    assert [len(batch) for batch in batches] == [8] * 4  # type: ignore[arg-type]  # batches are tensors here


def test_a_window_goes_to_the_host_and_back() -> None:
    window, again = Window(), Window()
    window.add(torch.tensor(1.0), 2)
    window.add_metric("a", (torch.tensor(3), 4), 2)
    again.load_state_dict(window.state_dict(), torch.device("cpu"))
    assert again.state_dict() == window.state_dict()
