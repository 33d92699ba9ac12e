"""A small training program for `torchrun`, as `test_distributed.py` starts it: `STRATEGY FOLDER [STOP_AT]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from perflint_runtime import Callback, CrossEntropy, JsonlLogger, Trainer, TrainingSettings, accuracy
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> Any:
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.head(x)


def tensors() -> TensorDataset:
    """44 samples of four tokens; some tokens do not count, so that the processes' batches weigh differently."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(44, 4, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (44, 4), generator=generator)
    y[::3, 1:] = -100
    return TensorDataset(x, y)


def settings(strategy: str, **changes: Any) -> TrainingSettings:
    return TrainingSettings(
        **{
            "epochs": 2,
            "accumulation_steps": 2,
            "max_grad_norm": 0.5,
            "ema_decay": 0.9,
            "log_every": 1,
            "eval_every": 3,
            "checkpoint_every": 2,
            "progress": False,
            "strategy": strategy,
            **changes,
        }
    )


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, trainer: Trainer) -> None:
        if trainer.step == self.step:
            raise SystemExit(3)


def main() -> None:
    """Train; the main process writes the log, the weights and the averaged evaluation to the folder."""
    strategy, folder = sys.argv[1], Path(sys.argv[2])
    callbacks = [StopAt(int(sys.argv[3]))] if len(sys.argv) > 3 else []
    trainer = Trainer(
        Layers().double(),
        adam,
        CrossEntropy(),
        settings(strategy),
        metrics={"accuracy": accuracy},
        callbacks=callbacks,
        loggers=[JsonlLogger(folder / "log.jsonl")] if int(os.environ.get("RANK", 0)) == 0 else [],
        checkpoints=folder / "checkpoints",
        device="cpu",
    )
    dataset = tensors()
    train_loader = DataLoader(dataset, 4, sampler=DistributedSampler(dataset, shuffle=False))
    val_loader = DataLoader(dataset, 4, sampler=DistributedSampler(dataset, shuffle=False))
    trainer.fit(train_loader, val_loader, resume=True)
    from perflint_runtime.distributed import full_state

    weights = full_state(trainer.module, trainer.optimizer)[0]
    if trainer.processes.is_main:
        torch.save(dict(weights), folder / "weights.pt")
    torch.distributed.destroy_process_group()
    # Python's own exit aborts now and then (pytorch#179291, "terminate called without an active exception"): a thread of
    # gloo asks for the interpreter's lock while that is taken down, and Python 3.11 ends such a thread in C++ frames.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
