"""The memory manager against a stand-in for torch.cuda, and without CUDA."""

from __future__ import annotations

import contextlib
import gc
import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import perflint_runtime.memory as memory_module
import pytest
import torch
from perflint_runtime import MemoryManager, empty_cache_if_needed
from perflint_runtime.memory import MemoryUse

MIB = 1 << 20
TOTAL = 10_000


class FakeCard:
    """A card of 10,000 MiB with a caching allocator; all figures in MiB."""

    def __init__(self) -> None:
        self.allocated = 0
        self.cached = 0
        self.fragmented = 0
        self.others = 0
        self.peak = 0
        self.retries = 0
        self.clears = 0
        self.recording: list[object] = []

    @property
    def reserved(self) -> int:
        return self.allocated + self.cached + self.fragmented

    def take(self, mib: int) -> None:
        """Allocate, from the cache first."""
        self.cached -= min(mib, self.cached)
        self.allocated += mib
        self.peak = max(self.peak, self.allocated)

    def drop(self, mib: int) -> None:
        self.allocated -= mib
        self.cached += mib

    def empty_cache(self) -> None:
        self.clears += 1
        self.cached = 0

    def reset_peak(self) -> None:
        self.peak = self.allocated

    def stats(self) -> dict[str, int]:
        return {
            "allocated_bytes.all.current": self.allocated * MIB,
            "allocated_bytes.all.peak": self.peak * MIB,
            "active_bytes.all.current": self.allocated * MIB,
            "reserved_bytes.all.current": self.reserved * MIB,
            "inactive_split_bytes.all.current": self.fragmented * MIB,
            "num_alloc_retries": self.retries,
            "num_ooms": 0,
        }


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> FakeCard:
    card = FakeCard()
    fakes: dict[str, Callable[..., object]] = {
        "is_initialized": lambda: True,
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "memory_stats": lambda device: card.stats(),
        "mem_get_info": lambda device: ((TOTAL - card.reserved - card.others) * MIB, TOTAL * MIB),
        "memory_allocated": lambda device: card.allocated * MIB,
        "memory_reserved": lambda device: card.reserved * MIB,
        "max_memory_allocated": lambda device: card.peak * MIB,
        "reset_peak_memory_stats": lambda device: card.reset_peak(),
        "empty_cache": card.empty_cache,
        "device": contextlib.nullcontext,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"segments": [], "device_traces": [[]]})
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **arguments: card.recording.append(arguments))
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    return card


def test_a_large_cache_alone_is_left_in_peace(card: FakeCard) -> None:
    """The report's manager cleared at a change of 100 MB."""
    memory = MemoryManager()
    card.allocated, card.cached = 1000, 6000
    assert memory.check_and_clear() == 0.0
    assert card.clears == 0


def test_pressure_without_a_gain_is_left_in_peace(card: FakeCard) -> None:
    memory = MemoryManager()
    card.allocated, card.cached, card.fragmented, card.retries = 8000, 100, 1500, 7
    assert memory.check_and_clear() == 0.0
    assert card.clears == 0


def test_a_nearly_full_card_is_cleared(card: FakeCard) -> None:
    memory = MemoryManager()
    card.allocated, card.cached, card.others = 3000, 4000, 2500
    assert memory.check_and_clear() == 4000.0
    assert (card.clears, memory.clears, memory.freed_mib) == (1, 1, 4000.0)
    assert memory.check_and_clear() == 0.0


def test_a_failed_allocation_is_pressure_once(card: FakeCard) -> None:
    memory = MemoryManager()
    card.allocated, card.cached = 3000, 3000
    assert memory.check_and_clear() == 0.0
    card.retries = 1
    assert memory.check_and_clear() == 3000.0
    card.cached = 3000
    assert memory.check_and_clear() == 0.0


def test_scattered_calls_share_a_manager(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "_OF_PROCESS", MemoryManager())
    card.allocated, card.cached = 1000, 6000
    empty_cache_if_needed()
    assert card.clears == 0
    for _ in range(10):
        card.allocated, card.cached = 3000, 6500  # the next phase took it all again
        empty_cache_if_needed()
    assert card.clears == 4


def test_it_does_not_take_turns_with_the_allocator(card: FakeCard) -> None:
    """What is given back is taken again at once: the pauses grow."""
    memory = MemoryManager()
    cleared = []
    for check in range(200):
        card.allocated, card.cached = 3000, 6500  # the next phase took it all again
        if memory.check_and_clear():
            cleared.append(check)
    assert cleared == [0, 1, 3, 6, 11, 20, 37, 70, 135]


def test_pauses_end_when_clearing_helps_again(card: FakeCard) -> None:
    memory = MemoryManager()
    for _ in range(4):
        card.allocated, card.cached = 3000, 6500
        memory.check_and_clear()
    clears = memory.clears
    for _ in range(8):
        card.allocated, card.cached, card.others = 1000, 3000, 5500  # others press, torch has less than before
        memory.check_and_clear()
        card.allocated, card.cached, card.others = 500, 100, 0
        memory.check_and_clear()
    assert memory.clears > clears + 2


