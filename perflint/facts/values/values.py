"""What an expression may evaluate to.

A `Value` is a set of alternatives, one for each way in which the program may reach the expression. It is *open* when
there may be further alternatives that the analysis does not know. So every question has three answers: `must` is true
when all alternatives agree and nothing is open, `may` is true when one alternative agrees, and when both are false the
alternatives that are known speak against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from perflint.source.ordered import OrderedFrozenSet
from perflint.source.records import dataclass

if TYPE_CHECKING:
    from perflint.source.syntax import Class, Module, Scope

MAX_ALTERNATIVES = 8


class Place(Enum):
    """Where a tensor's memory is, or where a device object points."""

    HOST = "host"
    CUDA = "cuda"
    CUDA_OR_HOST = "cuda or host"
    """The CUDA device if the machine has one, else the CPU: what every portable script computes."""
    ELSEWHERE = "elsewhere"
    """Some device that the analysis cannot name: a command line string, MPS, XLA, an accelerator object."""
    UNKNOWN = "unknown"
    """Nothing is known, also not whether it was ever moved."""

    __hash__ = object.__hash__  # one of Python's own, not a function: places are hashed with every value

    @property
    def may_be_device(self) -> bool:
        return self in (Place.CUDA, Place.CUDA_OR_HOST, Place.ELSEWHERE)

    @property
    def is_cuda_or_host(self) -> bool:
        return self in (Place.HOST, Place.CUDA, Place.CUDA_OR_HOST)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: `None`, a bool, a number, a string or bytes."""

    value: object


@dataclass(frozen=True, slots=True)
class Text:
    """A string of which only the beginning is known, as in `f"cuda:{rank}"`."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Number:
    """A Python number. `kind` is "int", "float", "bool" or "" when that is not known."""

    kind: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """A `torch.device`."""

    place: Place


@dataclass(frozen=True, slots=True)
class Tensor:
    """A `torch.Tensor`.

    ndim: number of dimensions if known. dtype: a torch name such as "float32", "float" for some floating type, "" if
    unknown. fresh: the memory is new and nothing longer-lived shares it. grad: belongs to an autograd
    graph (None: unknown). count: how many elements of a tensor are such or such. zeros: holds nothing but zeros
    and was built by `torch.zeros` or its like.
    """

    place: Place = Place.UNKNOWN
    ndim: int | None = None
    dtype: str = ""
    fresh: bool = False
    grad: bool | None = None
    zeros: bool = False
    parameter: bool = False
    random: bool = False
    from_numpy: bool = False
    count: bool = False
    guessed: bool = False
    """Nothing but the name of a method says that this is a tensor."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What iterating a data loader gives, or a part of it: tensors, or containers of tensors and other things.

    default_collate: the loader batches without `collate_fn`, and the program has no class of samples that can be moved,
    so a part that has a method `to` is a tensor.
    pinned: the loader's `pin_memory` (None: not known).
    """

    default_collate: bool = False
    pinned: bool | None = None
    place: Place = Place.HOST


@dataclass(frozen=True, slots=True)
class Output:
    """What a module of unknown `forward` returned, or a part of it: a tensor or a container of tensors."""

    place: Place = Place.UNKNOWN


@dataclass(frozen=True, slots=True)
class Loader:
    """A `DataLoader`. `site` is the call that built it; `place` is where its batches are when they arrive."""

    default_collate: bool
    pinned: bool | None
    site: object = None
    place: Place = Place.HOST


@dataclass(frozen=True, slots=True)
class Object:
    """An instance of a class outside the project, by qualified name: `torch.optim.Adam`, `numpy.ndarray`."""

    qualname: str
    place: Place = Place.UNKNOWN
    keywords: frozenset[tuple[str, object]] = frozenset()
    """Literal constructor arguments, where the rules need them (`reduction`, `batch_first`, ...)."""
    site: object = None
    """The constructor call."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a class of the project."""

    cls: Class
    place: Place = Place.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassRef:
    """A class of the project."""

    cls: Class


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """A function of the project; `receiver` is bound for a method."""

    scope: Scope
    receiver: Value | None = None


@dataclass(frozen=True, slots=True)
class ModuleRef:
    """A module of the project."""

    module: Module


@dataclass(frozen=True, slots=True)
class External:
    """Anything outside the project, by qualified name: a module, a function or a class."""

    qualname: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """A tuple or list of known items."""

    items: tuple[Value, ...]
    mutable: bool = False


@dataclass(frozen=True, slots=True)
class Elements:
    """Something to iterate over whose elements are alike. `kind` is the type's name, such as "list" or "enumerate".

    runs: what iterating over it runs, functions as their scopes and loaders.
    """

    element: Value
    kind: str = ""
    runs: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Mapping:
    """A dict with known string keys; `rest` is what any other key gives."""

    items: tuple[tuple[str, Value], ...]
    rest: Value


Alternative = (
    Literal
    | Text
    | Number
    | Device
    | Tensor
    | Batch
    | Output
    | Loader
    | Object
    | Instance
    | ClassRef
    | FunctionRef
    | ModuleRef
    | External
    | Sequence
    | Elements
    | Mapping
)


