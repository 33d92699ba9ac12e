"""What the operations of torch, numpy and Python do: one row for each in the tables of operations, looked up by name.

The words of a row, beside its name; what is not said is the first of each group:
- what it returns: (a tensor) several pair pair-along-dim int ints float bool number list array text none object
- whose memory that is: (new) view alias itself
- its type: (same) widest sums any-type to-float to-bool to-int64 ...
- its dimensions: (any) elementwise reduces scalar loss flattens
- waits:ROAD, or waits:ROAD*TIMES@WHOSE!UNLESS?ONLY: number format truth copy upload transfer shape device overflow
- graphless, random, writes, gradients, factory, not-real, ambiguous
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import Enum
from functools import cache
from typing import Any, Final

from perflint.facts.operations.function_operations import ELSEWHERE, TORCH_FUNCTIONS
from perflint.facts.operations.tensor_operations import TENSOR_OPERATIONS
from perflint.source.records import dataclass
from perflint.source.words import made


class Result(Enum):
    """What kind of thing an operation returns."""

    TENSOR = "tensor"
    SEVERAL = "several"
    """A tuple of tensors."""
    PAIR = "pair"
    """Values and their indices."""
    PAIR_ALONG_DIM = "pair-along-dim"
    """A tensor, or a pair when a dimension is given."""
    INT = "int"
    INTS = "ints"
    """A tuple of integers, or one of them when asked for one."""
    FLOAT = "float"
    BOOL = "bool"
    NUMBER = "number"
    LIST = "list"
    ARRAY = "array"
    TEXT = "text"
    NOTHING = "none"
    OBJECT = "object"
    """Anything else."""

    @property
    def is_host(self) -> bool:
        """Whether it is a Python object that belongs to no autograd graph."""
        return self not in (Result.TENSOR, Result.SEVERAL, Result.PAIR, Result.PAIR_ALONG_DIM)


class Memory(Enum):
    """Whose memory the result has."""

    NEW = "new"
    VIEW = "view"
    """That of the receiver."""
    ALIAS = "alias"
    """New memory, or that of an argument, or the argument itself."""
    ITSELF = "itself"
    """It is the receiver."""


class Dims(Enum):
    """How many dimensions the result has."""

    ANY = "any"
    ELEMENTWISE = "elementwise"
    """A 0-d tensor when everything that goes in is 0-d or a number."""
    REDUCES = "reduces"
    """None, unless a dimension is given."""
    SCALAR = "scalar"
    LOSS = "loss"
    """None, unless `reduction` is "none"."""
    FLATTENS = "flattens"
    """One, unless dimensions are given."""


class Road(Enum):
    """By which road the host comes to wait for the device."""

    NUMBER = "number"
    """One number is copied (`aten::_local_scalar_dense`)."""
    FORMAT = "format"
    """A tensor becomes text."""
    TRUTH = "truth"
    """The host learns whether a condition on tensors holds."""
    COPY = "copy"
    """A tensor is copied to the host."""
    UPLOAD = "upload"
    """Python data or pageable host memory are copied to the device."""
    TRANSFER = "transfer"
    """A copy in a direction that the arguments say."""
    SHAPE = "shape"
    """The size of the result depends on the data."""
    OVERFLOW = "overflow"
    """A `GradScaler` learns whether a gradient is infinite."""
    DEVICE = "device"
    """The host waits for all queued work, or for an event."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Why, how often, and for the sake of what the host waits.

    of: whose numbers it needs: the receiver (or the first argument of a function), `each` argument or element of one, the
    `arguments` beside the receiver, those beside a number (`mixed`), all but one of them (`pairs`: they are compared), each of
    the `elements`, `any` of what is given, or `nothing` of it; `many`: nothing of it, and more often than can be told. times:
    how often for each. unless: a keyword with which it does not wait, or `others`, when any other argument has that effect.
    only: a keyword without which it does not wait.
    """

    road: Road
    of: str = "receiver"
    times: int = 1
    unless: str = ""
    only: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One row. `name` is the name without what it belongs to.

    dtype: "same" as the receiver; "float" (the receiver's own floating type, or the default one); "widest" of what goes in;
    "sums" (int64 for integers, else the same); a torch name; "" when it depends on the arguments. graph: whether the result
    belongs to the autograd graph of what goes in. random: whether it draws random numbers. writes: whether it changes its
    receiver. gradients: whether it gives or watches gradients. factory: whether it fills new memory on the host, or where
    `device` says. real: whether it gives an array of real numbers, none that are complex, quantized or sparse. telling: whether
    no other class has a method of this name.
    """

    name: str
    result: Result = Result.TENSOR
    memory: Memory = Memory.NEW
    dtype: str = "same"
    dims: Dims = Dims.ANY
    graph: bool = True
    random: bool = False
    writes: bool = False
    gradients: bool = False
    factory: bool = False
    real: bool = True
    telling: bool = True
    wait: Wait | None = None

    @property
    def shares_memory(self) -> bool:
        """Whether the result may be an argument, or share its memory."""
        return self.memory is not Memory.NEW

    @property
    def converts(self) -> bool:
        """Whether it does nothing but give the numbers of its receiver another type, one that is known."""
        return self.memory is Memory.ALIAS and self.dtype in _TYPES

    @property
    def only_computes(self) -> bool:
        """Whether it leaves its arguments as they are, and nothing of them is in the result."""
        return self.memory is Memory.NEW and not self.writes


