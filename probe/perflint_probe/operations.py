"""What torch's profiler recorded for some steps, by line of the program: time on the device, waits, operations.

An operation belongs to the line at which the main thread was when it started; this holds for the threads of a backward pass,
too, which run while the main thread is at the line that called it. Kernels belong to the operation that launched them.

The part for CUDA follows torch's documentation and source (torch 2.13); it was written where no GPU could be used.
"""

import bisect
import time
from collections import Counter, defaultdict
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from perflint_probe.lines import Line, Timeline

MARK = "perflint: clock"
MARKS = 20
MOST_OPERATIONS = 3
"""How many operations are named for a line."""


class Operations:
    """One recording. Starting and stopping take long, and on CUDA stopping waits for the device."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(activities=activities)
        self._marks: list[tuple[int, int]] = []

    def start(self) -> None:
        """Begin to record."""
        self._profile.start()
        for _ in range(MARKS):
            before = time.perf_counter_ns()
            with record_function(MARK):
                self._marks.append((before, time.perf_counter_ns()))

    def stop(self) -> None:
        """End the recording; reading it comes later."""
        self._profile.stop()

    def rows(self) -> list[dict[str, Any]]:
        """What each line did, in nanoseconds, fit for JSON."""
        recorded: Any = self._profile  # torch 2.13 leaves it untyped
        events = recorded.events()
        marks = [event for event in events if event.name == MARK]
        threads = {event.thread for event in events if event.name.startswith("autograd::engine")}
        threads |= {event.thread for event in marks}
        shift = _shift(marks, self._marks)
        device: Counter[Line] = Counter()
        waits: Counter[Line] = Counter()
        operations: defaultdict[Line, Counter[str]] = defaultdict(Counter)
        for event in events:
            if event.name == MARK or event.device_type.name != "CPU":
                continue
            line = self._line_at(event.time_range.start * 1e3 + shift)
            if line is None:
                continue
            if not event.is_user_annotation:  # its stretch on the device spans the kernels that are counted by themselves
                device[line] += round(1e3 * sum(kernel.duration for kernel in event.kernels))
            if event.thread in threads:
                if not event.is_user_annotation and not event.name.startswith("autograd::engine"):
                    operations[line][event.name] += round(1e3 * event.self_cpu_time_total)
                if event.name.endswith("Synchronize"):
                    waits[line] += round(1e3 * event.cpu_time_total)
        return [
            {
                "file": line[0],
                "line": line[1],
                "device_ns": device[line],
                "wait_ns": waits[line],
                "operations": [[name, ns] for name, ns in operations[line].most_common(MOST_OPERATIONS) if ns > 0],
            }
            for line in sorted({*device, *waits, *operations})
        ]

    def _line_at(self, moment_ns: float) -> Line | None:
        index = bisect.bisect_right(self.timeline.starts_ns, moment_ns) - 1
        return self.timeline.line(index) if index >= 0 else None


def _shift(marks: list[Any], taken: list[tuple[int, int]]) -> float:
    """What makes the profiler's nanoseconds those of `perf_counter_ns`: each mark began between two known moments."""
    starts: list[float] = sorted(event.time_range.start * 1e3 for event in marks)
    least = max(before - start for (before, _), start in zip(taken, starts, strict=True))
    most = min(after - start for (_, after), start in zip(taken, starts, strict=True))
    return (least + most) / 2
