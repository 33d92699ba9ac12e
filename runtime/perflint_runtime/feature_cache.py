"""Arrays on disk under a key of what they were computed from. No pickle, and nothing half-written is ever read."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

log = logging.getLogger(__name__)

_UNFINISHED = ".unfinished-"
ABANDONED_AFTER_S = 24 * 3600
"""Unfinished folders that are older are left over from killed processes and are removed when something is written."""


class FeatureCache:
    """A folder with one sub-folder per key, holding `features.npy` and `about.json`.

    A result is written to a temporary folder beside, synchronised to disk, and renamed: other processes see all of it or
    nothing, also after a crash. When two processes write one key, the first stays.

    Args:
        folder: is made when something is written.

    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def get(self, key: str) -> npt.NDArray[np.generic] | None:
        """Map the array of a key into memory, read-only; None if there is none, or only a damaged one, which is removed.

        Raises:
            OSError: a damaged one cannot be removed.

        """
        final = self.folder / key
        path = final / "features.npy"
        if not path.exists():
            return None
        try:
            about = json.loads((final / "about.json").read_text(encoding="utf-8"))
            mapped: npt.NDArray[np.generic] = np.load(path, mmap_mode="r", allow_pickle=False)
            if len(mapped) == about["rows"] and path.stat().st_size == about["bytes"]:
                return mapped
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            pass  # truncated, or not ours
        log.warning("%s is damaged; it is removed and computed again", final)
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            damaged = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self.folder))
            final.rename(damaged / "damaged")
            shutil.rmtree(damaged, ignore_errors=True)
        return None

    @contextlib.contextmanager
    def writing(self, key: str) -> Iterator[FeatureFile]:
        """Append chunks to a new array; it appears under its key when the block ends without an error.

        Raises:
            OSError: the disk is full or the folder cannot be written.

        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._remove_abandoned()
        scratch = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self.folder))
        try:
            with (scratch / "features.npy").open("w+b") as stream:
                file = FeatureFile(stream)
                yield file
                file.finish()
            size_bytes = (scratch / "features.npy").stat().st_size
            about = {"rows": file.rows, "bytes": size_bytes, "written_at": time.time()}
            with (scratch / "about.json").open("w", encoding="utf-8") as text:
                json.dump(about, text)
                text.flush()
                os.fsync(text.fileno())
            _fsync_folder(scratch)
            self._publish(scratch, self.folder / key)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _publish(self, scratch: Path, final: Path) -> None:
        try:
            scratch.rename(final)
        except OSError:
            if not (final / "features.npy").exists():
                raise
            return  # another process was faster with the same result
        final.chmod(0o755)  # mkdtemp's 0o700 would lock out those who share the cache
        _fsync_folder(self.folder)

    def _remove_abandoned(self) -> None:
        for leftover in self.folder.glob(_UNFINISHED + "*"):
            with contextlib.suppress(OSError):
                last_written = max(path.stat().st_mtime for path in (leftover, *leftover.iterdir()))
                if time.time() - last_written > ABANDONED_AFTER_S:
                    shutil.rmtree(leftover, ignore_errors=True)


class FeatureFile:
    """A .npy file that grows by chunks: its header leaves room for the number of rows, which is known at the end."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.rows = 0
        self._dtype: np.dtype[np.generic] | None = None
        self._shape: tuple[int, ...] = ()
        self._header_bytes = 0

    def append(self, chunk: npt.NDArray[np.generic]) -> None:
        """Add rows (n, ...).

        Raises:
            ValueError: the shape or dtype differs from the first chunk's.

        """
        if self._dtype is None:
            self._dtype, self._shape = chunk.dtype, chunk.shape[1:]
            self._header_bytes = self.stream.write(self._header())
        if chunk.shape[1:] != self._shape or chunk.dtype != self._dtype:
            raise ValueError(
                f"features of {self._shape} {self._dtype} and of {chunk.shape[1:]} {chunk.dtype} per sample do not go into one "
                "array: pool over the tokens, or pad all samples to one length"
            )
        self.stream.write(np.ascontiguousarray(chunk).data if chunk.size else b"")
        self.rows += len(chunk)

    def finish(self) -> None:
        """Write the number of rows and wait until everything is on disk."""
        if self._dtype is not None:
            header = self._header()
            assert len(header) == self._header_bytes  # numpy pads headers for growth in the first dimension
            self.stream.seek(0)
            self.stream.write(header)
        self.stream.flush()
        os.fsync(self.stream.fileno())

    def _header(self) -> bytes:
        assert self._dtype is not None
        text = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            text,
            {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self.rows, *self._shape)},
        )
        return text.getvalue()


def _fsync_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows cannot open folders; its rename is journalled
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