TORCH_PACKAGES: Final = frozenset(
    ("torch", "torch.cuda", "torch.functional", "torch.nn.functional", "torch.linalg", "torch.special")
)
"""Where torch has its functions of tensors."""

_WAIT = made(r"waits:(?P<road>\w+)(?:\*(?P<times>\d+))?(?:@(?P<of>\w+))?(?:!(?P<unless>\w+))?(?:\?(?P<only>\w+))?$")
_FLAGS: Final[dict[str, tuple[str, Any]]] = {
    "graphless": ("graph", False),
    "random": ("random", True),
    "writes": ("writes", True),
    "gradients": ("gradients", True),
    "factory": ("factory", True),
    "not-real": ("real", False),
    "ambiguous": ("telling", False),
    "any-type": ("dtype", ""),
}


def _parsed(name: str, words: list[str]) -> Operation:
    """A row as an operation.

    Raises:
        ValueError: a word that means nothing.

    """
    fields: dict[str, Any] = {}
    for word in words:
        if word in _FLAGS:
            field, value = _FLAGS[word]
            fields[field] = value
        elif word in _RESULTS:
            fields["result"] = _RESULTS[word]
        elif word in _MEMORIES:
            fields["memory"] = _MEMORIES[word]
        elif word in _DIMS:
            fields["dims"] = _DIMS[word]
        elif word.startswith("to-"):
            fields["dtype"] = word.removeprefix("to-")
        elif word in ("widest", "sums"):
            fields["dtype"] = word
        elif found := _WAIT.match(word):
            of, times = found["of"] or "receiver", int(found["times"] or 1)
            fields["wait"] = Wait(Road(found["road"]), of, times, found["unless"] or "", found["only"] or "")
        else:
            raise ValueError(f"operations table: `{name}` has the word `{word}`, which means nothing")
    operation = Operation(name, **fields)
    graph = operation.graph and not operation.result.is_host and operation.dtype not in _GRAPHLESS_TYPES
    return replace(operation, graph=graph)


_RESULTS: Final = {result.value: result for result in Result}
_MEMORIES: Final = {memory.value: memory for memory in Memory}
_DIMS: Final = {dims.value: dims for dims in Dims}
_GRAPHLESS_TYPES: Final = frozenset(("bool", "int64", "int32", "int16", "uint8"))
_TYPES: Final = _GRAPHLESS_TYPES | {"float16", "bfloat16", "float32", "float64"}


@cache
def _rows() -> dict[str, str]:
    """The rows' words, by name: `m add` is a method of tensors, `t add` a function of torch, `a T` an attribute."""
    rows: dict[str, str] = {}
    for line in [*TENSOR_OPERATIONS.strip().splitlines(), *TORCH_FUNCTIONS.strip().splitlines()]:
        name, forms, *words = line.split(None, 2)
        for form in forms:
            rows["t " + name if form in "tFls" else f"{form} {name}"] = words[0] if words else ""
    for line in ELSEWHERE.strip().splitlines():
        rows[line[:44].rstrip()] = line[44:]
    return rows


@cache
def _row(key: str) -> Operation | None:
    words = _rows().get(key)
    return None if words is None else _parsed(key.rpartition(" ")[2].rpartition(".")[2], words.split())


@cache
def method(name: str) -> Operation | None:
    """A method of a tensor; None when tensors have none of this name, or nothing is known about it.

    What works in place (`add_`) need not have a row of its own.
    """
    known = _row(f"m {name}")
    if known is None and name.endswith("_") and not name.endswith("__"):
        base = _row(f"m {name[:-1]}")
        if base is not None and not base.result.is_host and base.real:
            return replace(base, name=name, memory=Memory.ITSELF, writes=True, dtype="same", dims=Dims.ELEMENTWISE)
    return known


def attribute(name: str) -> Operation | None:
    """An attribute of a tensor that is a tensor; None when there is none of this name."""
    return _row(f"a {name}")


@cache
def function(qualname: str) -> Operation | None:
    """A function outside the project, by qualified name; None when nothing is known about it."""
    package, _, last = qualname.rpartition(".")
    if package in TORCH_PACKAGES:
        exact = _row(qualname)
        return exact if exact is not None else tensor_function(last)
    known = _row(qualname)
    if known is not None or not package:
        return known
    shared = _row(f"{package.rpartition('.')[0]}.*.{last}") if package in _rows() else None  # a method of a package's classes
    return shared if shared is not None else _row(f"{package.partition('.')[0]}.*")


def tensor_function(name: str) -> Operation | None:
    """A function of torch, `torch.nn.functional`, `torch.linalg` or `torch.special` by its last name."""
    return _row(f"t {name}")


def operator(form: str) -> Operation | None:
    """What is written without a call, by its form in the table: `x[mask]`, say."""
    return _row(form)


@cache
def waits() -> tuple[tuple[str, Wait], ...]:
    """The last names of all functions and methods that may wait, each with how; a name may belong to several."""
    keys = [key for key, words in _rows().items() if "waits:" in words]
    return tuple((re.split(r"[ .]", key)[-1], row.wait) for key in keys if (row := _row(key)) is not None and row.wait)


@cache
def waiting_names() -> frozenset[str]:
    """The last names of all functions and methods that may wait."""
    return frozenset(name for name, _ in waits())
