"""A CSV file as a map-style dataset with fixed dtypes, for training."""

import copy
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from perflint_runtime.csv_arguments import NotIndexable, layout_of
from perflint_runtime.csv_arrow import Columns, mapped_table, require_arrow, table_of
from perflint_runtime.csv_fields import FieldParser, NumberColumn, column_of
from perflint_runtime.csv_file import is_remote, open_ranges, refuse_compressed
from perflint_runtime.csv_records import Records
from perflint_runtime.csv_sidecar import line_index

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 4096

Sample: TypeAlias = "dict[str, str | np.generic]"
Batch: TypeAlias = "dict[str, list[str] | NDArray[Any]]"


class CsvDataset:
    """The rows of a CSV file by number, as texts and numbers of fixed types.

    `dataset[7]` is a dict with a value for each of `columns`: a `str`, or a NumPy scalar of the dtype. `dataset[[7, 1, 5]]` is
    a batch parsed in one go: a dict with a list of `str`, or an array of shape [3], for each column. It is a map-style
    dataset for `torch.utils.data.DataLoader` without importing torch; `DataLoader(dataset, batch_size=64)` reads each batch in
    one call, and fastest is `DataLoader(dataset, batch_size=None, sampler=BatchSampler(sampler, 64, drop_last=True))`, whose
    batches are arrays at once.

    Unlike pandas, no type is inferred: text stays as it stands in the file ("", "NA" and "007" too), numbers are what Python's
    `int` and `float` read. Missing numbers are nan in floating columns and an error in others. One row costs 7 us of CPU
    (three numbers) to 14 us (900 bytes of quoted text), 64 rows 230 to 710 us; out of `to_arrow()` 2 to 6 us, and 18 to 220
    us (`benchmarks/csv_rows.py`, a machine under load); 8 bytes of memory per row.

    Safe in forked and spawned workers and in threads, and picklable, like `CsvRows`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Mapping[str, type | np.dtype[Any]],
        *,
        sep: str = ",",
        quotechar: str = '"',
        quoting: int = 0,
        encoding: str = "utf-8",
        names: Sequence[str] | None = None,
        skiprows: int = 0,
        sidecar: bool | str | os.PathLike[str] = True,
        storage_options: dict[str, object] | None = None,
        transform: "Callable[[Sample], Any] | None" = None,
    ) -> None:
        """Index `path` and read its header (`names` are the columns of a file without one).

        `columns` maps names to `str`, `bool`, or an integer or floating dtype. `transform` is applied to each row, not to
        batches. The other arguments are those of `pandas.read_csv` and of `CsvRows`. Raises `ValueError` for a column that is
        not in the header and for a file that cannot be read so, `TypeError` for another dtype, `OSError` if the file cannot be
        read.
        """
        self.path = os.path.abspath(os.path.expanduser(path)) if not is_remote(os.fspath(path)) else os.fspath(path)
        refuse_compressed(self.path)
        try:
            layout = layout_of({"sep": sep, "quotechar": quotechar, "quoting": quoting, "encoding": encoding})
        except NotIndexable as reason:
            raise ValueError(f"{self.path}: no index of its records can be exact ({reason}); use CsvRows") from None
        file = open_ranges(self.path, storage_options)
        index = line_index(file, layout.dialect, strip_bom=layout.strip_bom, sidecar=sidecar)
        if index.ambiguous:
            raise ValueError(f"{self.path}: a delimiter follows a lone carriage return; use CsvRows")
        if not 0 <= skiprows <= index.skippable:
            raise ValueError(f"{self.path}: skiprows={skiprows} of {len(index)} lines")
        self._records = Records.of(file, index, skiprows, -1 if names is not None else 0, True)
        if self._records.broken >= 0:
            raise ValueError(f"{self.path} ends inside quotes, which row {self._records.broken} opens")
        self._fields = FieldParser(sep, chr(layout.dialect.quote) if layout.dialect.quote >= 0 else None).fields
        self._encoding = layout.codec or "utf-8"
        self.names = list(self._header() if names is None else names)
        for name in columns:
            if self.names.count(name) != 1:
                raise ValueError(f"{self.path} has no single column {name!r}; its columns are {', '.join(self.names)}")
        self.columns = {name: column_of(name, dtype) for name, dtype in columns.items()}
        self._places = [(name, self.names.index(name), column) for name, column in self.columns.items()]
        self.transform = transform
        self._kind: dict[str, object] = {
            "columns": {name: column.name for name, column in self.columns.items()},
            "names": self.names,
            "layout": repr(layout),
            "skiprows": skiprows,
            "header": names is None,
        }
        self._arrow: Columns | None = None

    def to_arrow(self, folder: str | os.PathLike[str] | None = None) -> "CsvDataset":
        """The same data set, whose rows come from an Arrow file beside the CSV file (or in `folder`), without parsing.

        The file is made at the first call, which reads all rows once and holds them in memory meanwhile; later calls find it,
        also in other processes, as long as the CSV file is the same. The rows are those of now: later changes of the CSV file
        are not seen. Needs pyarrow, from the extra `arrow`.

        Raises `ImportError` without pyarrow, `ValueError` for a remote file or a field that is not of its column's type,
        `OSError` if the folder cannot be written or the disk is full, `RuntimeError` if the CSV file changed.
        """
        require_arrow()
        _, place = mapped_table(self._records.file, self._kind, folder, self._whole)
        converted = copy.copy(self)
        converted._arrow = Columns(place)
        return converted

    def _whole(self) -> "pa.Table":
        parts = [self.batch(range(at, min(at + _ROWS_AT_ONCE, len(self)))) for at in range(0, len(self), _ROWS_AT_ONCE)]
        whole: Batch = {}
        for name, column in self.columns.items():
            values = [part[name] for part in parts]
            whole[name] = (
                np.concatenate([np.empty(0, column.dtype), *values])
                if isinstance(column, NumberColumn)
                else list(itertools.chain.from_iterable(values))
            )
        return table_of(whole)

    def __len__(self) -> int:
        """How many rows the file has."""
        return self._records.count

    @overload
    def __getitem__(self, i: int) -> Sample: ...
    @overload
    def __getitem__(self, i: Sequence[int]) -> Batch: ...
    def __getitem__(self, i: int | Sequence[int]) -> Any:
        """One row, or a batch of several. Raises `IndexError`, `ValueError` for a field that is not of its column's type, and
        `RuntimeError` if the file changed.
        """
        if isinstance(i, (int, np.integer)):
            sample = self._row(int(i))
            return sample if self.transform is None else self.transform(sample)
        return self.batch(i)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The rows of a batch, read at once: `DataLoader` asks for them so."""
        batch = self.batch(indices)
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        return rows if self.transform is None else [self.transform(row) for row in rows]

    def close(self) -> None:
        """Close the file; no more rows can be read. May be called again."""
        self._records.file.close()

    def __enter__(self) -> "CsvDataset":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _row(self, i: int) -> Sample:
        if self._arrow is not None:
            return self._arrow.row(i)
        records = self._records
        line = records.line(i)
        starts = records.starts
        text = records.file.read(starts.item(line), starts.item(line + 1)).decode(self._encoding)
        fields = self._fields(text)
        if len(fields) != len(self.names):
            fields = self._padded(fields, i)
        try:
            return {name: column.value(fields[place]) for name, place, column in self._places}
        except (ValueError, OverflowError):
            raise self._misfit([fields], [i]) from None

    def batch(self, indices: Sequence[int]) -> Batch:
        """Some rows as columns: a list of texts, or an array of shape [len(indices)], for each. Raises as `dataset[i]`."""
        if self._arrow is not None:
            return self._arrow.batch(indices)
        width = len(self.names)
        rows = []
        fields_of = self._fields
        for i, data in zip(indices, self._records.read(indices), strict=True):
            fields = fields_of(data.decode(self._encoding))
            rows.append(fields if len(fields) == width else self._padded(fields, i))
        try:
            return {name: column.values([row[place] for row in rows]) for name, place, column in self._places}
        except (ValueError, OverflowError):
            raise self._misfit(rows, indices) from None

    def _padded(self, fields: list[str], i: int) -> list[str]:
        width = len(self.names)
        if len(fields) > width:
            raise ValueError(f"row {i} of {self.path} has {len(fields)} fields, the header has {width}")
        return fields + [""] * (width - len(fields))

    def _misfit(self, rows: Sequence[list[str]], indices: Sequence[int]) -> ValueError:
        """The error for a field that is not of its column's type."""
        for i, fields in zip(indices, rows, strict=True):
            for name, place, column in self._places:
                try:
                    column.value(fields[place])
                except (ValueError, OverflowError):
                    return ValueError(
                        f"row {i} of {self.path}: column {name!r} is {fields[place]!r}, which is no {column.name}"
                    )
        raise AssertionError("each field was read")

    def _header(self) -> list[str]:
        records = self._records
        line = records.first_line - 1
        if line < 0 or not records.header:
            raise ValueError(f"{self.path} has no header")
        return self._fields(records.file.read(records.starts.item(line), records.starts.item(line + 1)).decode(self._encoding))
