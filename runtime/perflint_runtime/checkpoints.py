"""Checkpoints that are whole or absent: written aside, flushed to the disk, renamed, rotated."""

import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

_NAME = re.compile(r"step-(\d{9,})\.pt")
_BEST = "best.txt"
"""Holds the name of the best checkpoint's file."""


class Checkpoints:
    """The checkpoints of one run in a folder, one file per checkpoint, named after the optimizer step.

    A kill or a full disk at any moment leaves the files that were there: a new one appears under its name only once it is
    complete on the disk (write to a temporary file, fsync, rename, fsync of the folder).

    Raises:
        ValueError: `keep` is less than 1.

    """

    def __init__(self, folder: str | os.PathLike[str], keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least the newest checkpoint has to stay")
        self.folder = Path(folder)
        self.keep = keep

    def paths(self) -> list[Path]:
        """The complete checkpoints, oldest first."""
        if not self.folder.is_dir():
            return []
        found = ((_NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]

    def save(self, step: int, state: Mapping[str, Any], *, is_best: bool = False) -> Path:
        """Write `state` as the checkpoint of `step`, then delete all but the `keep` with the highest steps, this and the best.

        `state` holds tensors, numbers, strings, and lists and dicts of these: nothing that `torch.load` would refuse with
        `weights_only=True`. Device tensors are copied to the host here, so this waits for the device. `is_best` makes it the
        best one: it stays until another one is.

        Raises:
            OSError: the folder cannot be written, or is full; the older checkpoints stay.
            TypeError: the state holds something else; the message names the place.

        """
        plain = as_plain(state, "state")
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(".*.unfinished"):
            leftover.unlink(missing_ok=True)
        path = self.folder / f"step-{step:09d}.pt"
        with written_aside(path) as unfinished:
            try:
                torch.save(plain, unfinished)
            except RuntimeError as error:  # torch's writer hides why a write failed
                raise OSError(f"cannot write {path}: {' '.join(str(error).split())} (is the disk full?)") from error
        if is_best:
            with written_aside(self.folder / _BEST) as unfinished:
                unfinished.write_text(path.name, encoding="utf-8")
        kept = {path, self.best(), *self.paths()[-self.keep :]}
        for old in self.paths():
            if old not in kept:
                old.unlink(missing_ok=True)
        return path

    def best(self) -> Path | None:
        """The checkpoint that was saved as the best one, or None."""
        try:
            path = self.folder / (self.folder / _BEST).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return path if _NAME.fullmatch(path.name) and path.is_file() else None

    def load_best(self, map_location: str | torch.device = "cpu") -> tuple[Path, dict[str, Any]] | None:
        """The best checkpoint, read as `load_latest` reads; None if none was saved as the best.

        Raises:
            RuntimeError: it cannot be read.

        """
        path = self.best()
        if path is None:
            return None
        try:
            return path, torch.load(path, map_location=map_location, weights_only=True)
        except Exception as error:  # torch raises many kinds, by what is damaged
            raise RuntimeError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}") from error

    def load_latest(self, map_location: str | torch.device = "cpu") -> tuple[Path, dict[str, Any]] | None:
        """The newest checkpoint that can be read, or None if there is none.

        One that cannot be read (a damaged disk: `save` never leaves one) is passed over with a warning. Loading runs no code
        from the file: `torch.load(weights_only=True)`.

        Raises:
            RuntimeError: there are checkpoints, and none of them can be read.

        """
        problems = []
        for path in reversed(self.paths()):
            try:
                state: dict[str, Any] = torch.load(path, map_location=map_location, weights_only=True)
            except Exception as error:  # torch raises many kinds, by what is damaged
                problems.append(f"{path}: {' '.join(str(error).split())[:200]}")
                continue
            for problem in problems:
                warnings.warn(f"skipped a checkpoint that cannot be read: {problem}", stacklevel=2)
            return path, state
        if problems:
            raise RuntimeError(f"no checkpoint can be read; {'; '.join(problems)}")
        return None


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Give a path to write to, whose file takes the place of `path` once it is complete on the disk, or goes away.

    Raises:
        OSError: the folder cannot be written.

    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".unfinished")
    os.close(handle)
    unfinished = Path(name)
    try:
        yield unfinished
        with open(unfinished, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def as_plain(value: Any, where: str) -> Any:
    """The value in types that `torch.load(weights_only=True)` reads; numpy's scalars become Python's.

    Raises:
        TypeError: it holds something else; the message says where, beginning with `where`.

    """
    if hasattr(value, "dtype") and hasattr(value, "item") and not isinstance(value, torch.Tensor) and value.ndim == 0:
        return value.item()  # numpy's float64 is a float, too
    if value is None or isinstance(value, (torch.Tensor, str, bytes, int, float, torch.dtype, torch.device)):
        return value
    if isinstance(value, Mapping):
        plain = {key: as_plain(item, f"{where}[{key!r}]") for key, item in value.items()}
        # a state dict's own type carries more than its items
        return value if all(plain[key] is item for key, item in value.items()) else plain
    if isinstance(value, (list, tuple)):
        items = [as_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    raise TypeError(f"{where} is a {type(value).__name__}: a checkpoint holds tensors, numbers, strings, lists and dicts only")


def _flush_folder(folder: Path) -> None:
    if os.name != "posix":  # a directory cannot be opened for fsync elsewhere
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
