"""Checking files in several processes, on this machine or on a cluster.

The files of a run are dealt out in batches to workers. Each worker gets a stretch of neighbouring folders, because files ask
about their neighbours; one that is done with its own takes over the end of the longest stretch that is left. What was found
returns to its file's place, so that a report does not depend on the number of workers.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from functools import cache, partial

from perflint.run.dealing import Distribution, Lane
from perflint.run.executors import Pinned
from perflint.run.in_worker import Setup, forget_run, made_by
from perflint.run.outcome import Checked, Item
from perflint.run.processes import local_lanes
from perflint.run.session import Session
from perflint.run.workers import Workers


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
            for project in {id(session.project): session.project for session in sessions}.values():
                project.find_out()  # once: forked workers share it
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
