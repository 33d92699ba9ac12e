"""CPU time and memory of random rows of a CSV file: `CsvRows` and `CsvDataset` beside what else there is, in one run.

    python benchmarks/csv_rows.py [--folder FOLDER] [--scale SHARE] [--rounds N] [--json FILE]

Two files are generated (kept in FOLDER if given): *text*, 100,000 records of quoted text with line breaks, doubled quotes and
umlauts; and *num*, 2,000,000 records of three numbers. Times are of the process's CPU, the least of the rounds, since this is
what the work costs when nothing else disturbs it; peers are measured in turn with ours. Row numbers are random. Resident memory
is what a fresh process grows by when it opens a file and reads a thousand rows.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from perflint_runtime import CsvDataset, CsvRows
from perflint_runtime.csv_file import RangeFile
from perflint_runtime.csv_scan import Dialect
from perflint_runtime.csv_sidecar import line_index
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
        "command": "python " + " ".join(["benchmarks/csv_rows.py", *(arg for arg in sys.argv[1:] if not os.path.isabs(arg))]),
        "commit": commit(),
        "machine": machine(),
        "versions": versions("numpy", "pandas", "pyarrow", "polars"),
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
    dialect = Dialect()
    openings: dict[str, Callable[[], Any]] = {
        "index (ours)": lambda: line_index(RangeFile(str(path)), dialect, sidecar=False),
        "read the file only": lambda: read_through(path),
        "csv.reader": lambda: sum(1 for _ in csv.reader(path.open(newline="", encoding="utf-8"))),
        "pandas whole file": lambda: pd.read_csv(path, low_memory=False),
        **library_openings(path, scratch),
    }
    opening_s = {what: cpu_s(run, 1, rounds if "ours" in what or "only" in what else 1) for what, run in openings.items()}
    line_index(RangeFile(str(path)), dialect, sidecar=scratch)
    opening_s["sidecar (ours)"] = cpu_s(lambda: line_index(RangeFile(str(path)), dialect, sidecar=scratch), 1, rounds)
    dataset = CsvDataset(path, columns, sidecar=scratch)
    rows = CsvRows(path, sidecar=scratch)
    numbers = random_numbers(len(dataset))
    exact, alone = exact_costs(rows, rounds * 3)
    one_us = {
        "CsvDataset[i] (ours)": us(lambda: dataset[next(numbers)], 3000, rounds),
        "CsvRows.row(i) (ours)": exact,
        "pandas, header and record alone": alone,
    }
    many_us = {
        "CsvDataset.batch (ours)": us(lambda: dataset.batch(some(numbers, 64)), 100, rounds),
        "CsvDataset.__getitems__ (ours)": us(lambda: dataset.__getitems__(some(numbers, 64)), 100, rounds),
        "CsvRows.rows (ours)": us(lambda: rows.rows(some(numbers, 64)), 30, rounds),
    }
    middle = len(dataset) // 2
    one_us["read_csv(skiprows=i, nrows=1) of CsvRows.of (ours)"] = us(
        lambda: CsvRows.of(path).read_csv(skiprows=middle, nrows=1, header=None), 100, rounds
    )
    one_us["pandas skiprows=i, nrows=1, half way"] = us(lambda: pd.read_csv(path, skiprows=middle, nrows=1, header=None), 1, 2)
    for what, (one, many) in library_reads(path, scratch).items():
        one_us[what] = us(lambda one=one: one(next(numbers)), 200, rounds)  # type: ignore[misc]
        many_us[what] = us(lambda many=many: many(some(numbers, 64)), 5, rounds)  # type: ignore[misc]
    return {
        "records": len(dataset),
        "mb": size_mb,
        "open_mb_per_s": {what: size_mb / seconds for what, seconds in opening_s.items()},
        "one_row_us": one_us,
        "rows_64_us": many_us,
        "exact_to_pandas": exact / alone,
        "resident_bytes_per_row": resident_bytes_per_row(path, scratch, list(columns)),
    }


def read_through(path: Path) -> None:
    """The limit of anything that looks at each byte."""
    buffer = bytearray(1 << 18)
    with path.open("rb", buffering=0) as stream:
        while stream.readinto(buffer):
            pass


def library_openings(path: Path, scratch: Path) -> dict[str, Callable[[], Any]]:
    """What installed libraries take to get at the rows."""
    found: dict[str, Callable[[], Any]] = {"sqlite3 (converted)": lambda: to_sqlite(path, scratch)}
    try:
        from pyarrow import csv as arrow_csv

        parse = arrow_csv.ParseOptions(newlines_in_values=True)
        found["pyarrow.csv table"] = lambda: arrow_csv.read_csv(path, parse_options=parse)
    except ImportError:
        pass
    try:
        import polars

        found["polars whole file"] = lambda: polars.read_csv(path)
    except ImportError:
        pass
    return found


def library_reads(path: Path, scratch: Path) -> dict[str, tuple[Callable[[int], Any], Callable[[list[int]], Any]]]:
    """One row, and a batch of rows, with installed libraries."""
    base = sqlite3.connect(to_sqlite(path, scratch))
    frame = pd.read_csv(path, low_memory=False)
    marks = ",".join("?" * 64)
    found: dict[str, tuple[Callable[[int], Any], Callable[[list[int]], Any]]] = {
        "sqlite3 (converted)": (
            lambda i: base.execute("select * from rows where rowid = ?", (i + 1,)).fetchone(),
            lambda many: base.execute(f"select * from rows where rowid in ({marks})", many).fetchall(),
        ),
        "pandas whole file, iloc": (lambda i: frame.iloc[i], lambda many: frame.iloc[many]),
    }
    try:
        from pyarrow import csv as arrow_csv

        table = arrow_csv.read_csv(path, parse_options=arrow_csv.ParseOptions(newlines_in_values=True))
        found["pyarrow.csv table"] = (lambda i: table.slice(i, 1).to_pylist(), lambda many: table.take(many).to_pydict())
    except ImportError:
        pass
    try:
        import polars

        whole = polars.read_csv(path)
        found["polars whole file"] = (lambda i: whole.row(i), lambda many: whole[many].to_dict())
    except ImportError:
        pass
    return found


def to_sqlite(path: Path, scratch: Path) -> Path:
    """The rows in a table of sqlite3."""
    target = scratch / f"{path.stem}.sqlite"
    target.unlink(missing_ok=True)
    with sqlite3.connect(target) as base, path.open(newline="", encoding="utf-8") as stream:
        reader = csv.reader(stream)
        names = next(reader)
        base.execute(f"create table rows ({', '.join(names)})")
        base.executemany(f"insert into rows values ({', '.join('?' * len(names))})", reader)
    return target


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


def cpu_s(run: Callable[[], Any], repeats: int, rounds: int) -> float:
    """CPU seconds of one call: the least of some rounds."""
    return min(timed(lambda: [run() for _ in range(repeats)]) for _ in range(rounds)) / repeats


def us(run: Callable[[], Any], repeats: int, rounds: int) -> float:
    """The same in microseconds."""
    return cpu_s(run, repeats, rounds) * 1e6


def print_table(results: dict[str, Any]) -> None:
    """The figures, ours first, with ratios to ours."""
    for measure, unit, better in (
        ("open_mb_per_s", "MB per CPU second", "index (ours)"),
        ("one_row_us", "us per row", "CsvDataset[i] (ours)"),
        ("rows_64_us", "us per 64 rows", "CsvDataset.batch (ours)"),
    ):
        print(f"\n{unit:52}{'text':>10}{'x ours':>9}{'num':>12}{'x ours':>9}")
        for what in results["text"][measure]:
            cells = []
            for name in ("text", "num"):
                value, ours = results[name][measure][what], results[name][measure][better]
                cells.append(f"{value:10.1f}{value / ours:9.2f}")
            print(f"{what:52}{'  '.join(cells)}")
    for name, result in results.items():
        print(f"\n{name}: {result['records']} records, {result['mb']:.0f} MB")
        print(f"resident memory: {result['resident_bytes_per_row']:.2f} bytes per row")
        print(f"CsvRows.row: {result['exact_to_pandas']:.2f} times pandas for the header and that record alone")


if __name__ == "__main__":
    sys.exit(main())
