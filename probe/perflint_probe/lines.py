"""Times the lines of a program: how long the main thread spends at each, in itself and with what it calls.

torch's profiler cannot say it: with stacks it knows the line of a call of a C function (`loss.item()`), but for operators and
conversions (`a + b`, `float(loss)`, `if loss > 1`) only the function they are in (tried with torch 2.13). So a trace function
notes when the program goes from one line to the next; what runs inside of libraries counts for the program's line that called
them. On CUDA a line that waits for the device takes as long as the wait.

What tracing itself takes is left out of the times: the part that the trace function sees exactly, the rest, some 0.8
microseconds for each line, by its size when timing begins. That is a guess: a line of plain Python may seem half a microsecond
longer than it is, each time it runs. And the program runs slower: with torch 2.13 on one core of a server, a step of
40 small operations took 1.4 times as long, and each turn of a loop of two lines of plain Python 2.5 microseconds longer.
"""

import os
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

Line = tuple[str, int]
MOST_SWITCHES = 20_000_000
"""16 bytes each; a timeline that would grow beyond ends there."""


class LineTimer:
    """Nanoseconds at each line of the files below a folder.

    own_ns: without, whole_ns: with the time in the program's functions that a line calls. Lines that did not run have no entry.
    """

    def __init__(self, project: Path) -> None:
        self.own_ns: dict[Line, int] = {}
        self.whole_ns: dict[Line, int] = {}
        self._below = str(project.resolve()) + os.sep
        self._is_ours: dict[str, bool] = {}
        self._stack: list[Line | None] = []
        self._frames: list[int] = []  # of the stack, by id: a reference would keep tensors alive
        self._active: dict[Line, int] = {}
        self._since: dict[Line, int] = {}
        self._before: tuple[dict[Line, int], dict[Line, int]] = {}, {}
        self._last = 0
        self._clock_ns = 0  # stands still while tracing code runs
        self._overhead_ns = 0
        self._timeline: Timeline | None = None

    def start(self) -> None:
        """Begin, in this thread; functions that are running already are timed, too."""
        self._measure_overhead()
        running = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if self._ours(frame.f_code.co_filename):
                running.append(frame)
            frame = frame.f_back
        for frame in reversed(running):
            frame.f_trace = self._on_event
            self._push(frame)
            self._enter((frame.f_code.co_filename, frame.f_lineno))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: sys.settrace(None))
        self._last = time.perf_counter_ns()
        sys.settrace(self._on_call)

    def stop(self) -> None:
        """End."""
        sys.settrace(None)
        self.pause()
        self._count_active()

    def pause(self) -> None:
        """What happens until `resume` counts for no line."""
        self._charge(time.perf_counter_ns())

    def resume(self) -> None:
        """Go on after `pause`."""
        self._last = time.perf_counter_ns()

    def restart(self) -> None:
        """Put what was timed aside; between `pause` and `resume`."""
        self._count_active()
        self._before = self.own_ns, self.whole_ns
        self.own_ns, self.whole_ns = {}, {}
        for line in self._since:
            self._since[line] = self._clock_ns

    def take_back(self) -> None:
        """Add what the last `restart` put aside."""
        for times, before in zip((self.own_ns, self.whole_ns), self._before, strict=True):
            for line, ns in before.items():
                times[line] = times.get(line, 0) + ns

    def record_timeline(self, timeline: "Timeline | None") -> None:
        """Note each change of lines in a timeline from now on, or no longer."""
        self._timeline = timeline
        if timeline is not None and self._stack:
            timeline.note(time.perf_counter_ns(), self._stack[-1])

    def rows(self) -> list[dict[str, Any]]:
        """The times by line, fit for JSON."""
        return [
            {"file": line[0], "line": line[1], "own_ns": self.own_ns.get(line, 0), "whole_ns": self.whole_ns.get(line, 0)}
            for line in sorted({*self.own_ns, *self.whole_ns})
        ]

    def _measure_overhead(self) -> None:
        """How long it takes to get into the trace function and out of it: what two lines take that do next to nothing."""
        name = f"{self._below}overhead"
        loop: dict[str, Any] = {}
        exec(compile("def run():\n  a = b = c = d = 0\n  for i in range(1000):\n    a += i % 7\n", name, "exec"), loop)
        rounds = []
        for _ in range(5):
            self._last = time.perf_counter_ns()
            sys.settrace(self._on_call)
            loop["run"]()
            sys.settrace(None)
            rounds.append((self.own_ns[name, 3] + self.own_ns[name, 4]) // 2000)
            self.own_ns, self.whole_ns, self._active = {}, {}, {}
        self._overhead_ns = min(rounds)

    def _ours(self, name: str) -> bool:
        known = self._is_ours.get(name)
        if known is None:
            known = self._is_ours[name] = name.startswith(self._below) and "site-packages" not in name
        return known

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        name = code.co_filename
        known = self._is_ours.get(name)
        if known is False or (known is None and not self._ours(name)):
            return None
        now = time.perf_counter_ns()
        self._charge(now)
        self._push(frame)
        if frame.f_lineno != code.co_firstlineno:  # a generator goes on where it was
            self._enter((name, frame.f_lineno))
        self._last = time.perf_counter_ns()
        return self._on_event

    def _on_event(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        if event == "exception":
            return self._on_event
        now = time.perf_counter_ns()
        self._charge(now)
        self._unwind_to(frame)
        self._leave()
        if event == "line":
            self._enter((frame.f_code.co_filename, frame.f_lineno))
        else:
            self._pop()
            if self._timeline is not None and self._stack:
                self._timeline.note(now, self._stack[-1])
        self._last = time.perf_counter_ns()
        return self._on_event

    def _push(self, frame: FrameType) -> None:
        self._frames.append(id(frame))
        self._stack.append(None)

    def _pop(self) -> None:
        self._frames.pop()
        self._stack.pop()

    def _unwind_to(self, frame: FrameType) -> None:
        """Python does not tell of each entry and exit of a generator that an exception is thrown into."""
        if self._frames and self._frames[-1] == id(frame):
            return
        if id(frame) not in self._frames:
            self._push(frame)
        while self._frames[-1] != id(frame):
            self._leave()
            self._pop()

    def _charge(self, now: int) -> None:
        spent = max(0, now - self._last - self._overhead_ns)
        self._clock_ns += spent
        line = self._stack[-1] if self._stack else None
        if line is not None:
            self.own_ns[line] = self.own_ns.get(line, 0) + spent
        self._last = now

    def _enter(self, line: Line) -> None:
        self._stack[-1] = line
        active = self._active.get(line, 0)
        self._active[line] = active + 1
        if active == 0:  # else it calls itself, and the outer one counts the time
            self._since[line] = self._clock_ns
        if self._timeline is not None:
            self._timeline.note(self._last, line)

    def _leave(self) -> None:
        line = self._stack[-1] if self._stack else None
        if line is None:
            return
        active = self._active[line] - 1
        self._active[line] = active
        if active == 0:
            self.whole_ns[line] = self.whole_ns.get(line, 0) + self._clock_ns - self._since.pop(line)

    def _count_active(self) -> None:
        for line, since in self._since.items():
            self.whole_ns[line] = self.whole_ns.get(line, 0) + self._clock_ns - since


class Timeline:
    """At which line the program was when, in nanoseconds of `time.perf_counter_ns`."""

    def __init__(self) -> None:
        self.starts_ns = array("q")
        self._numbers = array("q")
        self._number_of: dict[Line | None, int] = {}
        self._lines: list[Line | None] = []

    def note(self, now: int, line: Line | None) -> None:
        """The program is at `line` from `now` on."""
        number = self._number_of.get(line)
        if number is None:
            number = self._number_of[line] = len(self._lines)
            self._lines.append(line)
        if len(self.starts_ns) < MOST_SWITCHES:
            self.starts_ns.append(now)
            self._numbers.append(number)

    def line(self, index: int) -> Line | None:
        """The line of an entry of `starts_ns`."""
        return self._lines[self._numbers[index]]
