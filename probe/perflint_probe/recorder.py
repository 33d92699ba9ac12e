"""Hooks in torch that note what a training script computes (losses, parameters, random states) and when its steps end.

In `time` runs nothing here waits for the device: losses are cloned on it, steps are marked by events, and all is read when
the script has ended. `count` runs are slow and are never timed: see `counters`. `profile` runs time lines: see `profiling`.
"""

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from perflint_probe.clocks import Clocks

if TYPE_CHECKING:
    import torch

    from perflint_probe.counters import Counters
    from perflint_probe.profiling import Profiling

MOST_ROOT_ELEMENTS = 4096
"""A larger root of a backward pass is recorded by its sum."""


class Stopped(BaseException):
    """Ends the script at the limit; no error, so that `except Exception` does not take it for one."""


class Limit:
    """When a script is stopped: after so many optimizer steps, or with the first one that ends after so many seconds."""

    def __init__(self, steps: "int | None" = None, seconds: "float | None" = None) -> None:
        self._steps, self._seconds = steps, seconds
        self._started = time.perf_counter()
        self.is_reached = False

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return self._steps is not None or self._seconds is not None

    def check(self, steps: int) -> None:
        """Take note of how many steps have ended.

        Raises:
            Stopped: these are enough.

        """
        late = self._seconds is not None and time.perf_counter() - self._started >= self._seconds
        if late or (self._steps is not None and steps >= self._steps):
            self.is_reached = True
            raise Stopped


def after_import_of_torch(install: Callable[[], None]) -> None:
    """Call `install` when the script has imported torch, so that what it sets up before still takes effect.

    At once where torch is there already: in a process that was forked from one that has it.
    """
    if "torch" in sys.modules:
        install()
        return
    sys.meta_path.insert(0, _TorchFinder(install))


class _TorchFinder(importlib.abc.MetaPathFinder):
    def __init__(self, install: Callable[[], None]) -> None:
        self._install = install

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenInstall(spec.loader, self._install)
        return spec


