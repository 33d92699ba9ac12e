"""What the trainer minimises: a function of the model and a batch. This one covers classification."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from perflint_runtime.collate import IGNORED_LABEL
from perflint_runtime.counts import predicts_next_token


class CrossEntropy:
    """`loss, logits = CrossEntropy(...)(model, batch)` for `Trainer(loss=...)`: classification.

    A batch is `(inputs, labels)`, and the model is called with the inputs; or a dict with `labels`, and the model is called
    with the rest as keywords, as Hugging Face models want it. Logits are the model's output, its `logits`, or its first
    element: `(batch, classes, ...)`; for dict batches with labels of one dimension less, `(batch, ..., classes)` is accepted,
    too. Labels are integers, of which `ignore_index` (-100) does not count, or probabilities of the logits' shape.

    A causal language model predicts the next token: `shift_labels=True` compares its prediction at each position with the label
    of the next one, as Hugging Face models do with `labels` that are a copy of `input_ids`, and gives the logits of all but the
    last position; `shift_labels=False` is for labels that are moved already. With such a model of transformers it has to be
    said: without it, the model would learn to repeat its input.

    The class weights (of the logits' dtype) travel to their device once. Smoothing, weights and the mean over the weights'
    sum are those of `torch.nn.functional.cross_entropy`.

    Raises:
        ValueError: `label_smoothing` is outside 0 to 1; (when called) `shift_labels` is not said for a causal language model.
        TypeError: (when called) the batch has neither form, or the output no logits.

    """

    def __init__(
        self,
        *,
        label_smoothing: float = 0.0,
        class_weights: Sequence[float] | Tensor | None = None,
        ignore_index: int = IGNORED_LABEL,
        shift_labels: bool | None = None,
    ) -> None:
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing is {label_smoothing}; give a number from 0 to 1")
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index
        self.class_weights = None if class_weights is None else torch.as_tensor(class_weights)
        self.shift_labels = shift_labels
        self._weights: dict[torch.device, Tensor] = {}
        self._seen_model: int | None = None

    def __call__(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """The mean loss (0-d) and the logits."""
        if self.shift_labels is None and self._seen_model != id(model):
            _refuse_next_token_model(model)
            self._seen_model = id(model)
        labels = self._labels(batch)
        if isinstance(batch, Mapping):
            output = model(**{key: value for key, value in batch.items() if key != "labels"})
        else:
            output = model(batch[0])
        logits = logits_of(output)
        if self.shift_labels:
            logits = logits[..., :-1, :]
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
        labels = self._labels(batch)
        if labels.is_floating_point():
            return labels.new_full((), labels.numel() / labels.shape[1])  # torch divides by the samples, also with weights
        counted = labels != self.ignore_index
        weights = self._weights_on(labels.device)
        if weights is None:
            return counted.sum()
        return (weights.take(torch.where(counted, labels, 0)) * counted).sum()

    def _labels(self, batch: Any) -> Tensor:
        labels = labels_of(batch)
        return labels[..., 1:] if self.shift_labels else labels

    def _weights_on(self, device: torch.device) -> Tensor | None:
        if self.class_weights is not None and device not in self._weights:
            with torch.inference_mode(False):  # an evaluation may come first, and training keeps them for backward
                self._weights[device] = self.class_weights.to(device, non_blocking=True)
        return self._weights.get(device)


def accuracy(outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """A metric for `Trainer(metrics={"accuracy": accuracy})`: right predictions and predictions, both on the device.

    Outputs are logits, have `logits`, or begin with them: `(batch, ..., classes)` or `(batch, classes, ...)`. Integer labels
    below 0 (the ignored ones) do not count; of labels that are probabilities, the class of the largest counts. Logits of one
    position less than labels (`CrossEntropy(shift_labels=True)`) belong to the labels from the second position on.

    Raises:
        ValueError: the shapes of logits and labels do not fit.

    """
    logits, labels = logits_of(outputs), labels_of(batch)
    if labels.is_floating_point() and labels.shape == logits.shape:
        labels = labels.argmax(1)
    if logits.shape[:-1] == labels.shape:
        predictions = logits.argmax(-1)
    elif logits.dim() > 1 and logits.shape[:1] + logits.shape[2:] == labels.shape:
        predictions = logits.argmax(1)
    elif labels.dim() > 1 and logits.shape[:-1] == labels[..., 1:].shape:
        predictions, labels = logits.argmax(-1), labels[..., 1:]
    else:
        raise ValueError(f"accuracy: logits of shape {tuple(logits.shape)} do not fit labels of shape {tuple(labels.shape)}")
    right = (predictions == labels) & (labels >= 0)
    return right.sum(), (labels >= 0).sum()


def balanced_class_weights(labels: Any, num_classes: int) -> Tensor:
    """Weights with which each class counts alike, for `CrossEntropy(class_weights=...)`: samples / (classes x its samples).

    The same as scikit-learn's `compute_class_weight("balanced")`. `labels` are the training set's, as integers in a list, an
    array or a tensor; negative ones (the ignored) are left out. Returns `(num_classes,)`, float32, on the CPU.

    Raises:
        ValueError: a label is not below `num_classes`, or a class has no sample, so that it has no weight.

    """
    flat = torch.as_tensor(labels).reshape(-1).cpu()
    counts = torch.bincount(flat[flat >= 0], minlength=num_classes)
    if len(counts) > num_classes:
        raise ValueError(f"there is a label {len(counts) - 1}, but num_classes is {num_classes}")
    if missing := (counts == 0).nonzero().flatten().tolist():
        raise ValueError(f"no sample has the label {missing[0]}: there is no weight with which it would count like the others")
    return (counts.sum() / (num_classes * counts)).float()


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


def _refuse_next_token_model(model: nn.Module) -> None:
    inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    if predicts_next_token(inner):
        raise ValueError(
            f"{type(inner).__name__} predicts the next token, and CrossEntropy compares each prediction with the label of its "
            "own position: pass CrossEntropy(shift_labels=True), or shift_labels=False if the labels are moved already; or "
            "take the model's own loss, lambda model, batch: model(**batch).loss"
        )


def labels_of(batch: Any) -> Tensor:
    """The labels of a batch in one of the two forms that `CrossEntropy` takes.

    Raises:
        TypeError: it has neither form.

    """
    if isinstance(batch, Mapping) and "labels" in batch:
        labels: Tensor = batch["labels"]
    elif isinstance(batch, (tuple, list)) and len(batch) == 2:
        labels = batch[1]
    else:
        kind = f"{type(batch).__name__} of {len(batch)}" if isinstance(batch, (tuple, list)) else type(batch).__name__
        raise TypeError(f"expected a batch of (inputs, labels), or a dict with `labels`, not a {kind}")
    return labels


def logits_of(output: Any) -> Tensor:
    """The logits in what a model returned: itself, its `logits`, or its first element.

    Raises:
        TypeError: there are none.

    """
    if isinstance(output, Tensor):
        return output
    found = getattr(output, "logits", None)
    if found is None and isinstance(output, (tuple, list)) and output:
        found = output[0]
    if not isinstance(found, Tensor):
        raise TypeError(
            f"the model returned {type(output).__name__}; expected a tensor, `.logits`, or a tuple that begins with it"
        )
    return found
