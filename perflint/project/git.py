"""Which commit is checked out, and which lines of the working tree have changed since one, as git tells."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from functools import cached_property

_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPE = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPED = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))
_OF_ANOTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")


class GitError(Exception):
    """Git cannot say what has changed. The message says why, and what to do."""


class _Refused(GitError):
    """Git ran, and failed."""


class Changes:
    """What has changed since a commit, in the repositories of the files that are asked about."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self._roots: dict[str, str] = {}
        self._repositories: dict[str, _Repository] = {}

    def touch(self, path: str, first: int, last: int) -> bool:
        """Whether one of the rows `first` to `last` of a file has changed or is new; the path is absolute.

        Raises:
            GitError: the file is in no repository, or this lacks the commit.

        """
        folder, name = os.path.split(os.path.realpath(path))
        repository = self.repository(folder)
        relative = os.path.relpath(os.path.join(folder, name), repository.root)
        if relative not in repository.tracked:
            return True
        return any(start <= last and first <= end for start, end in repository.changed.get(relative, ()))

    def repository(self, folder: str) -> _Repository:
        """The repository that a folder is in.

        Raises:
            GitError: there is none, or it lacks the commit.

        """
        folder = os.path.realpath(folder)
        if folder not in self._roots:
            self._roots[folder] = _root(folder)
        root = self._roots[folder]
        if root not in self._repositories:
            self._repositories[root] = _Repository(root, self.revision)
        return self._repositories[root]


class _Repository:
    """One repository, compared with the commit at which its present one branched off from a revision."""

    def __init__(self, root: str, revision: str) -> None:
        self.root = root
        try:
            commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").strip()
        except _Refused:
            hint = "fetch it, if the clone is shallow"
            raise GitError(f"{root}: git knows no commit `{revision}`; {hint}") from None
        with contextlib.suppress(_Refused):  # no common history, or not as much of it as would show
            commit = _git(root, "merge-base", commit.decode(), "HEAD").strip()
        self._commit = commit.decode()

    @cached_property
    def tracked(self) -> frozenset[str]:
        """The files that git knows, by paths relative to the root."""
        return frozenset(os.fsdecode(name).replace("/", os.sep) for name in _git(self.root, "ls-files", "-z").split(b"\0"))

    @cached_property
    def changed(self) -> dict[str, list[tuple[int, int]]]:
        """The first and last row of each stretch of the working tree's lines that the commit has not, by file."""
        options = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-relative", "--src-prefix=a/", "--dst-prefix=b/")
        text = _git(self.root, "diff", "--unified=0", "--inter-hunk-context=0", "--find-renames", *options, self._commit, "--")
        return _stretches(text.split(b"\n"))


def commit_of(folder: str) -> str | None:
    """The short name of the commit that is checked out in a folder's repository; None without one, or without git."""
    try:
        return _git(folder, "rev-parse", "--short=10", "--verify", "HEAD").decode().strip()
    except (GitError, OSError):
        return None


def has_changes(folder: str) -> bool:
    """Whether files of a folder that git knows have changed since the commit. A filter that is configured for them may run."""
    try:
        return bool(_git(folder, "status", "--porcelain", "--untracked-files=no", ".").strip())
    except (GitError, OSError):
        return False


def _stretches(lines: list[bytes]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    current: list[tuple[int, int]] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith(b"+++ "):
            current = found.setdefault(_name(line[4:]), [])
        elif hunk := _HUNK.match(line):
            removed, added = (int(count) if count is not None else 1 for count in hunk.group(1, 3))
            if added:
                current.append((int(hunk[2]), int(hunk[2]) + added - 1))
            left = removed + added
            while left:
                left -= not lines[at].startswith(b"\\")  # "\ No newline at end of file"
                at += 1
    return found


def _name(text: bytes) -> str:
    """The path in a line of a patch, relative to the root."""
    name = text.removesuffix(b"\t")
    if name.startswith(b'"'):
        name = _ESCAPE.sub(lambda e: bytes([int(e[1], 8) if len(e[1]) == 3 else _ESCAPED[e[1][0]]]), name[1:-1])
    return os.fsdecode(name.removeprefix(b"b/")).replace("/", os.sep)


def _root(folder: str) -> str:
    try:
        found = _git(folder, "rev-parse", "--show-toplevel")
    except _Refused as error:
        raise GitError(f"{folder} is in no git repository: {error}") from None
    return os.path.realpath(os.fsdecode(found.rstrip(b"\r\n")))


def _git(folder: str, *arguments: str) -> bytes:
    environment = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_REPOSITORY}
    command = ["git", "-c", "core.quotePath=false", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, env={**environment, "LC_ALL": "C"}, capture_output=True, check=False)
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _Refused(said[0].removeprefix("fatal: ") if said else f"`git {arguments[0]}` failed")
    return done.stdout
