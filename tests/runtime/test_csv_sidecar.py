"""The index on disk: believed only if it fits, replaced in one step, never in the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perflint_runtime import csv_sidecar
from perflint_runtime.csv_file import RangeFile
from perflint_runtime.csv_index import LineIndex
from perflint_runtime.csv_scan import Dialect
from perflint_runtime.csv_sidecar import line_index

ROWS = 3000


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is worth a sidecar here."""
    monkeypatch.setattr(csv_sidecar, "SMALLEST_BYTES", 1)
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{n},x\n" for n in range(ROWS)))
    return path


def opened(path: Path, **options: Any) -> LineIndex:
    """The index of a file."""
    return line_index(RangeFile(str(path)), Dialect(), **options)


def sidecars(folder: Path) -> list[Path]:
    """What lies in a folder beside CSV files."""
    return sorted(path for path in folder.iterdir() if path.suffix != ".csv")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a file is indexed: the length of this list."""
    built: list[int] = []
    real = csv_sidecar.index_lines

    def build(*arguments: Any, **options: Any) -> LineIndex:
        built.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(csv_sidecar, "index_lines", build)
    return built


def test_is_written_beside_the_file_and_used(table: Path, counted: list[int]) -> None:
    first = opened(table)
    (sidecar,) = sidecars(table.parent)
    assert sidecar.name.startswith(".rows.csv.")
    assert json.loads(sidecar.read_bytes().split(b"\n")[0])["format"] == csv_sidecar.FORMAT
    second = opened(table)
    assert len(counted) == 1
    assert second.starts.tolist() == first.starts.tolist()
    assert second.final_state is first.final_state
    assert second.skippable == first.skippable == ROWS
    assert not isinstance(second.starts, np.memmap)  # a map would kill the process if somebody truncates the file


def test_each_dialect_has_its_own(table: Path) -> None:
    opened(table)
    line_index(RangeFile(str(table)), Dialect(delimiter=0x3B))
    assert len(sidecars(table.parent)) == 2


def test_other_places_and_none(table: Path, tmp_path: Path) -> None:
    opened(table, sidecar=False)
    assert sidecars(table.parent) == []
    opened(table, sidecar=tmp_path / "indexes")
    assert len(list((tmp_path / "indexes").iterdir())) == 1


@pytest.mark.parametrize(
    "damage", ["truncated", "longer", "flipped", "no header", "other format", "empty", "lengths", "no JSON", "nested"]
)
def test_a_damaged_sidecar_is_built_anew(table: Path, counted: list[int], damage: str) -> None:
    good = opened(table)
    (sidecar,) = sidecars(table.parent)
    data = sidecar.read_bytes()
    head, _, body = data.partition(b"\n")
    about = json.loads(head)
    sidecar.write_bytes(
        {
            "truncated": data[:-3],
            "longer": data + b"x",
            "flipped": data[:-100] + bytes([data[-100] ^ 1]) + data[-99:],
            "no header": body,
            "other format": json.dumps({**about, "format": 0}).encode() + b"\n" + body,
            "empty": b"",
            "lengths": json.dumps({**about, "lengths": [1 << 60, 0, 0]}).encode() + b"\n" + body,
            "no JSON": b"[]\n" + body,
            "nested": b"[" * 60_000 + b"\n" + body,
        }[damage]
    )
    assert opened(table).starts.tolist() == good.starts.tolist()
    assert len(counted) == 2
    assert sidecar.read_bytes() == data


def test_a_sidecar_of_other_content_is_not_believed(table: Path, counted: list[int]) -> None:
    opened(table)
    stat = table.stat()
    text = table.read_bytes()
    table.write_bytes(text[:5000].replace(b"\n", b"y", 1) + text[5000:])  # same size
    os.utime(table, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # and time
    assert len(opened(table)) == ROWS - 1
    assert len(counted) == 2


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_arguments: Any, **_options: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(csv_sidecar.tempfile, "mkstemp", refused)
    assert len(opened(table)) == ROWS
    assert sidecars(table.parent) == []


def test_small_files_get_none(tmp_path: Path) -> None:
    path = tmp_path / "small.csv"
    path.write_text("a\n1\n")
    opened(path)
    assert sidecars(tmp_path) == []


BUILD = """
import sys, time
from perflint_runtime import csv_sidecar
from perflint_runtime.csv_file import RangeFile
from perflint_runtime.csv_scan import Dialect
csv_sidecar.SMALLEST_BYTES = 1
if sys.argv[2] == "hang":
    def hang(descriptor):
        print("writing", flush=True)
        time.sleep(1200)
    csv_sidecar.os.fsync = hang
for _ in range(20):
    index = csv_sidecar.line_index(RangeFile(sys.argv[1]), Dialect())
    assert len(index) == 3000, len(index)
    if sys.argv[2] == "race":
        for path in __import__("pathlib").Path(sys.argv[1]).parent.glob(".rows.csv.*.perflint-index"):
            path.unlink(missing_ok=True)
"""


def test_processes_that_build_at_once(table: Path) -> None:
    running = [subprocess.Popen([sys.executable, "-c", BUILD, str(table), "race"]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert [path for path in sidecars(table.parent) if path.suffix == ".tmp"] == []


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL")
def test_a_kill_while_it_is_written(table: Path, counted: list[int]) -> None:
    process = subprocess.Popen([sys.executable, "-c", BUILD, str(table), "hang"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    process.kill()
    process.wait()
    process.stdout.close()
    (unfinished,) = sidecars(table.parent)
    assert unfinished.suffix == ".tmp"
    assert len(opened(table)) == ROWS
    os.utime(unfinished, (time.time() - 7200,) * 2)
    for sidecar in table.parent.glob(".*.perflint-index"):
        sidecar.unlink()
    opened(table)
    assert not unfinished.exists()
    assert len(counted) == 2
