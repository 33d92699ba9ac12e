"""Other usual names for keys of a configuration file: those of Hugging Face's `TrainingArguments` and of common programs."""

from collections.abc import Mapping
from typing import Any

_OF_DATA = ("batch_size", "eval_batch_size", "max_length", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
_NAMES = {
    **{f"training.{name}": f"data.{name}" for name in (*_OF_DATA, "drop_last")},
    "data.train_batch_size": "data.batch_size",
    "training.train_batch_size": "data.batch_size",
    "training.per_device_train_batch_size": "data.batch_size",
    "training.val_batch_size": "data.eval_batch_size",
    "training.per_device_eval_batch_size": "data.eval_batch_size",
    "training.dataloader_num_workers": "data.num_workers",
    "training.max_seq_length": "data.max_length",
    "data.max_seq_length": "data.max_length",
    "model.max_length": "data.max_length",
    "training.gradient_accumulation_steps": "training.accumulation_steps",
    "training.num_epochs": "training.epochs",
    "training.num_train_epochs": "training.epochs",
    "training.lr": "training.learning_rate",
    "training.gradient_clip": "training.max_grad_norm",
    "training.patience": "training.early_stopping_patience",
    "training.logging_steps": "training.log_every",
    "training.eval_steps": "training.eval_every",
    "training.save_steps": "training.checkpoint_every",
    "training.save_total_limit": "training.keep_checkpoints",
    "training.load_best_model_at_end": "training.restore_best",
    "training.enable_memory_management": "training.memory_management",
    "training.gradient_checkpointing": "model.gradient_checkpointing",
    "training.use_gradient_checkpointing": "model.gradient_checkpointing",
    "model.use_gradient_checkpointing": "model.gradient_checkpointing",
    "training.use_torch_compile": "model.use_torch_compile",
    "training.torch_compile": "model.use_torch_compile",
    "training.torch_compile_mode": "model.torch_compile_mode",
    "model.compile_model": "model.use_torch_compile",
    "model.model_name": "model.name",
    "model.label_smoothing": "training.label_smoothing",
    "model.class_weights": "training.class_weights",
}
FLAGS: Mapping[str, tuple[str, Mapping[bool, Any]]] = {
    "training.fp16": ("training.precision", {True: "fp16", False: "fp32"}),
    "training.bf16": ("training.precision", {True: "bf16", False: "fp32"}),
    "training.use_amp": ("training.precision", {True: "fp16", False: "fp32"}),
}
"""Switches whose two values stand for two values of another key. `use_amp` is torch's older AMP: fp16 with a scaler."""


def canonical(dotted: str) -> str:
    """The name here for `section.key`."""
    return _NAMES.get(dotted, dotted)


def other_names(section: str) -> list[str]:
    """All other names with this section, as `section.key`."""
    return [name for name in (*_NAMES, *FLAGS) if name.startswith(f"{section}.")]
