"""Where the trainer's numbers go: a file of JSON lines, TensorBoard, Weights & Biases."""

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

    def close(self) -> None:
        """Write out what is pending."""


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
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(self.folder, purge_step=purge_step)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add one scalar per value."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def resume(self, step: int) -> None:
        """Let TensorBoard hide the records after `step`."""
        self._writer.close()
        self._writer = self._open(step + 1)

    def close(self) -> None:
        """Write out what is pending."""
        self._writer.close()


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
        self._run = wandb.init(resume="allow", **options)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a record; W&B's own step is left alone, since records that come again after a kill would be refused."""
        self._run.log({"step": step, **values})

    def resume(self, step: int) -> None:
        """Nothing: the records carry their step."""

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
