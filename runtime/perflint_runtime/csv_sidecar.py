"""The index of a CSV file on disk, beside it: checked when it is loaded, replaced in one step when it is written.

One file holds a line of JSON (what was indexed, and how) and the offsets as raw little-endian int64. It is read, not mapped:
a map of a file that somebody truncates, or that a network file system loses, would kill the process.
"""

import contextlib
import hashlib
import json
import os
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import numpy as np

from perflint_runtime.csv_file import RangeFile, RemoteFile, Version, changed
from perflint_runtime.csv_index import LineIndex, index_lines
from perflint_runtime.csv_scan import Dialect, State

FORMAT = 2
SMALLEST_BYTES = 8 << 20
"""Files below this size are indexed in a few milliseconds (8 MiB at 1,000 MB/s) and get no sidecar."""

_SUFFIX = ".perflint-index"
_SAMPLE_BYTES = 4096
_SAMPLES = 16
_ABANDONED_S = 3600.0


def line_index(
    file: RangeFile | RemoteFile, dialect: Dialect, *, strip_bom: bool = True, sidecar: bool | os.PathLike[str] | str = True
) -> LineIndex:
    """The index of a file: from its sidecar if that fits, else built (and kept for the next time).

    `sidecar` is False for none, or the folder to keep it in; True is the folder of the file. A folder that cannot be written,
    and a sidecar that is damaged, truncated or of other content, only cost the time to index. Raises `RuntimeError` if the
    file changes meanwhile.
    """
    place = _place(file, dialect, strip_bom, sidecar)
    if place is not None and (found := _load(place, _about(file, dialect, strip_bom))) is not None:
        return found
    try:
        index = index_lines(file.from_start(), file.version.size_bytes, dialect, strip_bom=strip_bom)
    except EOFError:
        now = Version.of(os.stat(file.path))
        raise changed(file.path, file.version, now) from None
    file.check()
    if place is not None:
        with contextlib.suppress(OSError):
            _save(place, index, _about(file, dialect, strip_bom), mode=os.stat(file.path).st_mode)
    return index


def _place(
    file: RangeFile | RemoteFile, dialect: Dialect, strip_bom: bool, sidecar: bool | os.PathLike[str] | str
) -> Path | None:
    if sidecar is False or isinstance(file, RemoteFile) or file.version.size_bytes < SMALLEST_BYTES:
        return None
    return side_file(file, repr((dialect, strip_bom)), _SUFFIX, None if sidecar is True else sidecar)


def side_file(file: RangeFile, kind: str, suffix: str, folder: os.PathLike[str] | str | None = None) -> Path:
    """Where something made from a file is kept: beside it, hidden, or in a folder. Each `kind` has a file of its own."""
    data = Path(file.path).absolute()
    of_kind = hashlib.blake2b(kind.encode(errors="backslashreplace"), digest_size=4).hexdigest()
    if folder is None:
        return data.with_name(f".{data.name}.{of_kind}{suffix}")
    of_path = hashlib.blake2b(os.fsencode(data), digest_size=8).hexdigest()
    return Path(folder) / f"{data.name}.{of_path}.{of_kind}{suffix}"


def _about(file: RangeFile | RemoteFile, dialect: Dialect, strip_bom: bool) -> dict[str, object]:
    """What a sidecar must say of itself to be believed."""
    return {"format": FORMAT, **content_of(file), "dialect": asdict(dialect), "strip_bom": strip_bom}


def content_of(file: RangeFile | RemoteFile) -> dict[str, object]:
    """What tells a file's content, as it was opened, from any other: size, times, and a hash of some of its bytes."""
    size = file.version.size_bytes
    sample = hashlib.blake2b(digest_size=16)
    for k in range(_SAMPLES):
        start = max(0, size - _SAMPLE_BYTES) * k // (_SAMPLES - 1)
        sample.update(file.read(start, min(size, start + _SAMPLE_BYTES)))
    return {
        "size_bytes": size,
        "mtime_ns": file.version.mtime_ns,
        "ctime_ns": file.ctime_ns if isinstance(file, RangeFile) else 0,
        "sample": sample.hexdigest(),
    }


def _load(place: Path, expected: dict[str, object]) -> LineIndex | None:
    try:
        with place.open("rb") as stream:
            about = json.loads(stream.readline(1 << 16))
            lengths = [int(length) for length in about["lengths"]]
            if {key: about[key] for key in expected} != expected:
                return None
            checksum = 0
            arrays = []
            for length in lengths:
                if not 0 <= length <= int(about["size_bytes"]) + 2:
                    return None
                array = np.empty(length, "<i8")
                if stream.readinto(array.data.cast("B") if length else bytearray()) != length * 8:
                    return None
                checksum = zlib.crc32(array.data, checksum)
                arrays.append(array)
            if stream.read(1) or checksum != about["checksum"]:
                return None
            starts, blank, comments = arrays
            return LineIndex(
                starts,
                blank,
                comments,
                int(about["skippable"]),
                State[about["final_state"]],
                bool(about["ambiguous"]),
                int(about["scanned_bytes"]),
            )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError, RecursionError):
        return None


def _save(place: Path, index: LineIndex, about: dict[str, object], mode: int) -> None:
    arrays = [np.ascontiguousarray(array, "<i8") for array in (index.starts, index.blank, index.comments)]
    checksum = 0
    for array in arrays:
        checksum = zlib.crc32(array.data, checksum)
    head = {
        **about,
        "lengths": [len(array) for array in arrays],
        "skippable": index.skippable,
        "final_state": index.final_state.name,
        "ambiguous": index.ambiguous,
        "scanned_bytes": index.scanned_bytes,
        "checksum": checksum,
    }
    with writing(place, mode) as stream:
        stream.write(json.dumps(head).encode() + b"\n")
        for array in arrays:
            stream.write(array.data)


@contextlib.contextmanager
def writing(place: Path, mode: int) -> Iterator[BinaryIO]:
    """A stream into a file that appears, whole and on disk, when the block ends without an error. Raises `OSError`."""
    place.parent.mkdir(parents=True, exist_ok=True)
    _clear_abandoned(place)
    descriptor, unfinished = tempfile.mkstemp(dir=place.parent, prefix=place.name + ".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(unfinished, mode & 0o666)  # who may read the file may read what is made from it
        os.replace(unfinished, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def _clear_abandoned(place: Path) -> None:
    """Remove what killed processes left unfinished."""
    for path in place.parent.glob(place.name + ".*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()
