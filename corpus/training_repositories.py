"""Clone the public training repositories that the speed benchmark reads, at the commits of training_repositories.toml.

    python corpus/training_repositories.py FOLDER [--from PREFIX]

Only Python files and what says which versions a project admits are kept. A repository that is there already is not fetched
again. Nothing of them is installed or run. PREFIX is put in front of OWNER/NAME.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LIST = Path(__file__).with_suffix(".toml")
KEPT = re.compile(r"\.(py|toml|cfg)$|(^|/)(requirements[^/]*\.txt|\.gitignore)$")


def main() -> int:
    """Read the command line, fetch what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the repositories go")
    parser.add_argument(
        "--from", dest="prefix", default="https://github.com/", help="where they come from  [default: %(default)s]"
    )
    options = parser.parse_args()
    commits: dict[str, str] = tomllib.loads(LIST.read_text(encoding="utf-8"))["commits"]
    for name, commit in commits.items():
        fetch(f"{options.prefix}{name}", commit, options.folder / name.replace("/", "+"))
    files = sorted(options.folder.rglob("*.py"))
    lines = sum(path.read_bytes().count(b"\n") for path in files)
    print(f"{len(files)} Python files, {lines} lines in {len(commits)} repositories")
    return 0


def fetch(address: str, commit: str, target: Path) -> None:
    """Put the kept files of one commit into a folder, unless the folder is there."""
    if target.exists():
        return
    with tempfile.TemporaryDirectory() as scratch:
        git("init", "--quiet", at=scratch)
        git("fetch", "--quiet", "--depth", "1", address, commit, at=scratch)
        archive = git("archive", commit, at=scratch)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        members = [member for member in files if member.isfile() and KEPT.search(member.name)]
        files.extractall(target, members, filter="data")


def git(*command: str, at: str) -> bytes:
    """What a git command prints."""
    found = subprocess.run(["git", *command], cwd=at, capture_output=True, check=False)
    if found.returncode:
        sys.exit(f"git {' '.join(command)}: {found.stderr.decode(errors='replace').strip()}")
    return found.stdout


if __name__ == "__main__":
    sys.exit(main())
