"""What a worker does with the files that it is sent, and what it remembers of a run."""

from __future__ import annotations

import gc
import os
import pickle
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import NamedTuple

from perflint.project.files import read_file
from perflint.run.engine import check_item
from perflint.run.outcome import Checked, Counters, Item
from perflint.run.session import Session
from perflint.source.records import dataclass
from perflint.source.texts import TextFacts

MAX_RUNS_HELD = 4
"""How many runs a worker of a cluster remembers."""

RECURSION_LIMIT = 30_000
"""From Python 3.11 on, calls do not use the C stack."""


class Failure(NamedTuple):
    """An exception in a worker, and its traceback as text."""

    error: Exception
    trace: str


class Answer(NamedTuple):
    """What checking a batch gave: an outcome for each file, up to the one at which a rule failed, if one did."""

    worker: str
    outcomes: list[Checked]
    counters: list[Counters]
    failure: Failure | None


class LacksRun(NamedTuple):
    """The answer of a worker that does not know the run, because it was started anew."""

    worker: str


class Unfit(NamedTuple):
    """The answer of a worker whose results could differ from ours."""

    worker: str
    reason: str


@dataclass(frozen=True)
class Setup:
    """What a worker needs to know of a run before its first batch.

    made_by: the versions of perflint and Python that the results must come from. texts: the bytes of files, by path.
    on_disk: whether other files can be read from the worker's disk.
    """

    made_by: tuple[str, str]
    sessions: tuple[Session, ...]
    texts: dict[str, bytes]
    on_disk: bool

    def read(self, path: str) -> bytes | None:
        """A file's bytes, as the project's reader gives them."""
        return read_file(path) if self.on_disk and path not in self.texts else self.texts.get(path)


_RUNS: dict[str, tuple[Session, ...]] = {}
_LOCK = threading.Lock()


def check_batch(run: str, setup: Setup | None, items: Sequence[Item]) -> Answer | LacksRun | Unfit:
    """Check files in this process. `setup` comes along where the worker is not known to have it."""
    with _LOCK:  # a worker of a cluster may have several threads
        if setup is not None:
            if setup.made_by != made_by():
                here, there = " on Python ".join(made_by()), " on Python ".join(setup.made_by)
                return Unfit(worker_name(), f"it has perflint {here}, and this is {there}")
            prepare_interpreter()
            _remember(run, setup)
        sessions = _RUNS.get(run)
        return LacksRun(worker_name()) if sessions is None else checked_batch(sessions, items)


def know_run(run: str, sessions: Sequence[Session]) -> None:
    """Remember a run, for the processes that are forked from this one."""
    _RUNS[run] = tuple(sessions)


def forget_run(run: str) -> None:
    """Drop what a worker remembers of a run."""
    with _LOCK:
        _RUNS.pop(run, None)


def _remember(run: str, setup: Setup) -> None:
    texts: dict[str, TextFacts] = {}
    for session in setup.sessions:
        session.project.reader, session.project.texts = setup.read, texts
    _RUNS[run] = setup.sessions
    while len(_RUNS) > MAX_RUNS_HELD:
        del _RUNS[next(iter(_RUNS))]


def checked_batch(sessions: Sequence[Session], items: Sequence[Item]) -> Answer:
    """Check files, up to the one at which a rule fails."""
    before = [replace(session.counters) for session in sessions]
    outcomes: list[Checked] = []
    failure: Failure | None = None
    for item in items:
        try:
            outcomes.append(check_item(sessions, item))
        except Exception as error:
            failure = Failure(portable(error), traceback.format_exc())
            break
    counters = [session.counters - old for session, old in zip(sessions, before, strict=True)]
    return Answer(worker_name(), outcomes, counters, failure)


def portable(error: Exception) -> Exception:
    """The exception, or one that says the same if it cannot travel between processes."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def worker_name() -> str:
    """What tells this process from others."""
    return f"{socket.gethostname()}, process {os.getpid()}"


def made_by() -> tuple[str, str]:
    """The versions that results depend on: perflint's and Python's, whose grammar decides what parses."""
    return version("perflint-torch"), "{}.{}".format(*sys.version_info)


def prepare_interpreter() -> None:
    """Set up a process for checking files."""
    if sys.version_info >= (3, 11):
        sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))
    gc.set_threshold(1_000_000, 20, 50)  # trees are many small objects that die together, in `Session.facts`
    warnings.simplefilter("ignore")  # the parser warns about the linted files
