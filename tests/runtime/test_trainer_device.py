"""Training on a device without values: whatever would read one raises, so a step that runs here waits for no card.

Meta tensors have gradients, which fake CUDA tensors do not without CUDA; those stand in where there are none. Mixed
precision is checked by counted reads in test_trainer.py; fp16's scaler reads once per step, which is said in its docstring.
"""

from __future__ import annotations

import contextlib
from typing import Any

import perflint_runtime.scalars as scalars
import pytest
import torch
from perflint_runtime import CrossEntropy, Trainer, TrainingSettings, accuracy, make_optimizer
from perflint_runtime.distributed import Processes
from perflint_runtime.windows import Window, shares
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils.data import DataLoader, TensorDataset


class Transfer:
    """A copy to the host that has always arrived."""

    def __init__(self, packed: Tensor) -> None:
        assert packed.device.type == "meta"
        self.num = len(packed)

    def arrived(self) -> bool:
        return True

    def numbers(self) -> list[float]:
        return [1.0] * self.num


@pytest.mark.parametrize("accumulation_steps", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_step_reads_a_value(precision: Any, accumulation_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalars, "_Transfer", Transfer)
    monkeypatch.setattr(torch, "autocast", lambda *_: contextlib.nullcontext())  # meta has none
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
    trainer = Trainer(
        model,
        lambda model: make_optimizer(model, lr=0.1, precision=precision),
        CrossEntropy(label_smoothing=0.1, class_weights=[1.0, 2.0, 1.0]),
        TrainingSettings(
            epochs=2,
            precision=precision,
            accumulation_steps=accumulation_steps,
            max_grad_norm=1.0,
            ema_decay=0.9,
            log_every=2,
        ),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
        metrics={"accuracy": accuracy},
        device="meta",
    )
    trainer.fit(DataLoader(TensorDataset(torch.randn(18, 6), torch.zeros(18, dtype=torch.int64)), 4))
    assert trainer.step == 10 // accumulation_steps + (0 if accumulation_steps == 1 else 1)
    assert next(model.parameters()).is_meta


def test_a_read_would_raise() -> None:
    model = nn.Linear(6, 3, device="meta")
    loss = lambda model, batch: CrossEntropy()(model, batch)[0].item()
    trainer = Trainer(model, make_optimizer(model, lr=0.1), loss, TrainingSettings(progress=False), device="meta")
    with pytest.raises(RuntimeError, match="meta"):
        trainer.fit([(torch.randn(4, 6), torch.zeros(4, dtype=torch.int64))])


@pytest.mark.parametrize("counts", [[4, 4, 2], [3, 3, 3], "tensors", "mixed"])
def test_windows_and_shares_read_nothing_on_a_card(counts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: self)
    with FakeTensorMode():
        card = torch.device("cuda:0")
        if isinstance(counts, str):
            last = torch.ones((), device=card) if counts == "tensors" else 3
            counts = [torch.ones((), device=card, dtype=torch.int64), torch.ones((), device=card), last]
        window = Window()
        for count in counts:
            loss = torch.ones((), device=card, dtype=torch.bfloat16)
            window.add(loss, count)
            window.add_metric("mean", loss, count)
            window.add_metric("pair", (loss, 3), count)
        means = window.means(Processes())
        assert {mean.device for mean in means.values()} == {card}
        assert {mean.dtype for mean in means.values()} == {torch.float64}
        assert window.losses().shape == (3,)
        parts = shares(counts, Processes(), card)
        assert parts is not None
        assert len(parts) == 3
        with pytest.raises(DataDependentOutputException):
            means["loss"].item()
