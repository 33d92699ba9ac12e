"""Sums and means of training losses that never make the CPU wait for the GPU until the result is read.

`total += loss.item() * n` waits in every step until the GPU has finished what is queued. `DeviceSum` adds on the tensor's
own device instead and gives the same number, to the last bit, in one read at the end:

    total = DeviceSum()
    for x, y in loader:
        loss = criterion(model(x), y)
        ...
        total.update(loss, len(x))      # queues one kernel, waits for nothing
    print(total.value() / len(dataset))  # the only wait

`LossMeter` is two such sums, the weighted mean of a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_SHORT_FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16})
_INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool})
_PROMOTED = _SHORT_FLOATS | _INTEGERS | {torch.float64}
"""What torch's addition widens by itself."""
_EXACT_WEIGHT = 1 << 29
"""float32 has 24 bits, float64 has 53: times an integer below 2**29, the product needs no rounding."""
_KEPT = 1024
"""Values that stay on a device without float64 until they are read together."""


class SumState(TypedDict):
    """A `DeviceSum` in a checkpoint: a plain number, for `torch.load(weights_only=True)` and JSON."""

    total: float


class LossState(TypedDict):
    """A `LossMeter` in a checkpoint."""

    weighted: SumState
    count: SumState


class DeviceSum:
    """A sum of one-element tensors, kept on their device, equal to the sum of Python numbers to the last bit.

    `update(loss, n)` does what `total += loss.item() * n` does, rounding included: float tensors of any width add up as
    float64 (which is what a Python float is), integer and bool tensors as int64 (a Python int up to 2**63; then it wraps).
    Once a float was added the sum is a float. Without any update the value is `start`, so an empty loop ends with the `0` or
    `0.0` that the total began with. In-place changes of a tensor after its update do not reach the sum.

    A device without float64 (MPS, some XPU) keeps a copy of each value and reads 1024 of them at once: still exact, one wait
    in 1024 updates. On CUDA and on the CPU nothing waits before `value()`. CPU tensors take the same path as CUDA tensors, so
    that a program can be searched for waits on a machine without a GPU; there an update costs a few microseconds where
    `.item()` costs a fraction of one (benchmarks/device_metrics.py).

    Measured: bit-identical to Python floats over random sequences of all dtypes (tests/runtime/test_metrics.py, CPU). On CUDA
    this rests on IEEE addition and multiplication in float64. A fused multiply-add cannot differ: a weight is handed to the
    addition only where the product is exact.
    """

    __slots__ = ("_kept", "_start", "_total")

    def __init__(self, start: float = 0) -> None:
        """Begin with a Python number, of the type that an empty sum shall have."""
        self._start: float = start
        self._total: float | Tensor = start
        self._kept: list[tuple[Tensor | float, Tensor | float]] = []

    def update(self, value: Tensor | float, weight: Tensor | float = 1) -> None:
        """Add `value * weight`: a tensor of one element (any shape) or a number, times a number or such a tensor.

        Raises ValueError if a tensor has not exactly one element, TypeError if it is complex.
        """
        if not isinstance(value, Tensor):
            if not isinstance(weight, Tensor):
                self._add_number(_plain(value) * _plain(weight))
                return
            value, weight = weight, value
        value = _detached(value)
        total = self._total
        if isinstance(total, Tensor) and not self._kept and _one_kernel(total, value, weight):
            total.add_(value, alpha=cast(int, weight))
        else:
            self._add_tensor(value, _detached(weight) if isinstance(weight, Tensor) else _plain(weight))

    def value(self) -> float:
        """Read the sum: a Python float, or an int if only integers were added. Waits for the device."""
        self._read_kept()
        # The CPU waits for the GPU here.
        return self._total.item() if isinstance(self._total, Tensor) else self._total

    def __float__(self) -> float:
        """The sum as a float. Waits for the device."""
        return float(self.value())

    def tensor(self) -> Tensor:
        """A copy of the sum as it is now: 0-d, float64 or int64, on the device of the values (CPU before the first tensor).

        Waits for nothing, except on a device without float64, where the sum itself lives on the CPU.
        """
        self._read_kept()
        return self._total.clone() if isinstance(self._total, Tensor) else _filled(self._total, torch.device("cpu"))

    def reset(self) -> None:
        """Begin again from `start`."""
        self._total = self._start
        self._kept.clear()

    def state_dict(self) -> SumState:
        """The sum as a plain number, exact. Waits for the device."""
        return {"total": self.value()}

    def load_state_dict(self, state: SumState) -> None:
        """Go on from a `state_dict()`, bit for bit."""
        self.reset()
        self._total = state["total"]

    def __repr__(self) -> str:
        """Where the sum is; its value is not read."""
        return f"DeviceSum(on {self._total.device if isinstance(self._total, Tensor) else 'the host'})"

    def _add_number(self, number: float) -> None:
        if self._kept:
            self._keep(number, 1)
        elif isinstance(self._total, Tensor):
            total = self._promoted(self._total, integral=isinstance(number, int))
            total.add_(float(number) if total.dtype is torch.float64 else number)
        else:
            self._total += number

    def _add_tensor(self, value: Tensor, weight: Tensor | float) -> None:
        """What `_one_kernel` does not cover, in the order and with the roundings of Python."""
        if self._kept or not has_float64(value.device):
            # Copies: the tensors may be buffers that the next step writes to.
            self._keep(value.clone(), weight.clone() if isinstance(weight, Tensor) else weight)
            return
        if isinstance(weight, Tensor) and value.device.type == "cpu":
            value, weight = weight, value  # so that neither is fetched from a GPU
        real = weight.dtype.is_floating_point if isinstance(weight, Tensor) else isinstance(weight, float)
        integral = not (real or value.dtype.is_floating_point)
        term = value.to(torch.int64 if integral else torch.float64)
        if isinstance(weight, Tensor):
            weight = weight.to(term.dtype)  # a number on the CPU may stay there
            term = term * (weight if weight.device.type == "cpu" else weight.to(term.device, non_blocking=True))
        elif weight != 1:
            term = term * weight
        total = self._total
        if not isinstance(total, Tensor):
            total = _filled(total, term.device)
        elif total.device != term.device:
            if total.device.type == "cpu":
                total = _outside_inference(total, term.device, total.dtype)
            elif term.device.type != "cpu":
                term = term.to(total.device, non_blocking=True)
        self._total = total
        self._promoted(total, integral=integral).add_(term)

    def _promoted(self, total: Tensor, *, integral: bool) -> Tensor:
        """The total as a tensor that can take what comes: float64 from the first float on."""
        if not integral and total.dtype is torch.int64:
            self._total = total = _outside_inference(total, total.device, torch.float64)
        return total

    def _keep(self, value: Tensor | float, weight: Tensor | float) -> None:
        self._kept.append((value, weight))
        if len(self._kept) >= _KEPT:
            self._read_kept()

    def _read_kept(self) -> None:
        if not self._kept:
            return
        # The CPU waits for the GPU here, on devices without float64 only.
        numbers = iter(read_together([part for pair in self._kept for part in pair if isinstance(part, Tensor)]))
        total = self._total.item() if isinstance(self._total, Tensor) else self._total
        for pair in self._kept:
            value, weight = (next(numbers) if isinstance(part, Tensor) else part for part in pair)
            total += value * weight
        self._total = total
        self._kept.clear()


