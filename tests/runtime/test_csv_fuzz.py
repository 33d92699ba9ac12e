"""Generated CSV files and arguments against pandas itself: the same rows, dtypes and errors.

`PERFLINT_FUZZ_FILES=10000 pytest tests/runtime/test_csv_fuzz.py -s` is the long run (about 20 minutes of one core per 10,000
files); it prints how many files went which way. Blocks are made so small that all states are carried from one to the next.
"""

from __future__ import annotations

import collections
import csv
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perflint_runtime import CsvRows, csv_index
from perflint_runtime.csv_skiprows import CsvReader

pd = pytest.importorskip("pandas")

FILES = int(os.environ.get("PERFLINT_FUZZ_FILES", "100"))
RUN = settings(
    max_examples=FILES,
    deadline=None,
    derandomize="PERFLINT_FUZZ_FILES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
FATES: collections.Counter[str] = collections.Counter()

TOKENS = [
    *['"', ",", "\n", "\r\n", "a", "1", " ", "\t", '""', "#", "\\", "\u00e9", ";", "x,y", '"a,b"', '"a\nb"', ",,", "\n\n"],
    *["1.5", "NA", ',"q\n""r",', "\r\n\r\n", "'", ' "', '" '],
]
FIELDS = ["1", "2.5", "a", '"x"', '"a ""b"""', '"l\nm"', "", "NA", "007", '"a,b"', "\u00e9", " s", '5"']
LINES = ["", "  ", "#c", '"', "1,2", "1,2,3,4", ',"a\nb"']


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Tables with a few odd lines, or any order of what is special in a CSV file."""
    if draw(st.booleans()):
        rows = draw(st.lists(st.lists(st.sampled_from(FIELDS), min_size=3, max_size=3).map(",".join), max_size=14))
        for odd in draw(st.lists(st.sampled_from(LINES), max_size=2)):
            rows.insert(draw(st.integers(0, len(rows))), odd)
        text = draw(st.sampled_from(["\n", "\r\n"])).join(rows) + draw(st.sampled_from(["", "\n"]))
    else:
        tokens = TOKENS + ["\r"] * draw(st.booleans())
        text = "".join(draw(st.lists(st.sampled_from(tokens), max_size=60)))
    return (draw(st.sampled_from(["", "", "", "", "\ufeff"])) + text).encode()


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """The same, some with bytes within that concatenating or cutting leaves behind."""
    data = draw(files())
    for odd in draw(st.lists(st.sampled_from([b"\xef\xbb\xbf", b"\xff", b"\xc3", b"\x00"]), max_size=2)):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + odd + data[at:]
    return data


DIALECTS = st.fixed_dictionaries(
    {},
    optional={
        "sep": st.sampled_from([",", ",", ";", "\t", " "]),
        "comment": st.sampled_from([None, "#"]),
        "escapechar": st.sampled_from([None, None, "\\"]),
        "doublequote": st.sampled_from([True, True, False]),
        "skipinitialspace": st.booleans(),
        "quoting": st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE]),
        "quotechar": st.sampled_from(['"', '"', "'"]),
        "skip_blank_lines": st.booleans(),
        "encoding": st.sampled_from([None, "utf-8", "utf8", "latin-1", "cp1252"]),
    },
)


def skips() -> st.SearchStrategy[Any]:
    """The forms of `skiprows`."""
    number = st.integers(0, 12)
    return st.one_of(
        st.integers(-1, 12),
        number.map(lambda n: range(1, n)),
        number.map(range),
        number.map(lambda n: range(1, n + 1, 2)),
        number.map(lambda n: list(range(1, n))),
        st.sets(number),
        number.map(lambda n: lambda line: line not in (0, n)),
        number.map(lambda n: lambda line: line < n),
    )


READS = st.fixed_dictionaries(
    {"skiprows": skips(), "nrows": st.sampled_from([1, 1, 1, 2, 3, 0, 5])},
    optional={
        "header": st.sampled_from([None, None, 0, 1, [0, 1]]),
        "names": st.sampled_from([["a", "b", "c"], ["a"], list("abcdefgh")]),
        "usecols": st.sampled_from([[0], [0, 1], [1]]),
        "index_col": st.sampled_from([0, False, 1]),
        "dtype": st.sampled_from([str, object, float]),
        "on_bad_lines": st.sampled_from(["skip", "warn", "error"]),
        "keep_default_na": st.booleans(),
        "low_memory": st.booleans(),
        "memory_map": st.sampled_from([False, False, True]),
        "engine": st.sampled_from([None, "c", "c", "python"]),
        "encoding_errors": st.sampled_from(["strict", "replace"]),
        **({"delim_whitespace": st.sampled_from([False, True])} if pd.__version__ < "3" else {}),
    },
)


@pytest.fixture(autouse=True, scope="module")
def _tell() -> Iterator[None]:
    yield
    print(f"\n{FILES} files and as many reads:", dict(sorted(FATES.items())))


def outcome(read: Callable[[], Any]) -> Any:
    """What a call gives, or the type of what it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return read()
        except Exception as error:
            return type(error)


def assert_same(ours: Any, theirs: Any) -> None:
    """The same frame in all its bits, or the same exception."""
    if isinstance(ours, type) or isinstance(theirs, type):
        assert ours is theirs
    else:
        pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


@pytest.mark.slow
@RUN
@given(data=files(), dialect=DIALECTS, block_bytes=st.sampled_from([64, 128, 1 << 18]))
def test_every_row_is_the_one_that_pandas_finds(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, dialect: dict[str, Any], block_bytes: int
) -> None:
    path = written(tmp_path_factory, data)
    arguments = {**dialect, "header": None, "names": list(range(40)), "dtype": str, "na_filter": False, "index_col": False}
    theirs = outcome(lambda: pd.read_csv(path, **arguments))
    rows = outcome(lambda: with_blocks(block_bytes, lambda: CsvRows(path, **arguments)))
    if isinstance(rows, type):
        assert rows is theirs
        FATES["rows: pandas refuses the file"] += 1
        return
    records = rows._records
    FATES[
        f"rows: {'fallen back' if records is None else 'slow path' if scanned(path, dialect, block_bytes) else 'fast path'}"
    ] += 1
    if isinstance(theirs, type):  # the last record is broken, all others are good
        assert records is not None
        assert outcome(lambda: rows.row(-1)) is theirs
        for i in range(len(rows) - 1):
            assert len(rows.row(i)) == 1
        return
    assert len(rows) == len(theirs)
    if len(rows):
        assert_same(rows.rows(range(len(rows))), theirs)
        backwards = range(len(rows) - 1, -1, -1)
        assert_same(rows.rows(backwards), theirs.iloc[list(backwards)].reset_index(drop=True))
    for i in range(len(rows)):
        assert_same(rows.row(i), theirs.iloc[[i]].reset_index(drop=True))


@RUN
@given(data=damaged_files(), dialect=DIALECTS, read=READS, block_bytes=st.sampled_from([64, 128, 1 << 18]))
def test_read_csv_gives_what_pandas_gives(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, dialect: dict[str, Any], read: dict[str, Any], block_bytes: int
) -> None:
    path = written(tmp_path_factory, data)
    arguments = {**dialect, **read}
    theirs = outcome(lambda: pd.read_csv(path, **arguments))
    reader = CsvReader(str(path))
    ours = with_blocks(block_bytes, lambda: outcome(lambda: reader.read_csv(**arguments)))
    assert_same(ours, theirs)
    FATES[f"read_csv: {'raised' if isinstance(theirs, type) else 'handed over' if reader.handed_over else 'fast'}"] += 1


def written(factory: pytest.TempPathFactory, data: bytes) -> Path:
    """A file of these bytes."""
    path = factory.getbasetemp() / "fuzzed.csv"
    path.write_bytes(data)
    return path


def with_blocks(block_bytes: int, run: Callable[[], Any]) -> Any:
    """Run with another size of blocks."""
    usual = csv_index.BLOCK_BYTES
    csv_index.BLOCK_BYTES = block_bytes
    try:
        return run()
    finally:
        csv_index.BLOCK_BYTES = usual


def scanned(path: Path, dialect: dict[str, Any], block_bytes: int) -> bool:
    """Whether any of the file was scanned byte by byte."""
    from perflint_runtime.csv_arguments import layout_of
    from perflint_runtime.csv_file import RangeFile
    from perflint_runtime.csv_sidecar import line_index

    layout = layout_of(dialect)
    index = with_blocks(block_bytes, lambda: line_index(RangeFile(str(path)), layout.dialect, strip_bom=layout.strip_bom))
    return bool(index.scanned_bytes)
