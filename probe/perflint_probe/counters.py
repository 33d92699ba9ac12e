"""Counts where a program makes the CPU wait for the device, and what it copies; on a machine without one, where it would.

On CUDA two sources are joined: torch's sync debug mode, which warns at each synchronising call (torch's documentation: not
all of them), and the operations themselves. On the CPU there is nothing to wait for, but torch calls the same operations:
reads count of values that were computed from a module's parameters, or that were sent to a device by `.to(device)` or
`.cuda()`. This is an estimate, made for comparing two versions of a program: what the sync debug mode sees on a GPU is the
truth.
"""

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from perflint_probe.frames import (
    Asked,
    Line,
    asked_from,
    asks_whether_cuda,
    is_asked_by,
    joins_list,
    line_asking_torch,
    lines_of_program,
    names_host,
    text_of,
)

if TYPE_CHECKING:
    from perflint_probe.assumptions import Assumptions

aten = torch.ops.aten
CONVERSIONS = {Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__repr__, Tensor.cpu}
"""Reads that reach no operation when the tensor is on the CPU."""
TRANSFERS = {Tensor.to, Tensor.cuda}
UPLOADS = {torch.tensor, torch.as_tensor, torch.asarray}
"""What copies to the device that `device=` names."""
MADE_THERE = {*UPLOADS, torch.zeros, torch.ones, torch.empty, torch.full, torch.rand, torch.randn, torch.randint, torch.arange}
MADE_THERE |= {torch.eye, torch.linspace, torch.randperm, torch.normal, torch.tril_indices, torch.triu_indices}
ASYNCHRONOUS_FOR_INTEGERS = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
WITHOUT_WAITING = "perflint_runtime.copies"
"""Decides when it runs whether a copy may be one that nobody waits for; without a GPU, none is."""
FACTORIES = {
    aten.empty.memory_format,
    aten.zeros.default,
    aten.ones.default,
    aten.full.default,
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.full_like.default,
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
    aten.eye.default,
    aten.scalar_tensor.default,
}
COPIES = {aten._to_copy.default, aten.copy_.default}


