"""Which calls of `pandas.read_csv` an index of lines can serve, and what pandas reads then."""

import codecs
import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflint_runtime.csv_scan import Dialect

if TYPE_CHECKING:
    import pandas as pd

_UTF8 = "utf-8"
_ONE_BYTE = frozenset(
    {
        "ascii",
        "cp1250",
        "cp1251",
        "cp1252",
        "cp437",
        "cp850",
        "iso8859-1",
        "iso8859-15",
        "iso8859-2",
        "koi8-r",
        "mac-roman",
    }
)
"""Encodings of one byte a character with ASCII in its place: what looks like a line break or a quote is one."""


_UNDERSTOOD = frozenset(
    {
        "cache_dates",
        "comment",
        "compression",
        "converters",
        "date_format",
        "date_parser",
        "dayfirst",
        "decimal",
        "delimiter",
        "doublequote",
        "dtype",
        "dtype_backend",
        "encoding",
        "encoding_errors",
        "engine",
        "escapechar",
        "false_values",
        "float_precision",
        "header",
        "index_col",
        "infer_datetime_format",
        "keep_date_col",
        "keep_default_na",
        "low_memory",
        "na_filter",
        "na_values",
        "names",
        "nrows",
        "on_bad_lines",
        "parse_dates",
        "quotechar",
        "quoting",
        "sep",
        "skip_blank_lines",
        "skipinitialspace",
        "skiprows",
        "storage_options",
        "thousands",
        "true_values",
        "usecols",
    }
)
"""Arguments that `layout_of` reads, or that concern fields and not where lines end (pandas 2.1 to 3.1)."""
_UNDERSTOOD_IF_OFF = frozenset(
    {"chunksize", "delim_whitespace", "dialect", "iterator", "lineterminator", "memory_map", "skipfooter", "verbose"}
)
_BYTES_BY_DEFAULT = (3, 1)
"""From this version of pandas on, a path without `encoding` is parsed as bytes; before, all that is read is decoded."""


class NotIndexable(Exception):
    """Why pandas has to read the whole file."""


@dataclass(frozen=True)
class Layout:
    """How a file is cut into lines, and in which encoding. `codec` is None for bytes that the parser takes as they are."""

    dialect: Dialect
    strip_bom: bool
    codec: str | None
    skip_blank_lines: bool


def layout_of(arguments: Mapping[str, object]) -> Layout:
    """The layout that `read_csv`'s arguments describe. Raises `NotIndexable` if pandas' C parser would not read it so."""
    engine = arguments.get("engine")
    if engine not in (None, "c"):
        raise NotIndexable(f"engine={engine!r}")
    for name, value in arguments.items():
        if name not in _UNDERSTOOD and (name not in _UNDERSTOOD_IF_OFF or value):
            raise NotIndexable(name)
    bad_lines = arguments.get("on_bad_lines", "error")
    if callable(bad_lines) or bad_lines == "warn":
        raise NotIndexable(f"on_bad_lines={bad_lines if isinstance(bad_lines, str) else 'a function'}")
    sep = arguments.get("sep", arguments.get("delimiter", ","))
    if "sep" in arguments and "delimiter" in arguments:
        raise NotIndexable("sep and delimiter")
    quotechar, quoting = arguments.get("quotechar", '"'), arguments.get("quoting", csv.QUOTE_MINIMAL)
    escapechar, comment = arguments.get("escapechar"), arguments.get("comment")
    if not isinstance(sep, str):
        raise NotIndexable(f"sep={sep!r}")
    if not isinstance(quoting, int) or not 0 <= quoting <= csv.QUOTE_NONE:
        raise NotIndexable(f"quoting={quoting!r}")
    for name, value in (("quotechar", quotechar), ("escapechar", escapechar), ("comment", comment)):
        if value is not None and not isinstance(value, str):
            raise NotIndexable(f"{name}={value!r}")
    try:
        dialect = Dialect.of(
            sep,
            quotechar if isinstance(quotechar, str) else None,
            quoting,
            bool(arguments.get("doublequote", True)),
            escapechar if isinstance(escapechar, str) else None,
            comment if isinstance(comment, str) else None,
            bool(arguments.get("skipinitialspace", False)),
        )
    except ValueError as error:
        raise NotIndexable(str(error)) from None
    special = [dialect.delimiter, dialect.quote, dialect.escape, dialect.comment]
    given = [byte for byte in special if byte >= 0]
    if len({*given, 10, 13, 0}) < len(given) + 3:
        raise NotIndexable("one character with two meanings")
    codec, strip_bom = _codec(arguments.get("encoding"), arguments.get("encoding_errors"))
    return Layout(dialect, strip_bom, codec, bool(arguments.get("skip_blank_lines", True)))


def _codec(encoding: object, errors: object) -> tuple[str | None, bool]:
    """How the parser's bytes come from the file's, and whether it takes a byte order mark away."""
    if encoding == _UTF8 or (encoding is None and _pandas_version() >= _BYTES_BY_DEFAULT):
        return None, True
    if encoding is None:
        encoding = _UTF8
    if not isinstance(encoding, str) or errors not in (None, "strict"):
        raise NotIndexable(f"encoding={encoding!r}, encoding_errors={errors!r}")
    try:
        codec = codecs.lookup(encoding).name
    except LookupError:
        codec = ""
    if codec in (_UTF8, "utf-8-sig"):
        return _UTF8, True
    if codec in _ONE_BYTE:
        return codec, False
    raise NotIndexable(f"encoding={encoding!r}")


def _pandas_version() -> tuple[int, int]:
    import pandas as pd

    major, minor = pd.__version__.split(".")[:2]
    return int(major), int(minor)


class LineSource:
    """What pandas reads in place of the file: pieces of it, one for each call of `read`.

    It is no subclass of `io`'s classes: those pandas would wrap to decode them, but it hands an object that only reads to the
    C parser as it is, like the bytes of a path.
    """

    def __init__(self, pieces: Iterator[bytes], codec: str | None) -> None:
        self._pieces = pieces
        self._decoder = None if codec is None else codecs.getincrementaldecoder(codec)()
        self._mark = codecs.BOM_UTF8 if codec in (None, _UTF8) else None

    def read(self, _count: int = -1) -> bytes | str:
        """The next piece; empty at the end."""
        for piece in self._pieces:
            if piece and self._mark is not None and piece.startswith(self._mark):
                raise NotIndexable("a byte order mark within the file")  # the parser may drop it at the start of a piece
            if piece and self._decoder is None:
                return piece
            if piece and self._decoder is not None and (text := self._decoder.decode(piece)):
                return text
        return b"" if self._decoder is None else self._decoder.decode(b"", final=True)

    def __iter__(self) -> "LineSource":
        return self

    def __next__(self) -> bytes | str:
        if piece := self.read():
            return piece
        raise StopIteration


def read_csv(source: object, arguments: Mapping[str, object]) -> "pd.DataFrame":
    """`pandas.read_csv`; its own types refuse a source that only reads."""
    import pandas as pd

    untyped: Any = pd.read_csv
    frame: pd.DataFrame = untyped(source, **arguments)
    return frame
