"""What a rule reports: a finding, perhaps with a fix."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from perflint.rule.obligations import Kind, Obligation


class Severity(Enum):
    """How much a finding matters. Rules of `INFO` run only when they are selected."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


ENGINE = "perflint"
"""The category of what perflint reports without a rule. The categories of rules are those that their packs name."""


class Cost(Enum):
    """What a flaw costs, from what usually costs most to what costs least."""

    DISK = "disk"
    LOADING = "loading"
    WAIT = "wait"
    COPY = "copy"
    MEMORY = "memory"
    ALLOCATION = "allocation"
    LAUNCH = "launch"

    @property
    def is_at_its_line(self) -> bool:
        """Whether time is lost where the finding is: gradients that live on cost memory, a slow loader delays who uses it."""
        return self not in (Cost.MEMORY, Cost.LOADING, Cost.DISK)


class Rate(Enum):
    """How often code runs, from the most to the least often; what is not known comes last."""

    PER_PARAMETER = "per parameter"
    PER_SAMPLE = "per sample"
    PER_STEP = "per step"
    PER_INTERVAL = "per logging interval"
    PER_EPOCH = "per epoch"
    UNKNOWN = "unknown"

    @property
    def rank(self) -> int:
        """Its place in the order: 0 is the most often."""
        return list(Rate).index(self)


class Applicability(Enum):
    """Safe: the program computes the same with the fix. Assuming: it does if named assumptions about the project hold.
    Unsafe: it may not, and the rule's page says what may differ.
    """

    SAFE = "safe"
    ASSUMING = "assuming"
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

    @property
    def is_of_runtime(self) -> bool:
        return self.module == "perflint_runtime"


@dataclass(frozen=True)
class Fix:
    """Edits that belong together: all are applied, or none.

    leads_to: rules that may find something in the fixed text that they did not find before. assumptions: what must be assumed
    about the project; empty unless the applicability is ASSUMING.
    """

    applicability: Applicability
    message: str
    edits: tuple[Edit, ...]
    imports: tuple[Import, ...] = ()
    leads_to: tuple[str, ...] = ()
    assumptions: tuple[Kind, ...] = ()

    @property
    def uses_runtime(self) -> bool:
        return any(wanted.is_of_runtime for wanted in self.imports)


@dataclass(frozen=True)
class Permission:
    """Which fixes a user lets perflint apply: safe ones, and those that rest on what he has declared about the project.

    unsafe: all others, too, but for what the program cannot import.
    """

    unsafe: bool = False
    assumed: frozenset[Kind] = frozenset()

    def covers(self, fix: Fix) -> bool:
        """Whether a fix may be applied."""
        if fix.applicability is Applicability.ASSUMING:
            left = set(fix.assumptions) - self.assumed
            return not left or (self.unsafe and Kind.RUNTIME not in left)
        return self.unsafe or fix.applicability is Applicability.SAFE


@dataclass(frozen=True)
class Finding:
    """One flaw at the bytes `start:end`.

    message: one line, what happens on the machine, a semicolon, the cure. obligations: what a (safe) fix would need and
    nobody has proved. waits: byte offsets of the waits for the device that the fix removes, for the sync budget.
    costs: what the flaw costs, None for an error. rate: how often. function: the qualified name of the function that it is in,
    empty for the module's own code. measured_ms_per_step: what the place costs in a profile, if there is one. Rules leave both
    alone.
    """

    rule: str
    severity: Severity
    category: str
    message: str
    start: int
    end: int
    fix: Fix | None = None
    obligations: tuple[Obligation, ...] = ()
    waits: tuple[int, ...] = ()
    costs: Cost | None = None
    rate: Rate = Rate.UNKNOWN
    function: str = field(default="", compare=False)
    measured_ms_per_step: float | None = None

    @property
    def is_advice(self) -> bool:
        """Whether nobody can mend it but the reader, who may leave it: no fix, no error, nothing about perflint's own work."""
        return self.fix is None and self.severity is not Severity.ERROR and self.category != ENGINE

    @property
    def order(self) -> tuple[int, int, int]:
        """What to say first: errors, then what runs most often, then what costs most each time."""
        costs = list(Cost).index(self.costs) if self.costs is not None else -1
        return list(Severity).index(self.severity) if self.severity is Severity.ERROR else 1, self.rate.rank, costs

    @property
    def missing_proofs(self) -> tuple[str, ...]:
        """Why there is no fix, or why the fix is unsafe: a line each."""
        return tuple(dict.fromkeys(obligation.words for obligation in self.obligations))
