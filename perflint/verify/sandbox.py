"""A copy of the project beside the user's own, in which both versions of a program run, each time from a fresh state."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

NOT_COPIED = {
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    "node_modules",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".tox",
    ".nox",
    ".ipynb_checkpoints",
}
MAX_COPY_MIB = 1024


class SandboxError(Exception):
    """The project cannot be copied; the message says what to do."""


class Sandbox:
    """Trees of one project, kept as they are, and the folder in which a tree is run: the same path for all of them.

    root: the project's folder. links: files and folders below it that runs share with the user's tree instead of getting a
    copy; a program that writes there writes into the user's tree.

    Raises:
        SandboxError: the project is larger than `max_copy_mib`.

    """

    def __init__(self, root: Path, links: tuple[Path, ...] = (), max_copy_mib: int = MAX_COPY_MIB) -> None:
        self.root = root.resolve()
        self._links = {path.resolve() for path in links}
        self.scratch = Path(tempfile.mkdtemp(prefix="perflint-verify-")).resolve()
        self.place = self.scratch / "run" / (self.root.name or "project")
        size_mib = sum(path.stat().st_size for path in self._files()) / 2**20
        if size_mib > max_copy_mib:
            self.close()
            raise SandboxError(
                f"{root} holds {size_mib:.0f} MiB, more than are copied ({max_copy_mib}): name the script's folder with "
                "--root, share data that is only read with --link, or raise --max-copy-mib"
            )
        self.add("original", self.root)

    def add(self, name: str, source: Path) -> Path:
        """Copy a folder as the tree `name`."""
        tree = self.tree(name)
        shutil.copytree(source, tree, symlinks=True, ignore=self._ignored)
        return tree

    def add_revision(self, name: str, revision: str) -> Path:
        """The project as git has it at a revision, beside what git does not have: data, results of earlier runs.

        Raises:
            SandboxError: git cannot give it.

        """
        tree = self.add(name, self.root)
        archive = self.scratch / f"{name}.tar"
        try:
            self._git("archive", "--format=tar", f"--output={archive}", revision, ".")
            known = self._git("ls-files", "-z").split("\0")
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", "") or str(error)
            raise SandboxError(f"git gives no files of {revision}: {said.strip()}") from None
        for path in filter(None, known):
            if (tree / path).is_file() or (tree / path).is_symlink():
                (tree / path).unlink()
        with tarfile.open(archive) as packed:
            packed.extractall(tree, filter="data")
        archive.unlink()
        return tree

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout

    def tree(self, name: str) -> Path:
        """Where the tree `name` is kept."""
        return self.scratch / "trees" / name

    def remove(self, name: str) -> None:
        """Forget a tree, if there is one of this name."""
        shutil.rmtree(self.tree(name), ignore_errors=True)

    def set_up(self, name: str) -> Path:
        """Make a fresh copy of a tree at the place of runs; the working directory for the program."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.tree(name), self.place, symlinks=True)
        for link in self._links:
            inside = self.place / link.relative_to(self.root)
            inside.parent.mkdir(parents=True, exist_ok=True)
            if not inside.exists():
                inside.symlink_to(link, target_is_directory=link.is_dir())
        return self.place

    def files_written(self, name: str) -> Iterator[Path]:
        """Files that the last run made or changed, relative to the project."""
        kept = self.tree(name)
        for path in sorted(self.place.rglob("*")):
            relative = path.relative_to(self.place)
            if path.is_symlink() or not path.is_file() or NOT_COPIED.intersection(relative.parts):
                continue
            before = kept / relative
            if not before.is_file() or before.read_bytes() != path.read_bytes():
                yield relative

    def close(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _files(self) -> Iterator[Path]:
        for directory, folders, names in os.walk(self.root):
            left_out = self._ignored(directory, [*folders, *names])
            folders[:] = [folder for folder in folders if folder not in left_out]
            for name in names:
                path = Path(directory, name)
                if name not in left_out and path.is_file() and not path.is_symlink():
                    yield path

    def _ignored(self, directory: str, names: list[str]) -> set[str]:
        left_out = set()
        for name in names:
            path = Path(directory, name)
            special = not path.is_symlink() and path.exists() and not (path.is_file() or path.is_dir())  # sockets, pipes
            if name in NOT_COPIED or special or (path / "pyvenv.cfg").exists() or path.resolve() in self._links:
                left_out.add(name)
        return left_out
