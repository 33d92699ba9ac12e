"""What a fix rests on: each obligation has a kind, words for the reader, and the place that it is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What an obligation is about.

    The first ones are statements about a whole project that its owner could make; the others are about single values and
    stay proofs.
    """

    CUDA_OR_CPU = "cuda-or-cpu"
    """The device is a CUDA device or the CPU: no MPS, XLA or HPU."""
    ONE_STREAM = "one-stream"
    """Nothing else reads or writes the memory on another stream."""
    PLAIN_TENSORS = "plain-tensors"
    """No tensor subclass, and no mode that watches operations."""
    PLAIN_BATCHES = "plain-batches"
    """Batches are tensors, containers of tensors, or objects whose `to` takes `non_blocking`."""
    NO_HOOKS = "no-hooks"
    """No hook reads gradients, keeps results or runs code within torch's own operations."""
    NO_LAZY_MODULES = "no-lazy-modules"
    """No layer makes its parameters when it runs first."""
    APPLICATION = "application"
    """The functions of the project are called by what can be seen of it: no other program, notebook or import by name."""
    NO_CLOCK = "no-clock"
    """No clock is read between the places that a fix changes."""
    MEMORY_TO_SPARE = "memory-to-spare"
    """Pinned RAM, or a scalar per step on the device, does no harm."""
    ERRORS_ARE_BUGS = "errors-are-bugs"
    """No code relies on an error that the line would raise, or on when it is raised."""
    NO_AUTOCAST = "no-autocast"
    """No region of mixed precision is around the code."""
    PLAIN_MODULES = "plain-modules"
    """Submodules, methods and torch's own functions are those that the source shows: no wrapping, surgery or patching."""
    KNOWN_LAYERS = "known-layers"
    """The layers that cannot be followed are ordinary ones: they ask for no gradients, keep nothing, look at nothing, and give
    the same bits without autograd."""
    PLAIN_OBJECTS = "plain-objects"
    """Operators, items and properties of the program's own objects do nothing but give values."""
    EVALUATION_ROUNDING = "evaluation-rounding"
    """The results of an evaluation may differ in the last bits: torch picks other kernels without autograd."""
    CELL_ORDER = "cell-order"
    """The cells of a notebook run from top to bottom, each once, and nothing else runs in its kernel."""
    RUNTIME = "runtime"
    """The program may import `perflint_runtime`."""

    ALIASING = "aliasing"
    """Nothing else holds the memory of a value under another name."""
    RETENTION = "retention"
    """Nobody keeps a value beyond the code that a fix changes."""
    MUTATION = "mutation"
    """Nobody may write to a value, or bind its name again, between two places."""
    WRITE = "write"
    """No line writes to a value in between; here one does."""
    GRADIENT = "gradient"
    """Nobody uses the graph or the gradients of a value, or looks at whether it has them."""
    RANDOMNESS = "randomness"
    """The random numbers that are drawn, and from which generator, stay the same."""
    NUMBERS = "numbers"
    """The numbers stay the same to the last bit, and of the same type."""
    VALUE = "value"
    """A value is of the type, shape or device that a fix needs."""
    TRANSFER = "transfer"
    """No copy between host and device is in flight that only the removed wait makes safe."""
    CONTROL_FLOW = "control-flow"
    """The lines run in this order, all of them, and nobody is let in between."""
    NAMES = "names"
    """Names mean what they seem to mean where the new line runs, and nobody looks at the variables of the function."""
    UNKNOWN_CODE = "unknown-code"
    """All code that runs is known."""
    REWRITE = "rewrite"
    """The text can be rewritten."""

    @property
    def is_declarable(self) -> bool:
        """Whether the owner of a project could vouch for it; all others stay proofs."""
        return self in _DECLARABLE


_DECLARABLE = frozenset(
    (
        Kind.CUDA_OR_CPU,
        Kind.ONE_STREAM,
        Kind.PLAIN_TENSORS,
        Kind.PLAIN_BATCHES,
        Kind.NO_HOOKS,
        Kind.NO_LAZY_MODULES,
        Kind.APPLICATION,
        Kind.NO_CLOCK,
        Kind.MEMORY_TO_SPARE,
        Kind.ERRORS_ARE_BUGS,
        Kind.NO_AUTOCAST,
        Kind.PLAIN_MODULES,
        Kind.KNOWN_LAYERS,
        Kind.PLAIN_OBJECTS,
        Kind.EVALUATION_ROUNDING,
        Kind.CELL_ORDER,
        Kind.RUNTIME,
    )
)


@dataclass(frozen=True, slots=True)
class Obligation:
    """What a safe fix would need and nobody has proved.

    words: one line for the reader, what stands against it. path: the file that it is about, where that may be another one
    than the finding's.
    """

    kind: Kind
    words: str
    path: str | None = None

    def __str__(self) -> str:
        return self.words


def one_of_each_kind(found: Iterable[Obligation]) -> list[Obligation]:
    """The obligations of a proof that is left as soon as it has failed for good: one of each kind that can be declared."""
    kinds: dict[Kind, Obligation] = {}
    for obligation in found:
        kinds.setdefault(obligation.kind, obligation)
        if not obligation.kind.is_declarable:
            break
    return list(kinds.values())


def is_refuted(missing: Iterable[Obligation]) -> bool:
    """Whether a proof has failed for good: something is missing that nobody could declare."""
    return any(not obligation.kind.is_declarable for obligation in missing)