class Counters:
    """The counts of a run, by line of the program, and per optimizer step; `assumptions` sees the operations, too."""

    def __init__(self, assumptions: "Assumptions") -> None:
        self.assumptions = assumptions
        self.reads: Counter[Asked] = Counter()
        self.waits: Counter[Asked] = Counter()
        self.transfers: Counter[Asked] = Counter()
        self.copies: Counter[str] = Counter()
        self.copied_bytes: Counter[str] = Counter()
        self.allocations = 0
        self.steps_at: dict[int, Counter[Line]] = {}
        self.backwards_at: Counter[Line] = Counter()
        self.batches_at: Counter[Line] = Counter()
        self.reads_by_step: list[int] = []
        self._reads_before = 0
        self._hears = False
        self._on_device = _Device()
        self._modes: list[Any] = [_Conversions(self), _Operations(self)]

    def start(self) -> None:
        """Begin to count, in this thread and its backward passes."""
        for mode in self._modes:
            mode.__enter__()

    def watch(self, module: torch.nn.Module) -> None:
        """Take a module's parameters and buffers for values of the device."""
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            self._on_device.add(tensor)

    def end_step(self, optimizer: int) -> None:
        """Close the counts of a step of an optimizer, given by its identity."""
        self.steps_at.setdefault(optimizer, Counter()).update(lines_of_program())
        total = sum(self.reads.values()) + sum(self.waits.values())
        self.reads_by_step.append(total - self._reads_before)
        self._reads_before = total

    def begin_backward(self) -> None:
        """Note which lines run a backward pass."""
        self.backwards_at.update(lines_of_program())

    def end_batch(self) -> None:
        """Note which lines have just been given a batch."""
        self.batches_at.update(lines_of_program())

    def stop(self) -> dict[str, Any]:
        """End counting; what was counted, fit for JSON."""
        for mode in reversed(self._modes):
            mode.__exit__(None, None, None)
        return {
            "reads": _rows(+self.reads),
            "waits": _rows(self.waits),
            "transfers": _rows(self.transfers),
            "copies": dict(self.copies),
            "copied_bytes": dict(self.copied_bytes),
            "allocations": self.allocations,
            "steps_at": [row for counts in self.steps_at.values() for row in _rounds(counts)],
            "backwards_at": _rounds(self.backwards_at),
            "batches_at": _rounds(self.batches_at),
            "waits_by_step": self.reads_by_step,
            "assumptions": self.assumptions.rows(),
        }

    def sees(self, tree: object) -> bool:
        """Whether a value of the device is among the arguments of a call."""
        return any(isinstance(leaf, Tensor) and leaf in self._on_device for leaf in tree_iter(tree))

    def keep(self, tree: object) -> None:
        """Take tensors for values of the device."""
        for leaf in tree_iter(tree):
            if isinstance(leaf, Tensor):
                self._on_device.add(leaf)

    def sees_copy(self, tree: object) -> bool:
        """Whether a copy on the host of a value of the device is among the arguments of a call."""
        return any(isinstance(leaf, Tensor) and self._on_device.is_copy(leaf) for leaf in tree_iter(tree))

    def keep_on_host(self, tree: object) -> None:
        """Take tensors for values of the host, though their memory may stand for the device's, too."""
        for leaf in tree_iter(tree):
            if isinstance(leaf, Tensor):
                self._on_device.note_copy(leaf)

    def moved(self, name: str, source: Any, result: Any, non_blocking: bool) -> Any:
        """Note a move by `to` or `cuda`; what stands for its result."""
        line = line_asking_torch()
        if line is not None and names_host(line):
            if not self.sees(source):
                return result
            (self.transfers if non_blocking else self.reads)[asked_from(name)] += 1
            return self.copied(result)
        if self.sees(source):
            return result
        asks = asks_whether_cuda(line or "")
        is_blocking = not (non_blocking or asks or is_asked_by(WITHOUT_WAITING))
        self.transfers[asked_from(f"blocking {name}" if is_blocking else name)] += 1
        if result is source and not source.requires_grad:
            self._on_device.note_copy(source)
            result = _twin(result)
        self.keep(result)
        return result

    def copied(self, result: Any) -> Any:
        """What stands for a copy on the host of a value of the device."""
        copy = _twin(result)
        if copy is not result:
            self._on_device.note_copy(copy)
        return copy

    def made(self, func: Callable[..., Any], args: tuple[Any, ...], result: Any) -> None:
        """Note a tensor that the program makes where `device=` says. Who asks in a library may mean the host."""
        line = line_asking_torch()
        if line is None or names_host(line):
            return
        if func in UPLOADS and not self.sees(args):
            self.transfers[asked_from(f"blocking {func.__name__}")] += 1
        self.keep(result)

    def note_copy(self, result: Tensor, source: Tensor, non_blocking: bool) -> None:
        """Note a copy between host and device."""
        if (source.device.type == "cpu") == (result.device.type == "cpu"):
            return
        direction = "host to device" if source.device.type == "cpu" else "device to host"
        host = source if source.device.type == "cpu" else result
        kind = f"{direction}, {'pinned' if host.is_pinned() else 'pageable'}, {'non-blocking' if non_blocking else 'blocking'}"
        self.copies[kind] += 1
        self.copied_bytes[kind] += source.numel() * source.element_size()

    def hear_sync_warnings(self) -> None:
        """Count the warnings of torch's sync debug mode from now on. It would start CUDA: call this when the script has."""
        if self._hears:
            return
        self._hears = True
        set_mode: Callable[[str], None] = torch.cuda.set_sync_debug_mode
        set_mode("warn")
        show = warnings.showwarning

        def hear(message: Any, category: Any, filename: str, lineno: int, *args: Any, **kwargs: Any) -> None:
            if "called a synchronizing CUDA operation" in str(message):
                self.waits[asked_from()] += 1
            else:
                show(message, category, filename, lineno, *args, **kwargs)

        warnings.showwarning = hear
        warnings.filterwarnings("always", message=".*called a synchronizing CUDA operation.*")


