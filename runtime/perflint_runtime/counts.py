"""Over how many items a batch's mean loss is: what makes accumulated gradients and reported means exact."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from perflint_runtime.collate import IGNORED_LABEL


class DefaultCount:
    """How many items the mean loss of a batch is over, where the program does not say (`Trainer(count=...)`).

    A dict with integer `labels` counts those that are not -100, since Hugging Face models and `cross_entropy` leave these out;
    a causal language model of transformers, which predicts the next token, those from the second position on. Floating-point
    `labels` count each number, all other batches their samples: the first dimension, in which all their tensors agree.

    `is_decisive` is whether gradients depend on the count: with accumulation and with several processes. Then a batch that
    cannot be counted is refused. Otherwise only reported means over several batches do, and such a batch counts as one item.
    """

    def __init__(self, model: nn.Module, is_decisive: bool) -> None:
        self._shifts = shifts_labels(model)
        self._is_decisive = is_decisive

    def __call__(self, batch: Any) -> Tensor | int:
        """The items of a batch. Reads nothing: labels are counted on their device.

        Raises:
            TypeError: the batch cannot be counted, and the count is decisive.

        """
        is_text = False
        if not isinstance(batch, (tuple, list, Tensor)) and isinstance(batch, Mapping):
            labels = batch.get("labels")
            if isinstance(labels, Tensor) and labels.dim():
                return self._count_labels(labels)
            is_text = "input_ids" in batch and "start_positions" not in batch
        sizes = {tensor.size(0) for tensor in _tensors(batch)}
        if len(sizes) == 1 and not (is_text and self._is_decisive):
            return sizes.pop()
        if not self._is_decisive:
            return 1
        if is_text:
            reason = "it holds input_ids and no labels, so the loss may be a mean over samples or over tokens"
        elif sizes:
            reason = f"its tensors have first dimensions {sorted(sizes)}"
        else:
            reason = "it holds no tensor with a dimension"
        raise TypeError(
            f"cannot tell how many items the mean loss of this {type(batch).__name__} is over: {reason}. Pass count= to the "
            "Trainer, as in count=lambda batch: len(batch['input_ids'])"
        )

    def _count_labels(self, labels: Tensor) -> Tensor | int:
        if labels.is_floating_point() or labels.is_complex():
            return labels.numel()
        if labels.dim() > 1:
            if self._shifts is None and self._is_decisive:
                raise TypeError(
                    "cannot tell whether the model predicts each label at its own position or at the one before, so not how "
                    "many labels the mean loss is over: pass count=lambda batch: (batch['labels'] != -100).sum() to the "
                    "Trainer, or count=lambda batch: (batch['labels'][..., 1:] != -100).sum() if the model shifts them"
                )
            if self._shifts:
                labels = labels[..., 1:]
        return (labels != IGNORED_LABEL).sum()


def shifts_labels(model: nn.Module) -> bool | None:
    """Whether a model that is given `labels` compares them with the predictions one position earlier; None: not known.

    Known are models of transformers whose forward pass calls `ForCausalLMLoss` (transformers/loss/loss_utils.py shifts there),
    and those that have an encoder and a decoder, or tag or fill in tokens: these do not shift.
    """
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "is_encoder_decoder"):
        return None
    loss_name = getattr(getattr(model, "loss_function", None), "__name__", "")
    code = getattr(inspect.unwrap(type(model).forward), "__code__", None)
    if code is not None and "loss_function" in code.co_names and loss_name == "ForCausalLMLoss":
        return True
    name = type(model).__name__
    if config.is_encoder_decoder or "ForTokenClassification" in name or "ForMaskedLM" in name:
        return False
    return None


def predicts_next_token(model: nn.Module) -> bool:
    """Whether a model looks like a causal language model of transformers, by what is known of it or else by its name."""
    if shifts_labels(model):
        return True
    config = getattr(model, "config", None)
    named_so = any(part in type(model).__name__ for part in ("ForCausalLM", "LMHeadModel"))
    return named_so and config is not None and not getattr(config, "is_encoder_decoder", False)


def _tensors(batch: Any) -> list[Tensor]:
    """All tensors with a dimension in a batch, through dicts, lists and tuples."""
    if not isinstance(batch, (list, tuple)):
        batch = list(batch.values()) if isinstance(batch, Mapping) else [batch]
    found: list[Tensor] = []
    for item in batch:
        if isinstance(item, Tensor):
            if item.dim():
                found.append(item)
        elif isinstance(item, (list, tuple, Mapping)):
            found += _tensors(item)
    return found
