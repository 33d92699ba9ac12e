"""Where a program hooks into the trainer, and the one decision that needs a memory: when to stop early."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from perflint_runtime.trainer import Trainer


class Callback:
    """Override what you need. A hook that reads a device value makes the CPU wait: do it in `on_log`, whose values are read.

    A callback with `state_dict` and `load_state_dict` (tensors, numbers, strings, lists and dicts) is part of the checkpoint.
    """

    def on_step(self, trainer: "Trainer") -> None:
        """After each optimizer step (`trainer.step` is its number)."""

    def on_log(self, trainer: "Trainer", step: int, values: Mapping[str, float]) -> None:
        """After the values of `step` have arrived on the host, one step late at the earliest."""

    def on_evaluate(self, trainer: "Trainer", values: Mapping[str, float]) -> None:
        """After an evaluation during training."""

    def on_epoch_end(self, trainer: "Trainer") -> None:
        """After the last step of an epoch and its evaluation; `trainer.epoch` is its number, from 0."""

    def on_checkpoint(self, trainer: "Trainer", path: Path) -> None:
        """After a checkpoint is complete on the disk (main process only)."""


class EarlyStopping:
    """Whether a metric has stopped improving.

    Raises:
        ValueError: `patience` is less than 1.

    """

    def __init__(self, patience: int, mode: Literal["min", "max"] = "min", min_delta: float = 0.0) -> None:
        if patience < 1:
            raise ValueError(f"patience is {patience}; it has to be at least 1")
        self.patience = patience
        self.mode = mode
        self.min_delta = min_delta
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad = 0

    def should_stop(self, value: float) -> bool:
        """Take in the value of one more evaluation. NaN is no improvement."""
        gain = self.best - value if self.mode == "min" else value - self.best
        if gain > self.min_delta:
            self.best = value
            self.num_bad = 0
        else:
            self.num_bad += 1
        return self.is_over

    @property
    def is_over(self) -> bool:
        """Whether the last `patience` evaluations brought no improvement."""
        return self.num_bad >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """The best value and the evaluations since."""
        return {"best": self.best, "num_bad": self.num_bad}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a `state_dict`."""
        self.best = state["best"]
        self.num_bad = state["num_bad"]
