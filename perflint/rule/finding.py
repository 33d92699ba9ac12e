"""What a rule reports: a finding, perhaps with a fix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from perflint.rule.obligations import Obligation


class Severity(Enum):
    """How much a finding matters. Rules of `INFO` run only when they are selected."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Category(Enum):
    """What a rule is about; also a name to select a group of rules by."""

    SYNC = "device-sync"
    TRANSFER = "transfer"
    DATA = "data-loading"
    OPTIMIZER = "optimizer"
    AUTOGRAD = "autograd"
    STATE = "hidden-state"
    ENGINE = "perflint"


class Applicability(Enum):
    """Safe: the program computes the same with the fix. Unsafe: it may not, and the rule's page says what may differ."""

    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the bytes `start:end` of a file's UTF-8 text by `content`."""

    start: int
    end: int
    content: str


@dataclass(frozen=True, slots=True)
class Import:
    """A name that a fix needs: `import module`, or `from module import name`."""

    module: str
    name: str | None = None


@dataclass(frozen=True)
class Fix:
    """Edits that belong together: all are applied, or none.

    leads_to: rules that may find something in the fixed text that they did not find before.
    """

    applicability: Applicability
    message: str
    edits: tuple[Edit, ...]
    imports: tuple[Import, ...] = ()
    leads_to: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One flaw at the bytes `start:end`.

    message: one line, what happens on the machine, a semicolon, the cure. obligations: what a (safe) fix would need and
    nobody has proved. waits: byte offsets of the waits for the device that the fix removes, for the sync budget.
    measured_ms_per_step: what the place costs in a profile, if there is one; rules leave it alone.
    """

    rule: str
    severity: Severity
    category: Category
    message: str
    start: int
    end: int
    fix: Fix | None = None
    obligations: tuple[Obligation, ...] = ()
    waits: tuple[int, ...] = ()
    measured_ms_per_step: float | None = None

    @property
    def missing_proofs(self) -> tuple[str, ...]:
        """Why there is no fix, or why the fix is unsafe: a line each."""
        return tuple(dict.fromkeys(obligation.words for obligation in self.obligations))
