"""`tune_loader`: measure how many workers, and how much prefetching, serve a dataset best on this machine."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from perflint_runtime.cores import usable_cores
from perflint_runtime.loaders import make_loader

CLOSE_ENOUGH = 1.05
"""Fewer workers win if they are at most this much slower than the fastest: each costs memory and a core."""


@dataclass(frozen=True)
class LoaderTiming:
    """What was measured for one candidate."""

    num_workers: int
    prefetch_factor: int | None
    startup_s: float
    """From asking for an iterator to the first batch, starting workers included."""
    wait_ms: float
    """How long the loop waits for a batch, on average, once it runs; nan if the time ran out before."""
    batches: int
    """How many the average is of."""


@dataclass(frozen=True)
class TunedLoader:
    """The loader that was chosen, why, and what to write into the program instead of measuring again."""

    loader: DataLoader[object]
    settings: dict[str, int | None]
    """`num_workers` and `prefetch_factor`, for `make_loader` or `DataLoader`."""
    timings: tuple[LoaderTiming, ...]

    def table(self) -> str:
        """The timings as text, one candidate a line, the chosen one marked."""
        lines = ["workers  prefetch  startup s  wait ms/batch  batches"]
        for timing in self.timings:
            chosen = (timing.num_workers, timing.prefetch_factor) == (
                self.settings["num_workers"],
                self.settings["prefetch_factor"],
            )
            lines.append(
                f"{timing.num_workers:7d}  {timing.prefetch_factor or '-':>8}  {timing.startup_s:9.3f}  "
                f"{timing.wait_ms:13.3f}  {timing.batches:7d}{'  <- chosen' if chosen else ''}"
            )
        return "\n".join(lines)


def tune_loader(
    dataset: Dataset[object] | Sequence[object],
    batch_size: int,
    *,
    budget_s: float = 30.0,
    step_s: float = 0.0,
    candidates: Sequence[tuple[int, int | None]] | None = None,
    progress: bool = True,
    collate_fn: Callable[[list[object]], object] | None = None,
    device: torch.device | str | None = None,
    shuffle: bool | None = None,
    seed: int | None = None,
    drop_last: bool = False,
) -> TunedLoader:
    """Measure candidates of (num_workers, prefetch_factor) for at most `budget_s` seconds and build the best loader.

    Each candidate loads batches in a loop that sleeps `step_s` in place of a training step; what counts is how long the
    loop waits per batch. The candidate with the fewest workers within 5 % of the best wins. All of it happens in a child
    process: the dataset, its caches and generators, and this process's random numbers stay as they are. The child has one
    thread, as workers do, and does not pin memory.

    Args:
        dataset: map-style. Without the start method "fork" (macOS, Windows) it has to be picklable.
        batch_size: samples per batch.
        budget_s: seconds for all candidates together; each gets an equal share of what is left.
        step_s: seconds that a training step takes, 0 to look for the highest throughput.
        candidates: pairs of workers and prefetch factor (None with 0 workers). Default: 0, 1, 2, 4, ... workers up to
            `usable_cores()` with a factor of 2, and the most workers with a factor of 4.
        progress: a progress bar (tqdm).
        collate_fn: makes batches, both while measuring and in the loader.
        device: for `make_loader`, which builds the loader.
        shuffle: likewise. Measured is a shuffled order in any case.
        seed: likewise.
        drop_last: likewise.

    Raises:
        ValueError: no candidates, a budget that is not positive, an IterableDataset.
        RuntimeError: no candidate delivered two batches in its time, or the dataset raised an error, which is named.

    """
    if budget_s <= 0:
        raise ValueError(f"budget_s is a positive number of seconds, got {budget_s}")
    if isinstance(dataset, IterableDataset):
        raise ValueError("tune_loader needs a map-style dataset: workers of an IterableDataset change what it yields")
    if candidates is None:
        candidates = default_candidates(usable_cores())
    if not candidates:
        raise ValueError("candidates is empty: name at least one pair (num_workers, prefetch_factor)")
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    end = time.monotonic() + budget_s
    timings: list[LoaderTiming] = []
    failure = ""
    for number, (num_workers, prefetch_factor) in enumerate(_with_progress(candidates, progress)):
        share_s = (end - time.monotonic()) / (len(candidates) - number)
        ours, theirs = context.Pipe(duplex=False)
        measuring = (dataset, batch_size, collate_fn, num_workers, prefetch_factor, step_s, share_s, theirs)
        child = context.Process(  # type: ignore[attr-defined] # every context has it, typeshed's base has not
            target=_measure, args=measuring
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork while threads exist
            child.start()
        theirs.close()
        outcome = _outcome(ours, share_s)
        ours.close()
        if child.is_alive():
            child.terminate()
        child.join()
        if isinstance(outcome, str):
            failure = outcome
        elif outcome is not None:
            timings.append(LoaderTiming(num_workers, prefetch_factor, *outcome))
    usable = [timing for timing in timings if timing.batches > 0]
    if not usable:
        reason = failure or f"no candidate delivered two batches in its share of {budget_s} s; give a larger budget_s"
        raise RuntimeError(f"tune_loader measured nothing: {reason}")
    best = choose(usable)
    loader = make_loader(
        dataset,
        batch_size,
        num_workers=best.num_workers,
        prefetch_factor=best.prefetch_factor,
        collate_fn=collate_fn,
        device=device,
        shuffle=shuffle,
        seed=seed,
        drop_last=drop_last,
    )
    settings = {"num_workers": best.num_workers, "prefetch_factor": best.prefetch_factor}
    return TunedLoader(loader, settings, tuple(timings))


def default_candidates(cores: int) -> list[tuple[int, int | None]]:
    """Doubling numbers of workers up to the cores, the most of them with more prefetching too."""
    workers = sorted({min(cores, 2**power) for power in range(cores.bit_length() + 1)})
    return [(0, None), *((count, 2) for count in workers), (workers[-1], 4)]


def choose(timings: Sequence[LoaderTiming]) -> LoaderTiming:
    """Pick the candidate with the fewest workers, then the least prefetching, among those close to the shortest wait."""
    shortest = min(timing.wait_ms for timing in timings)
    close = [timing for timing in timings if timing.wait_ms <= shortest * CLOSE_ENOUGH]
    return min(close, key=lambda timing: (timing.num_workers, timing.prefetch_factor or 0))


def _with_progress(candidates: Sequence[tuple[int, int | None]], progress: bool) -> Iterable[tuple[int, int | None]]:
    if not progress:
        return candidates
    from tqdm.auto import tqdm

    return tqdm(candidates, desc="tune_loader", unit="candidate")


def _outcome(connection: Connection, share_s: float) -> tuple[float, float, int] | str | None:
    """What the child measured, the text of its error, or None if it said nothing in time."""
    try:
        if connection.poll(share_s + 1.0):  # the child stops by itself; one that hangs in loading is ended
            received: tuple[float, float, int] | str = connection.recv()
            return received
    except EOFError:
        return "the measuring process died"
    return None


def _measure(
    dataset: Dataset[object],
    batch_size: int,
    collate_fn: Callable[[list[object]], object] | None,
    num_workers: int,
    prefetch_factor: int | None,
    step_s: float,
    share_s: float,
    connection: Connection,
) -> None:
    """In the child: load epochs until the share of time is used up, and report."""
    torch.set_num_threads(1)
    begin = time.monotonic()
    end = begin + share_s
    try:
        loader: DataLoader[object] = DataLoader(
            dataset,
            batch_size=batch_size,
            shuffle=True,
            num_workers=num_workers,
            collate_fn=collate_fn,
            prefetch_factor=prefetch_factor,
            persistent_workers=num_workers > 0,
        )
        startup_s, ahead, batches, slept_s = 0.0, num_workers * (prefetch_factor or 0), 0, 0.0
        measured_from = begin
        while time.monotonic() < end:
            for _ in loader:
                now = time.monotonic()
                batches += 1
                if batches == 1:
                    startup_s = now - begin
                if batches <= 1 + ahead:  # these were on their way while workers started
                    measured_from, slept_s = now, 0.0
                if now >= end:
                    break
                time.sleep(step_s)
                slept_s += time.monotonic() - now
        counted = max(0, batches - 1 - ahead)
        wait_ms = (now - measured_from - slept_s) / counted * 1000 if counted else float("nan")
        connection.send((startup_s, wait_ms, counted))
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
