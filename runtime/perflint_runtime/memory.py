"""GPU memory: what is held, whether giving some back would help, and pictures of it.

torch keeps freed memory for the next tensors. `torch.cuda.empty_cache()` gives it to the driver, which adds nothing to what
torch itself can use (torch's notes on CUDA memory management): torch does so by itself before it reports out of memory. It
helps when somebody else needs the card (NCCL, cuDNN, another process), between phases of different shapes, and it costs new
allocations, each a call to the driver. `MemoryManager.check_and_clear` therefore acts only under pressure and for a gain.

Everything here is a no-op with the same interface where there is no CUDA (the CPU, MPS, XPU), and before CUDA has started.
The logic is tested with stand-ins for torch.cuda's statistics; docs/gpu.md of the repository says what has run on a card.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

log = logging.getLogger(__name__)

MIB = 1 << 20
VIEWER = "https://docs.pytorch.org/memory_viz"
_LONGEST_PAUSE = 1024


@dataclass(frozen=True)
class MemoryUse:
    """What torch's caching allocator holds on a card, and what the card has left. All zero without CUDA."""

    allocated_mib: float = 0.0
    """In tensors."""
    active_mib: float = 0.0
    """In tensors, or freed while a stream may still be using it."""
    peak_mib: float = 0.0
    """The most that was in tensors."""
    reserved_mib: float = 0.0
    """Taken from the driver: tensors, cache, and what fragmentation makes useless."""
    fragmented_mib: float = 0.0
    """Free pieces of segments that are in use elsewhere: nobody can give them back. torch reports 0 for expandable segments."""
    alloc_retries: int = 0
    """How often the driver refused memory, so that torch emptied its cache (which waits for the GPU) and tried again."""
    ooms: int = 0
    """How often torch raised OutOfMemoryError."""
    free_mib: float = 0.0
    """What the driver can still hand out on this card."""
    total_mib: float = 0.0
    """The card's memory."""

    @property
    def releasable_mib(self) -> float:
        """What `torch.cuda.empty_cache()` can give back to the driver, about."""
        return max(0.0, self.reserved_mib - self.active_mib - self.fragmented_mib)

    @property
    def fragmentation(self) -> float:
        """Share of the reserved memory that is fragmented, 0 to 1."""
        return self.fragmented_mib / self.reserved_mib if self.reserved_mib else 0.0


@dataclass
class TrackedMemory:
    """What a block of code took: filled in when the `track()` block ends. All zero without CUDA."""

    before_mib: float = 0.0
    """In tensors when the block began."""
    after_mib: float = 0.0
    """In tensors when it ended."""
    peak_mib: float = 0.0
    """The most in tensors inside of the block."""

    @property
    def extra_mib(self) -> float:
        """How far the block went above what was there before."""
        return self.peak_mib - self.before_mib


