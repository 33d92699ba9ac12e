"""Means and metrics over a loader, in eval mode."""

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from perflint_runtime.distributed import is_sharded
from perflint_runtime.feed import on_device
from perflint_runtime.state import inference
from perflint_runtime.windows import Window

if TYPE_CHECKING:
    from perflint_runtime.trainer import Trainer


def evaluate(trainer: "Trainer", loader: Iterable[Any]) -> dict[str, float]:
    """What `Trainer.evaluate` gives.

    Raises:
        ValueError: the loader is empty.

    """
    window = Window()
    trainer.prediction_metrics.reset()
    averaged = contextlib.nullcontext() if trainer.ema is None else trainer.ema.applied()
    # FSDP2 gathers and frees its shards by hooks that inference mode does not let through
    mode = torch.inference_mode if trainer.settings.inference_mode and not is_sharded(trainer.module) else torch.no_grad
    with averaged, inference(trainer.module, mode="no_grad"):
        for batch in on_device(loader, trainer.device):
            # not around the loader: a dataset may keep what it loads, and inference tensors cannot be trained on
            with mode():
                loss, outputs = trainer.forward(trainer.module, batch)
                trainer.record(window, loss, trainer.count(batch), outputs, batch)
                trainer.prediction_metrics.update(outputs, batch)
        if not len(window):
            raise ValueError("the evaluation loader gave no batch")
        means = window.means(trainer.processes)
        values = torch.stack(list(means.values())).tolist()  # the CPU waits for the GPU here, once per evaluation
    results = dict(zip(means, values, strict=True)) | trainer.prediction_metrics.compute()
    return {f"val_{name}": value for name, value in results.items()}