class _ThenInstall(importlib.abc.Loader):
    def __init__(self, loader: Any, install: Callable[[], None]) -> None:
        self._loader = loader
        self._install = install

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._install()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class Recorder:
    """What is noted during a run, and read at its end."""

    def __init__(self, mode: str, profiling: "Profiling | None" = None, limit: "Limit | None" = None) -> None:
        self.mode = mode
        self._limit = limit or Limit()
        self._profiling = profiling
        self._process = os.getpid()
        self._roots: list[torch.Tensor] = []
        self._optimizers: dict[int, torch.optim.Optimizer] = {}
        self._modules: dict[int, torch.nn.Module] = {}
        self._marks: list[Any] = []
        self._host_marks: list[float] = []
        self._cpu_marks: list[float] = []
        self._batch_marks: list[float] = []
        self._loader_s = 0.0
        self._memory_mib: list[float] = []
        self._counters: Counters | None = None
        self._clocks = Clocks()
        if mode == "count":  # before the script takes the names of clocks; that it does so may come before its import of torch
            self._clocks.install()
        self._torch: Any = None

    def install(self) -> None:
        """Add the hooks; torch has just been imported."""
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data import dataloader

        self._torch = torch
        if self._profiling is not None:
            self._profiling.start()
        register_optimizer_step_post_hook(self._on_step)
        backward = torch.autograd.backward

        def recorded_backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            self._on_backward(tensors)
            backward(tensors, *args, **kwargs)

        torch.autograd.backward = recorded_backward
        fetch = dataloader._BaseDataLoaderIter.__next__

        def timed_fetch(iterator: Any) -> Any:
            started = time.perf_counter()
            try:
                batch = fetch(iterator)
            finally:
                ended = time.perf_counter()
                self._loader_s += ended - started
                self._batch_marks.append(ended)
            if os.getpid() == self._process:
                if self._profiling is not None:
                    self._profiling.end_batch()
                if self._counters is not None:
                    self._counters.assumptions.on_batch(batch)
                    self._counters.end_batch()
            return batch

        dataloader._BaseDataLoaderIter.__next__ = timed_fetch  # type: ignore[method-assign, assignment]  # the hook
        if self.mode == "count":
            from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

            from perflint_probe.assumptions import Assumptions
            from perflint_probe.counters import Counters

            assumptions = Assumptions(self._clocks)
            self._counters = Counters(assumptions)
            register_module_forward_pre_hook(self._on_forward)
            register_module_forward_hook(lambda module, *_: assumptions.after_forward(module))
            self._counters.start()
            assumptions.install()

    def _on_forward(self, module: Any, _: Any) -> None:
        assert self._counters is not None
        if id(module) not in self._modules:
            self._modules[id(module)] = module
            self._counters.watch(module)
            self._counters.assumptions.on_forward(module)
        if self._torch.cuda.is_initialized():
            self._counters.hear_sync_warnings()

    def _on_backward(self, tensors: Any) -> None:
        if os.getpid() != self._process or self._profiling is not None:
            return
        if self._counters is not None:
            self._counters.begin_backward()
        torch = self._torch
        for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
            root = tensor.detach()
            self._roots.append(root.clone() if root.numel() <= MOST_ROOT_ELEMENTS else root.sum())

    def _on_step(self, optimizer: Any, *_: Any) -> None:
        if os.getpid() != self._process:
            return
        torch = self._torch
        self._optimizers.setdefault(id(optimizer), optimizer)
        self._host_marks.append(time.perf_counter())
        self._cpu_marks.append(time.process_time())
        if self._profiling is not None:
            self._profiling.end_step()
        elif self._counters is not None:
            self._counters.end_step(id(optimizer))
            self._counters.assumptions.on_step()
            if torch.cuda.is_initialized():
                self._memory_mib.append(torch.cuda.memory_allocated() / 2**20)
        elif torch.cuda.is_initialized():
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        self._limit.check(len(self._host_marks))

    def finish(self, run_s: float) -> dict[str, Any]:
        """Read everything; the script has ended. Waits for the device."""
        record: dict[str, Any] = {"mode": self.mode, "python": platform.python_version(), "run_s": run_s}
        torch = self._torch
        if torch is None:
            return record | {"torch": None}
        if self._counters is not None:
            record |= self._counters.stop()
        if self._profiling is not None:
            record["profile"] = self._profiling.stop()
        on_cuda = torch.cuda.is_initialized()
        if on_cuda:
            torch.cuda.synchronize()
        record |= {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "device": torch.cuda.get_device_name() if on_cuda else "cpu",
            "steps": len(self._host_marks),
            "is_stopped": self._limit.is_reached,
            "step_s": self._step_s(),
            "step_cpu_s": [b - a for a, b in zip(self._cpu_marks, self._cpu_marks[1:], strict=False)],
            "batches": len(self._batch_marks),
            "batch_s": [b - a for a, b in zip(self._batch_marks, self._batch_marks[1:], strict=False)],
            "loader_s": self._loader_s,
            "roots": [_numbers(root) for root in self._roots],
            "parameters": self._digest(lambda optimizer: [p for group in optimizer.param_groups for p in group["params"]]),
            "optimizer_state": self._digest(_state_tensors),
            "buffers": _digest([b for module in self._modules.values() for b in module.buffers(recurse=False)]),
            "random": self._random_states(on_cuda),
            "memory_mib": self._memory_mib,
            "peak_memory_mib": torch.cuda.max_memory_allocated() / 2**20 if on_cuda else _peak_resident_mib(),
            "peak_reserved_mib": torch.cuda.max_memory_reserved() / 2**20 if on_cuda else None,
        }
        return record

    def keep(self, path: Path) -> None:
        """Write what was trained to a file, for a comparison of its numbers."""
        if self._torch is not None:
            from perflint_probe.tensors import keep

            keep(path, self._optimizers.values())

    def _step_s(self) -> list[float]:
        """Seconds between the ends of steps that follow each other: on the device where there is one."""
        if self._marks and len(self._marks) == len(self._host_marks):
            return [a.elapsed_time(b) / 1e3 for a, b in zip(self._marks, self._marks[1:], strict=False)]
        return [b - a for a, b in zip(self._host_marks, self._host_marks[1:], strict=False)]

    def _digest(self, tensors_of: Callable[[Any], list[Any]]) -> str:
        return _digest([tensor for optimizer in self._optimizers.values() for tensor in tensors_of(optimizer)])

    def _random_states(self, on_cuda: bool) -> dict[str, str]:
        states = {
            "python": hashlib.sha256(repr(random.getstate()).encode()).hexdigest(),
            "torch": _digest([self._torch.get_rng_state()]),
        }
        if "numpy" in sys.modules:
            state = sys.modules["numpy"].random.get_state(legacy=True)
            states["numpy"] = hashlib.sha256(repr((state[1].tolist(), state[2:])).encode()).hexdigest()
        if on_cuda:
            states["cuda"] = _digest(self._torch.cuda.get_rng_state_all())
        return states


def _numbers(root: Any) -> str:
    """A loss with every bit; a larger root by its digest."""
    if root.numel() == 1 and root.is_floating_point():
        return float(root.double() if root.device.type != "mps" else root).hex()
    return _digest([root])


def _state_tensors(optimizer: Any) -> list[Any]:
    state = optimizer.state
    return [
        value
        for group in optimizer.param_groups
        for parameter in group["params"]
        for _, value in sorted(state.get(parameter, {}).items())
        if hasattr(value, "untyped_storage")
    ]


def _digest(tensors: list[Any]) -> str:
    """A hash of tensors' types, shapes and bytes."""
    import torch

    found = hashlib.sha256()
    for tensor in tensors:
        whole = (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach()
        found.update(f"{whole.dtype} {None if whole.is_nested else tuple(whole.shape)}".encode())
        for part in _dense_parts(whole):
            host = part.cpu().resolve_conj().resolve_neg().contiguous()
            found.update(f"{tuple(host.shape)}".encode())
            if host.numel():
                found.update(memoryview(host.as_strided((host.numel(),), (1,)).view(torch.uint8).numpy()))
    return found.hexdigest()


def _dense_parts(tensor: Any) -> list[Any]:
    """The dense tensors that hold a tensor's numbers: indices and values of a sparse one, none of one without memory."""
    import torch

    if tensor.is_meta:
        return []
    if tensor.is_nested:
        return list(tensor.unbind())
    if tensor.is_quantized:
        return [tensor.int_repr(), tensor.dequantize()]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor if tensor.layout is torch.strided else tensor.to_dense()]


def _peak_resident_mib() -> float | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
