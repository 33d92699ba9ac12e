"""Runs the fixture scripts of rules, counting what the rules are about. Started by test_evidence.py.

    python tests/evidence_runs.py [RULE ...]

Runs each rule's fixture scripts, each in a process forked from this one. Prints JSON: for each rule and version
the probe's record, with `output` and the counts of `Counting` added, or `failed` with the end of what the run said.
"""

from __future__ import annotations

import gc
import json
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, dataloader

sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures"))

import measure
from perflint_probe.compilation import Compilation
from runs import AHEAD, import_ahead, start

from perflint.verify.runs import Mode

aten = torch.ops.aten
ZEROING = {aten.zero_.default, aten._foreach_zero_.default}


class Counting(AbstractContextManager[dict[str, Any]]):
    """What a run does, beyond what the probe counts. `counts` is complete when the run has ended."""

    def __init__(self, calls: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._depth = 0
        self._nodes = _AtOnce(self.counts, "graph nodes at once")
        self._modes: list[AbstractContextManager[Any]] = [_Functions(self.counts, self._nodes), _Operations(self.counts)]
        self._saving = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)
        self._saved = _AtOnce(self.counts, "saved bytes at once")
        self._counts_calls = calls

    def __enter__(self) -> dict[str, Any]:
        self._read_before = _bytes_read()
        nn.modules.module.register_module_forward_pre_hook(self._enter_module)
        nn.modules.module.register_module_forward_hook(self._leave_module, always_call=True)
        counts, iterate = self.counts, DataLoader.__iter__

        def iterate_counted(loader: DataLoader[Any]) -> Any:
            counts["epochs from pageable memory"] += not loader.pin_memory
            return iterate(loader)

        workers = dataloader._MultiProcessingDataLoaderIter
        begin = workers.__init__

        def begin_counted(iterator: Any, loader: Any) -> None:
            counts["worker starts"] += loader.num_workers
            begin(iterator, loader)

        workers.__init__ = begin_counted  # type: ignore[method-assign]
        for module in (gc, torch.cuda):
            name = "collect" if module is gc else "empty_cache"
            setattr(module, name, _counted(counts, "collections", getattr(module, name)))
        DataLoader.__iter__ = iterate_counted  # type: ignore[method-assign]  # this process ends with the run
        torch.cuda.is_available = _as_scripts_see_it
        for mode in self._modes:
            mode.__enter__()
        self._saving.__enter__()
        if self._counts_calls:
            sys.setprofile(self._count_call)
        return self.counts

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        self._saving.__exit__(*error)
        for mode in reversed(self._modes):
            mode.__exit__(None, None, None)
        self.counts["bytes read from files"] = _bytes_read() - self._read_before

    def _pack(self, tensor: Tensor) -> Tensor:
        self.counts["bytes saved for backward"] += tensor.numel() * tensor.element_size()
        packed = tensor.detach()
        self._saved.lives(packed, tensor.numel() * tensor.element_size())
        return packed  # not the tensor itself: an output that its own graph holds is never freed

    def _count_call(self, frame: object, event: str, argument: object) -> None:
        self.counts["Python calls"] += event in ("call", "c_call")

    def _enter_module(self, module: nn.Module, _: object) -> None:
        if self._depth == 0:
            gradients = [p.grad for p in module.parameters() if p.grad is not None]
            self.counts["gradient bytes in forward passes"] += sum(g.numel() * g.element_size() for g in gradients)
        self._depth += 1

    def _leave_module(self, *_: object) -> None:
        self._depth -= 1


