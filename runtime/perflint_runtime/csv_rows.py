"""Rows of a CSV file in constant time, each parsed by pandas alone."""

import os
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perflint_runtime.csv_arguments import LineSource, NotIndexable, layout_of, read_csv
from perflint_runtime.csv_arrow import is_plain, mapped_table, require_arrow
from perflint_runtime.csv_file import is_remote, open_ranges, refuse_compressed
from perflint_runtime.csv_index import UTF8_BOM
from perflint_runtime.csv_records import Records
from perflint_runtime.csv_sidecar import line_index
from perflint_runtime.csv_skiprows import CsvReader, reader_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_REFUSED = ("nrows", "chunksize", "iterator", "skipfooter")


class CsvRows:
    """Random access to the rows of a CSV file.

    `rows.row(i)` is the frame of one row that `pandas.read_csv` gives for a file of the header and record i only: each row has
    the dtypes of its own values, as in a read with `skiprows` and `nrows=1`. `rows.rows([3, 1, 2])` is one frame of these rows
    in this order, parsed in one call. For training with fixed dtypes, and 40 times faster, see `CsvDataset`.

    The index takes 8 bytes per row, and one pass over the file at first (1,000 MB per CPU second of quoted text and 1,800 of
    numbers where only reading the files goes at 4,900; `benchmarks/csv_rows.py`, pandas 3.1, numpy 2.4). It is kept
    beside files over 8 MiB, see `sidecar`. Records are found as pandas' C
    parser finds them: line breaks in quotes, escapes, comments, blank lines, any line end. What cannot be indexed exactly
    (`engine="python"`, UTF-16, separators of several characters, any argument that is not known to concern fields only ...) is
    read whole and kept in memory, with a warning; dtypes are then those of whole columns.

    A file that changes while it is open is an error at the next read, told by its size and time of modification. The index
    on disk is believed only if the time of change, which nobody can set back, is the same, too; `sidecar=False` does not
    rely on either and reads the whole file.

    Safe in forked and spawned workers and in threads: there is no seek position. Picklable: the index goes along. The file is
    closed with the object, by `close()`, or at the end of a `with` block.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, sidecar: bool | str | os.PathLike[str] = True, **read_csv_kwargs: Any
    ) -> None:
        """Index `path` (local, or a URL that fsspec opens) with the arguments of `pandas.read_csv`.

        `sidecar` is False for no file with the index, or the folder for it; True is the folder of the CSV file.
        Raises `ValueError` for compressed files and for `nrows`, `chunksize`, `iterator`, `skipfooter` and any `skiprows` but
        an integer; `OSError` if the file cannot be read.
        """
        self.path = os.path.abspath(os.path.expanduser(path)) if not is_remote(os.fspath(path)) else os.fspath(path)
        self.arguments = read_csv_kwargs
        refuse_compressed(self.path, read_csv_kwargs.get("compression", "infer"))
        for name in _REFUSED:
            if read_csv_kwargs.get(name):
                raise ValueError(f"CsvRows takes no {name}={read_csv_kwargs[name]!r}: it gives the rows one by one")
        skip = read_csv_kwargs.get("skiprows") or 0
        if isinstance(skip, bool) or not isinstance(skip, (int, np.integer)) or skip < 0:
            raise ValueError(f"CsvRows takes skiprows as an integer, not {skip!r}")
        options: Any = read_csv_kwargs.get("storage_options")
        self._frame: pd.DataFrame | None = None
        self._labelled = False
        try:
            layout = layout_of(read_csv_kwargs)
            file = open_ranges(self.path, options)
            if file.read(0, min(6, file.version.size_bytes)) == UTF8_BOM + UTF8_BOM:
                raise NotIndexable("two byte order marks, of which pandas drops one or both")
            index = line_index(file, layout.dialect, strip_bom=layout.strip_bom, sidecar=sidecar)
            if index.ambiguous:
                raise NotIndexable("a delimiter follows a lone carriage return")
            header = _last_header_line(read_csv_kwargs.get("header", "infer"), read_csv_kwargs.get("names"))
            if skip and (skip > index.skippable or not layout.dialect.is_plain):
                raise NotIndexable("skiprows, where pandas counts lines otherwise than when it parses them")
            self._records: Records | None = Records.of(file, index, int(skip), header, layout.skip_blank_lines)
            self._codec = layout.codec
        except NotIndexable as reason:
            warnings.warn(
                f"{self.path}: no index of its records can be exact ({reason}); the file is read whole and kept in memory, "
                "and dtypes are those of whole columns",
                RuntimeWarning,
                stacklevel=2,
            )
            self._records = None
            self._frame = read_csv(self.path, read_csv_kwargs)
            self._labelled = _has_labels(self.path, read_csv_kwargs)

    @staticmethod
    def of(path: object) -> CsvReader:
        """`pandas.read_csv` of a file whose lines are indexed once per process: `CsvRows.of(path).read_csv(skiprows=i, ...)`.

        This is what `perflint fix` writes in place of `pd.read_csv(path, skiprows=i, ...)`.
        """
        if isinstance(path, (str, os.PathLike)) and isinstance(name := os.fspath(path), str):
            return reader_of(name if is_remote(name) else os.path.abspath(os.path.expanduser(name)))
        return CsvReader(path)

    def __len__(self) -> int:
        """How many rows the file has."""
        return len(self._frame) if self._records is None and self._frame is not None else len(self._required())

    def __getitem__(self, i: int) -> "pd.DataFrame":
        return self.row(i)

    def __iter__(self) -> Iterator["pd.DataFrame"]:
        return (self.row(i) for i in range(len(self)))

    def row(self, i: int) -> "pd.DataFrame":
        """Row i as a frame of one row, parsed alone. Raises as `rows`."""
        return self.rows([i])

    def rows(self, indices: Sequence[int]) -> "pd.DataFrame":
        """Some rows as one frame, in the order of `indices`; dtypes are inferred over these rows.

        Raises `IndexError`, `RuntimeError` if the file changed, `ValueError` if it was closed, and what pandas raises for a
        record that it cannot parse.
        """
        if self._frame is not None:
            some: pd.DataFrame = self._frame.iloc[list(indices)]
            return some if self._labelled else some.reset_index(drop=True)
        records = self._required()
        pieces = [records.header, *records.read(indices)]
        count = len(records)
        for place, i in enumerate(indices[:-1], 1):
            if i % count == records.broken:
                return self.row(i)  # pandas' error of a file that ends there
            if i % count == records.unended or pieces[place].endswith(b"\r"):
                pieces[place] += b"\n"
        if pieces[0].endswith(b"\r"):
            pieces[0] += b"\n"
        data = b"".join(pieces)
        arguments = {name: value for name, value in self.arguments.items() if name not in ("skiprows", "storage_options")}
        if data.startswith(UTF8_BOM):  # not the file's own: the parser takes away only what its first line begins with
            data, arguments["skiprows"] = b"\n" + data, 1
        return read_csv(LineSource(iter([data]), self._codec), arguments)

    def to_arrow(self, folder: str | os.PathLike[str] | None = None) -> "pa.Table":
        """All rows as a `pyarrow.Table`, mapped into memory from a file beside the CSV file (or in `folder`).

        The table is that of `pandas.read_csv` of the whole file, with its dtypes: `table.take([7, 1]).to_pandas()` are two rows
        of it. The file is made at the first call, where pandas holds the whole frame; later calls find it, also in other
        processes, as long as the CSV file, the arguments and the version of pandas are the same. With a function among the
        arguments it is made anew at each call.

        Raises `ImportError` without pyarrow (extra `arrow`), `ValueError` for a remote file and for columns that Arrow cannot
        hold, `OSError` if the folder cannot be written or the disk is full, and what pandas raises.
        """
        require_arrow()
        import pandas as pd

        file = self._required().file if self._frame is None else open_ranges(self.path)
        kind = {"arguments": repr(sorted(self.arguments.items())), "pandas": pd.__version__}
        return mapped_table(file, kind if is_plain(self.arguments) else None, folder, self._whole)[0]

    def _whole(self) -> "pa.Table":
        import pyarrow as pa

        frame = read_csv(self.path, self.arguments) if self._frame is None else self._frame
        # a RangeIndex is kept as a description only, from which `take` would make other labels
        labels = True if _has_labels(self.path, self.arguments) else None
        try:
            table = pa.Table.from_pandas(frame, preserve_index=labels)
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise ValueError(f"{self.path}: Arrow cannot hold this frame ({error}); pass dtype= for its columns") from None
        kept = table.slice(0, 0).to_pandas().dtypes
        for name, dtype in frame.dtypes.items():
            if name not in kept or kept[name] != dtype:
                raise ValueError(f"{self.path}: Arrow cannot keep column {name!r} of dtype {dtype}; pass dtype= for it")
        return table

    def close(self) -> None:
        """Close the file; no more rows can be read. May be called again."""
        self._frame = None
        if self._records is not None:
            self._records.file.close()

    def __enter__(self) -> "CsvRows":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _required(self) -> Records:
        if self._records is None:
            raise ValueError(f"{self.path} was closed; open it again to read from it")
        return self._records


def _has_labels(path: str, arguments: dict[str, Any]) -> bool:
    """Whether the index of a frame comes from the file, and is more than the rows' numbers.

    pandas 3 makes a `RangeIndex` of labels that ascend evenly, but not of a single one.
    """
    import pandas as pd

    if arguments.get("index_col") not in (None, False):
        return True
    if arguments.get("engine") == "pyarrow":
        return False  # it takes no nrows, and its rows have no more fields than the header
    try:
        return not isinstance(read_csv(path, {**arguments, "nrows": 1}).index, pd.RangeIndex)
    except Exception:  # pandas reads more than one row of it only: in doubt, nothing is dropped
        return True


def _last_header_line(header: object, names: object) -> int:
    """The number of the last header line among those with a record; -1 if there is none."""
    match header:
        case "infer":
            return 0 if names is None else -1
        case None:
            return -1
        case bool():
            raise NotIndexable(f"header={header!r}")
        case int() | np.integer() if header >= 0:
            return int(header)
        case _:
            raise NotIndexable(f"header={header!r}")
