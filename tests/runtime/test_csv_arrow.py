"""`to_arrow()`: the same rows and dtypes, out of a file that is made once."""

from __future__ import annotations

import errno
import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perflint_runtime import CsvDataset, CsvRows, csv_arrow

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

COLUMNS: dict[str, Any] = {"n": np.int32, "x": np.float32, "flag": bool, "text": str, "empty": str}
ROWS = 300
SMILE = "\U0001f600"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Rows with quotes, line breaks, letters of several bytes, missing numbers."""
    path = tmp_path / "table.csv"
    lines = [f'{n},{"" if n % 7 == 0 else n / 3},{n % 2 == 0},"t\u00e4xt {SMILE * (n % 3)}\n""{n}""",' for n in range(ROWS)]
    path.write_text("n,x,flag,text,empty\n" + "\n".join(lines) + "\n")
    return path


def same(ours: Any, theirs: Any) -> bool:
    """The same values of the same types."""
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, np.ndarray):
        return ours.dtype == theirs.dtype and np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f")
    return type(ours) is type(theirs) and (ours == theirs or (ours != ours and theirs != theirs))


def test_a_data_set_gives_the_same_rows(table: Path) -> None:
    parsed = CsvDataset(table, COLUMNS)
    converted = parsed.to_arrow()
    assert len(converted) == ROWS
    for indices in ([5, 0, -1, 299, -300], [], range(ROWS), np.arange(3)):
        assert same(converted[indices], parsed[indices])
    for i in (0, 7, -1, -300):
        assert same(converted[i], parsed[i])
    assert all(same(a, b) for a, b in zip(converted.__getitems__([3, 1]), parsed.__getitems__([3, 1]), strict=True))
    assert same(pickle.loads(pickle.dumps(converted))[[3, 1]], parsed[[3, 1]])
    for read in (lambda: converted[300], lambda: converted[[0, -301]]):
        with pytest.raises(IndexError, match=r"row (300|-301) of 300 rows in .*table\.csv"):
            read()


def test_a_transform_is_applied(table: Path) -> None:
    converted = CsvDataset(table, {"n": int}, transform=lambda row: row["n"] + 1).to_arrow()
    assert converted[4] == 5
    assert converted.__getitems__([1, 2]) == [2, 3]


def test_a_file_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    path.write_text("n,text\n")
    converted = CsvDataset(path, {"n": int, "text": str}).to_arrow()
    assert len(converted) == 0
    assert same(converted[[]], {"n": np.empty(0, np.int64), "text": []})


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were written: the length of this list says how often."""
    places: list[Path] = []
    real = csv_arrow.writing

    def writing(place: Path, mode: int) -> Any:
        places.append(place)
        return real(place, mode)

    monkeypatch.setattr(csv_arrow, "writing", writing)
    return places


def test_the_file_is_kept_as_long_as_it_fits(table: Path, tmp_path: Path, made: list[Path]) -> None:
    for _ in range(2):
        CsvDataset(table, COLUMNS).to_arrow()
    assert len(made) == 1
    CsvDataset(table, {**COLUMNS, "n": np.int64}).to_arrow()
    CsvDataset(table, COLUMNS).to_arrow(tmp_path / "elsewhere")
    assert len(set(made)) == 3
    stat = table.stat()
    table.write_text(table.read_text().replace("\n0,", "\n9,", 1))
    os.utime(table, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert CsvDataset(table, COLUMNS).to_arrow()[0]["n"] == 9
    made[0].write_bytes(made[0].read_bytes()[:-20])
    assert CsvDataset(table, COLUMNS).to_arrow()[0]["n"] == 9
    assert len(made) == 5


def test_a_frame_keeps_its_dtypes(table: Path) -> None:
    arguments = {"dtype": {"text": "category"}, "index_col": "n"}
    whole = pd.read_csv(table, **arguments)
    for rows in (CsvRows(table, **arguments), whole_in_memory(table, arguments)):
        arrow = rows.to_arrow()
        pd.testing.assert_frame_equal(arrow.to_pandas(), whole, check_exact=True)
        pd.testing.assert_frame_equal(arrow.take([5, 2, 5]).to_pandas(), whole.iloc[[5, 2, 5]], check_exact=True)
    plain = pd.read_csv(table)
    taken = CsvRows(table).to_arrow().take([5, 2]).to_pandas()
    pd.testing.assert_frame_equal(taken, plain.iloc[[5, 2]].reset_index(drop=True), check_exact=True)
    numbered = pd.read_csv(table, header=None, skiprows=1)
    pd.testing.assert_frame_equal(CsvRows(table, header=None, skiprows=1).to_arrow().to_pandas(), numbered, check_exact=True)


@pytest.mark.filterwarnings("ignore:.*no index of its records:RuntimeWarning")
def whole_in_memory(table: Path, arguments: dict[str, Any]) -> CsvRows:
    """Rows of a file that has no index."""
    with pytest.warns(RuntimeWarning, match="read whole"):
        return CsvRows(table, engine="python", **arguments)


def test_with_a_function_among_the_arguments_nothing_is_kept(table: Path, made: list[Path]) -> None:
    for factor in (2, 3):
        rows = CsvRows(table, converters={"n": lambda text, factor=factor: int(text) * factor})
        assert rows.to_arrow()["n"][5].as_py() == 5 * factor
    assert len(made) == 2


def test_what_arrow_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "mixed.csv"
    path.write_text("a,b\n1,2\nx,3\n")
    rows = CsvRows(path, converters={"a": lambda text: int(text) if text.isdigit() else text})
    with pytest.raises(ValueError, match=r"mixed\.csv: Arrow cannot hold this frame .*; pass dtype="):
        rows.to_arrow()


def test_without_pyarrow_one_line_says_what_to_install(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for rows in (CsvDataset(table, COLUMNS), CsvRows(table)):
        with pytest.raises(ImportError, match=r"to_arrow\(\) needs pyarrow: pip install 'perflint-torch\[arrow\]'"):
            rows.to_arrow()


def test_a_full_disk_is_an_error_and_leaves_nothing(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, stream: Any) -> None:
            self.stream, self.closed = stream, False

        def write(self, _data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.stream, name)

    @contextmanager
    def full(place: Path, mode: int) -> Iterator[Any]:
        with real(place, mode) as stream:
            yield Full(stream)

    real = csv_arrow.writing
    monkeypatch.setattr(csv_arrow, "writing", full)
    for rows in (CsvDataset(table, COLUMNS), CsvRows(table)):
        with pytest.raises(OSError, match="No space left on device"):
            rows.to_arrow()
    assert list(table.parent.iterdir()) == [table]


def test_remote_files_are_refused() -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://bucket/arrow.csv", "wb") as stream:
        stream.write(b"a\n1\n")
    with pytest.raises(ValueError, match=r"arrow\.csv is remote: to_arrow\(\) converts local files"):
        CsvDataset("memory://bucket/arrow.csv", {"a": int}).to_arrow()
