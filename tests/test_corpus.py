"""The fixer on real code that is on every machine which runs the tests: parts of torch, hypothesis and pytest.

corpus/fixes.py does the same, and more, over whole packages.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from conftest import in_process

from corpus.fixes import ALL, damage
from perflint.run import workers

SAMPLE = {
    "torch": [
        "optim/*.py",
        "utils/data/*.py",
        "nn/utils/*.py",
        "distributed/fsdp/*.py",
        "_inductor/a*.py",
    ],
    "hypothesis": ["**/*.py"],
    "_pytest": ["**/*.py"],
    "accelerate": ["**/*.py"],
}


def copied(package: str, target: Path) -> dict[Path, bytes]:
    """Copy the sample of an installed package; the bytes of each copy."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    root = Path(spec.origin).parent
    copies = {}
    for path in sorted({path for pattern in SAMPLE[package] for path in root.glob(pattern)}):
        copy = target / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        copies[copy] = copy.read_bytes()
    return copies


@pytest.mark.slow
@pytest.mark.parametrize("package", SAMPLE)
def test_installed_packages_are_checked_and_fixed_without_harm(package: str, tmp_path: Path) -> None:
    before = copied(package, tmp_path)
    assert len(before) > 30
    for command in (["check"], ["fix", "--unsafe-fixes"], ["fix", "--unsafe-fixes"]):
        seen = {path: path.read_bytes() for path in before}
        result = in_process(*command, *ALL, "--output-format", "concise", str(tmp_path))
        assert result.exit_code in (0, 1), result.stderr
        assert "internal-error" not in result.output
    assert {path: path.read_bytes() for path in before} == seen, "the second run changed something"
    damaged = {path.name: damage(data, seen[path]) for path, data in before.items() if seen[path] != data}
    assert not {name: what for name, what in damaged.items() if what}


@pytest.mark.slow
@pytest.mark.parametrize("package", SAMPLE)
def test_one_report_whatever_the_jobs_and_the_cache(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(package, tmp_path / "code")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    monkeypatch.setattr(workers, "WORTHWHILE_BYTES", 0)
    cached = ["--cache-dir", "kept"]
    ways = [["-j1", "--no-cache"], ["-j2", "--no-cache"], ["-j2", *cached], ["-j1", *cached]]
    reports = [in_process("check", *ALL, "--output-format", "json", *way, "code").stdout_bytes for way in ways]
    assert (tmp_path / "kept").is_dir()
    assert len(set(reports)) == 1
    assert len(reports[0]) > 2
