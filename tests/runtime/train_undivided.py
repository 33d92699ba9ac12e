"""Programs that go wrong under `torchrun`, as `test_distributed.py` starts them: `FOLDER`."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from perflint_runtime import BatchedTensorLoader, Trainer, TrainingSettings, make_loader
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

X, Y = torch.arange(64.0)[:, None].repeat(1, 6), torch.arange(64) % 3
RANK = int(os.environ.get("RANK", 0))


class Two(nn.Module):
    """Has a layer that no loss depends on, if it is told so."""

    def __init__(self, leaves_one_out: bool) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 3), nn.Linear(6, 3)
        self.leaves_one_out = leaves_one_out

    def forward(self, x: Tensor) -> Any:
        return self.a(x) if self.leaves_one_out else self.a(x) + self.b(x)


def seeded() -> Any:
    return make_loader(TensorDataset(X, Y), 8, shuffle=True, seed=0)


def batches(num: int) -> list[Any]:
    return list(DataLoader(TensorDataset(X[RANK::2], Y[RANK::2]), 4))[:num]


LOADERS: dict[str, Callable[[], Any]] = {
    "seeded": seeded,
    "scheduled": seeded,
    "unused": seeded,
    "plain": lambda: DataLoader(TensorDataset(X, Y), 8),
    "tensors": lambda: BatchedTensorLoader(X, Y, batch_size=8, shuffle=True),
    "by hand": lambda: DataLoader(TensorDataset(X[RANK::2], Y[RANK::2]), 8, shuffle=True),
    "same": lambda: list(DataLoader(TensorDataset(X, Y), 8)),
    "uneven": lambda: batches(8 - RANK),
    "ragged": lambda: itertools.chain(batches(8 - RANK)),
}


def outcome(mode: str) -> dict[str, Any]:
    """The samples that this process saw, and the error."""
    seen: list[float] = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        seen.extend(batch[0][:, 0].tolist())
        return functional.cross_entropy(model(batch[0]), batch[1])

    trainer = Trainer(
        Two(leaves_one_out=mode == "unused"),
        lambda model: torch.optim.SGD(model.parameters(), lr=1e-3),
        loss,
        TrainingSettings(progress=False),
        scheduler=(lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 5)) if mode == "scheduled" else None,
        ddp_options={"find_unused_parameters": True},
        device="cpu",
    )
    try:
        trainer.fit(LOADERS[mode]())
    except ValueError as error:
        return {"seen": seen, "error": str(error)}
    return {"seen": seen, "error": ""}


def main() -> None:
    """Train in all ways, and write what came of it to the folder."""
    found = {mode: outcome(mode) for mode in LOADERS}
    (Path(sys.argv[1]) / f"{RANK}.json").write_text(json.dumps(found))
    torch.distributed.barrier()
    os._exit(0)  # see train_distributed.py


if __name__ == "__main__":
    main()
