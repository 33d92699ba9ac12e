"""`CsvRows.of(path).read_csv(...)` in place of `pandas.read_csv(path, ...)`: the same frames, from an index."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import FIXTURES
from perflint_runtime import CsvRows

from perflint.cli import run_for_tests

pd = pytest.importorskip("pandas")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A header and 40 rows; some texts hold line breaks."""
    path = tmp_path / "table.csv"
    rows = [f'{n},{n / 4},"{"line" * (n % 3)}\n{n}"' if n % 5 == 0 else f"{n},,t{n}" for n in range(40)]
    path.write_text("\n".join(["n,quarter,text", *rows]) + "\n")
    return path


CALLS: list[dict[str, Any]] = [
    {"skiprows": 7, "nrows": 1},
    {"skiprows": 7, "nrows": 1, "header": None},
    {"skiprows": 0, "nrows": 3},
    {"skiprows": -1, "nrows": 3},
    {"skiprows": range(1, 30), "nrows": 2},
    {"skiprows": list(range(1, 30)), "nrows": 2},
    {"skiprows": {1, 2, 3, 17}, "nrows": 4},
    {"skiprows": lambda n: n not in (0, 33), "nrows": 1},
    {"skiprows": 10, "nrows": 5, "names": ["a", "b", "c"], "dtype": str, "usecols": ["a", "c"]},
    {"skiprows": 10, "nrows": 5, "names": ["a", "b", "c"], "index_col": "a", "comment": "#"},
    {"skiprows": 39, "nrows": 50, "header": None},
    {"skiprows": 41, "nrows": 1, "names": ["a", "b", "c"]},
    {"skiprows": range(20, 30), "nrows": 25},
    {"skiprows": [20, 22, 1], "nrows": 25},
]


