"""`CsvDataset`: rows and batches of fixed dtypes, under torch's DataLoader too."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perflint_runtime import CsvDataset

TABLE = 'id,text,score,ok,label\n0,"he said ""no"",\nand left",1.5,True,007\n1,NA,,false,-3\n\n2,plain \u00fc,1e-3,TRUE,4\n'
COLUMNS: dict[str, Any] = {"text": str, "score": np.float32, "ok": bool, "label": np.int64}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three rows of texts and numbers."""
    path = tmp_path / "table.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def test_a_row_is_a_dict_of_texts_and_numpy_scalars(table: Path) -> None:
    dataset = CsvDataset(table, COLUMNS)
    assert len(dataset) == 3
    assert dataset[0] == {"text": 'he said "no",\nand left', "score": 1.5, "ok": True, "label": 7}
    assert dataset[-1]["text"] == "plain \u00fc"
    row = dataset[1]
    assert row["text"] == "NA"
    assert isinstance(row["score"], np.float32)
    assert np.isnan(row["score"])
    assert isinstance(row["label"], np.int64)


def test_a_batch_is_a_dict_of_columns(table: Path) -> None:
    batch = CsvDataset(table, COLUMNS)[[2, 0, 2]]
    assert batch["text"] == ["plain \u00fc", 'he said "no",\nand left', "plain \u00fc"]
    np.testing.assert_array_equal(batch["score"], np.array([1e-3, 1.5, 1e-3], np.float32))
    assert {name: values.dtype for name, values in batch.items() if isinstance(values, np.ndarray)} == {
        "score": np.dtype(np.float32),
        "ok": np.dtype(bool),
        "label": np.dtype(np.int64),
    }


def test_rows_of_a_batch_are_the_rows(table: Path) -> None:
    dataset = CsvDataset(table, {"id": np.int16, "text": str}, transform=lambda row: (int(row["id"]), row["text"]))
    assert dataset.__getitems__([0, 2]) == [dataset[0], dataset[2]]


def test_fields_as_pandas_finds_them(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    fields = ["", "a", '"a"', '"a""b"', '""', '""""', '"a"b', '5"', 'x"y"', '"a,b"', '"l\nm"', " s ", '"a" ', '"a""b"c"d"']
    path = tmp_path / "fields.csv"
    rows = [[a, b, c] for a in fields for b in fields for c in ("", "z", '"q"')]
    path.write_text("\n".join(",".join(row) for row in [["p", "q", "r"], *rows]))
    dataset = CsvDataset(path, {"p": str, "q": str, "r": str})
    whole = pd.read_csv(path, dtype=str, na_filter=False)
    assert len(dataset) == len(whole) == len(rows)
    batch = dataset.batch(range(len(dataset)))
    for name in whole:
        assert batch[name] == whole[name].tolist()
    assert [dataset[i]["q"] for i in range(len(dataset))] == whole["q"].tolist()


def test_other_dialects(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_bytes("1|'gr\u00fcn|x'\r\n2|b\r\n".encode("latin-1"))
    dataset = CsvDataset(path, {"w": str}, sep="|", quotechar="'", encoding="latin-1", names=["n", "w"])
    assert dataset.batch([0, 1]) == {"w": ["gr\u00fcn|x", "b"]}
    path.write_text('t\nn\\w\n1\\"\n')
    assert CsvDataset(path, {"w": str}, sep="\\", quoting=3, skiprows=1)[0] == {"w": '"'}


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"absent": str}, ValueError, r"table\.csv has no single column 'absent'; its columns are id, text, score"),
        ({"id": "datetime64[s]"}, TypeError, "column 'id' is 'datetime64.s.'; a column is str, bool, or an integer"),
        ({"id": object}, TypeError, "column 'id'"),
    ],
)
def test_columns_that_cannot_be(table: Path, columns: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        CsvDataset(table, columns)


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        ({"score": np.int64}, 0, r"row 0 of .*table\.csv: column 'score' is '1\.5', which is no int64"),
        ({"text": float}, 2, "row 2 of .*column 'text' is 'plain \u00fc', which is no float64"),
        ({"label": np.uint8}, 1, "row 1 of .*column 'label' is '-3', which is no uint8"),
    ],
)
def test_a_field_of_another_type_names_its_row(table: Path, columns: dict[str, Any], row: int, message: str) -> None:
    dataset = CsvDataset(table, columns)
    with pytest.raises(ValueError, match=message):
        dataset[row]
    with pytest.raises(ValueError, match=message):
        dataset[[row, row]]


