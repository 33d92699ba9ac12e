"""Programs that were quietly wrong with rows of CSV files: each is right now, or one clear error. No torch is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from perflint_runtime import CsvDataset, CsvRows
from perflint_runtime.csv_arguments import _UNDERSTOOD, _UNDERSTOOD_IF_OFF

pd = pytest.importorskip("pandas")

PANDAS = tuple(int(part) for part in pd.__version__.split(".")[:2])
TWO_EXPORTS = b"\xef\xbb\xbfid,t\n1,a\n2,b\n\xef\xbb\xbfid,t\n3,c\n4,d\n"
"""`cat a.csv b.csv` of two files with a byte order mark."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_each_argument_of_read_csv_is_understood_or_refused() -> None:
    import inspect

    known = _UNDERSTOOD | _UNDERSTOOD_IF_OFF
    assert set(inspect.signature(pd.read_csv).parameters) - {"filepath_or_buffer"} <= known


@pytest.mark.parametrize("argument", ["memory_map", "delim_whitespace", "an_argument_of_the_future"])
def test_what_is_not_understood_is_left_to_pandas(tmp_path: Path, argument: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = outcome(lambda: CsvRows.of(path).read_csv(skiprows=1, nrows=1, **{argument: True}))
    assert any(f"({argument})" in str(warning.message) for warning in caught)
    assert ours == outcome(lambda: pd.read_csv(path, skiprows=1, nrows=1, **{argument: True}))


@pytest.mark.skipif(PANDAS >= (3, 0), reason="pandas 3 has no delim_whitespace")
def test_delim_whitespace(tmp_path: Path) -> None:
    path = tmp_path / "white.txt"
    path.write_text('id name n\n1 "two\nlines" 5\n2 bob 6\n3 "a b" 7\n')
    whole = pd.read_csv(path, delim_whitespace=True)
    rows = CsvRows(path, delim_whitespace=True)
    assert len(rows) == 3
    pd.testing.assert_frame_equal(rows.rows([2, 0]), whole.iloc[[2, 0]].reset_index(drop=True))
    for skip in (1, 2, range(1, 2), range(1, 3)):
        call = {"skiprows": skip, "nrows": 1, "header": None, "delim_whitespace": True}
        pd.testing.assert_frame_equal(CsvRows.of(path).read_csv(**call), pd.read_csv(path, **call))


@pytest.mark.parametrize(
    "call",
    [
        {"skiprows": 3, "nrows": 1, "header": None},
        {"skiprows": 3, "nrows": 2},
        {"skiprows": range(3), "nrows": 1, "header": None},
    ],
)
def test_a_byte_order_mark_at_the_first_line_that_is_kept(tmp_path: Path, call: dict[str, Any]) -> None:
    path = tmp_path / "two.csv"
    path.write_bytes(TWO_EXPORTS)
    pd.testing.assert_frame_equal(CsvRows.of(path).read_csv(**call), pd.read_csv(path, **call))


@pytest.mark.parametrize("arguments", [{"header": None, "skiprows": 1}, {"skiprows": 3}, {"header": None, "encoding": "utf8"}])
def test_a_byte_order_mark_in_a_row_is_text(tmp_path: Path, arguments: dict[str, Any]) -> None:
    path = tmp_path / "two.csv"
    path.write_bytes(TWO_EXPORTS)
    whole = pd.read_csv(path, **arguments, dtype=str)
    rows = CsvRows(path, **arguments, dtype=str)
    for i in range(len(whole)):
        pd.testing.assert_frame_equal(rows.row(i), whole.iloc[[i]].reset_index(drop=True))


def test_two_byte_order_marks_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_bytes(b"\xef\xbb\xbf" + TWO_EXPORTS)
    for encoding in (None, "utf-8", "utf-8-sig"):
        pd.testing.assert_frame_equal(CsvRows(path, encoding=encoding).rows([0, 1]), pd.read_csv(path, encoding=encoding)[:2])


@pytest.mark.parametrize(
    "arguments",
    [
        {"index_col": "id"},
        {"index_col": "id", "engine": "python"},
        {"index_col": "id", "memory_map": True},
        {"index_col": 0, "header": None, "skiprows": 1, "engine": "python"},
    ],
)
def test_ids_in_the_index_stay_with_their_rows(tmp_path: Path, arguments: dict[str, Any]) -> None:
    path = tmp_path / "ids.csv"
    path.write_text("id,x\n" + "".join(f"{i},{i * 2}\n" for i in range(5, 9)))
    assert CsvRows(path, **arguments).rows([2, 1]).index.tolist() == [7, 6]


def test_ids_in_a_first_column_without_a_name_stay_with_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    path.write_text("x,y\n0,0,0\n1,0,0\n2,0,0\n")
    for arguments in ({}, {"engine": "python"}):
        assert CsvRows(path, **arguments).rows([2, 1]).index.tolist() == [2, 1]
    path.write_text("x,y\n0,0\n1,0\n2,0\n")
    for arguments in ({}, {"engine": "python"}):
        assert CsvRows(path, **arguments).rows([2, 1]).index.tolist() == [0, 1]


def test_another_content_of_the_same_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "kept.csv"
    path.write_text("a,b\n1,22\n333,4\n")
    stat = path.stat()
    call = {"skiprows": range(1, 2), "nrows": 1}
    CsvRows.of(path).read_csv(**call)
    with path.open("r+") as stream:
        stream.write("a,b\n1,2222\n3,4\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    pd.testing.assert_frame_equal(CsvRows.of(path).read_csv(**call), pd.read_csv(path, **call))


def test_the_index_on_disk_is_not_that_of_an_older_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflint_runtime.csv_sidecar.SMALLEST_BYTES", 1)
    path = tmp_path / "big.csv"
    path.write_text("id,t\n" + "".join(f"{i:07d},{'x' * 20}\n" for i in range(40_000)))
    stat = path.stat()
    assert len(CsvRows(path)) == 40_000
    with path.open("r+") as stream:
        stream.seek(5 + 29 * 1000)  # between two of the samples that a sidecar keeps
        stream.write("y" * 10 + "\n" + "z" * 17)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert len(CsvRows(path)) == 40_001


def test_a_wrong_byte_in_a_row_that_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "mixed.csv"
    path.write_bytes(b"a,b\n1,gr\xfcn\n3,4\n")
    for skip in (2, range(1, 2), [1]):
        call = {"skiprows": skip, "nrows": 1, "header": None}
        theirs = outcome(lambda call=call: pd.read_csv(path, **call))
        assert outcome(lambda call=call: CsvRows.of(path).read_csv(**call)) == theirs


def test_closing(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n2\n")
    with CsvRows(path) as rows, CsvDataset(path, {"a": int}) as dataset, CsvRows(path, engine="python") as whole:
        assert len(rows) == len(dataset) == len(whole) == 2
    for read in (lambda: rows.row(0), lambda: dataset[0], lambda: dataset[[0, 1]], lambda: whole.row(0)):
        with pytest.raises(ValueError, match=r"rows\.csv was closed; open it again"):
            read()
    rows.close()
    reader = CsvRows.of(path)
    for _ in range(2):
        with reader:
            assert reader.read_csv(skiprows=1, nrows=1, header=None)[0].tolist() == [1]


def test_nothing_is_printed_at_shutdown(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n2\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from perflint_runtime import CsvDataset, CsvRows\n"
        "rows = CsvRows('rows.csv')\n"
        "dataset = CsvDataset('rows.csv', {'a': int})\n"
        "CsvRows.of('rows.csv').read_csv(skiprows=1, nrows=1)\n"
        "cycle = [rows]; cycle.append(cycle); sys.kept = cycle\n"
    )
    done = subprocess.run([sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def outcome(read: Any) -> Any:
    """What a call gives as plain values, or the type and message of what it raises."""
    try:
        return read().to_dict("split")
    except Exception as error:
        return type(error), str(error)
