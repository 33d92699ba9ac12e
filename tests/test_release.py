"""What is published: the wheel and the source distribution."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import ROOT

pytest.importorskip("build")
pytest.importorskip("hatchling")

PACKAGES = {"perflint": "perflint", "perflint_probe": "probe", "perflint_rules": "rules", "perflint_runtime": "runtime"}
"""The packages, and the folders that they lie in."""


@dataclass
class Built:
    """One build: the wheel and the source distribution."""

    wheel: Path
    sdist: Path

    def hashes(self) -> list[str]:
        """SHA-256 of both."""
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in (self.wheel, self.sdist)]


def build(tree: Path, target: Path, *, mask: int = 0o022) -> Built:
    """Build a tree; `mask` is the umask."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--sdist", "--outdir", str(target), str(tree)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    environment.pop("PYTHONPATH", None)
    run = subprocess.run(command, env=environment, capture_output=True, text=True, umask=mask)
    assert run.returncode == 0, run.stdout + run.stderr
    (wheel,) = target.glob("*.whl")
    (sdist,) = target.glob("*.tar.gz")
    return Built(wheel, sdist)


def copied(target: Path, mask: int) -> Path:
    """The files of this checkout, in another folder, written now."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    )
    before = os.umask(mask)
    try:
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, target / name)
    finally:
        os.umask(before)
    return target


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What one build gives."""
    tree = copied(tmp_path_factory.mktemp("tree"), 0o022)
    return build(tree, tmp_path_factory.mktemp("dist"))


def test_a_second_build_elsewhere_gives_the_same_bytes(built: Built, tmp_path: Path) -> None:
    again = build(copied(tmp_path / "other" / "place", 0o077), tmp_path / "dist", mask=0o077)
    assert again.hashes() == built.hashes()


def test_the_source_distribution_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path)
    (tree,) = tmp_path.iterdir()
    assert build(tree, tmp_path / "dist").hashes()[0] == built.hashes()[0]


def test_the_wheel_holds_the_packages_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    expected = set()
    for package, folder in PACKAGES.items():
        parent = ROOT / folder if folder != package else ROOT
        files = [path for path in (parent / package).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        expected |= {path.relative_to(parent).as_posix() for path in files}
        assert f"{package}/py.typed" in names
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {name.partition(".dist-info/")[2] for name in names - expected} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }


def test_the_metadata_says_what_pyproject_says(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(name).decode()
    head, _, readme = text.partition("\n\n")
    assert f"Version: {version('perflint-torch')}" in head
    assert "License-Expression: MIT" in head
    assert "Requires-Python: >=3.10" in head
    assert not re.search(r"^Requires-Dist: torch\b(?!.*extra ==)", head, re.M)
    assert readme.strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()


def test_the_source_distribution_holds_what_the_tests_need(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "CHANGELOG.md", "README.md", "pyproject.toml", "tests/conftest.py", "docs/generate.py"} <= names
    assert any(name.startswith("fixtures/") for name in names)


def test_the_index_would_take_it(built: Built) -> None:
    pytest.importorskip("twine")
    command = [sys.executable, "-m", "twine", "check", "--strict", str(built.wheel), str(built.sdist)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_version_stands_in_one_place() -> None:
    number = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert number is not None
    sources = [path for folder in PACKAGES.values() for path in (ROOT / folder).rglob("*.py")]
    assert not [path for path in sources if f'"{number[1]}"' in path.read_text(encoding="utf-8")]


def test_the_changelog_has_the_version() -> None:
    number = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert number is not None
    sections = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert sections[0] == "Unreleased"
    assert number[1] in sections
