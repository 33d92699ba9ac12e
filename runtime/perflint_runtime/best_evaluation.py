"""Which evaluation was the best so far, and whether it is time to stop."""

import math
from collections.abc import Mapping
from typing import Any, Literal


class BestEvaluation:
    """The best value of a metric, the step it came from, and how many evaluations have brought no improvement since.

    Args:
        mode: whether less (`min`) or more (`max`) is better.
        patience: how many evaluations without an improvement end training; None: however many.

    """

    def __init__(self, mode: Literal["min", "max"], patience: int | None) -> None:
        self.mode = mode
        self.patience = patience
        self.value = math.inf if mode == "min" else -math.inf
        self.step: int | None = None
        self.num_worse = 0

    def take(self, value: float, step: int) -> bool:
        """Take in the value of one more evaluation; whether it is the best so far. NaN is no improvement."""
        is_better = value < self.value if self.mode == "min" else value > self.value
        if is_better:
            self.value, self.step, self.num_worse = value, step, 0
        else:
            self.num_worse += 1
        return is_better

    @property
    def is_over(self) -> bool:
        """Whether the last `patience` evaluations brought no improvement."""
        return self.patience is not None and self.num_worse >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """The best value, its step, and the evaluations since."""
        return {"value": self.value, "step": self.step, "num_worse": self.num_worse}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a `state_dict`."""
        self.value, self.step, self.num_worse = state["value"], state["step"], state["num_worse"]