class MemoryManager:
    """Gives cached memory back under pressure, tracks peaks, reports, and takes snapshots, for one card.

        memory = MemoryManager()
        for epoch in range(epochs):
            train(...)
            with memory.track() as evaluation:
                evaluate(...)
            memory.check_and_clear()
            print(f"evaluation took {evaluation.extra_mib:.0f} MiB")
        print(memory.report())

    `clears` and `freed_mib` count what it did. Not for several threads at once.
    """

    def __init__(
        self, device: torch.device | str | None = None, *, low_memory: float = 0.1, min_gain: float = 0.05, enabled: bool = True
    ) -> None:
        """Watch `device` (default: the current card at each call).

        Pressure is less than `low_memory` of the card free, or an allocation that failed since the last check. A gain is
        `min_gain` of the card. `enabled=False` makes `check_and_clear()` do nothing unless forced. Raises ValueError if one
        of the shares is not within 0 ... 1.
        """
        for name, share in (("low_memory", low_memory), ("min_gain", min_gain)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name}={share}: a share of the card's memory lies in 0 ... 1")
        self._device = None if device is None else torch.device(device)
        self._low_memory, self._min_gain, self._enabled = low_memory, min_gain, enabled
        self._failures = 0
        self._pause = 0
        self._checks_to_skip = 0
        self._reserved_before_clear_mib = 0.0
        self._peak_before_reset_mib = 0.0
        self._tracked: list[TrackedMemory] = []
        self.clears = 0
        self.freed_mib = 0.0

    def usage(self) -> MemoryUse:
        """What is held now. Waits for nothing: the allocator's statistics and the driver's account are on the host."""
        device = self._card()
        if device is None:
            return MemoryUse()
        free, total = torch.cuda.mem_get_info(device)
        stats = torch.cuda.memory_stats(device)
        return MemoryUse(
            allocated_mib=stats.get("allocated_bytes.all.current", 0) / MIB,
            active_mib=stats.get("active_bytes.all.current", 0) / MIB,
            peak_mib=max(self._peak_before_reset_mib, stats.get("allocated_bytes.all.peak", 0) / MIB),
            reserved_mib=stats.get("reserved_bytes.all.current", 0) / MIB,
            fragmented_mib=stats.get("inactive_split_bytes.all.current", 0) / MIB,
            alloc_retries=stats.get("num_alloc_retries", 0),
            ooms=stats.get("num_ooms", 0),
            free_mib=free / MIB,
            total_mib=total / MIB,
        )

    def check_and_clear(self, force: bool = False) -> float:
        """Give torch's cache back to the driver if the card is nearly full and that would gain something.

        Returns the MiB that were given back, 0.0 if nothing was done. Where the memory was taken again by the next check that
        would clear, the manager pauses for 1, 2, 4 ... 1024 checks, so that it does not take turns with the allocator.
        `force=True` also collects Python's garbage, and clears whatever the state. Call it between phases, not in each step.
        """
        use = self.usage()
        if not use.total_mib:
            return 0.0
        failures, self._failures = self._failures, use.alloc_retries + use.ooms
        if force:
            gc.collect()
            return self._clear(self.usage())
        under_pressure = use.free_mib < self._low_memory * use.total_mib or self._failures > failures
        if not self._enabled or not under_pressure or use.releasable_mib < self._min_gain * use.total_mib:
            return 0.0
        if self._checks_to_skip:
            self._checks_to_skip -= 1
            return 0.0
        in_vain = use.reserved_mib >= 0.9 * self._reserved_before_clear_mib > 0
        self._pause = min(max(1, 2 * self._pause), _LONGEST_PAUSE) if in_vain else 0
        self._checks_to_skip = self._pause
        return self._clear(use)

    def report(self) -> str:
        """A table of what is held, and what to do about it."""
        use = self.usage()
        if not use.total_mib:
            return "memory: CUDA is not in use; torch keeps no statistics of memory here"
        others_mib = use.total_mib - use.free_mib - use.reserved_mib
        rows = [
            ("in tensors", use.allocated_mib, f"peak {use.peak_mib:,.0f}"),
            ("reserved by torch", use.reserved_mib, ""),
            ("  that it could give back", use.releasable_mib, ""),
            ("  fragmented", use.fragmented_mib, f"{use.fragmentation:.0%} of reserved"),
            ("outside of torch", others_mib, "CUDA itself, NCCL, other processes"),
            ("free on the card", use.free_mib, f"of {use.total_mib:,.0f}"),
            ("given back by this manager", self.freed_mib, f"in {self.clears} clears"),
        ]
        lines = [f"{'memory of ' + str(self._card()):<28}{'MiB':>10}"]
        lines += [f"{name:<28}{mib:>10,.0f}  {note}".rstrip() for name, mib, note in rows]
        lines += [f"{'failed allocations':<28}{use.alloc_retries:>10,}  retried; {use.ooms} out of memory"]
        return "\n".join([*lines, *(f"- {line}" for line in _advice(use))])

    @contextmanager
    def track(self) -> Iterator[TrackedMemory]:
        """Measure the peak of a block in MiB; blocks may be nested.

        Resets torch's own peak (`torch.cuda.max_memory_allocated`) when the block begins; `report()` remembers the old one.
        Does not wait: torch counts tensors when the CPU makes them.
        """
        tracked = TrackedMemory()
        device = self._card()
        if device is not None:
            self._take_peak(device)
            torch.cuda.reset_peak_memory_stats(device)
            tracked.before_mib = torch.cuda.memory_allocated(device) / MIB
        self._tracked.append(tracked)
        try:
            yield tracked
        finally:
            device = self._card()  # CUDA may have started in the block
            if device is not None:
                self._take_peak(device)
                tracked.after_mib = torch.cuda.memory_allocated(device) / MIB
            self._tracked.remove(tracked)

    def snapshot(self, path: str | os.PathLike[str]) -> Path | None:
        """Write what the allocator holds, with the history if there is one, for torch's viewer; returns the file.

        Open it at https://docs.pytorch.org/memory_viz (the file stays in the browser), or open the `.html` that is written
        beside it, which loads the same viewer from the network. Several KB per recorded allocation. The history comes
        with `recording()`. Without CUDA nothing is written and None returned. Raises OSError if the file cannot be written.
        """
        if self._card() is None:
            return None
        target = Path(path)
        snapshot = torch.cuda.memory._snapshot()
        target.write_bytes(pickle.dumps(snapshot))
        page = _viewer_page(snapshot)
        if page is not None:
            target.with_suffix(".html").write_text(page, encoding="utf-8")
        log.info("memory snapshot in %s: open it at %s", target, VIEWER)
        return target

    @contextmanager
    def recording(self, path: str | os.PathLike[str], max_entries: int = 100_000) -> Iterator[None]:
        """Record each allocation in a block with its stack and write a `snapshot` at its end, also when it runs out of memory.

        About 2 us per allocation (torch's documentation of `_record_memory_history`); the last `max_entries` are kept.
        """
        if not torch.cuda.is_available():
            yield
            return
        torch.cuda.memory._record_memory_history(max_entries=max_entries)
        try:
            yield
        finally:
            self.snapshot(path)
            torch.cuda.memory._record_memory_history(enabled=None)

    def _card(self) -> torch.device | None:
        """The card, or None where CUDA is not in use: asking would start it."""
        started: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch 2.13 leaves it untyped
        if not started or (self._device is not None and self._device.type != "cuda"):
            return None
        if self._device is None or self._device.index is None:
            return torch.device("cuda", torch.cuda.current_device())
        return self._device

    def _clear(self, use: MemoryUse) -> float:
        device = self._card()
        assert device is not None
        with torch.cuda.device(device):
            torch.cuda.empty_cache()  # the CPU waits for the GPU here: the driver frees when all kernels have ended
        freed_mib = max(0.0, use.reserved_mib - torch.cuda.memory_reserved(device) / MIB)
        self._reserved_before_clear_mib = use.reserved_mib
        self.clears += 1
        self.freed_mib += freed_mib
        return freed_mib

    def _take_peak(self, device: torch.device) -> None:
        """Hand torch's peak to the blocks that are open, before it is reset or read."""
        peak_mib = torch.cuda.max_memory_allocated(device) / MIB
        self._peak_before_reset_mib = max(self._peak_before_reset_mib, peak_mib)
        for tracked in self._tracked:
            tracked.peak_mib = max(tracked.peak_mib, peak_mib)