@dataclass(frozen=True, slots=True)
class Value:
    """A set of alternatives, and whether there may be more."""

    alternatives: frozenset[Alternative] = frozenset()
    open: bool = False

    def must(self, holds: Callable[[Alternative], bool]) -> bool:
        """All alternatives are known, and each one holds."""
        return not self.open and bool(self.alternatives) and all(map(holds, self.alternatives))

    def may(self, holds: Callable[[Alternative], bool]) -> bool:
        """At least one known alternative holds."""
        return any(map(holds, self.alternatives))

    def must_be(self, *kinds: type) -> bool:
        return self.must(lambda alternative: isinstance(alternative, kinds))

    def may_be(self, *kinds: type) -> bool:
        return self.may(lambda alternative: isinstance(alternative, kinds))

    @property
    def single(self) -> Alternative | None:
        """The only alternative, if there is exactly one and the value is not open."""
        if self.open or len(self.alternatives) != 1:
            return None
        return next(iter(self.alternatives))

    def must_be_if_known(self, *kinds: type) -> bool:
        """Whether all that is known of this is of some kinds: a guess, and no proof."""
        return bool(self.alternatives) and all(isinstance(a, kinds) for a in self.alternatives)

    def map(self, change: Callable[[Alternative], Value]) -> Value:
        """The join of `change` over the alternatives; an open value stays open."""
        changed = [change(alternative) for alternative in self.alternatives]
        if self.open:
            changed.append(UNKNOWN)
        return join(changed)

    def without(self, leave_out: Callable[[Alternative], bool]) -> Value:
        left = [alternative for alternative in self.alternatives if not leave_out(alternative)]
        return self if len(left) == len(self.alternatives) else Value(OrderedFrozenSet(left), self.open)

    @property
    def or_unknown(self) -> Value:
        """The same value, or UNKNOWN where no alternative is left."""
        return self if self.alternatives or self.open else UNKNOWN

    @property
    def literal(self) -> object:
        """The constant that this must be, else `...`."""
        only = self.single
        return only.value if isinstance(only, Literal) else ...


UNKNOWN = Value(open=True)
NOTHING = Value()
"""No alternative at all: an expression that is never reached, or a cycle that adds nothing."""


def one(alternative: Alternative) -> Value:
    """A value with one alternative."""
    return Value(frozenset((alternative,)))


def join(values: Iterable[Value]) -> Value:
    """The union: what holds after branches meet. Of too many alternatives the first of the project's own stay; it is open."""
    joined = values if isinstance(values, list) else list(values)
    if len(joined) == 1 and len(joined[0].alternatives) <= MAX_ALTERNATIVES:
        return joined[0]
    alternatives: dict[Alternative, None] = {}
    opened = False
    for value in joined:
        for alternative in value.alternatives:
            alternatives[alternative] = None
        opened = opened or value.open
    if len(alternatives) > MAX_ALTERNATIVES:
        own = [a for a in alternatives if isinstance(a, (Instance, ClassRef, FunctionRef))][:MAX_ALTERNATIVES]
        return Value(OrderedFrozenSet(own), True) if own else UNKNOWN
    return Value(OrderedFrozenSet(alternatives), opened)


def held_by(alternative: Alternative) -> tuple[Value, ...]:
    """The values that a container holds, that of keys which are not known last; nothing for what is none."""
    match alternative:
        case Sequence(items=items):
            return items
        case Elements(element=element):
            return (element,)
        case Mapping(items=pairs, rest=rest):
            return (*(item for _, item in pairs), rest)
    return ()


def seems_number(value: Value) -> bool:
    """Whether all that is known of a value is a Python number, `math.pi` and the like, too: a guess, and no proof."""
    libraries = ("math.", "numpy.", "sys.float_info.")
    return value.must_be_if_known(Number, Literal) or value.must(
        lambda a: isinstance(a, External) and a.qualname.startswith(libraries)
    )


def is_known_tensor(value: Value) -> bool:
    """Whether all that is known of a value is a tensor, or a part of a batch or of an output, and not by a name's look alone.

    A guess, and no proof: there may be more that is not known.
    """
    return value.must_be_if_known(Tensor, Batch, Output) and value.may(
        lambda a: not (isinstance(a, Tensor) and a.guessed) or place_of(a).may_be_device
    )


def is_none(alternative: Alternative) -> bool:
    """Whether an alternative is None, whose use as anything else raises."""
    return alternative == Literal(None)


NONE = one(Literal(None))
TRUE = one(Literal(True))
FALSE = one(Literal(False))


def place_of(alternative: Alternative) -> Place:
    """Where a tensor-like alternative lives; `UNKNOWN` for anything else."""
    if isinstance(alternative, (Tensor, Batch, Output, Object, Instance, Device)):
        return alternative.place
    return Place.UNKNOWN


def device_place(value: Value) -> Place:
    """Where `.to(value)` puts a tensor, for a value that is a device: a `torch.device`, a string, an index."""
    places = {_device_place(a) for a in value.alternatives}
    if value.open or not places:
        return Place.ELSEWHERE
    if places == {Place.HOST}:
        return Place.HOST
    if places == {Place.CUDA}:
        return Place.CUDA
    if all(place.is_cuda_or_host for place in places):
        return Place.CUDA_OR_HOST
    return Place.ELSEWHERE


def _device_place(alternative: Alternative) -> Place:
    match alternative:
        case Device(place):
            return Place.ELSEWHERE if place is Place.UNKNOWN else place
        case Literal(str(name)) | Text(name):
            if name.startswith("cuda"):
                return Place.CUDA
            return Place.HOST if name == "cpu" else Place.ELSEWHERE
        case Literal(int()) | Number("int"):
            return Place.CUDA  # a bare index names a CUDA device
    return Place.ELSEWHERE


def moved(alternative: Alternative, place: Place) -> Value:
    """A tensor, module or batch after `.to(device)`."""
    if isinstance(alternative, (Tensor, Batch, Output, Object, Instance)):
        return one(replace(alternative, place=place))
    return one(alternative)


def meeting_place(places: Iterable[Place]) -> Place:
    """Where the result of an operation on tensors at `places` is."""
    found = set(places)
    for place in (Place.ELSEWHERE, Place.CUDA, Place.CUDA_OR_HOST):
        if place in found:
            return place
    return Place.HOST if found == {Place.HOST} else Place.UNKNOWN
