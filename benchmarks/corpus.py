"""Download the five packages that the corpus checks and the speed benchmark run on.

    python benchmarks/corpus.py FOLDER

The wheels are pinned, downloaded by pip without their dependencies, and unzipped into FOLDER. What is there
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
    "transformers": "5.17.0",
    "timm": "1.0.31",
    "ultralytics": "8.4.190",
    "pytorch-lightning": "2.6.6",
    "sentence-transformers": "6.2.0",
}
"""The distributions and their versions."""


def main() -> int:
    """Read the command line, download what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the packages go")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    files = lines = 0
    for distribution, version in PACKAGES.items():
        for package in download(distribution, version, folder):
            sources = sorted((folder / package).rglob("*.py"))
            files += len(sources)
            lines += sum(path.read_bytes().count(b"\n") for path in sources)
    print(f"{files} Python files, {lines} lines in {len(PACKAGES)} packages")
    return 0


def download(distribution: str, version: str, folder: Path) -> list[str]:
    """Put the import packages of one distribution into the folder, unless this version is there; their names."""
    stamp = folder / f"{distribution}-{version}.done"
    if not stamp.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            requirement = f"{distribution}=={version}"
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", scratch]
            if subprocess.run([*pip, requirement], check=False).returncode:
                sys.exit(f"{requirement} could not be downloaded")
            (wheel,) = Path(scratch).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(scratch)
            packages = sorted(path.parent.name for path in Path(scratch).glob("*/__init__.py"))
            for package in packages:
                shutil.rmtree(folder / package, ignore_errors=True)
                (Path(scratch) / package).rename(folder / package)
        stamp.write_text("\n".join(packages), encoding="utf-8")
    return stamp.read_text(encoding="utf-8").split()


if __name__ == "__main__":
    sys.exit(main())