def _advice(use: MemoryUse) -> Iterator[str]:
    """What to do about it, most useful first."""
    settings = os.environ.get("PYTORCH_ALLOC_CONF", "") + os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    if use.fragmentation > 0.2 and "expandable_segments:true" not in settings.lower():
        # The older name: every version reads it first, and 2.9 ignores the newer one (pytorch issue 183387).
        yield (
            "fragmented: start the program with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; "
            "padding batches to few lengths helps, too"
        )
    if use.alloc_retries or use.ooms:
        yield (
            "allocations failed, and each retry waits for the GPU: a smaller batch, gradient checkpointing or bf16 "
            "need less; record where it goes with MemoryManager.recording(path)"
        )
    if use.free_mib < 0.1 * use.total_mib and use.releasable_mib > 0.05 * use.total_mib:
        yield "nearly full, much of it cache: MemoryManager.check_and_clear() between phases leaves room for others"


def _viewer_page(snapshot: object) -> str | None:
    """The viewer as a page, if this version of torch makes one."""
    try:
        from torch.cuda._memory_viz import trace_plot
    except ImportError:
        return None
    page: str = trace_plot(snapshot)  # type: ignore[no-untyped-call]  # torch 2.13 leaves it untyped
    return page


_OF_PROCESS = MemoryManager()


def empty_cache_if_needed() -> None:
    """`torch.cuda.empty_cache()`, but only where the present card runs short of memory and it would gain something.

    For calls that are scattered over a program: all of them share one `MemoryManager`, which remembers what clearing gained.
    """
    _OF_PROCESS.check_and_clear()
