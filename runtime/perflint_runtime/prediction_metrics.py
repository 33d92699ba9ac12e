"""Metrics that need all predictions of an evaluation: F1, AUC and the like, which are no means over batches."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from perflint_runtime.losses import labels_of, logits_of

_NO_MEANS = ("f1", "auc", "precision", "recall", "mcc", "kappa", "bleu", "rouge", "perplexity")


class PredictionMetrics:
    """Objects with `update(logits, labels)`, `compute()` and `reset()`, as torchmetrics has them, over one evaluation."""

    def __init__(self, metrics: Mapping[str, Any], device: torch.device) -> None:
        self._metrics = {name: metric.to(device) if hasattr(metric, "to") else metric for name, metric in metrics.items()}

    def reset(self) -> None:
        """Begin an evaluation."""
        for metric in self._metrics.values():
            metric.reset()

    def update(self, outputs: Any, batch: Any) -> None:
        """Take in a batch.

        Raises:
            TypeError: the outputs are no logits, or the batch has no labels.

        """
        for metric in self._metrics.values():
            metric.update(logits_of(outputs), labels_of(batch))

    def compute(self) -> dict[str, float]:
        """The values by name; several of one object by `name_key`. Waits for the device.

        Raises:
            ValueError: a value is not one number, as a confusion matrix.

        """
        values: dict[str, float] = {}
        for name, metric in self._metrics.items():
            value = metric.compute()
            parts = {f"{name}_{key}": part for key, part in value.items()} if isinstance(value, Mapping) else {name: value}
            for key, part in parts.items():
                if getattr(part, "ndim", 0) and len(part := part.reshape(-1)) != 1:
                    raise ValueError(
                        f"metric `{key}` gives {len(part)} values, and a record holds one: average over the classes, or "
                        "compute it after training"
                    )
                values[key] = float(part)
        return values


def is_prediction_metric(metric: Any) -> bool:
    """Whether it is such an object."""
    return all(callable(getattr(metric, name, None)) for name in ("update", "compute", "reset"))


def warn_of_mean(name: str) -> None:
    """Say that a function's values are averaged, for a metric whose name says that it is no mean."""
    if any(part in name.lower() for part in _NO_MEANS):
        warnings.warn(
            f"metric `{name}` is a function, so it is averaged over batches, which is not its value over all samples: pass an "
            "object with update, compute and reset, such as torchmetrics has",
            stacklevel=4,
        )
