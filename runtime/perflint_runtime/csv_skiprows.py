"""`pandas.read_csv(path, skiprows=..., nrows=...)` without parsing what is skipped.

pandas gets the lines that it would have kept, read lazily: as many as the call should need in the first piece, and more if it
asks. So nothing is wrong if the guess is; and where the index cannot stand in for pandas' own count of lines, or pandas
raises, the call is handed to pandas as it came.
"""

import codecs
import itertools
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from perflint_runtime.csv_arguments import Layout, LineSource, NotIndexable, layout_of, read_csv
from perflint_runtime.csv_file import RangeFile, Version, is_remote, refuse_compressed
from perflint_runtime.csv_index import LineIndex
from perflint_runtime.csv_scan import Dialect
from perflint_runtime.csv_sidecar import line_index

if TYPE_CHECKING:
    import pandas as pd

_PIECE_BYTES = 1 << 18
"""What pandas' C parser reads at a time."""
_GROUP_LINES = 4096
_MAX_READERS = 64


class CsvReader:
    """`read_csv` of one file, for calls that skip to a few rows. Made by `CsvRows.of`."""

    def __init__(self, path: object) -> None:
        """Nothing is opened before it is read; `path` is whatever `pandas.read_csv` takes."""
        self.path = path
        self._opened: _Opened | None = None
        self._warned: set[str] = set()
        self.handed_over = 0
        """How many calls pandas had to serve from the start of the file."""

    def read_csv(self, **arguments: Any) -> "pd.DataFrame":
        """The frame that `pandas.read_csv(path, **arguments)` gives, values, dtypes, columns and index.

        Fast (an index of the lines is built at the first call, and again if the file changed) for `skiprows` as an integer,
        a collection or a function, together with `nrows`, whatever the other arguments, with pandas' C parser. Anything else
        is what pandas does; where that parses the file from its start for each call, a warning says why, once. Raises what
        pandas raises. A function in `skiprows` must answer the same for the same line.
        """
        skip, count = arguments.get("skiprows"), arguments.get("nrows")
        if skip is None or not isinstance(count, (int, np.integer)):
            return read_csv(self.path, arguments)
        try:
            source = self._source(skip, int(count), arguments)
            return read_csv(source, {name: value for name, value in arguments.items() if name != "skiprows"})
        except NotIndexable as reason:
            self._warn(str(reason))
        except Exception:  # whatever it was: pandas raises its own, or reads what we could not
            pass
        self.handed_over += 1
        return read_csv(self.path, arguments)

    def close(self) -> None:
        """Close the file and forget its index; the next read opens it again."""
        self._opened = None  # the file is closed when no other thread reads from it any more

    def __enter__(self) -> "CsvReader":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _source(self, skip: object, count: int, arguments: dict[str, Any]) -> LineSource:
        path = self._local_path(arguments)
        layout = layout_of(arguments)
        if arguments.get("chunksize") is not None or arguments.get("iterator"):
            raise NotIndexable("the rows are read in chunks")
        file, index = self._index(path, layout)
        needed = count + _header_lines(arguments.get("header"), arguments.get("names"))
        lines = _Lines(file, index)
        match skip:
            case bool():
                raise TypeError("pandas refuses a bool")
            case int() | np.integer():
                first = max(0, int(skip))
                _require(first <= index.skippable or first >= len(index) == index.skippable)
                pieces = lines.all_from(first, needed)
            case _ if callable(skip):
                _require_plain(layout)
                pieces = lines.chosen(skip, needed)
            case range(start=start, stop=stop, step=1) if start >= 0:
                _require_plain(layout)
                pieces = lines.without(start, max(start, stop), needed)
            case _:
                _require_plain(layout)
                assert isinstance(skip, Iterable)
                pieces = lines.without_all(skip, needed)
        return LineSource(pieces, layout.codec)

    def _local_path(self, arguments: dict[str, Any]) -> str:
        if not isinstance(self.path, (str, os.PathLike)):
            raise NotIndexable("it is no path")
        path = os.path.expanduser(os.fspath(self.path))
        if not isinstance(path, str) or is_remote(path):
            raise NotIndexable("it is remote")
        if arguments.get("storage_options"):
            raise NotIndexable("storage_options")
        try:
            refuse_compressed(path, arguments.get("compression", "infer"))
        except ValueError:
            raise NotIndexable("it is compressed") from None
        return path

    def _index(self, path: str, layout: Layout) -> tuple[RangeFile, LineIndex]:
        opened, now = self._opened, os.stat(path)
        if opened is None or opened.file.version != Version.of(now) or opened.file.ctime_ns != now.st_ctime_ns:
            opened = self._opened = _Opened(RangeFile(path))
        if layout.codec not in opened.decodes:
            opened.decodes[layout.codec] = _decodes(opened.file, layout.codec)
        if not opened.decodes[layout.codec]:
            raise NotIndexable(f"it is not all {layout.codec}")
        # comments and escapes do not count while pandas skips lines
        dialect = Dialect(layout.dialect.delimiter, layout.dialect.quote)
        if not layout.dialect.double_quote and layout.dialect.quote >= 0:
            raise NotIndexable("doublequote=False")
        key = (dialect, layout.strip_bom)
        if key not in opened.indexes:
            opened.indexes[key] = line_index(opened.file, dialect, strip_bom=layout.strip_bom)
        return opened.file, opened.indexes[key]

    def _warn(self, reason: str) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            warnings.warn(
                f"{self.path}: pandas parses the file from its start for each read of some rows ({reason})",
                RuntimeWarning,
                stacklevel=3,
            )