def test_force_collects_garbage_and_clears_whatever_the_state(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryManager(enabled=False)
    card.allocated, card.cached = 300, 20
    collected = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(card.drop(100)))
    assert memory.check_and_clear() == 0.0
    assert memory.check_and_clear(force=True) == 120.0
    assert len(collected) == 1


def test_disabled_it_does_nothing_by_itself(card: FakeCard) -> None:
    card.allocated, card.cached, card.retries = 1000, 8900, 5
    assert MemoryManager(enabled=False).check_and_clear() == 0.0
    assert MemoryManager(enabled=True).check_and_clear() == 8900.0


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_shares_are_checked(share: float) -> None:
    with pytest.raises(ValueError, match=f"low_memory={share}"):
        MemoryManager(low_memory=share)
    with pytest.raises(ValueError, match=f"min_gain={share}"):
        MemoryManager(min_gain=share)


def test_peaks_of_nested_blocks(card: FakeCard) -> None:
    memory = MemoryManager()
    card.take(5000)
    card.drop(4900)
    with memory.track() as outer:
        card.take(300)
        card.drop(200)
        with memory.track() as inner:
            card.take(700)
            card.drop(650)
        card.take(50)
    assert (inner.before_mib, inner.peak_mib, inner.after_mib, inner.extra_mib) == (200, 900, 250, 700)
    assert (outer.before_mib, outer.peak_mib, outer.after_mib) == (100, 900, 300)
    assert memory.usage().peak_mib == 5000  # resets for the blocks do not lose it
    with contextlib.suppress(KeyError), memory.track() as failed:
        card.take(123)
        raise KeyError
    assert failed.extra_mib == 123


def test_the_report_is_a_table_with_advice(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryManager()
    card.take(3000)
    card.cached, card.fragmented, card.others, card.retries = 1000, 4000, 1500, 2
    text = memory.report()
    assert text.splitlines()[:9] == [
        "memory of cuda:0                   MiB",
        "in tensors                       3,000  peak 3,000",
        "reserved by torch                8,000",
        "  that it could give back        1,000",
        "  fragmented                     4,000  50% of reserved",
        "outside of torch                 1,500  CUDA itself, NCCL, other processes",
        "free on the card                   500  of 10,000",
        "given back by this manager           0  in 0 clears",
        "failed allocations                   2  retried; 0 out of memory",
    ]
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text
    assert "smaller batch" in text
    assert "check_and_clear()" in text
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert "expandable_segments" not in memory.report()
    card.fragmented = card.retries = card.others = 0
    assert "\n-" not in memory.report()


def test_a_snapshot_is_what_the_viewer_reads(card: FakeCard, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        written = MemoryManager().snapshot(tmp_path / "snapshot.pickle")
    assert written == tmp_path / "snapshot.pickle"
    assert pickle.loads(written.read_bytes()) == {"segments": [], "device_traces": [[]]}
    assert "memory_viz" in caplog.text
    assert "MemoryViz.js" in (tmp_path / "snapshot.html").read_text()


def test_a_recording_is_written_when_memory_runs_out(card: FakeCard, tmp_path: Path) -> None:
    memory = MemoryManager()
    with pytest.raises(torch.OutOfMemoryError), memory.recording(tmp_path / "oom.pickle", max_entries=10):
        raise torch.OutOfMemoryError("CUDA out of memory.")
    assert (tmp_path / "oom.pickle").exists()
    assert card.recording == [{"max_entries": 10}, {"enabled": None}]


@pytest.mark.parametrize("device", [None, "cpu", "cuda", torch.device("mps")])
def test_without_cuda_all_of_it_is_harmless(device: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("memory_stats", "mem_get_info", "empty_cache", "max_memory_allocated", "current_device"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: pytest.fail("CUDA was asked"))
    memory = MemoryManager(device)
    assert memory.usage() == MemoryUse()
    assert memory.usage().fragmentation == 0.0
    assert memory.check_and_clear() == memory.check_and_clear(force=True) == 0.0
    with memory.track() as tracked, memory.recording(tmp_path / "a.pickle"):
        torch.ones(1000)
    assert (tracked.peak_mib, tracked.extra_mib) == (0.0, 0.0)
    assert memory.snapshot(tmp_path / "b.pickle") is None
    assert list(tmp_path.iterdir()) == []
    assert memory.report() == "memory: CUDA is not in use; torch keeps no statistics of memory here"


def test_a_manager_for_the_cpu_does_not_ask_a_card_that_is_there(card: FakeCard) -> None:
    card.allocated, card.cached, card.retries = 1000, 8900, 5
    assert MemoryManager("cpu").check_and_clear(force=True) == 0.0
    assert card.clears == 0


def test_a_version_of_torch_without_the_viewer_still_writes(
    card: FakeCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.cuda._memory_viz", None)
    assert memory_module.MemoryManager().snapshot(tmp_path / "s.pickle") is not None
    assert not (tmp_path / "s.html").exists()