@pytest.mark.parametrize("arguments", CALLS)
def test_gives_pandas_frame_without_pandas_reading_the_file(table: Path, arguments: dict[str, Any]) -> None:
    reader = CsvRows.of(table)
    reader.handed_over = 0
    pd.testing.assert_frame_equal(reader.read_csv(**arguments), pd.read_csv(table, **arguments), check_exact=True)
    assert reader.handed_over == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"skiprows": 41, "nrows": 1}, "EmptyDataError"),
        ({"skiprows": 3, "nrows": 1, "usecols": ["absent"]}, "ValueError"),
        ({"skiprows": 3, "nrows": 1, "spe": ";"}, "TypeError"),
        ({"skiprows": True, "nrows": 1}, "TypeError"),
        ({"skiprows": lambda n: 1 // (n - 2), "nrows": 3}, "ZeroDivisionError"),
    ],
)
def test_raises_what_pandas_raises(table: Path, arguments: dict[str, Any], error: str) -> None:
    raised = []
    for read in (lambda: pd.read_csv(table, **arguments), lambda: CsvRows.of(table).read_csv(**arguments)):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            read()
        raised.append((caught.type, str(caught.value)))
    assert raised[0] == raised[1]
    assert raised[0][0].__name__ == error


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"engine": "python"}, "engine='python'"),
        ({"encoding": "utf-16"}, "encoding='utf-16'"),
        ({"on_bad_lines": "warn"}, "on_bad_lines=warn"),
        ({"skiprows": range(1, 3), "comment": "#"}, "comment"),
    ],
)
def test_warns_once_where_pandas_has_to_read_the_file(tmp_path: Path, arguments: dict[str, Any], reason: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n3,4\n5,6\n", encoding=arguments.get("encoding", "utf-8"))
    call = {"skiprows": 1, "nrows": 1, **arguments}
    with pytest.warns(RuntimeWarning, match=f"parses the file from its start for each read of some rows .*{reason}"):
        found = CsvRows.of(path).read_csv(**call)
    pd.testing.assert_frame_equal(found, pd.read_csv(path, **call))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CsvRows.of(path).read_csv(**call)


def test_long_records_and_many_rows(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(
        "a,b\n" + "".join(f'{n},"{"word " * 100_000}\n"\n' for n in range(4)) + "".join(f"{n},x\n" for n in range(20_000))
    )
    for arguments in (
        {"skiprows": 1, "nrows": 3, "header": None},
        {"skiprows": range(9_000, 12_000), "nrows": 10_000},
        {"skiprows": list(range(1, 12_000, 2)), "nrows": 8_000},
        {"skiprows": lambda n: n % 3 == 1, "nrows": 9_000},
    ):
        reader = CsvRows.of(path)
        pd.testing.assert_frame_equal(reader.read_csv(**arguments), pd.read_csv(path, **arguments), check_exact=True)
        assert reader.handed_over == 0
    assert CsvRows(path).rows([3, 0, 2])["b"].str.len().tolist() == [500_001] * 3


def test_a_changed_file_is_indexed_anew(table: Path) -> None:
    assert CsvRows.of(table).read_csv(skiprows=1, nrows=1, header=None)[0].tolist() == [0]
    table.write_text("n\n77\n")
    assert CsvRows.of(str(table)).read_csv(skiprows=1, nrows=1, header=None)[0].tolist() == [77]


def test_one_reader_per_path(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = CsvRows.of(table)
    monkeypatch.chdir(table.parent)
    assert CsvRows.of("table.csv") is reader


def test_what_is_no_local_path_is_left_to_pandas(table: Path) -> None:
    with table.open() as stream, pytest.warns(RuntimeWarning, match="it is no path"):
        assert CsvRows.of(stream).read_csv(skiprows=2, nrows=1, header=None).shape == (1, 3)


def test_compressed_files_are_left_to_pandas(table: Path) -> None:
    packed = table.with_name("table.csv.gz")
    pd.read_csv(table).to_csv(packed, index=False)
    with pytest.warns(RuntimeWarning, match="it is compressed"):
        found = CsvRows.of(packed).read_csv(skiprows=range(1, 5), nrows=1)
    pd.testing.assert_frame_equal(found, pd.read_csv(packed, skiprows=range(1, 5), nrows=1))


def test_a_byte_that_is_no_utf_8_far_from_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "bytes.csv"
    path.write_bytes(b"a,b\n1,2\n\xff,4\n5,6\n")
    for encoding in ("utf-8", "utf8", "latin-1"):
        call = {"skiprows": 3, "nrows": 1, "header": None, "encoding": encoding}
        outcomes = []
        for read in (lambda call=call: pd.read_csv(path, **call), lambda call=call: CsvRows.of(path).read_csv(**call)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    outcomes.append(read().to_dict())
                except UnicodeDecodeError as error:
                    outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_the_rule_rewrites_to_the_same_rows(tmp_path: Path) -> None:
    """The fixture of csv-row-by-skiprows, run as it is and as `perflint fix` makes it."""
    pytest.importorskip("torch")
    table = tmp_path / "rows.csv"
    table.write_text("".join(f"{n},{n * n};{-n}\n" for n in range(60)))
    before = shutil.copytree(
        FIXTURES / "csv-row-by-skiprows/runtime",
        tmp_path / "before",
        ignore=shutil.ignore_patterns("*.fixed.py", "__pycache__"),
    )
    after = shutil.copytree(before, tmp_path / "after")
    for folder in (before, after):
        (folder / "__init__.py").write_text("")
        (folder / "paths.py").write_text(f"CSV = {os.fspath(table)!r}\n")
    run = run_for_tests(["fix", "--no-cache", "--exit-zero", "--unsafe-fixes", "--select", "csv-row-by-skiprows", str(after)])
    assert run.exit_code == 0, run.output
    assert "CsvRows.of(self.path).read_csv(skiprows=i" in (after / "rows.py").read_text()
    original, rewritten = imported(before), imported(after)
    for name in ("RangeKeepsHeader", "LambdaPicksRow", "ListOfRows", "SharedPath", "BlockOfRows", "Rows"):
        for i in (0, 1, 2, 30, 55):
            assert item(original, name, table, i) == item(rewritten, name, table, i), (name, i)


def imported(folder: Path) -> ModuleType:
    """The module `rows` of a package in a folder."""
    name = f"fixture_{folder.name}"
    spec = importlib.util.spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"{name}.rows")


def item(module: ModuleType, name: str, table: Path, i: int) -> Any:
    """An item of a dataset of the fixture, in plain values, or what it raises."""
    kind = getattr(module, name)
    dataset = kind.__new__(kind)
    dataset.path, dataset.length, dataset.names = table, 3, ["a", "b"]
    try:
        found = dataset[i]
    except Exception as error:
        return type(error), str(error)
    if isinstance(found, pd.DataFrame):
        return found.to_dict("list"), [str(dtype) for dtype in found.dtypes], found.index.tolist()
    return found.tolist()
