"""CPU time and memory of random rows of a CSV file: `CsvRows` and `CsvDataset` beside what else there is, in one run.

    python benchmarks/csv_rows.py [--folder FOLDER] [--scale SHARE] [--rounds N] [--json FILE]

Two files are generated (kept in FOLDER if given): *text*, 100,000 records of quoted text with line breaks, doubled quotes and
umlauts; and *num*, 2,000,000 records of three numbers. Times are of the process's CPU, the least of the rounds, since this is
what the work costs when nothing else disturbs it. In each round all take their turn, at opening as at reading, so all have the
same number of rounds. What converts the file first is opened twice: the first time it converts, later it finds the result.

Each contender hands out what a training loop needs, in the fastest way that it offers: arrays or lists of numbers and lists of
texts; tables of pyarrow are of one chunk. Row numbers are random. Libraries that are not installed are left out: pip install
pyarrow polars datasets. Resident memory is what a fresh process grows by when it opens a file and reads a thousand rows.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from perflint_runtime import CsvDataset, CsvRows
from surroundings import commit, machine, versions

ROOT = Path(__file__).resolve().parent.parent
COLUMNS: dict[str, dict[str, Any]] = {
    "text": {"id": np.int64, "text": str, "label": np.int64},
    "num": {"a": np.float64, "b": np.float64, "c": np.float64},
}
GROWTH = """
import sys
import numpy as np
from perflint_runtime import CsvDataset
def resident():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) * 1024
path, small, columns = sys.argv[1], sys.argv[2], {name: str for name in sys.argv[3].split(",")}
warm = CsvDataset(small, columns)
warm[0], warm[[0, 1]]
before = resident()
dataset = CsvDataset(path, columns, sidecar=False)
for start in range(1000):
    dataset[start * len(dataset) // 1000]
print((resident() - before) / len(dataset))
"""


def main() -> int:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the files are made and kept")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the record here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        paths = {"text": text_file(folder, options.scale), "num": number_file(folder, options.scale)}
        results = {name: measured(name, path, Path(scratch), options.rounds) for name, path in paths.items()}
    record = {
        "command": f"python benchmarks/csv_rows.py --scale {options.scale} --rounds {options.rounds}",
        "commit": commit(),
        "machine": machine(),
        "versions": versions("numpy", "pandas", "pyarrow", "polars", "datasets"),
        "results": results,
    }
    print_table(results)
    if options.json is not None:
        options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0


def text_file(folder: Path, scale: float) -> Path:
    """About 97 MB of quoted text; made once."""
    path = folder / f"text_{scale}.csv"
    if not path.exists():
        rng = random.Random(0)
        words = [
            "".join(rng.choice("abcdefghijklmnopqrstuvwxyz\u00e4\u00f6\u00fc") for _ in range(rng.randrange(2, 10)))
            for _ in range(4000)
        ]
        words += ['""'] * 200
        with path.open("w", encoding="utf-8", newline="") as stream:
            stream.write("id,text,label\n")
            for n in range(int(100_000 * scale)):
                lines = (" ".join(rng.choices(words, k=rng.randrange(4, 9))) for _ in range(rng.randrange(8, 38)))
                stream.write(f'{n},"' + "\n".join(lines) + f'",{n % 3}\n')
    return path


def number_file(folder: Path, scale: float) -> Path:
    """About 120 MB of numbers; made once."""
    path = folder / f"num_{scale}.csv"
    if not path.exists():
        values = np.random.default_rng(0).random((int(2_000_000 * scale), 3))
        np.savetxt(path, values, fmt="%.17f", delimiter=",", header="a,b,c", comments="")
    return path


def measured(name: str, path: Path, scratch: Path, rounds: int) -> dict[str, Any]:
    """All figures of one file."""
    columns = COLUMNS[name]
    size_mb = path.stat().st_size / 1e6
    path.read_bytes()  # into the page cache
    contenders = [*ours(path, columns, scratch), *peers(path, columns, scratch)]
    first_s = least_of({**{c.name: c.first for c in contenders}, **passes_over(path)}, rounds, repeats=lambda _: 1)
    later_s = least_of({c.name: c.later for c in contenders if c.later is not None}, rounds)
    rows = CsvRows(path, sidecar=scratch)
    numbers = random_numbers(len(rows))
    middle = len(rows) // 2
    one: dict[str, Callable[[], Any]] = {
        "read_csv(skiprows=i, nrows=1) of CsvRows.of (ours)": lambda: CsvRows.of(path).read_csv(
            skiprows=middle, nrows=1, header=None
        ),
        "pandas skiprows=i, nrows=1, half way": lambda: pd.read_csv(path, skiprows=middle, nrows=1, header=None),
    }
    many: dict[str, Callable[[], Any]] = {}
    for contender in contenders:
        read_one, read_many = contender.rows((contender.later or contender.first)())
        one[contender.name] = lambda read=read_one: read(next(numbers))  # type: ignore[misc]
        many[contender.name] = lambda read=read_many: read(some(numbers, 64))  # type: ignore[misc]
    exact, alone = exact_costs(rows, rounds * 3)
    return {
        "records": len(rows),
        "mb": size_mb,
        "open_first_mb_per_s": {what: size_mb / seconds for what, seconds in first_s.items()},
        "open_later_ms": {what: seconds * 1e3 for what, seconds in later_s.items()},
        "one_row_us": {
            "CsvRows.row(i) (ours)": exact,
            "pandas, header and record alone": alone,
            **{what: seconds * 1e6 for what, seconds in least_of(one, rounds).items()},
        },
        "rows_64_us": {what: seconds * 1e6 for what, seconds in least_of(many, rounds).items()},
        "exact_to_pandas": exact / alone,
        "resident_bytes_per_row": resident_bytes_per_row(path, scratch, list(columns)),
    }


One: TypeAlias = "Callable[[int], Any]"
Many: TypeAlias = "Callable[[list[int]], Any]"


@dataclass(frozen=True)
class Contender:
    """A way to random rows. `later` opens what an opening before has converted; None if each opening is like the first."""

    name: str
    first: Callable[[], Any]
    later: Callable[[], Any] | None
    rows: Callable[[Any], tuple[One, Many]]


def ours(path: Path, columns: dict[str, Any], scratch: Path) -> list[Contender]:
    """What this package offers."""
    kept = scratch / "ours"
    CsvDataset(path, columns, sidecar=kept).to_arrow(kept)
    CsvRows(path, sidecar=kept).to_arrow(kept)

    return [
        Contender(
            "CsvDataset, index (ours)",
            lambda: CsvDataset(path, columns, sidecar=False),
            lambda: CsvDataset(path, columns, sidecar=kept),
            lambda dataset: (dataset.__getitem__, dataset.batch),
        ),
        Contender(
            "CsvDataset.to_arrow() (ours)",
            lambda: CsvDataset(path, columns, sidecar=False).to_arrow(emptied(scratch)),
            lambda: CsvDataset(path, columns, sidecar=kept).to_arrow(kept),
            lambda dataset: (dataset.__getitem__, dataset.batch),
        ),
        Contender(
            "CsvRows.rows, frames (ours)",
            lambda: CsvRows(path, sidecar=False),
            lambda: CsvRows(path, sidecar=kept),
            lambda rows: (rows.row, rows.rows),
        ),
        Contender(
            "CsvRows.to_arrow(), frames (ours)",
            lambda: CsvRows(path, sidecar=False).to_arrow(emptied(scratch)),
            lambda: CsvRows(path, sidecar=kept).to_arrow(kept),
            lambda table: (lambda i: table.slice(i, 1).to_pandas(), lambda many: table.take(many).to_pandas()),
        ),
    ]


def emptied(scratch: Path) -> Path:
    """A folder without what was converted before."""
    place = scratch / "fresh"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


def passes_over(path: Path) -> dict[str, Callable[[], Any]]:
    """What reading alone costs: the limit of anything that looks at each byte, and Python's own parser."""
    return {
        "read the file only": lambda: read_through(path),
        "csv.reader": lambda: sum(1 for _ in csv.reader(path.open(newline="", encoding="utf-8"))),
    }


def read_through(path: Path) -> None:
    """Read each byte."""
    buffer = bytearray(1 << 18)
    with path.open("rb", buffering=0) as stream:
        while stream.readinto(buffer):
            pass


def peers(path: Path, columns: dict[str, Any], scratch: Path) -> list[Contender]:
    """What installed libraries offer."""
    marks = ",".join("?" * 64)
    texts = {name for name, kind in columns.items() if kind is str}
    found = [
        Contender(
            "sqlite3 (converted)",
            lambda: to_sqlite(path, scratch),
            lambda: sqlite3.connect(scratch / f"{path.stem}.sqlite"),
            lambda base: (
                lambda i: base.execute("select * from rows where rowid = ?", (i + 1,)).fetchone(),
                lambda many: base.execute(f"select * from rows where rowid in ({marks})", many).fetchall(),
            ),
        ),
        Contender(
            "pandas whole file, iloc, frames",
            lambda: pd.read_csv(path, low_memory=False),
            None,
            lambda frame: (lambda i: frame.iloc[i], lambda many: frame.iloc[many]),
        ),
        Contender(
            "pandas whole file, a Series for each column", lambda: pd.read_csv(path, low_memory=False), None, by_series(texts)
        ),
    ]
    with contextlib.suppress(ImportError):
        found += arrow_peers(path, texts, scratch)
    with contextlib.suppress(ImportError):
        import polars

        found.append(
            Contender(
                "polars whole file",
                lambda: polars.read_csv(path, infer_schema_length=None),
                None,
                lambda whole: (lambda i: whole.row(i, named=True), lambda many: whole[many].to_dict(as_series=False)),
            )
        )
    with contextlib.suppress(ImportError):
        import datasets

        datasets.disable_progress_bars()
        kept = tempfile.mkdtemp(dir=scratch)
        datasets.Dataset.from_csv(str(path), cache_dir=kept)
        found.append(
            Contender(
                "HF datasets (converted)",
                lambda: datasets.Dataset.from_csv(str(path), cache_dir=str(emptied(scratch))),
                lambda: datasets.Dataset.from_csv(str(path), cache_dir=kept),
                lambda dataset: (dataset.__getitem__, dataset.__getitem__),
            )
        )
    return found


def by_series(texts: set[str]) -> Callable[[Any], tuple[One, Many]]:
    """Columns of a frame, by number."""

    def rows(frame: pd.DataFrame) -> tuple[One, Many]:
        columns = {name: frame[name].to_numpy() for name in frame if name not in texts} | {
            name: frame[name].array for name in frame if name in texts
        }
        return (
            lambda i: {name: column[i] for name, column in columns.items()},
            lambda many: {
                name: list(column.take(many)) if name in texts else column.take(many) for name, column in columns.items()
            },
        )

    return rows


def arrow_peers(path: Path, texts: set[str], scratch: Path) -> list[Contender]:
    """The reader of pyarrow, in memory and in a file that is mapped. Raises `ImportError` without it."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    def read() -> Any:
        options = arrow_csv.ParseOptions(newlines_in_values=True)
        return arrow_csv.read_csv(path, parse_options=options).combine_chunks()

    def converted(place: Path) -> Any:
        table = read()
        with pa.OSFile(str(place), "wb") as stream, pa.ipc.new_file(stream, table.schema) as writer:
            writer.write_table(table)
        return mapped(place)

    def mapped(place: Path) -> Any:
        return pa.ipc.open_file(pa.memory_map(str(place))).read_all()

    def rows(table: Any) -> tuple[One, Many]:
        columns = {name: column.chunk(0) for name, column in zip(table.column_names, table.columns, strict=True)}
        return lambda i: {name: column[i].as_py() for name, column in columns.items()}, lambda many: {
            name: column.take(pa.array(many)).to_pylist() if name in texts else column.take(pa.array(many)).to_numpy()
            for name, column in columns.items()
        }

    def as_table(table: Any) -> tuple[One, Many]:
        return lambda i: table.slice(i, 1).to_pylist(), lambda many: table.take(many).to_pydict()

    kept = scratch / f"{path.stem}.arrow"
    converted(kept)
    return [
        Contender("pyarrow.csv table, take", read, None, as_table),
        Contender("pyarrow.csv table, take of each column", read, None, rows),
        Contender(
            "Arrow IPC, memory-mapped (converted)",
            lambda: converted(emptied(scratch) / "rows.arrow"),
            lambda: mapped(kept),
            rows,
        ),
    ]


def to_sqlite(path: Path, scratch: Path) -> sqlite3.Connection:
    """The rows in a table of sqlite3."""
    target = scratch / f"{path.stem}.sqlite"
    target.unlink(missing_ok=True)
    with sqlite3.connect(target) as base, path.open(newline="", encoding="utf-8") as stream:
        reader = csv.reader(stream)
        names = next(reader)
        base.execute(f"create table rows ({', '.join(names)})")
        base.executemany(f"insert into rows values ({', '.join('?' * len(names))})", reader)
    return sqlite3.connect(target)


def exact_costs(rows: CsvRows, rounds: int) -> tuple[float, float]:
    """One row by `CsvRows.row`, and pandas' cost of header and record alone, in turn; medians in us."""
    numbers = random_numbers(len(rows))
    ours, theirs = [], []
    for _ in range(rounds):
        some_rows = some(numbers, 40)
        sources = [b"".join([rows._required().header, *rows._required().read([i])]) for i in some_rows]
        ours.append(timed(lambda some_rows=some_rows: [rows.row(i) for i in some_rows]) / 40)  # type: ignore[misc]
        theirs.append(timed(lambda sources=sources: [pd.read_csv(io.BytesIO(source)) for source in sources]) / 40)  # type: ignore[misc]
    return statistics.median(ours) * 1e6, statistics.median(theirs) * 1e6


def resident_bytes_per_row(path: Path, scratch: Path, names: list[str]) -> float | None:
    """What a process grows by, per row; None where the kernel does not tell."""
    if not Path("/proc/self/status").exists():
        return None
    small = scratch / "small.csv"
    small.write_text(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n" + ",".join("2" * len(names)) + "\n")
    command = [sys.executable, "-c", GROWTH, str(path), str(small), ",".join(names)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def random_numbers(count: int) -> Iterator[int]:
    """Row numbers without end."""
    rng = np.random.default_rng(1)
    while True:
        yield from rng.integers(0, count, 10_000).tolist()


def some(numbers: Iterator[int], count: int) -> list[int]:
    """The next few numbers."""
    return [next(numbers) for _ in range(count)]


def timed(run: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def enough_repeats(run: Callable[[], Any]) -> int:
    """How many calls take some 20 ms, which the clock of the CPU tells apart from nothing."""
    run()
    return max(1, int(0.02 / max(timed(run), 1e-6)))


def least_of(
    runs: dict[str, Callable[[], Any]], rounds: int, repeats: Callable[[Callable[[], Any]], int] = enough_repeats
) -> dict[str, float]:
    """CPU seconds of one call of each: the least of some rounds, in each of which all take their turn."""
    counts = {what: repeats(run) for what, run in runs.items()}
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for what, run in runs.items():
            count = counts[what]
            least[what] = min(least[what], timed(lambda: [run() for _ in range(count)] and None) / count)  # noqa: B023
    return least


def print_table(results: dict[str, Any]) -> None:
    """The figures, ours first, with ratios to ours."""
    for measure, unit, better in (
        ("open_first_mb_per_s", "opened the first time, MB per CPU second", "CsvDataset, index (ours)"),
        ("open_later_ms", "opened later, ms", "CsvDataset, index (ours)"),
        ("one_row_us", "us per row", "CsvDataset.to_arrow() (ours)"),
        ("rows_64_us", "us per 64 rows", "CsvDataset.to_arrow() (ours)"),
    ):
        print(f"\n{unit:52}{'text':>10}{'x ours':>10}{'num':>12}{'x ours':>10}")
        for what in results["text"][measure]:
            cells = []
            for name in ("text", "num"):
                value, ours = results[name][measure][what], results[name][measure][better]
                cells.append(f"{value:10.1f}{value / ours:10.2f}")
            print(f"{what:52}{'  '.join(cells)}")
    for name, result in results.items():
        print(f"\n{name}: {result['records']} records, {result['mb']:.0f} MB")
        print(f"resident memory: {result['resident_bytes_per_row']:.2f} bytes per row")
        print(f"CsvRows.row: {result['exact_to_pandas']:.2f} times pandas for the header and that record alone")


if __name__ == "__main__":
    sys.exit(main())
