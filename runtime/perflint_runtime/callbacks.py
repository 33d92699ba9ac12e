"""Where a program hooks into the trainer."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflint_runtime.trainer import Trainer


class Callback:
    """Override what you need. A hook that reads a device value makes the CPU wait: do it in `on_log`, whose values are read.

    A callback with `state_dict` and `load_state_dict` (tensors, numbers, strings, lists and dicts) is part of the checkpoint.
    """

    def before_step(self, trainer: "Trainer") -> None:
        """Before each optimizer step: the gradients are there, of the whole window, unscaled and clipped."""

    def on_step(self, trainer: "Trainer") -> None:
        """After each optimizer step (`trainer.step` is its number). The gradients are gone: see `before_step`."""

    def on_log(self, trainer: "Trainer", step: int, values: Mapping[str, float]) -> None:
        """After the values of `step` have arrived on the host, one step late at the earliest."""

    def on_evaluate(self, trainer: "Trainer", values: Mapping[str, float]) -> None:
        """After an evaluation during training."""

    def on_epoch_end(self, trainer: "Trainer") -> None:
        """After the last step of an epoch and its evaluation; `trainer.epoch` is its number, from 0."""

    def on_checkpoint(self, trainer: "Trainer", path: Path) -> None:
        """After a checkpoint is complete on the disk (main process only)."""
