"""Whole programs whose training loops `canonical-train-loop` gives to the runtime's trainer print the same to the last bit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FIXTURES, HANG_S, ROOT

from perflint.cli import run_for_tests

NEEDS = {"codebert": ["pandas", "transformers"], "image": [], "lstm": ["pandas"], "spans": ["pandas", "transformers"]}


def output(folder: Path) -> str:
    """What a program prints."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("", "runtime"))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_a_program_computes_the_same_with_the_trainer(name: str, tmp_path: Path) -> None:
    for module in ("torch", *NEEDS[name]):
        pytest.importorskip(module)
    folder = shutil.copytree(FIXTURES / "programs" / name, tmp_path / name)
    expected = output(folder)
    run = run_for_tests(
        ["fix", "--no-cache", "--isolated", "--runtime", "--unsafe-fixes", "--select", "canonical-train-loop", str(folder)]
    )
    assert run.exit_code == 0, run.output
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    assert any("trainer.steps(" in text for text in texts)
    assert not any("zero_grad()" in text for text in texts)
    assert output(folder) == expected
