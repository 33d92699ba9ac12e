"""Download the pinned packages that the corpus run reads: corpus/corpus.toml.

    python corpus/download.py FOLDER [NAME ...]
    python corpus/download.py FOLDER --speed

Each archive comes from the index that pip is configured with, must have the pinned hash, and is unpacked into
FOLDER/NAME-VERSION. What is there already is not downloaded again. No code of a package runs: pip itself would build the
metadata of a source archive, so pip is asked for its index only. With --speed FOLDER gets what the speed benchmark reads
and nothing else: the import packages that corpus.toml marks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PINS = Path(__file__).with_name("corpus.toml")
TIMEOUT_S = 120


@dataclass(frozen=True)
class Pin:
    """A source archive of the corpus."""

    name: str
    version: str
    file: str
    sha256: str
    speed: tuple[str, ...] = ()
    """The folders in it that the speed benchmark reads."""
    tests: dict[str, Any] | None = None
    """How its own tests run: see run_corpus_tests.py."""

    @property
    def folder(self) -> str:
        """The name of the folder that it is unpacked into."""
        return f"{self.name}-{self.version}"


def pins(names: list[str] | None = None) -> list[Pin]:
    """The corpus, or some of it by name."""
    with PINS.open("rb") as file:
        all_of_them = [Pin(**table) for table in tomllib.load(file)["package"]]
    unknown = sorted(set(names or ()) - {pin.name for pin in all_of_them})
    if unknown:
        sys.exit(f"{PINS.name} has no package {unknown[0]!r}")
    return [pin for pin in all_of_them if not names or pin.name in names]


def main() -> int:
    """Read the command line, download what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the packages go")
    parser.add_argument("names", nargs="*", help="these packages only")
    parser.add_argument("--speed", action="store_true", help="only what the speed benchmark reads")
    options = parser.parse_intermixed_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    if options.speed:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            for pin in pins():
                for package in pin.speed:
                    shutil.rmtree(folder / Path(package).name, ignore_errors=True)
                    shutil.move(unpacked(pin, Path(scratch)) / package, folder)
        found = [folder]
    else:
        found = [unpacked(pin, folder) for pin in pins(options.names)]
    sources = [path for place in found for path in python_files(place)]
    print(f"{len(sources)} Python files, {sum(path.read_bytes().count(10) for path in sources)} lines")
    return 0


def python_files(folder: Path) -> list[Path]:
    """The Python files below a folder, in order."""
    return [path for path in sorted(folder.rglob("*.py")) if path.is_file() and not path.is_symlink()]


def unpacked(pin: Pin, folder: Path) -> Path:
    """The folder of one unpacked archive, which is downloaded if it is not there."""
    target = folder / pin.folder
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            archive = Path(scratch) / pin.file
            archive.write_bytes(downloaded(pin))
            with tarfile.open(archive) as tar:
                tar.extractall(scratch, filter="data")
            archive.unlink()
            (root,) = Path(scratch).iterdir()
            root.rename(target)
    return target


def downloaded(pin: Pin) -> bytes:
    """The archive, if it has the pinned hash."""
    page = index()
    try:
        with get(f"{page}/{pin.name}/", accept="application/vnd.pypi.simple.v1+json") as answer:
            files = {file["filename"]: file["url"] for file in json.load(answer)["files"]}
        if pin.file not in files:
            sys.exit(f"the index of pip has no {pin.file}")
        with get(urllib.request.urljoin(f"{page}/{pin.name}/", files[pin.file])) as answer:
            data: bytes = answer.read()
    except (urllib.error.URLError, ValueError) as problem:
        sys.exit(f"{pin.file} could not be downloaded: {problem}")
    digest = hashlib.sha256(data).hexdigest()
    if digest != pin.sha256:
        sys.exit(f"{pin.file} has the hash {digest}, and not the one in {PINS.name}")
    return data


def get(address: str, accept: str = "*/*") -> Any:
    """Open an address."""
    return urllib.request.urlopen(urllib.request.Request(address, headers={"Accept": accept}), timeout=TIMEOUT_S)


def index() -> str:
    """The index that pip is configured with, as its help shows it: from its options, its files or its default."""
    command = [sys.executable, "-m", "pip", "download", "--help"]
    shown = subprocess.run(command, env={**os.environ, "COLUMNS": "1000"}, capture_output=True, text=True, check=False).stdout
    found = re.search(r"Base URL of the Python Package Index \(default\s+(\S+?)/?\)", shown)
    if found is None:
        sys.exit("pip does not show its index in `pip download --help`")
    return found[1]


if __name__ == "__main__":
    sys.exit(main())
