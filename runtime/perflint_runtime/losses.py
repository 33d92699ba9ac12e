"""What the trainer minimises: a function of the model and a batch. This one covers classification."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class CrossEntropy:
    """`loss, logits = CrossEntropy(...)(model, batch)` for `Trainer(loss=...)`: classification.

    A batch is `(inputs, labels)`, and the model is called with the inputs; or a dict with `labels`, and the model is called
    with the rest as keywords, as Hugging Face models want it. Logits are the model's output, its `logits`, or its first
    element: `(batch, classes, ...)`; for dict batches with labels of one dimension less, `(batch, ..., classes)` is accepted,
    too. Labels are integers, `ignore_index` (-100) does not count.

    The class weights (of the logits' dtype) travel to their device once. Smoothing, weights and the mean over the weights'
    sum are those of `torch.nn.functional.cross_entropy`.

    Raises:
        ValueError: `label_smoothing` is outside 0 to 1.
        TypeError: (when called) the batch has neither form, or the output no logits.

    """

    def __init__(
        self,
        *,
        label_smoothing: float = 0.0,
        class_weights: Sequence[float] | Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing is {label_smoothing}; give a number from 0 to 1")
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index
        self.class_weights = None if class_weights is None else torch.as_tensor(class_weights)
        self._weights: dict[torch.device, Tensor] = {}

    def __call__(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """The mean loss (0-d) and the logits."""
        labels = _labels(batch)
        if isinstance(batch, Mapping):
            output = model(**{key: value for key, value in batch.items() if key != "labels"})
        else:
            output = model(batch[0])
        logits = _logits(output)
        by_class = logits.movedim(-1, 1) if logits.dim() > 2 and logits.shape[:-1] == labels.shape else logits
        loss = functional.cross_entropy(
            by_class,
            labels,
            weight=self._weights_on(logits.device),
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )
        return loss, logits

    def count(self, batch: Any) -> Tensor:
        """What the batch's mean divides by: the labels that count, or the sum of their weights. 0-d, where the labels are."""
        labels = _labels(batch)
        counted = labels != self.ignore_index
        weights = self._weights_on(labels.device)
        if weights is None:
            return counted.sum()
        return (weights.take(torch.where(counted, labels, 0)) * counted).sum()

    def _weights_on(self, device: torch.device) -> Tensor | None:
        if self.class_weights is not None and device not in self._weights:
            with torch.inference_mode(False):  # an evaluation may come first, and training keeps them for backward
                self._weights[device] = self.class_weights.to(device, non_blocking=True)
        return self._weights.get(device)


def accuracy(logits: Tensor, batch: Any) -> tuple[Tensor, Tensor]:
    """A metric for `Trainer(metrics={"accuracy": accuracy})`: right predictions and predictions, both on the device.

    Logits are `(batch, classes)` or `(batch, ..., classes)`; labels below 0 (the ignored ones) do not count.
    """
    labels = _labels(batch)
    right = (logits.argmax(-1) == labels) & (labels >= 0)
    return right.sum(), (labels >= 0).sum()


def loss_and_outputs(result: Any) -> tuple[Tensor, Any]:
    """What a loss function returned, as a pair: the loss, and outputs or None.

    Raises:
        TypeError: the loss is no tensor.
        ValueError: the loss is not one number.

    """
    loss, outputs = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(loss, Tensor):
        raise TypeError(f"the loss function returned {type(loss).__name__}, not the loss as a tensor, or (loss, outputs)")
    if loss.dim():
        raise ValueError(f"the loss has the shape {tuple(loss.shape)}: return the mean over the batch, loss.mean()")
    return loss, outputs


def refuse_criterion(loss: Any) -> None:
    """Say how a criterion of torch is turned into a loss of model and batch.

    Raises:
        TypeError: the loss is a criterion.

    """
    if isinstance(loss, nn.modules.loss._Loss):
        name = type(loss).__name__
        raise TypeError(
            f"{name} takes outputs and targets, but the trainer calls loss(model, batch): pass CrossEntropy() from here, or "
            "lambda model, batch: criterion(model(batch[0]), batch[1])"
        )


def _labels(batch: Any) -> Tensor:
    if isinstance(batch, Mapping) and "labels" in batch:
        labels: Tensor = batch["labels"]
    elif isinstance(batch, (tuple, list)) and len(batch) == 2:
        labels = batch[1]
    else:
        raise TypeError(f"expected a batch of (inputs, labels), or a dict with `labels`, not {type(batch).__name__}")
    return labels


def _logits(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    found = getattr(output, "logits", None)
    if found is None and isinstance(output, (tuple, list)) and output:
        found = output[0]
    if not isinstance(found, Tensor):
        raise TypeError(f"the model returned {type(output).__name__}; CrossEntropy needs a tensor, `.logits`, or a tuple of it")
    return found
