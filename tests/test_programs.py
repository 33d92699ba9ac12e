"""Whole training programs, in `fixtures/programs/<name>/`: what is found, and that fixed programs compute the same.

Each program starts at its `train.py`, runs in seconds on a CPU and prints its results with every bit (`float.hex`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FIXTURES, in_subprocess

PROGRAMS = FIXTURES / "programs"

EXPECTED = {
    "gan/data.py": {"dataloader-no-pin-memory"},
    "gan/train.py": {
        "blocking-h2d-in-loop",
        "duplicate-item-read",
        "eval-without-no-grad",
        "factory-then-transfer",
        "item-every-step",
    },
    "image/data.py": {"dataloader-no-pin-memory"},
    "image/model.py": {"factory-then-transfer"},
    "image/trainer.py": {
        "blocking-h2d-in-loop",
        "duplicate-item-read",
        "eval-without-no-grad",
        "item-every-step",
        "tensor-const-to-device",
        "zero-grad-late",
    },
    "lstm/data.py": {"csv-row-by-skiprows", "dataloader-no-pin-memory"},
    "lstm/model.py": {"rnn-explicit-zero-state"},
    "lstm/training.py": {
        "blocking-h2d-in-loop",
        "duplicate-item-read",
        "eval-without-no-grad",
        "factory-then-transfer",
        "item-every-step",
        "zero-grad-late",
    },
    "text/data.py": {"blocking-h2d-in-loop"},
    "text/model.py": {"factory-then-transfer"},
    "text/train.py": {"eval-without-no-grad", "item-every-step", "no-grad-to-inference-mode", "zero-grad-to-zeros"},
}
"""The rules that find something, by file."""

NAMES = sorted({name.partition("/")[0] for name in EXPECTED})
NEEDS = {"lstm": ["pandas"]}


def sources(folder: Path) -> dict[str, bytes]:
    """The Python files below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.py"))}


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the program that the test is about."""
    target = tmp_path / request.getfixturevalue("name")
    shutil.copytree(PROGRAMS / target.name, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def fix(folder: Path, *arguments: str) -> bytes:
    """Run `fix` in a folder; what it prints."""
    run = in_subprocess("fix", "--isolated", "--exit-zero", *arguments, cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


def test_every_program_is_here() -> None:
    assert sorted(path.name for path in PROGRAMS.iterdir()) == NAMES


def test_the_expected_rules_fire_in_each_file() -> None:
    run = in_subprocess("check", "--isolated", "--output-format", "json", ".", cwd=PROGRAMS)
    assert run.returncode == 1, run.stderr.decode()
    found: dict[str, set[str]] = {}
    for finding in json.loads(run.stdout):
        found.setdefault(finding["filename"].replace(os.sep, "/"), set()).add(finding["rule"])
    assert found == EXPECTED


@pytest.mark.parametrize("name", NAMES)
def test_a_fixed_program_prints_the_same(name: str, copy: Path) -> None:
    for module in ["torch", *NEEDS.get(name, [])]:
        pytest.importorskip(module)
    fix(copy)
    assert sources(copy) != sources(PROGRAMS / name)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    runs = [
        subprocess.Popen(
            [sys.executable, "train.py"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for folder in (PROGRAMS / name, copy)
    ]
    (before, before_errors), (after, after_errors) = [run.communicate(timeout=300) for run in runs]
    assert runs[0].returncode == 0, before_errors.decode()
    assert runs[1].returncode == 0, after_errors.decode()
    assert b"0x1." in before
    assert after == before


@pytest.mark.parametrize("name", NAMES)
def test_a_second_fix_changes_nothing(name: str, copy: Path) -> None:
    fix(copy, "--unsafe-fixes")
    once = sources(copy)
    fix(copy, "--unsafe-fixes")
    assert sources(copy) == once


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_git_applies_the_diff(name: str, copy: Path) -> None:
    patch = fix(copy, "--diff")
    assert sources(copy) == sources(PROGRAMS / name), "--diff writes nothing"
    subprocess.run(["git", "apply", "-"], cwd=copy, input=patch, check=True)
    patched = sources(copy)
    shutil.copytree(PROGRAMS / name, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    fix(copy)
    assert sources(copy) == patched
