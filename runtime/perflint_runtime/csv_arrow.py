"""The rows of a CSV file as columns in an Arrow file, mapped into memory: for whoever reads the same rows again and again.

A row out of it costs no parsing. The file is written in one step, says of which content it was made, and is made anew if that
changed. pyarrow is imported when it is needed, and is in the extra `arrow`.
"""

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perflint_runtime.csv_file import RangeFile, RemoteFile
from perflint_runtime.csv_sidecar import content_of, side_file, writing

if TYPE_CHECKING:
    import pyarrow as pa

_FORMAT = 1
_SUFFIX = ".arrow"
_ABOUT = b"perflint"


def require_arrow() -> None:
    """Raise `ImportError` with what to install, if pyarrow is missing."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ImportError("to_arrow() needs pyarrow: pip install 'perflint-torch[arrow]'") from None


def is_plain(value: object) -> bool:
    """Whether `repr` tells all there is to a value."""
    if isinstance(value, Mapping):
        return all(is_plain(part) for pair in value.items() for part in pair)
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, type, np.dtype))


def mapped_table(
    file: RangeFile | RemoteFile,
    kind: Mapping[str, object] | None,
    folder: str | os.PathLike[str] | None,
    make: Callable[[], "pa.Table"],
) -> tuple["pa.Table", Path]:
    """The table that `make` makes of a file, mapped from a file beside it (or in `folder`) that is kept for the next time.

    `kind` is all that the table depends on besides the file's content; with None it is made anew each time.

    Raises:
        ValueError: the file is remote.
        OSError: the folder cannot be written, or the disk is full.

    """
    if isinstance(file, RemoteFile):
        raise ValueError(f"{file.path} is remote: to_arrow() converts local files")
    place = side_file(file, json.dumps(kind, sort_keys=True), _SUFFIX, folder)
    about = json.dumps({"format": _FORMAT, **content_of(file), "kind": kind}, sort_keys=True).encode()
    if kind is not None and (found := _mapped(place, about)) is not None:
        return found, place
    import pyarrow as pa

    table = make()
    file.check()
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _ABOUT: about}).combine_chunks()
    with writing(place, os.stat(file.path).st_mode) as stream, pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)
    mapped = _mapped(place, about)
    if mapped is None:
        raise OSError(f"{place} cannot be read, though it was just written")
    return mapped, place


def _mapped(place: Path, about: bytes) -> "pa.Table | None":
    """The table in a file, if it is the right one."""
    import pyarrow as pa

    with contextlib.suppress(OSError, pa.ArrowException):
        table = pa.ipc.open_file(pa.memory_map(os.fspath(place))).read_all()
        if (table.schema.metadata or {}).get(_ABOUT) == about:
            return table
    return None


class Columns:
    """Columns of fixed types out of an Arrow file; picklable: the file is mapped again."""

    def __init__(self, path: Path) -> None:
        """Map the file of a table without missing values: numbers, booleans as bytes, texts with 64-bit offsets."""
        import pyarrow as pa

        self.path = path
        table = pa.ipc.open_file(pa.memory_map(os.fspath(path))).read_all()
        self.count = table.num_rows
        self.columns: dict[str, _Numbers | _Texts] = {}
        for field, column in zip(table.schema, table.columns, strict=True):
            kind = (field.metadata or {}).get(b"dtype", b"").decode()
            whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            self.columns[field.name] = _Numbers(whole, np.dtype(kind)) if kind else _Texts(whole)
        self._values = [(name, column.value) for name, column in self.columns.items()]

    def __getstate__(self) -> Path:
        return self.path

    def __setstate__(self, path: Path) -> None:
        self.__init__(path)  # type: ignore[misc]  # maps the same file again, in another process

    def row(self, i: int) -> dict[str, Any]:
        """One row."""
        if not -self.count <= i < self.count:
            raise IndexError(f"row {i} of {self.count} rows in {self.path}")
        return {name: value(i) for name, value in self._values}

    def batch(self, indices: Sequence[int]) -> dict[str, list[str] | NDArray[Any]]:
        """Some rows: a list of texts or an array of shape [len(indices)] for each column."""
        numbers = np.asarray(indices, np.int64).reshape(-1)
        if len(numbers):
            least, most = int(numbers.min()), int(numbers.max())
            if least < -self.count or most >= self.count:
                wrong = most if most >= self.count else least
                raise IndexError(f"row {wrong} of {self.count} rows in {self.path}")
            if least < 0:
                numbers = np.where(numbers < 0, numbers + self.count, numbers)
        return {name: column.values(numbers) for name, column in self.columns.items()}


class _Numbers:
    def __init__(self, array: "pa.Array", dtype: np.dtype[Any]) -> None:
        numbers: NDArray[Any] = array.to_numpy(zero_copy_only=True).view(dtype)
        self.value: Callable[[int], np.generic] = numbers.__getitem__
        self.values: Callable[[NDArray[np.int64]], NDArray[Any]] = numbers.take


class _Texts:
    def __init__(self, array: "pa.LargeStringArray") -> None:
        _, offsets, data = array.buffers()
        self._offsets = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        self._data = memoryview(data if data is not None else b"")
        self._count = len(array)

    def value(self, i: int) -> str:
        i = i if i >= 0 else i + self._count
        return str(self._data[self._offsets.item(i) : self._offsets.item(i + 1)], "utf-8")

    def values(self, numbers: NDArray[np.int64]) -> list[str]:
        data = self._data
        starts, stops = self._offsets.take(numbers).tolist(), self._offsets.take(numbers + 1).tolist()
        return [str(data[start:stop], "utf-8") for start, stop in zip(starts, stops, strict=True)]


def table_of(columns: Mapping[str, list[str] | NDArray[Any]]) -> "pa.Table":
    """A table that `Columns` reads."""
    import pyarrow as pa

    fields, arrays = [], []
    for name, values in columns.items():
        if isinstance(values, list):
            arrays.append(pa.array(values, pa.large_string()))
            fields.append(pa.field(name, pa.large_string()))
        else:
            stored = values.view(np.uint8) if values.dtype == np.bool_ else values
            arrays.append(pa.array(stored))
            fields.append(pa.field(name, arrays[-1].type, metadata={"dtype": values.dtype.str}))
    return pa.table(arrays, schema=pa.schema(fields))
