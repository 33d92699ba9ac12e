"""Dealing the files of a run out to workers, and what happens when one is lost."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import field
from functools import partial
from itertools import groupby
from typing import Any

from perflint.run.in_worker import Answer, Failure, LacksRun, Setup, Unfit, check_batch, checked_batch
from perflint.run.outcome import Checked, Item
from perflint.run.session import Session
from perflint.source.records import dataclass

BATCHES_PER_WORKER = 16
"""So many that workers finish at about the same time, so few that what a folder's files share is found out once."""

LOOK_AFTER_S = 5.0
"""How often silent workers of a cluster are looked after."""


class ParallelError(Exception):
    """Workers cannot be had, or cannot do the work. The message says what to do."""


class RemoteTraceback(Exception):
    """The cause of an exception that comes from a worker."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace

    def __str__(self) -> str:
        """The traceback in the worker."""
        return f"\n{self.trace}"


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
            yield from self._take(batch, checked_batch(self._sessions, batch.items), count=False)
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