class _Device:
    """The memory that stands for the device's, and the tensors that stand for copies of it on the host."""

    def __init__(self) -> None:
        self._storages: set[Any] = set()  # weak references keep addresses from being used again
        self._copies: dict[int, weakref.ref[Tensor]] = {}

    def add(self, tensor: Tensor) -> None:
        self._copies.pop(id(tensor), None)
        if tensor.device.type in ("cpu", "meta") and not _is_special(tensor):
            self._storages.add(_weak(tensor))
            if len(self._storages) > 100_000:
                self._storages = {storage for storage in self._storages if not storage.expired()}

    def __contains__(self, tensor: Tensor) -> bool:
        if tensor.device.type not in ("cpu", "meta"):
            return True
        return not _is_special(tensor) and _weak(tensor) in self._storages and not self.is_copy(tensor)

    def is_copy(self, tensor: Tensor) -> bool:
        held = self._copies.get(id(tensor))
        return held is not None and held() is tensor

    def note_copy(self, tensor: Tensor) -> None:
        key = id(tensor)
        self._copies[key] = weakref.ref(tensor, lambda _: self._copies.pop(key, None))


def _twin(tensor: Tensor) -> Tensor:
    """Another tensor of the same numbers, where a copy to another device would be another tensor."""
    if tensor.device.type != "cpu" or _is_special(tensor) or tensor.is_nested:
        return tensor
    return tensor.view_as(tensor) if tensor.requires_grad else tensor.data


def _weak(tensor: Tensor) -> Any:
    reference: Any = StorageWeakRef  # torch 2.13 leaves it untyped
    return reference(tensor.untyped_storage())


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch 2.13 leaves it untyped
    def __init__(self, counters: Counters) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._counters = counters

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        counters = self._counters
        counters.assumptions.on_operation((args, kwargs))
        on_device = counters.sees((args, kwargs))
        if on_device and reads_values(func, args, kwargs):
            asked = asked_from(str(func))
            counters.reads[asked] += not asks_whether_cuda(text_of(asked))
        result = func(*args, **kwargs)
        counters.assumptions.on_operation(result)
        if func in FACTORIES:
            counters.allocations += 1
        if func in COPIES and isinstance(result, Tensor):
            source = args[1] if func is aten.copy_.default else args[0]
            counters.note_copy(result, source, bool(kwargs.get("non_blocking") or (len(args) > 2 and args[2])))
        if on_device:
            counters.keep(result)
        elif counters.sees_copy((args, kwargs)):
            counters.keep_on_host(result)
        return result


class _Conversions(TorchFunctionMode):
    def __init__(self, counters: Counters) -> None:
        super().__init__()
        self._counters = counters

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        counters = self._counters
        is_read = func in CONVERSIONS and counters.sees(args[0])
        if is_read:
            (counters.transfers if joins_list() else counters.reads)[asked_from(func.__name__)] += 1
        counters.assumptions.on_function(func)
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            counters.assumptions.on_error(error)
            raise
        if func in TRANSFERS and _names_device(func, args, kwargs):
            return counters.moved(func.__name__, args[0], result, bool(kwargs.get("non_blocking")))
        if is_read and func is Tensor.cpu:
            return counters.copied(result)
        if func in MADE_THERE and kwargs.get("device") is not None:
            counters.made(func, args, result)
        return result


def _names_device(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    if func is Tensor.cuda:
        return True
    given = kwargs.get("device", args[1] if len(args) > 1 else None)
    return isinstance(given, (torch.device, str, int)) and not isinstance(given, bool)


def reads_values(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation's result, or its shape, is known to the CPU only after the device has computed its input."""
    if func in ASYNCHRONOUS_FOR_INTEGERS:
        masks = [index for index in args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]
        # A single number put under a mask becomes masked_fill, which needs no positions.
        fills = func is not aten.index.Tensor and args[2].numel() == 1 and not (len(args) > 3 and args[3])
        return bool(masks) and not fills
    if func is aten.repeat_interleave.Tensor:
        return kwargs.get("output_size") is None
    return torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def _is_special(tensor: Tensor) -> bool:
    """Whether a tensor has no ordinary memory: sparse, quantised or wrapped ones."""
    return tensor.layout is not torch.strided or type(tensor) not in (Tensor, torch.nn.Parameter)


def _rows(counts: Counter[Asked]) -> list[dict[str, Any]]:
    items: Iterable[tuple[Asked, int]] = counts.most_common()
    return [
        {"file": file, "line": line, "what": what, "count": count, "callers": callers}
        for (file, line, what, callers), count in items
    ]


def _rounds(counts: Counter[Line]) -> list[dict[str, Any]]:
    return [{"file": file, "line": line, "count": count} for (file, line), count in counts.most_common()]
