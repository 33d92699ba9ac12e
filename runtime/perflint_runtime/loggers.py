"""Where the trainer's numbers go: a file of JSON lines, TensorBoard, MLflow, Weights & Biases."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class Logger(Protocol):
    """What `Trainer(loggers=[...])` calls, in the main process only."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take the values of an optimizer step. Steps come in order; several records may have the same step."""

    def resume(self, step: int) -> None:
        """Training goes on after this step: later records are those of a run that was killed, and come again."""

    def flush(self) -> None:
        """Training is over for now: write out what is pending. More may come."""

    def close(self) -> None:
        """Nothing comes any more. The trainer does not call it."""


class JsonlLogger:
    """One JSON object per line: `{"step": 50, "loss": 0.41, ...}`. Each record is on the disk's cache when `log` returns.

    Raises:
        OSError: the file cannot be written.

    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()
        self._of_resumed_step: set[str] = set()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Append a record. NaN and infinity are written as Python's json does (`NaN`, `Infinity`)."""
        line = json.dumps({"step": step, **values}) + "\n"
        if line in self._of_resumed_step:  # written after the checkpoint, before the kill
            self._of_resumed_step.remove(line)
            return
        self._file.write(line)
        self._file.flush()

    def resume(self, step: int) -> None:
        """Drop the records after `step`, and a last line that a kill cut short."""
        self._file.close()
        kept = []
        for line in self.path.read_text(encoding="utf-8").splitlines(keepends=True):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if line.endswith("\n") and record["step"] <= step:
                kept.append(line)
                if record["step"] == step:
                    self._of_resumed_step.add(line)
        aside = self.path.with_name(f".{self.path.name}.unfinished")
        aside.write_text("".join(kept), encoding="utf-8")
        os.replace(aside, self.path)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()

    def flush(self) -> None:
        """Nothing: each record is flushed."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardLogger:
    """Scalars for TensorBoard in `folder`.

    Raises:
        ImportError: the package tensorboard is not installed.

    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        self._writer = self._open(None)

    def _open(self, purge_step: int | None) -> Any:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ImportError("TensorBoardLogger needs the package tensorboard: pip install tensorboard") from None
        return SummaryWriter(self.folder, purge_step=purge_step)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add one scalar per value."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def resume(self, step: int) -> None:
        """Let TensorBoard hide the records after `step`."""
        self._writer.close()
        self._writer = self._open(step + 1)

    def flush(self) -> None:
        """Write out what is pending."""
        self._writer.flush()

    def close(self) -> None:
        """Write out what is pending, and close the file."""
        self._writer.close()


class MlflowLogger:
    """Metrics of an MLflow run; `options` are those of `mlflow.start_run`. Pass a `run_id` to go on with a run after a kill.

    A run that is active already is taken, if there are no options.

    Raises:
        ImportError: the package mlflow is not installed.

    """

    def __init__(self, **options: Any) -> None:
        try:
            import mlflow
        except ImportError:
            raise ImportError("MlflowLogger needs the package mlflow: pip install mlflow") from None
        self._mlflow = mlflow
        self._run_id: str = (
            mlflow.start_run(**options) if options or not mlflow.active_run() else mlflow.active_run()
        ).info.run_id

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add one metric per value."""
        self._mlflow.log_metrics(dict(values), step=step, run_id=self._run_id)

    def resume(self, step: int) -> None:
        """Nothing: a value that comes again after a kill is the same as before, and stands twice at its step."""

    def flush(self) -> None:
        """Nothing: MLflow writes each record."""

    def close(self) -> None:
        """Finish the run."""
        self._mlflow.end_run()


class WandbLogger:
    """A Weights & Biases run; `options` are those of `wandb.init`. Pass an `id` to go on with a run after a kill.

    Raises:
        ImportError: the package wandb is not installed.

    """

    def __init__(self, **options: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise ImportError("WandbLogger needs the package wandb: pip install wandb") from None
        self._run = wandb.init(**{"resume": "allow", **options})
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a record; W&B's own step is left alone, since records that come again after a kill would be refused."""
        self._run.log({"step": step, **values})

    def resume(self, step: int) -> None:
        """Nothing: the records carry their step."""

    def flush(self) -> None:
        """Nothing: W&B sends records by itself."""

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
