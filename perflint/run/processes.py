"""Workers on this machine: processes that are forked where that is safe."""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

from perflint.run.dealing import Lane
from perflint.run.in_worker import forget_run, know_run, portable
from perflint.run.session import Session


class WorkerDied(Exception):
    """A process ended in the middle of its work."""


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
                error = portable(raised)
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
                know_run(run, sessions)
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
