"""Reading files: which are read, what stands for their bytes, which say what a project requires."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable

from perflint.source.cells import SUFFIX

_REQUIREMENTS = re.compile(
    r"pyproject\.toml|setup\.py|(?:requirements|constraints)[\w.-]*\.txt|setup\.cfg|(?:\w*env\w*|conda[\w.-]*)\.ya?ml|Pipfile"
    r"|Dockerfile[\w.-]*"
)

_LISTS = re.compile(r"[\w.-]+\.txt")

Stat = tuple[int, int, int]
"""A file's size in bytes, and its times of modification and of change in nanoseconds."""

SETTLED_NS = 2_000_000_000
"""A file that was changed less than this before it was read may change again without its times showing it."""

MAX_FILE_BYTES = 8 * 1024 * 1024
"""A larger file is not read: nobody writes one by hand, and one string of 15 MB took 1.9 GB to find its end."""

MAX_NOTEBOOK_BYTES = 64 * 1024 * 1024
"""The same for a notebook, most of which are pictures."""


def max_bytes(path: str) -> int:
    """How large a file may be that is read."""
    return MAX_NOTEBOOK_BYTES if path.endswith(SUFFIX) else MAX_FILE_BYTES


_confined_to: str | None = None


def confine(folder: str) -> None:
    """From now on nothing outside of a folder is read in this process, or taken for part of a project.

    What perflint itself is made of must have been loaded before.
    """
    global _confined_to
    _confined_to = os.path.realpath(folder)


def may_read(path: str) -> bool:
    """Whether a path leads, through whatever symbolic links, to where files may be read."""
    if _confined_to is None:
        return True
    real = os.path.realpath(path)
    return real == _confined_to or real.startswith(_confined_to.rstrip(os.sep) + os.sep)


def require_readable(path: str) -> None:
    """Raise `PermissionError` for a file that may not be read."""
    if not may_read(path):
        raise PermissionError(errno.EACCES, f"it is outside of {_confined_to}")


def read_file(path: str) -> bytes | None:
    """The bytes of a file, or None when it cannot be read: `why_unreadable` says why.

    Pipes, sockets and devices are never read, for they may not end.
    """
    found = read_with_stat(path)
    return found[0] if found is not None else None


def read_with_stat(path: str) -> tuple[bytes, Stat] | None:
    """The bytes of a file and what it was like just before they were read, or None when it cannot be read."""
    try:
        require_readable(path)
        with open(path, "rb", buffering=0, opener=_without_waiting) as handle:
            about = os.fstat(handle.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > max_bytes(path):
                return None
            return handle.read(), (about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    except (OSError, ValueError):
        return None


def state_digest(paths: Iterable[str]) -> str:
    """A text that stands for what some files are like: their sizes and times, of one that has just changed its bytes."""
    return text_digest(repr([(path, _state(path)) for path in sorted({*paths})]).encode("utf-8", "surrogateescape"))


def _state(path: str) -> object:
    try:
        about = os.stat(path)
    except OSError:
        return None
    is_settled = time.time_ns() - max(about.st_mtime_ns, about.st_ctime_ns) > SETTLED_NS
    return (about.st_size, about.st_mtime_ns, about.st_ctime_ns) if is_settled else read_file(path)


def requirement_files(root: str) -> list[str]:
    """The files in a directory that may say which versions of packages a project admits."""
    return [*_named(root, _REQUIREMENTS), *_named(os.path.join(root, "requirements"), _LISTS)]


def _named(root: str, names: re.Pattern[str]) -> list[str]:
    """The files in a directory whose names match a pattern."""
    try:
        found = os.listdir(root)
    except OSError:
        return []
    return [os.path.join(root, name) for name in sorted(found) if names.fullmatch(name)]


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def why_unreadable(path: str) -> str:
    """What a user can do about a file that `read_file` does not read."""
    try:
        about = os.stat(path)
    except OSError:
        about = None
    if about is not None and not stat.S_ISREG(about.st_mode):
        return "this is no regular file; `-` reads from standard input"
    if about is not None and about.st_size > max_bytes(path):
        return f"the file is larger than {max_bytes(path) >> 20} MiB; leave it out with `exclude`"
    return "the file cannot be read; check that it exists and that you may read it"


def text_digest(data: bytes | None) -> str:
    """A text that stands for a file's bytes; that of a file that cannot be read is empty."""
    return hashlib.blake2b(data, digest_size=16).hexdigest() if data is not None else ""


def requirements_digest(root: str) -> str:
    """A text that stands for what a project says about the versions of packages."""
    return text_digest(repr([(path, read_file(path)) for path in requirement_files(root)]).encode("utf-8", "surrogateescape"))
