"""Checking files in several processes, on this machine or on a cluster.

The files of a run are dealt out in batches to workers. Each worker gets a stretch of neighbouring folders, because files ask
about their neighbours; one that is done with its own takes over the end of the longest stretch that is left. What was found
returns to its file's place, so that a report does not depend on the number of workers.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
import uuid
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from itertools import groupby
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple

from perflint.project.project import read_file
from perflint.run.engine import check_item
from perflint.run.executors import Pinned
from perflint.run.outcome import Checked, Counters, Item
from perflint.run.session import Session
from perflint.run.workers import Workers
from perflint.source.texts import TextFacts

BATCHES_PER_WORKER = 16
"""So many that workers finish at about the same time, so few that what a folder's files share is found out once."""

MAX_RUNS_HELD = 4
"""How many runs a worker of a cluster remembers."""

LOOK_AFTER_S = 5.0
"""How often silent workers of a cluster are looked after."""

RECURSION_LIMIT = 30_000
"""From Python 3.11 on, calls do not use the C stack."""


class ParallelError(Exception):
    """Workers cannot be had, or cannot do the work. The message says what to do."""


class WorkerDied(Exception):
    """A process ended in the middle of its work."""


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


class RemoteTraceback(Exception):
    """The cause of an exception that comes from a worker."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace

    def __str__(self) -> str:
        """The traceback in the worker."""
        return f"\n{self.trace}"


# -- in a worker ---------------------------------------------------------------------------------------------------------


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
        return LacksRun(worker_name()) if sessions is None else _checked(sessions, items)


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


def _checked(sessions: Sequence[Session], items: Sequence[Item]) -> Answer:
    before = [replace(session.counters) for session in sessions]
    outcomes: list[Checked] = []
    failure: Failure | None = None
    for item in items:
        try:
            outcomes.append(check_item(sessions, item))
        except Exception as error:
            failure = Failure(_portable(error), traceback.format_exc())
            break
    counters = [session.counters - old for session, old in zip(sessions, before, strict=True)]
    return Answer(worker_name(), outcomes, counters, failure)


def _portable(error: Exception) -> Exception:
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


# -- dealing out the work ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Lane:
    """One worker, and the batches that it is to get.

    submit: have it call a function. knows_run: whether it has had the setup. lost: whether it is known to be gone.
    """

    submit: Callable[..., Future[Any]]
    knows_run: bool = False
    lost: Callable[[], bool] = lambda: False
    batches: deque[Batch] = field(default_factory=deque)


@dataclass(frozen=True)
class Batch:
    """Files that one worker checks in one go. `first` is the place of the first one in the run."""

    first: int
    items: tuple[Item, ...]

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(item.size for item in self.items)


class Distribution:
    """One run's files, dealt out to workers.

    setup: what workers need that do not know the run. on_lost: is told what to show when a worker was lost.
    """

    def __init__(
        self,
        run: str,
        sessions: Sequence[Session],
        items: Sequence[Item],
        setup: Callable[[], Setup],
        on_lost: Callable[[str], None],
    ) -> None:
        self.traffic: dict[str, Counter[str]] = {}
        self._run, self._sessions, self._items = run, sessions, items
        self._lanes: list[Lane] = []
        self._setup, self._on_lost = setup, on_lost
        self._busy: dict[Future[Any], tuple[Lane, Batch]] = {}
        self._orphaned: deque[Batch] = deque()
        self._failed_at = len(items)
        self._failure: Failure | None = None

    def results(self, lanes: Sequence[Lane]) -> Iterator[tuple[int, Checked]]:
        """Each file's place in the run and its outcome, as they come in.

        Raises:
            Exception: what a rule raised at the first file where one did.
            ParallelError: a worker cannot do the work.

        """
        self._lanes = list(lanes)
        for lane, stretch in zip(lanes, stretches(batches(self._items, len(self._lanes)), len(self._lanes)), strict=True):
            lane.batches.extend(stretch)
        try:
            for lane in self._lanes:
                self._give(lane)
            while self._busy or self._orphaned:
                yield from self._collect()
        finally:
            for future in self._busy:
                future.cancel()
        if self._failure is not None:
            raise self._failure.error from RemoteTraceback(self._failure.trace)

    def _collect(self) -> Iterator[tuple[int, Checked]]:
        while self._orphaned:
            batch = self._orphaned.popleft()
            yield from self._take(batch, _checked(self._sessions, batch.items), count=False)
        done, _ = wait(self._busy, timeout=LOOK_AFTER_S, return_when=FIRST_COMPLETED)
        for future in done:
            lane, batch = self._busy.pop(future)
            yield from self._answered(lane, batch, future)
        for future in [future for future, (lane, _) in self._busy.items() if not done and lane.lost()]:
            lane, batch = self._busy.pop(future)
            future.cancel()
            self._lose(lane, batch, "it is gone")

    def _answered(self, lane: Lane, batch: Batch, future: Future[Any]) -> Iterator[tuple[int, Checked]]:
        try:
            answer = future.result()
        except (ImportError, AttributeError) as error:
            raise ParallelError(f"a worker cannot run perflint: {error}; install the same version there") from None
        except Exception as error:
            self._lose(lane, batch, str(error) or type(error).__name__)
            return
        match answer:
            case LacksRun():
                lane.knows_run = False
                lane.batches.appendleft(batch)
            case Unfit(worker, reason):
                raise ParallelError(f"the worker {worker} does not fit: {reason}")
            case Answer():
                lane.knows_run = True
                yield from self._take(batch, answer)
        self._give(lane)

    def _take(self, batch: Batch, answer: Answer, *, count: bool = True) -> Iterator[tuple[int, Checked]]:
        yield from enumerate(answer.outcomes, batch.first)
        if count:
            for session, counters in zip(self._sessions, answer.counters, strict=True):
                session.counters += counters
        place = batch.first + len(answer.outcomes)
        if answer.failure is not None and place < self._failed_at:
            self._failed_at, self._failure = place, answer.failure

    def _give(self, lane: Lane) -> None:
        """Send a worker its next batch, or one from the end of the longest stretch."""
        owner = lane if lane.batches else max(self._lanes, key=lambda other: sum(batch.size for batch in other.batches))
        while owner.batches:
            batch = owner.batches.popleft() if owner is lane else owner.batches.pop()
            if batch.first < self._failed_at:  # one process would not have come to what is behind
                setup = None if lane.knows_run else self._setup()
                future = lane.submit(check_batch, self._run, setup, batch.items)
                self._busy[future] = (lane, batch)
                if setup is not None:
                    future.add_done_callback(partial(self._sent, setup))
                return

    def _sent(self, setup: Setup, future: Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.traffic.setdefault(future.result().worker, Counter()).update(setup.texts.keys())

    def _lose(self, lane: Lane, batch: Batch, reason: str) -> None:
        """Go on without a worker: its batch is checked here, the rest of its stretch by the others."""
        self._on_lost(f"a worker was lost ({reason}); its files are checked in this process")
        self._orphaned.append(batch)
        self._lanes.remove(lane)
        heir = min(self._lanes, key=lambda other: sum(b.size for b in other.batches), default=None)
        (heir.batches if heir is not None else self._orphaned).extend(lane.batches)


def batches(items: Sequence[Item], workers: int) -> list[Batch]:
    """The files in their order, cut between folders where a batch is large enough, and inside of large folders."""
    enough = sum(item.size for item in items) // (workers * BATCHES_PER_WORKER) + 1
    cut: list[Batch] = []
    held: list[Item] = []
    size = 0
    for _, folder in groupby(items, key=lambda item: os.path.dirname(item.path)):
        for item in folder:
            held.append(item)
            size += item.size
            if size >= 2 * enough:
                cut.append(Batch(_end(cut), tuple(held)))
                held, size = [], 0
        if size >= enough:
            cut.append(Batch(_end(cut), tuple(held)))
            held, size = [], 0
    if held:
        cut.append(Batch(_end(cut), tuple(held)))
    return cut


def _end(cut: Sequence[Batch]) -> int:
    return cut[-1].first + len(cut[-1].items) if cut else 0


def stretches(dealt: Sequence[Batch], workers: int) -> list[list[Batch]]:
    """Neighbouring batches for each worker, of about the same size in all."""
    total = sum(batch.size for batch in dealt) or 1
    parts: list[list[Batch]] = [[] for _ in range(workers)]
    passed = 0
    for batch in dealt:
        parts[min(workers - 1, (passed + batch.size // 2) * workers // total)].append(batch)
        passed += batch.size
    return parts


def distributed(
    sessions: Sequence[Session], items: Sequence[Item], workers: Workers, unsaved: dict[str, bytes]
) -> Iterator[tuple[int, Checked]]:
    """Each file's place in the run and its outcome, as workers deliver them. `unsaved`: texts that take the place of files."""
    run = uuid.uuid4().hex
    setup = partial(Setup, made_by(), tuple(sessions))
    if workers.executors:
        texts = cache(partial(texts_of, sessions))
        with executor_lanes(run, workers) as lanes:
            distribution = Distribution(run, sessions, items, lambda: setup(texts(), on_disk=False), workers.warn)
            yield from distribution.results(lanes)
    else:
        if any(rule.steps for session in sessions for rule in session.rules):
            for session in sessions:
                session.project.importers(items[0].path)  # found out once: forked workers share it
        with local_lanes(run, sessions, workers.jobs) as lanes:
            distribution = Distribution(run, sessions, items, lambda: setup(unsaved, on_disk=True), workers.warn)
            yield from distribution.results(lanes)
    workers.traffic.update(distribution.traffic)


