"""What the trainer minimises: a function of the model and a batch. This one covers classification."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class CrossEntropy(nn.Module):
    """`loss, logits = CrossEntropy(...)(model, batch)` for `Trainer(loss=...)`: classification.

    A batch is `(inputs, labels)`, and the model is called with the inputs; or a dict with `labels`, and the model is called
    with the rest as keywords, as Hugging Face models want it. Logits are the model's output, its `logits`, or its first
    element: `(batch, classes, ...)`; for dict batches with labels of one dimension less, `(batch, ..., classes)` is accepted,
    too. Labels are integers, `ignore_index` (-100) does not count.

    The class weights travel to the logits' device once. Smoothing and weights are those of `torch.nn.functional.cross_entropy`,
    which also defines the mean: with weights it divides by the weights' sum.

    Raises:
        ValueError: `label_smoothing` is outside 0 to 1.
        TypeError: (when called) the batch has neither form, or the output no logits.

    """

    class_weights: Tensor | None

    def __init__(
        self,
        *,
        label_smoothing: float = 0.0,
        class_weights: Sequence[float] | Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing is {label_smoothing}; give a number from 0 to 1")
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index
        weights = None if class_weights is None else torch.as_tensor(class_weights, dtype=torch.float32)
        self.register_buffer("class_weights", weights)

    def forward(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """The mean loss (0-d) and the logits."""
        if isinstance(batch, Mapping) and "labels" in batch:
            labels = batch["labels"]
            output = model(**{key: value for key, value in batch.items() if key != "labels"})
        elif isinstance(batch, (tuple, list)) and len(batch) == 2:
            inputs, labels = batch
            output = model(inputs)
        else:
            raise TypeError(f"CrossEntropy takes (inputs, labels) or a dict with `labels`, not {type(batch).__name__}")
        logits = _logits(output)
        if self.class_weights is not None and self.class_weights.device != logits.device:
            self.class_weights = self.class_weights.to(logits.device, non_blocking=True)
        by_class = logits.movedim(-1, 1) if logits.dim() > 2 and logits.shape[:-1] == labels.shape else logits
        loss = functional.cross_entropy(
            by_class,
            labels,
            weight=self.class_weights,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )
        return loss, logits


def accuracy(logits: Tensor, batch: Any) -> tuple[Tensor, Tensor]:
    """A metric for `Trainer(metrics={"accuracy": accuracy})`: right predictions and predictions, both on the device.

    Logits are `(batch, classes)` or `(batch, ..., classes)`; labels below 0 (the ignored ones) do not count.
    """
    labels = batch["labels"] if isinstance(batch, Mapping) else batch[1]
    right = (logits.argmax(-1) == labels) & (labels >= 0)
    return right.sum(), (labels >= 0).sum()


def _logits(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    found = getattr(output, "logits", None)
    if found is None and isinstance(output, (tuple, list)) and output:
        found = output[0]
    if not isinstance(found, Tensor):
        raise TypeError(f"the model returned {type(output).__name__}; CrossEntropy needs a tensor, `.logits`, or a tuple of it")
    return found