class Compiling(AbstractContextManager[dict[str, Any]]):
    """What torch compiles in a run. `Counting` would prevent it: torch compiles nothing while a mode watches operations."""

    COUNTERS = ("graph breaks", "recompilations", "calls of torch.compile")

    def __init__(self) -> None:
        self.counts: dict[str, Any] = {}
        self._heard = Compilation()

    def __enter__(self) -> dict[str, Any]:
        self._heard.install()
        return self.counts

    def __exit__(self, *error: object) -> None:
        heard = self._heard.finish()
        numbers = (sum(row["count"] for row in heard[kind]) for kind in ("graph_breaks", "recompiles"))
        self.counts.update(zip(self.COUNTERS, (*numbers, heard["compile_calls"]), strict=True))


def _counted(counts: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        counts[name] += 1
        return function(*args, **kwargs)

    return call


class _AtOnce:
    """The most there is of something at any time: a size for each object that is alive."""

    def __init__(self, counts: Counter[str], name: str) -> None:
        self._counts, self._name, self._now = counts, name, 0

    def lives(self, holder: object, size: int) -> None:
        """Count a size for as long as an object lives."""
        self._now += size
        self._counts[self._name] = max(self._counts[self._name], self._now)
        weakref.finalize(holder, self._ends, size).atexit = False

    def _ends(self, size: int) -> None:
        self._now -= size


class _Functions(TorchFunctionMode):
    def __init__(self, counts: Counter[str], nodes: _AtOnce) -> None:
        super().__init__()
        self._counts, self._nodes = counts, nodes

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        given = [arg for arg in args if isinstance(arg, Tensor)]
        if torch.is_grad_enabled() and any(t.requires_grad for t in given) and any(t.is_inference() for t in given):
            self._counts["inference tensors in autograd"] += 1
        if func is torch.tensor and kwargs.get("device") is not None:
            self._counts["constants copied"] += 1
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and not torch.is_grad_enabled() and not result.is_inference():
            self._counts["tensors with a version counter, without autograd"] += 1
        if isinstance(result, Tensor) and result.grad_fn is not None and _NODE not in result.grad_fn.metadata:
            mark = result.grad_fn.metadata[_NODE] = _Mark()
            self._nodes.lives(mark, 1)
        return result


class _Mark:
    """Lives as long as the node of a graph that holds it."""


_NODE = "perflint"


class _Operations(TorchDispatchMode):
    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        self._counts["fills with zeros"] += func in ZEROING
        self._counts["operations"] += 1
        self._counts[str(func.overloadpacket)] += 1
        result = func(*args, **(kwargs or {}))
        if func is aten.cat.default:
            self._counts["bytes that cat writes"] += result.numel() * result.element_size()
        return result


def _as_scripts_see_it() -> bool:
    """Tell scripts, and nobody else, that there is a GPU: what they then ask of a DataLoader can be counted without one."""
    return Path(sys._getframe(1).f_code.co_filename).name in [name for names in measure.VERSIONS.values() for name in names]


def _bytes_read() -> int:
    """What this process has read from files so far; 0 where the system does not say."""
    try:
        said = Path("/proc/self/io").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(said.split()[1])


def _counting(rule: str) -> tuple[Mode, AbstractContextManager[dict[str, Any]]]:
    """What counts what a rule's evidence is about, and in which mode of the probe."""
    said = (measure.FIXTURES / rule / "evidence.toml").read_text(encoding="utf-8")
    if any(f'"{counter}"' in said for counter in Compiling.COUNTERS):
        return "time", Compiling()
    return "count", Counting('"Python calls"' in said)  # calls take long to count


def main() -> None:
    """Run everything and print the records."""
    import_ahead(*AHEAD)
    records: dict[str, dict[str, Any]] = {}
    for rule in sys.argv[1:]:
        records[rule] = {}
        for version in measure.VERSIONS:
            try:
                script = measure.Case(rule, "").script(version)
                mode, counting = _counting(rule)
                run = start(script, ["--device", "cpu"], version, mode, 1, counting).finish()
                records[rule][version] = {**run.data, "output": run.output}
            except RuntimeError as error:
                records[rule][version] = {"failed": str(error)}
    print(json.dumps(records))


if __name__ == "__main__":
    main()
