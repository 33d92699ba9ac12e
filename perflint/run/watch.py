"""Noticing that files change, by looking at them again and again.

Looking works on every file system, also on mounted folders whose events no kernel delivers. Only what is known is looked at: a
new or a vanished file shows in the time stamp of its folder, and only then the tree is walked again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter, sleep
from typing import NamedTuple

INTERVAL_S = 0.5
SHARE_OF_TIME = 0.05
"""How much of a core the looking may take: in a huge tree it happens less often."""


class Watched(NamedTuple):
    """Files and folders, by absolute path; they need not exist."""

    files: frozenset[str]
    folders: frozenset[str]


Stamps = dict[str, "tuple[int, int, int] | None"]


def changes(look: Callable[[], Watched]) -> Iterator[None]:
    """Yields once at the start, and each time that files have changed since.

    look: what there is to watch now. It is asked before each yield, so that no change is lost while the caller is at work.
    """
    watched = look()
    files, folders = stamps(watched.files), stamps(watched.folders)
    yield
    while True:
        started = perf_counter()
        if stamps(watched.folders) != folders:
            watched = look()
            folders = stamps(watched.folders)
        now = stamps(watched.files)
        if now != files:
            files = now
            yield
        else:
            sleep(max(INTERVAL_S, (perf_counter() - started) / SHARE_OF_TIME))


def stamps(paths: Iterable[str]) -> Stamps:
    """What shows a change of files and folders, by path; None for those that are not there."""
    return {path: _stamp(path) for path in paths}


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