class LossMeter:
    """The mean of losses weighted by how many samples each stands for: the sum of `loss * n` over the sum of `n`.

    What is usually written as `total += loss.item() * n; seen += n` and `total / seen`: bit-identical to it, without the wait
    in each step. With `n` left at 1 it is the plain mean over steps.
    """

    __slots__ = ("_count", "_device", "_weighted")

    def __init__(self, device: torch.device | str | None = None) -> None:
        """`device` matters for `all_reduce` alone: the device of a process that may end without any value."""
        self._device = None if device is None else torch.device(device)
        self._weighted = DeviceSum(0.0)
        self._count = DeviceSum()

    def update(self, loss: Tensor | float, n: Tensor | int = 1) -> None:
        """Take in a mean loss (a one-element tensor or a number) over `n` samples; waits for nothing.

        `n` may be a tensor on the device, such as the number of tokens that are not padding.
        """
        self._weighted.update(loss, n)
        self._count.update(n)

    def mean(self) -> float:
        """Read the mean: the only wait, one for sum and count together. Raises ZeroDivisionError if nothing was taken in."""
        weighted, count = self._weighted.tensor(), self._count.tensor()
        if weighted.device == count.device:
            # The CPU waits for the GPU here. The division is Python's: CUDA's by a number multiplies by the inverse instead.
            total, seen = torch.stack((weighted.double(), count.double())).tolist()
        else:
            total, seen = weighted.item(), count.item()  # the count was kept in Python: one wait, for the sum
        if not seen:
            raise ZeroDivisionError("LossMeter.mean(): there is no mean of nothing; call update(loss, n) first")
        mean: float = total / seen
        return mean

    def mean_tensor(self) -> Tensor:
        """The mean as it is now: 0-d float64 on the device, nan if empty; waits for nothing. For `AsyncScalars.submit`."""
        weighted = self._weighted.tensor()
        self._count._read_kept()
        count = self._count._total
        if isinstance(count, Tensor):
            return weighted / count.to(weighted.device, torch.float64, non_blocking=True)
        return weighted / _filled(float(count), weighted.device)  # a tensor: CUDA divides by a number with its inverse

    def reset(self) -> None:
        """Forget everything."""
        self._weighted.reset()
        self._count.reset()

    def all_reduce(self, group: ProcessGroup | None = None) -> LossMeter:
        """A meter with the sums of all processes of `group` (default: all); this one stays as it is.

        Without torch.distributed, a copy. Every process has to call it, with sums on the same kind of device; one that may
        have taken in no value needs the `device` argument of `LossMeter`. Sums of floats over processes are added in an order
        that the backend chooses, so their last bit may differ from that of a single process.
        """
        import torch.distributed as dist

        with torch.inference_mode(False):  # or the new meter's sums could not be updated outside of inference mode
            weighted, count = self._weighted.tensor(), self._count.tensor()
            device = self._device or weighted.device
            if not has_float64(device):
                device = torch.device("cpu")
            both = torch.stack((weighted.to(device, torch.float64), count.to(device, torch.float64)))
            if dist.is_available() and dist.is_initialized():
                dist.all_reduce(both, group=group)
            everywhere = LossMeter(self._device)
            everywhere._weighted._total = both[0].clone()
            everywhere._count._total = both[1].to(torch.int64)
        return everywhere

    def state_dict(self) -> LossState:
        """Sum and count as plain numbers, exact. Waits for the device."""
        return {"weighted": self._weighted.state_dict(), "count": self._count.state_dict()}

    def load_state_dict(self, state: LossState) -> None:
        """Go on from a `state_dict()`, bit for bit."""
        self._weighted.load_state_dict(state["weighted"])
        self._count.load_state_dict(state["count"])