@lru_cache(maxsize=_MAX_READERS)
def reader_of(path: str) -> CsvReader:
    """The reader of a path in this process; the same one as long as few others are asked for."""
    return CsvReader(path)


@dataclass
class _Opened:
    file: RangeFile
    indexes: dict[tuple[Dialect, bool], LineIndex] = field(default_factory=dict)
    decodes: dict[str | None, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class _Lines:
    """Pieces of a file, cut at its lines."""

    file: RangeFile
    index: LineIndex

    def text(self, first: int, stop: int) -> Iterator[bytes]:
        starts = self.index.starts
        return self._ranges(int(starts[first]), int(starts[stop])) if first < stop else iter(())

    def all_from(self, first: int, needed: int) -> Iterator[bytes]:
        """Every line from `first` on; the first piece holds `needed` lines and a few more."""
        lines = len(self.index)
        yield from self.text(first, soon := min(lines, first + needed + 2))
        yield from self.text(soon, lines)

    def without(self, start: int, stop: int, needed: int) -> Iterator[bytes]:
        """All lines but those from `start` up to `stop`."""
        lines = len(self.index)
        _require(min(stop, lines) <= self.index.skippable)
        return _merged(self.text(0, min(start, lines)), self.all_from(min(stop, lines), needed))

    def without_all(self, skipped: Iterable[object], needed: int) -> Iterator[bytes]:
        """All lines but some."""
        lines = len(self.index)
        numbers = np.unique(np.fromiter((operator.index(n) for n in skipped), np.int64))  # type: ignore[arg-type]
        numbers = numbers[(numbers >= 0) & (numbers < lines)]
        behind = int(numbers[-1]) + 1 if len(numbers) else 0
        _require(behind <= self.index.skippable)
        kept = np.setdiff1d(np.arange(behind), numbers, assume_unique=True).tolist()
        return _merged(self.each(kept), self.all_from(behind, needed))

    def each(self, numbers: list[int]) -> Iterator[bytes]:
        """Lines by number, many in a piece."""
        for at in range(0, len(numbers), _GROUP_LINES):
            yield b"".join(itertools.chain.from_iterable(self.text(n, n + 1) for n in numbers[at : at + _GROUP_LINES]))

    def chosen(self, skips: Callable[[int], object], needed: int) -> Iterator[bytes]:
        """The lines for which a function says no, asked one by one as pandas does."""
        lines, skippable = len(self.index), self.index.skippable
        kept: list[bytes] = []
        for line in range(lines):
            if not skips(line):
                kept += self.text(line, line + 1)
                if len(kept) >= min(needed, _GROUP_LINES):
                    yield b"".join(kept)
                    kept = []
            elif line >= skippable:
                raise NotIndexable("a line that is skipped begins with an empty field and a quote")
        yield b"".join(kept)

    def _ranges(self, start: int, stop: int) -> Iterator[bytes]:
        for at in range(start, stop, _PIECE_BYTES):
            yield self.file.read(at, min(stop, at + _PIECE_BYTES))


def _merged(before: Iterator[bytes], then: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, the last piece of one in one with the first of the other."""
    last = b""
    for piece in before:
        yield last
        last = piece
    yield last + next(then, b"")
    yield from then


def _header_lines(header: object, names: object) -> int:
    """About how many lines come before the first row."""
    match header:
        case int():
            return header + 1
        case list() | tuple() if header:
            return len(header) + 2
        case "infer" if names is not None:
            return 0
        case _:
            return 1


def _require(exact: bool) -> None:
    if not exact:
        raise NotIndexable("skipped lines begin with an empty field and a quote, or end in a lone carriage return")


def _require_plain(layout: Layout) -> None:
    if not layout.dialect.is_plain:
        raise NotIndexable("escapechar, comment or skipinitialspace together with lines that are kept before skipped ones")


def _decodes(file: RangeFile, codec: str | None) -> bool:
    """Whether all of a file can be decoded: pandas would fail at a wrong byte far from the rows it is asked for."""
    if codec is None or codec == "iso8859-1":
        return True
    decoder = codecs.getincrementaldecoder(codec)()
    try:
        for at in range(0, file.version.size_bytes, _PIECE_BYTES):
            piece = file.read(at, min(file.version.size_bytes, at + _PIECE_BYTES))
            if not piece.isascii() or decoder.getstate()[0]:  # each of these codecs reads ASCII as it is
                decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
