"""The schedule of a profile: when lines are timed, and when torch's profiler runs.

Lines are timed from the end of the second optimizer step to the end of the script, so that what the first steps set up does
not count, and what happens between epochs does, as often as it happens. torch's profiler, whose memory grows with each step,
runs from then on for a number of steps. A program without optimizer steps is timed by batches.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflint_probe.lines import LineTimer

if TYPE_CHECKING:
    from perflint_probe.operations import Operations

WARM_UP_STEPS = 2
WARM_UP_BATCHES = 10
"""After so many batches without an optimizer step the program is taken for one that has none, or accumulates gradients."""


class Profiling:
    """A profile of one run."""

    def __init__(self, project: Path, steps: int) -> None:
        self._lines = LineTimer(project)
        self._most = steps
        self._steps = 0
        self._batches = 0
        self._warm_steps: int | None = None
        self._warm_batches = 0
        self._recording_from: tuple[int, int] | None = None
        self._recorded_steps = 0
        self._recorded_batches = 0
        self._operations: Operations | None = None

    def start(self) -> None:
        """Begin to time lines; torch has been imported."""
        self._lines.start()

    def end_step(self) -> None:
        """An optimizer step has ended."""
        self._lines.pause()
        self._steps += 1
        if self._steps == WARM_UP_STEPS:
            self._lines.restart()
            self._warm_steps, self._warm_batches = self._steps, self._batches
            self._record()
        self._record_no_longer()
        self._lines.resume()

    def end_batch(self) -> None:
        """A loader has handed out a batch."""
        self._lines.pause()
        self._batches += 1
        if self._batches == WARM_UP_BATCHES and self._steps == 0:
            self._lines.restart()
            self._warm_steps, self._warm_batches = 0, self._batches
            self._record()
        self._record_no_longer()
        self._lines.resume()

    def stop(self) -> dict[str, Any]:
        """End; what was measured, fit for JSON."""
        self._lines.stop()
        if self._recording_from is not None:
            self._stop_recording()
        units = self._steps - (self._warm_steps or 0) if self._steps else self._batches - self._warm_batches
        is_warm = self._warm_steps is not None and units > 0
        if not is_warm:  # so short that the first steps have to do
            self._lines.take_back()
            units = self._steps or self._batches
        return {
            "unit": "step" if self._steps else "batch" if self._batches else "run",
            "units": max(1, units),
            "is_warm": is_warm,
            "lines": self._lines.rows(),
            "recorded_units": self._recorded_steps if self._steps else self._recorded_batches,
            "operations": self._operations.rows() if self._operations is not None else [],
        }

    def _record(self) -> None:
        if self._operations is not None or self._most == 0:
            return
        from perflint_probe.operations import Operations

        self._operations = Operations()
        self._operations.start()
        self._lines.record_timeline(self._operations.timeline)
        self._recording_from = self._steps, self._batches

    def _record_no_longer(self) -> None:
        if self._recording_from is None:
            return
        steps, batches = self._recording_from
        if self._steps - steps >= self._most or (self._steps == 0 and self._batches - batches >= self._most):
            self._stop_recording()

    def _stop_recording(self) -> None:
        assert self._operations is not None
        assert self._recording_from is not None
        self._lines.record_timeline(None)
        self._operations.stop()
        self._recorded_steps = self._steps - self._recording_from[0]
        self._recorded_batches = self._batches - self._recording_from[1]
        self._recording_from = None