def has_float64(device: torch.device) -> bool:
    """Whether tensors of a device can be float64: not on MPS, nor on XPUs whose driver says so."""
    if device.type == "xpu":
        return bool(torch.xpu.get_device_properties(device).has_fp64)
    return device.type != "mps"


def read_together(tensors: Sequence[Tensor]) -> list[float]:
    """The numbers in one-element tensors, read in one go per device and type. Waits for the device."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for position, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype), []).append(position)
    numbers: list[float] = [0] * len(tensors)
    for positions in groups.values():
        # The CPU waits for the GPU here.
        for position, number in zip(positions, torch.stack([tensors[p] for p in positions]).tolist(), strict=True):
            numbers[position] = number
    return numbers


def _one_kernel(total: Tensor, value: Tensor, weight: object) -> bool:
    """Whether `total.add_(value, alpha=weight)` rounds once, where Python would."""
    if type(weight) is not int or value.device != total.device:
        return False
    dtype = value.dtype
    if total.dtype is torch.int64:
        return dtype in _INTEGERS
    return dtype in _PROMOTED if weight == 1 else dtype in _SHORT_FLOATS and -_EXACT_WEIGHT < weight < _EXACT_WEIGHT


def _detached(tensor: Tensor) -> Tensor:
    """A one-element tensor as a 0-d one outside the graph, or an error."""
    if tensor.numel() != 1:
        raise ValueError(f"a sum takes tensors of one element, this one has shape {tuple(tensor.shape)}; reduce it first")
    if tensor.is_complex():
        raise TypeError("a sum of complex tensors is not supported; add up real and imaginary parts")
    return tensor.detach() if tensor.dim() == 0 else tensor.detach().reshape(())


def _plain(number: float) -> float:
    """A Python number from a numpy scalar, whose own arithmetic may be narrower."""
    return number if type(number) in (int, float) else cast(float, getattr(number, "item", lambda: number)())


def _filled(number: float, device: torch.device) -> Tensor:
    """A number as a 0-d tensor, made by a fill kernel: a copy from the host would wait."""
    with torch.inference_mode(False):  # or a later update outside of inference mode would be refused
        return torch.full((), number, dtype=torch.int64 if isinstance(number, int) else torch.float64, device=device)


def _outside_inference(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A converted tensor that may be updated in any mode, as `_filled` is."""
    with torch.inference_mode(False):
        return tensor.to(device, dtype, non_blocking=True)
