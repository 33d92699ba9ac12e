"""The list of the corpus, and what is done with it, on archives made here: nothing is downloaded."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from corpus import download, run_tests
from corpus import run as corpus_run
from corpus.download import Pin, pins, unpacked

TRAIN = """import torch


def train(model, loader, optimizer, device):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean() + torch.tensor(0.5, device=device)  # a constant
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
"""


def archive(files: dict[str, str]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "training-1.0"
    (folder / "tests").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    return folder


def test_the_list_is_pinned_and_names_no_registry() -> None:
    found = pins()
    assert len(found) >= 30
    assert len({pin.name for pin in found}) == len(found)
    assert all(re.fullmatch(r"[0-9a-f]{64}", pin.sha256) for pin in found)
    assert "://" not in download.PINS.read_text(encoding="utf-8")
    assert sum(pin.tests is not None for pin in found) >= 8


def test_unknown_names_are_refused() -> None:
    command = [sys.executable, ROOT / "corpus" / "download.py", "folder-that-is-not-made", "no-such-package"]
    run = subprocess.run(command, cwd="/", capture_output=True, text=True)
    assert run.returncode == 1
    assert "corpus.toml has no package 'no-such-package'" in run.stderr


def test_an_archive_is_unpacked_if_its_hash_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = archive({"training-1.0/setup.py": "raise SystemExit('run')", "training-1.0/train.py": TRAIN})
    page = {"files": [{"filename": "training-1.0.tar.gz", "url": "../files/training-1.0.tar.gz"}]}
    asked = []

    def get(address: str, accept: str = "*/*") -> Any:
        asked.append(address)
        return io.BytesIO(data if address.endswith(".gz") else json.dumps(page).encode())

    monkeypatch.setattr(download, "get", get)
    monkeypatch.setattr(download, "index", lambda: "https://index.invalid/simple")
    pin = Pin("training", "1.0", "training-1.0.tar.gz", hashlib.sha256(data).hexdigest())
    assert (unpacked(pin, tmp_path) / "train.py").read_text(encoding="utf-8") == TRAIN
    assert asked == ["https://index.invalid/simple/training/", "https://index.invalid/simple/files/training-1.0.tar.gz"]
    unpacked(pin, tmp_path)
    assert len(asked) == 2
    with pytest.raises(SystemExit, match="has the hash"):
        unpacked(Pin("training", "1.1", "training-1.0.tar.gz", "0" * 64), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["training-1.0"]


def test_an_archive_stays_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "downloaded", lambda pin: archive({"../outside.py": "x = 1\n"}))
    (tmp_path / "folder").mkdir()
    with pytest.raises(tarfile.FilterError):
        unpacked(Pin("training", "1.0", "training-1.0.tar.gz", ""), tmp_path / "folder")
    assert list(tmp_path.rglob("*.py")) == []


@pytest.mark.slow
def test_a_package_is_counted_and_compared_with_what_was_accepted(package: Path) -> None:
    found = corpus_run.examined(package, None)
    assert (found["files"], found["files_changed"], found["problems"]) == (1, 1, [])
    assert found["findings"]["tensor-const-to-device safe"] == 1
    assert list(corpus_run.different(found, found)) == []
    (package / "train.py").write_text(TRAIN.replace("torch.tensor(0.5, device=device)", "0.5"), encoding="utf-8")
    changes = list(corpus_run.different(found, corpus_run.examined(package, None)))
    assert "tensor-const-to-device safe: 1 -> 0" in changes
    assert "files_changed: 1 -> 0" in changes


def test_what_a_bad_fixer_does_is_seen(package: Path, tmp_path: Path) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text(
        "import pathlib, sys\n"
        "path = pathlib.Path('train.py')\n"
        "path.write_text(path.read_text().replace('import torch', sys.argv[1]).replace('  # a constant', ''))\n",
        encoding="utf-8",
    )

    def kinds(text: str) -> set[str]:
        return {kind for kind, _ in corpus_run.peer(package, "tool", [sys.executable, str(tool), text])["problems"]}

    assert kinds("import torch") == {"comments_lost"}
    assert kinds("import numpy") == {"comments_lost", "names_undefined_or_unused"}
    assert "files_failing_to_compile" in kinds("import")
    assert (package / "train.py").read_text(encoding="utf-8") == TRAIN


@pytest.mark.slow
def test_tests_that_fixes_break_are_seen(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("coverage")
    test = (
        "import train\n\ndef test_text():\n    assert 'tensor(0.5' in open(train.__file__).read()\n\ndef test_other(): pass\n"
    )
    (package / "tests" / "test_train.py").write_text(test, encoding="utf-8")
    (package / "train.py").write_text(TRAIN.replace("import torch", "torch = None"), encoding="utf-8")

    def fix(*_: str, cwd: Path) -> None:
        path = cwd / "train.py"
        path.write_text(path.read_text(encoding="utf-8").replace("tensor(0.5", "full((), 0.5"), encoding="utf-8")

    monkeypatch.setattr(run_tests, "perflint", fix)
    pin = Pin("training", "1.0", "", "", tests={"run": ["tests"]})
    found = run_tests.before_and_after(pin, package, sys.executable)
    assert found["different"] == ["tests.test_train.test_text: passed -> failure"]
    assert (found["tests"], found["lines_changed"], found["changed_lines_run"]) == (2, 1, 0)
