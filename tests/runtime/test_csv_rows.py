"""`CsvRows`: rows by number, each with its own dtypes; workers, changed files, what cannot be indexed."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from perflint_runtime import CsvRows

pd = pytest.importorskip("pandas")

TABLE = b'a,b,text\n1,2.5,"he said ""no""\nand left"\n007,,x\n\n3,4,NA'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three rows, one with a line break in quotes, a blank line, no line break at the end."""
    path = tmp_path / "table.csv"
    path.write_bytes(TABLE)
    return path


def test_a_row_has_the_dtypes_of_its_own_values(table: Path) -> None:
    rows = CsvRows(table)
    assert len(rows) == 3
    first = pd.read_csv(io.StringIO('a,b,text\n1,2.5,"he said ""no""\nand left"\n'))
    pd.testing.assert_frame_equal(rows.row(0), first)
    pd.testing.assert_frame_equal(rows[1], pd.read_csv(io.StringIO("a,b,text\n007,,x\n")))
    assert rows.row(-1)["b"].dtype == "int64"
    assert rows.row(0)["b"].dtype == "float64"


def test_rows_are_parsed_together_in_the_order_asked_for(table: Path) -> None:
    found = CsvRows(table).rows([2, 0, 2])
    pd.testing.assert_frame_equal(found, pd.read_csv(table).iloc[[2, 0, 2]].reset_index(drop=True))
    assert [len(row) for row in CsvRows(table)] == [1, 1, 1]


def test_a_row_beyond_the_end(table: Path) -> None:
    with pytest.raises(IndexError, match=r"row 3 of 3 rows in .*table\.csv"):
        CsvRows(table).row(3)
    with pytest.raises(IndexError, match="row -4"):
        CsvRows(table).row(-4)


def test_arguments_of_read_csv(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_bytes(b"title\n# note\nx;y\n1,5;'a;b'\n# note\n 2,5 ;c\n")
    rows = CsvRows(path, sep=";", comment="#", quotechar="'", decimal=",", index_col="y")
    assert len(rows) == 3  # "title" is the header then
    rows = CsvRows(path, sep=";", comment="#", quotechar="'", decimal=",", index_col="y", header=1)
    assert rows.row(0)["x"].tolist() == [1.5]
    assert rows.row(1).index.tolist() == ["c"]


def test_skiprows_before_the_header(tmp_path: Path) -> None:
    path = tmp_path / "titled.csv"
    path.write_bytes(b"a title, and more\n\nx,y\n1,2\n3,4\n")
    assert CsvRows(path, skiprows=1).row(1).to_dict("list") == {"x": [3], "y": [4]}
    assert CsvRows(path, skiprows=4, names=["p", "q"]).row(0).to_dict("list") == {"p": [3], "q": [4]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nrows": 5}, "takes no nrows=5"),
        ({"chunksize": 5}, "takes no chunksize=5"),
        ({"skiprows": [1]}, r"skiprows as an integer, not \[1\]"),
        ({"compression": "gzip"}, "is compressed.*decompress it first"),
    ],
)
def test_arguments_that_make_no_sense_here(table: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CsvRows(table, **arguments)


def test_a_compressed_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rows\.csv\.gz is compressed.*gzip --decompress --keep"):
        CsvRows(tmp_path / "rows.csv.gz")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.csv"):
        CsvRows(tmp_path / "missing.csv")


@pytest.mark.parametrize(
    ("arguments", "encoding"),
    [
        ({"engine": "python"}, "utf-8"),
        ({"sep": r"\s+"}, "utf-8"),
        ({"encoding": "utf-16"}, "utf-16"),
        ({"header": [0, 1]}, "utf-8"),
    ],
)
def test_what_cannot_be_indexed_is_read_whole(tmp_path: Path, arguments: dict[str, Any], encoding: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n3,4\n", encoding=encoding)
    with pytest.warns(RuntimeWarning, match="no index of its records can be exact .*read whole and kept in memory"):
        rows = CsvRows(path, **arguments)
    whole = pd.read_csv(path, **arguments)
    assert len(rows) == len(whole)
    pd.testing.assert_frame_equal(rows.row(0), whole.iloc[[0]])


def test_latin_1_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes("w\ngr\u00fcn\nblau\n".encode("latin-1"))
    assert CsvRows(path, encoding="latin-1").row(0)["w"].tolist() == ["gr\u00fcn"]
    path.write_bytes(b'\xef\xbb\xbf"w\n2",v\n1,2\n')
    assert CsvRows(path).row(0).columns.tolist() == ["w\n2", "v"]


def test_a_file_that_changed_is_refused(table: Path) -> None:
    rows = CsvRows(table)
    with table.open("ab") as stream:
        stream.write(b"\n9,9,z\n")
    with pytest.raises(
        RuntimeError, match=r"table\.csv changed after it was indexed \(\d+ bytes then, \d+ now\); open it again"
    ):
        rows.row(0)
    assert len(CsvRows(table)) == 4


def test_a_file_that_was_truncated_is_an_error_and_no_crash(table: Path) -> None:
    rows = CsvRows(table)
    os.truncate(table, 12)
    with pytest.raises(RuntimeError, match="changed after it was indexed"):
        rows.rows([0, 2])


def test_a_file_that_was_replaced_is_read_as_it_was(table: Path) -> None:
    rows = CsvRows(table)
    other = table.with_name("new.csv")
    other.write_bytes(b"a,b,text\n8,8,8\n")
    os.replace(other, table)
    assert rows.row(0)["a"].tolist() == [1]


def test_pickling_opens_the_file_again(table: Path) -> None:
    rows = CsvRows(table)
    state = pickle.dumps(rows)
    assert pickle.loads(state).row(2)["b"].tolist() == [4]
    with table.open("ab") as stream:
        stream.write(b"\n")
    with pytest.raises(RuntimeError, match="changed after it was indexed"):
        pickle.loads(state)


def test_a_broken_last_record_is_pandas_error(tmp_path: Path) -> None:
    path = tmp_path / "broken.csv"
    path.write_bytes(b'a,b\n1,2\n3,"never closed\n')
    rows = CsvRows(path)
    assert rows.row(0)["b"].tolist() == [2]
    for indices in ([1], [1, 0]):
        with pytest.raises(pd.errors.ParserError, match="EOF inside string"):
            rows.rows(indices)


def test_threads_and_processes_read_the_right_rows(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    path.write_text("n,square\n" + "".join(f"{n},{n * n}\n" for n in range(2000)))
    rows = CsvRows(path)
    wrong: list[int] = []
    threads = [threading.Thread(target=lambda k=k: wrong.extend(wrong_rows(rows, range(k, 2000, 40)))) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for method in ("fork", "spawn"):
        if method not in multiprocessing.get_all_start_methods():
            continue
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.starmap(wrong_rows, [(rows, range(k, 2000, 40)) for k in range(4)]) == [[], [], [], []]


def wrong_rows(rows: CsvRows, numbers: range) -> list[int]:
    """The numbers of rows that do not hold them."""
    return [n for n in numbers if rows.row(n)["square"].tolist() != [n * n]]


def test_remote_files_through_fsspec() -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://bucket/rows.csv", "wb") as stream:
        stream.write(TABLE)
    rows = CsvRows("memory://bucket/rows.csv")
    assert rows.rows([2, 0])["a"].tolist() == [3, 1]


def test_needs_no_torch() -> None:
    code = "import sys, perflint_runtime as p; p.CsvRows, p.CsvDataset; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