def texts_of(sessions: Sequence[Session]) -> dict[str, bytes]:
    """The bytes of all files that a question may lead to, for workers that see no common disk."""
    texts: dict[str, bytes] = {}
    for project in {id(session.project): session.project for session in sessions}.values():
        for path in (*project.files, *project.links.values()):
            data = project.reader(path)
            if data is not None:
                texts[path] = data
    return texts


@contextlib.contextmanager
def executor_lanes(run: str, workers: Workers) -> Iterator[list[Lane]]:
    """The workers behind executors that the user brings."""
    several = len(workers.executors) > 1
    lanes = [Lane(executor.submit) for executor in workers.executors for _ in range(1 if several else workers.jobs)]
    for lane, executor in zip(lanes, workers.executors, strict=False):
        if isinstance(executor, Pinned):
            lane.lost = executor.is_lost
    try:
        yield lanes
    finally:
        for executor in workers.executors:
            with contextlib.suppress(Exception):  # one that is broken has nothing to forget
                executor.submit(forget_run, run)


# -- workers on this machine ---------------------------------------------------------------------------------------------


class _Worker:
    """A process that answers one call at a time."""

    def __init__(self, context: BaseContext, siblings: Sequence[_Worker]) -> None:
        self._connection, theirs = context.Pipe()
        is_fork = context.get_start_method() == "fork"
        inherited = [worker._connection for worker in (*siblings, self)] if is_fork else []
        arguments = (theirs, inherited, os.getcwd())
        self.process = context.Process(target=_serve, args=arguments, daemon=True)  # type: ignore[attr-defined]
        with contextlib.nullcontext() if is_fork else _among_own_modules():
            self.process.start()
        theirs.close()

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function there.

        Raises:
            WorkerDied: the process has ended.
            Exception: what the function raised.

        """
        try:
            self._connection.send((function, arguments))
            result, error = self._connection.recv()
        except (EOFError, OSError):
            self.process.join(1)
            code = self.process.exitcode
            ended = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            raise WorkerDied(f"process {self.process.pid} ended with {ended}") from None
        if error is not None:
            raise error
        return result

    def through(self, threads: ThreadPoolExecutor) -> Callable[..., Future[Any]]:
        """The calls as futures: a thread waits for each answer."""
        return lambda function, *arguments: threads.submit(self.ask, function, *arguments)

    def stop(self) -> None:
        """End the process; a call that it has not answered fails."""
        self.process.terminate()
        self.process.join()
        self._connection.close()


def _serve(connection: Connection, inherited: Sequence[Connection], folder: str) -> None:
    """What a worker process does, in a working directory: answer until the other end is closed, also by the other process's
    death.
    """
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the first process ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    with contextlib.suppress(OSError):
        while True:
            result, error = None, None
            try:
                function, arguments = connection.recv()
                result = function(*arguments)
            except EOFError:
                return
            except Exception as raised:
                error = _portable(raised)
            connection.send((result, error))


@contextlib.contextmanager
def local_lanes(run: str, sessions: Sequence[Session], workers: int) -> Iterator[list[Lane]]:
    """Processes on this machine. Where it is safe they are forked, and know the run from the start."""
    context = multiprocessing.get_context("fork" if can_fork() else "spawn")
    started: list[_Worker] = []
    with ThreadPoolExecutor(workers) as threads:
        try:
            if can_fork():
                for rule in {rule for session in sessions for rule in session.rules}:
                    importlib.import_module(rule.module)  # once, not in each worker
            with _no_interrupt():
                _RUNS[run] = tuple(sessions)
                gc.freeze()  # so that collections do not copy the pages that the processes share
                for _ in range(workers):
                    started.append(_Worker(context, started))
                gc.unfreeze()
            knows_run = context.get_start_method() == "fork"
            yield [Lane(worker.through(threads), knows_run) for worker in started]
        finally:
            forget_run(run)
            for worker in started:
                worker.stop()


def can_fork() -> bool:
    """Whether a fork gets all that this process knows and nothing that breaks it: macOS's libraries do not bear it, nor do
    locks that other threads hold.
    """
    return sys.platform.startswith("linux") and threading.active_count() == 1


@contextlib.contextmanager
def _among_own_modules() -> Iterator[None]:
    """Work in the folder of the standard library: a Python that is started meanwhile looks for modules there, not in a folder
    that is linted. `python -c`, which is how workers start, puts the working directory first.
    """
    before = os.getcwd()
    os.chdir(os.path.dirname(contextlib.__file__))
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Hold Ctrl-C back; processes that are started meanwhile never see it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
