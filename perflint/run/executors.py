"""Executors that the user brings: those of a cluster engine, or any that a module of the user's has.

What is named here is imported and run, so it comes from the command line only, never from a configuration file.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from operator import attrgetter
from typing import Any

DASK = "dask"


class ExecutorError(Exception):
    """An executor cannot be had. The message says which and why."""


class Pinned(Executor):
    """One worker of a cluster, behind the executor interface. `is_lost`: whether the cluster has lost it."""

    def __init__(self, executor: Executor, is_lost: Callable[[], bool]) -> None:
        self._executor, self.is_lost = executor, is_lost

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Have the worker call a function."""
        return self._executor.submit(function, *arguments, **named)


@contextlib.contextmanager
def opened(name: str) -> Iterator[Sequence[Executor]]:
    """The executors that a name on the command line means, one per worker where they can be told apart.

    name: `dask:ADDRESS` of a scheduler, or `module:attribute`. The attribute is an executor, a sequence of executors with one
    worker each, or a function that returns either; what a function returns is shut down in the end.

    Raises:
        ExecutorError: there is no such thing.

    """
    module, colon, rest = name.partition(":")
    if not (module and colon and rest):
        raise ExecutorError(f"{name}: write dask:ADDRESS or MODULE:NAME")
    with _dask(rest) if module == DASK else _attribute(name, module, rest) as executors:
        yield executors


@contextlib.contextmanager
def _attribute(name: str, module: str, attribute: str) -> Iterator[Sequence[Executor]]:
    try:
        found = attrgetter(attribute)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ExecutorError(f"{name}: {error}") from None
    is_ours = callable(found) and not hasattr(found, "submit")
    made = found() if is_ours else found
    executors = tuple(made) if isinstance(made, Sequence) else (made,)
    for thing in executors:
        if not hasattr(thing, "submit"):
            raise ExecutorError(f"{name}: {thing!r} is no executor: it has no `submit`")
    if not executors:
        raise ExecutorError(f"{name}: there is no executor in it")
    try:
        yield executors
    finally:
        for executor in executors if is_ours else ():
            executor.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def _dask(address: str) -> Iterator[Sequence[Executor]]:
    try:
        from distributed import Client
    except ImportError:
        raise ExecutorError("dask is not installed beside perflint: pip install distributed") from None
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise ExecutorError(f"dask:{address}: no scheduler answers there: {error}") from None
    with client:
        workers = sorted(client.nthreads())
        if not workers:
            raise ExecutorError(f"dask:{address}: the scheduler has no workers")
        yield [Pinned(client.get_executor(workers=[worker]), partial(_is_lost, client, worker)) for worker in workers]


def _is_lost(client: Any, worker: str) -> bool:
    return worker not in client.nthreads()