def test_ragged_rows(tmp_path: Path) -> None:
    path = tmp_path / "ragged.csv"
    path.write_text("a,b\n1\n1,2,3\n1_000,2\n")
    dataset = CsvDataset(path, {"b": float, "a": int})
    assert np.isnan(dataset[0]["b"])
    with pytest.raises(ValueError, match=r"row 1 of .*ragged\.csv has 3 fields, the header has 2"):
        dataset[[0, 1]]
    with pytest.raises(ValueError, match="column 'a' is '1_000'"):
        dataset[2]


def test_files_that_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("")
    with pytest.raises(ValueError, match=r"odd\.csv has no header"):
        CsvDataset(path, {})
    path.write_text('a\n"never closed\n')
    with pytest.raises(ValueError, match=r"odd\.csv ends inside quotes, which row 0 opens"):
        CsvDataset(path, {"a": str})
    with pytest.raises(ValueError, match=r"no index of its records can be exact .encoding='utf-16'"):
        CsvDataset(path, {"a": str}, encoding="utf-16")
    with pytest.raises(IndexError, match="row 5 of 3 rows"):
        CsvDataset(written(tmp_path, TABLE), COLUMNS)[5]


def test_a_file_that_changed(table: Path) -> None:
    dataset = CsvDataset(table, COLUMNS)
    table.write_text(TABLE[:40])
    for read in (lambda: dataset[0], lambda: dataset[[0, 1]]):
        with pytest.raises(RuntimeError, match=r"table\.csv changed after it was indexed"):
            read()


@pytest.mark.parametrize("context", [None, "fork", "spawn"])
def test_dataloader_reads_the_same_rows_in_workers(tmp_path: Path, context: str | None) -> None:
    torch = pytest.importorskip("torch")
    if context is not None and context not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {context} here")
    path = written(tmp_path, "n,text\n" + "".join(f'{n},"line\n{n}"\n' for n in range(300)))
    dataset = CsvDataset(path, {"n": np.int64, "text": str})
    dataset[0]  # the file is open before the workers start
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=16,
        shuffle=True,
        num_workers=0 if context is None else 2,
        multiprocessing_context=context,
        generator=torch.Generator().manual_seed(0),
    )
    seen = []
    for batch in loader:
        assert batch["n"].dtype == torch.int64
        assert batch["text"] == [f"line\n{n}" for n in batch["n"].tolist()]
        seen += batch["n"].tolist()
    assert sorted(seen) == list(range(300))


def test_dataloader_takes_batches_as_they_are(table: Path) -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    dataset = CsvDataset(table, {"label": np.int64, "text": str})
    sampler = data.BatchSampler(data.SequentialSampler(dataset), 2, drop_last=False)
    batches = list(data.DataLoader(dataset, batch_size=None, sampler=sampler))
    assert torch.equal(batches[0]["label"], torch.tensor([7, -3]))
    assert batches[1]["text"] == ["plain \u00fc"]


def test_pickles_without_the_open_file(table: Path) -> None:
    dataset = pickle.loads(pickle.dumps(CsvDataset(table, COLUMNS)))
    assert dataset[2]["label"] == 4


def written(folder: Path, text: str) -> Path:
    """A file with a text."""
    path = folder / "written.csv"
    path.write_text(text, encoding="utf-8")
    return path
