"""What the trainer tells the outside: means per log interval, read one step late, so that the GPU is never waited for."""

import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from perflint_runtime.loggers import Logger
from perflint_runtime.scalars import AsyncScalars, NonFiniteError, ScalarRecord


class Journal:
    """Sends the values of log steps to the host and, when they have arrived, to loggers, callbacks and the progress bar.

    A loss that is not finite raises `NonFiniteError` when its log record arrives. `skips_allowed` (fp16) accepts such losses
    as long as not all of a log interval are: the gradient scaler skips their steps.
    """

    def __init__(
        self,
        loggers: Sequence[Logger],
        on_log: Callable[[int, Mapping[str, float]], None],
        *,
        check_finite: bool,
        skips_allowed: bool,
        batches_per_step: int,
        num_epochs: int,
    ) -> None:
        self.history: list[dict[str, float]] = []
        """All records so far, each with its `step`: those of log steps, and those of evaluations."""
        self._bar: Any = None
        self._shown: dict[str, str] = {}
        self._num_epochs = num_epochs
        self._loggers = loggers
        self._on_log = on_log
        self._check_finite = check_finite
        self._skips_allowed = skips_allowed
        self._batches_per_step = batches_per_step
        self._reads = AsyncScalars()
        self._waiting: deque[Tensor] = deque()

    @contextmanager
    def progress(self, num_steps: int | None, done: int) -> Iterator[None]:
        """Show a bar that counts steps on the host, with the values that have arrived there, and above it a line per record."""
        from tqdm.auto import tqdm

        with tqdm(total=num_steps, initial=done, unit="step", mininterval=0.5, file=sys.stderr) as self._bar:
            try:
                yield
            finally:
                self._bar = None

    def submit(self, step: int, values: Mapping[str, Tensor | float], losses: Tensor) -> None:
        """Send the values of a step on their way; `losses` are those of the interval's batches, 1-d, on the device."""
        self._waiting.append(losses)
        self._reads.submit(step, values)

    def tick(self) -> None:
        """Count a step on the bar, and hand on the values that have arrived. Never waits."""
        if self._bar is not None:
            self._bar.update()
        if self._waiting:
            self._deliver(self._reads.poll())

    def deliver_all(self) -> None:
        """Hand on everything that was submitted. Waits for the device."""
        self._deliver(self._reads.flush())

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take in host values: for the history, the loggers and the bar."""
        self.history.append({"step": step, **values})
        for logger in self._loggers:
            logger.log(step, values)
        if self._bar is not None:
            self._show(step, values)

    def _show(self, step: int, values: Mapping[str, float]) -> None:
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in values.items() if name != "epoch")
        self._bar.write(f"step {step}  {numbers}", file=sys.stderr)
        if "epoch" in values:
            self._shown["epoch"] = f"{int(values['epoch']) + 1}/{self._num_epochs}"
        self._shown |= {name: f"{values[name]:.4g}" for name in ("loss", "val_loss") if name in values}
        self._bar.set_postfix(self._shown, refresh=False)

    def resume(self, step: int, history: Sequence[Mapping[str, float]] = ()) -> None:
        """Tell the loggers that training goes on after this step; what was on its way belongs to steps that come again."""
        self._reads = AsyncScalars()
        self._waiting.clear()
        self.history[:] = map(dict, history)
        for logger in self._loggers:
            logger.resume(step)

    def _deliver(self, records: Iterable[ScalarRecord]) -> None:
        for record in records:
            losses = self._waiting.popleft()
            if not math.isfinite(record.values["loss"]):
                self.refuse_non_finite(record.step, losses)
            self.write(record.step, record.values)
            self._on_log(record.step, record.values)

    def flush(self) -> None:
        """Let the loggers write out what is pending."""
        for logger in self._loggers:
            getattr(logger, "flush", _nothing)()

    def refuse_non_finite(self, step: int, losses: Tensor) -> None:
        """Raise NonFiniteError if one of `losses`, of the last batches up to `step`, is not finite. Waits for the device."""
        bad = (~losses.isfinite()).nonzero().flatten().tolist() if self._check_finite else []
        if not bad or (self._skips_allowed and len(bad) < len(losses)):
            return  # another process's loss, which raises there; or steps that the scaler skips
        behind = (len(losses) - 1 - bad[0]) // self._batches_per_step
        raise NonFiniteError(step - behind, float(losses[bad[0]]), "loss")


def _nothing() -> None: ...
