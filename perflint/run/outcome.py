"""What checking gives, file by file. Whoever only reads outcomes needs nothing of what makes them."""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING, NamedTuple

from perflint.source.records import dataclass
from perflint.source.source import Position

if TYPE_CHECKING:
    from perflint.project.trace import Fact
    from perflint.rule.finding import Finding
    from perflint.source.source import Source

INVALID_SYNTAX = "invalid-syntax"
INTERNAL_ERROR = "internal-error"


@dataclass
class Counters:
    """How much of a run reached each stage; tests hold that the gate works by these."""

    files: int = 0
    parsed: int = 0
    remembered: int = 0

    def __add__(self, other: Counters) -> Counters:
        """The sums."""
        return Counters(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: Counters) -> Counters:
        """The differences."""
        return Counters(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class StepWait:
    """A place where each step waits.

    row: where the loop's function gets there, by itself or through a call. times: how often. how: by which road (the value of
    an `operations.Road`). rule: what reports the wait, empty if nothing does. fix: the kind of the fix that removes it, empty
    without one. line: the row of the wait itself, in `file`, which is relative to the folder of the loop's file, and empty for
    that file. quiet: what reports the wait if somebody selects it, where nothing else does, and the kind of its fix.
    """

    row: int
    times: int
    how: str
    rule: str = ""
    fix: str = ""
    line: int = 0
    file: str = ""
    quiet: str = ""
    quiet_fix: str = ""


@dataclass(frozen=True)
class Budget:
    """One training loop; the counts are waits per step.

    row: its first line; cell: that of a notebook, in which it is. function: the qualified name of what it is in, empty
    for the module's own code. at_least: there may be more waits. now_and_then: waits of some steps only, one of `period` steps
    (0: not known). timeline: where a step waits, in the order of the code.
    """

    path: str
    row: int
    function: str
    written: int
    after_safe: int
    after_all: int
    in_scaler: int
    at_least: bool = False
    now_and_then: int = 0
    period: int = 0
    cell: int | None = None
    timeline: tuple[StepWait, ...] = ()

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function or 'module'} loop: {self.waits}"

    @property
    def line(self) -> str:
        """Where its first line is, as reports write it behind the name of the file."""
        return Position(self.row, 1, self.cell).line

    @property
    def _further_fixes(self) -> str:
        """What the fixes are that go beyond the safe ones, as far as they remove waits."""
        kinds = {wait.fix for wait in self.timeline} - {"", "safe"}
        return " and ".join(sorted(kinds)) or "unsafe"

    @property
    def waits(self) -> str:
        """The counts, as written and after the fixes that take some away."""
        text = f"{'at least ' if self.at_least else ''}{_waits(self.written)} per step"
        if self.after_safe != self.written:
            text += f" -> {self.after_safe}"
        if self.after_all < self.after_safe:
            text += f" ({self.after_all} with {self._further_fixes} fixes)"
        if self.in_scaler:
            text += f", {self.in_scaler} of them in GradScaler.step"
        if self.now_and_then:
            text += f", {self.now_and_then} more " + (f"every {self.period} steps" if self.period > 1 else "now and then")
        return text


def _waits(count: int) -> str:
    return "1 wait" if count == 1 else f"{count} waits"


@dataclass
class Checked:
    """What checking one file gave. `source` is None when its bytes are no text; `path` is how reports name the file.

    facts: what the outcome rests on, as questions about the project with their answers: another check of the file with the
    same rules and configuration gives the same as long as these hold. None where that cannot be said.
    """

    path: str
    source: Source | None
    findings: list[Finding] = field(default_factory=list)
    budgets: list[Budget] = field(default_factory=list)
    facts: tuple[Fact, ...] | None = field(default=None, compare=False)


class Item(NamedTuple):
    """One file of a run. always_parse: see `check_file`. session: its place among those of the run. size: in bytes."""

    path: str
    shown: str
    always_parse: bool
    session: int
    size: int
