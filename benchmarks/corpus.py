"""Download the five packages that the corpus checks and the speed benchmark run on.

    python benchmarks/corpus.py FOLDER

The wheels are pinned, downloaded by pip without their dependencies, and unzipped into FOLDER/<package>. What is there
already is not downloaded again. Nothing of them is installed or run.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGES = {
    "transformers": ("transformers", "5.17.0"),
    "timm": ("timm", "1.0.31"),
    "ultralytics": ("ultralytics", "8.4.190"),
    "pytorch_lightning": ("pytorch-lightning", "2.6.6"),
    "sentence_transformers": ("sentence-transformers", "6.2.0"),
}
"""The folder of each package in its wheel: its distribution and version."""


def main() -> int:
    """Read the command line, download what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the packages go")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    files = lines = 0
    for package in PACKAGES:
        download(package, folder)
        sources = sorted((folder / package).rglob("*.py"))
        files += len(sources)
        lines += sum(path.read_bytes().count(b"\n") for path in sources)
    print(f"{files} Python files, {lines} lines in {len(PACKAGES)} packages")
    return 0


def download(package: str, folder: Path) -> None:
    """Put one package into the folder, in one step, unless this version is there."""
    distribution, version = PACKAGES[package]
    stamp = folder / f"{package}-{version}.done"
    if stamp.exists():
        return
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        requirement = f"{distribution}=={version}"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", scratch]
        if subprocess.run([*pip, requirement], check=False).returncode:
            sys.exit(f"{requirement} could not be downloaded")
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch, [name for name in archive.namelist() if name.startswith(f"{package}/")])
        shutil.rmtree(folder / package, ignore_errors=True)
        (Path(scratch) / package).rename(folder / package)
    stamp.touch()


if __name__ == "__main__":
    sys.exit(main())
