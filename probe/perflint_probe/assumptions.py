"""Looks whether what fixes may assume about a program holds while it runs; if not, at which line.

An assumption is *held* if the run did something that could have violated it and nothing did, *violated* at the first place
that did, *not exercised* if the run did nothing of the kind, and *open* where no run can tell. The names and statements are
those of `perflint.rule.assumptions`; what is looked at for each stands there, too.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from perflint_probe.clocks import HERE, Clocks, Place, is_of_program
from perflint_probe.frames import TORCH, asked_from

PLAIN = (Tensor, torch.nn.Parameter, torch.nn.parameter.UninitializedParameter, torch.nn.parameter.UninitializedBuffer)
CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)
HARMLESS_MODES = (
    "perflint_probe.",
    "torch._",
    "torch.fx.",
    "torch.nn.attention.",
    "torch.utils._device",
    "torch.utils.checkpoint",
)
"""Where modes are made that torch enters for its own work, and the one that only says where new tensors are made."""
WRAPPERS = ("torch._dynamo", "torch.jit", "torch.fx", "torch.distributed.fsdp", "torch.distributed._composable")
MODULE_HOOKS = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
)
GLOBAL_HOOKS = (
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_backward_hook",
)
TENSOR_HOOKS = tuple(
    getattr(Tensor, name) for name in ("register_hook", "register_post_accumulate_grad_hook") if hasattr(Tensor, name)
)
LOOKS_AT_GRADIENTS = {
    "autograd",
    "backward",
    "enable_grad",
    "grad_fn",
    "is_grad_enabled",
    "is_inference",
    "is_inference_mode_enabled",
    "is_leaf",
    "requires_grad",
    "requires_grad_",
    "retain_grad",
    "set_grad_enabled",
}
"""Names by which a layer asks for gradients, or looks whether there are any."""
OF_OPERATIONS = {"cuda-or-cpu", "plain-tensors", "no-autocast", "no-clock"}
OF_MODULES = {"no-hooks", "no-lazy-modules", "plain-modules"}
LEAST_TO_SPARE = 0.1
"""The part of the memory that is left at its lowest where there is some to spare."""


class Assumptions:
    """What a run showed of each assumption."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._violations: dict[str, tuple[Place, str]] = {}
        self._exercised: set[str] = set()
        self._streams: dict[int | None, int] = {}
        self._memory_left = 1.0
        self._known_classes: dict[type, None] = {}
        self._torch_functions: dict[tuple[Any, str], Any] = {}

    def install(self) -> None:
        """Begin to look."""
        self._watch_entries()
        self._watch_hooks()
        self._watch_modules()
        self._torch_functions = {
            (owner, name): value
            for owner in (torch, torch.nn, torch.nn.functional, Tensor, Module)
            for name, value in vars(owner).items()
            if callable(value) and not (name.startswith("__") and owner is torch)
        }

    def on_operation(self, tree: object) -> None:
        """An operation has got these arguments, or given this result."""
        self._exercised |= OF_OPERATIONS
        for leaf in tree_iter(tree):
            if not isinstance(leaf, Tensor):
                continue
            if leaf.device.type not in ("cpu", "cuda", "meta"):
                self._violated("cuda-or-cpu", f"a tensor is on the device `{leaf.device}`")
            if type(leaf) not in PLAIN:
                self._violated("plain-tensors", f"a tensor is of the class {type(leaf).__qualname__}")
            if leaf.device.type == "cuda":
                self._on_stream(leaf.device)

    def on_function(self, function: Callable[..., Any]) -> None:
        """The program has called a function of torch."""
        if function in TENSOR_HOOKS:
            self._violated("no-hooks", f"a hook is registered by `{function.__name__}`")

    def on_error(self, error: Exception) -> None:
        """A function of torch has raised; that the program lives to tell means that something caught it."""
        place = asked_from()[:2]
        if is_of_program(place[0]):
            self._violated("errors-are-bugs", f"{type(error).__name__} is raised here and caught", place)

    def on_batch(self, batch: object) -> None:
        """A loader of torch hands out a batch."""
        self._exercised.add("plain-batches")
        wrong = next(_not_plain(batch), None)
        if wrong is not None:
            self._violated("plain-batches", wrong)

    def on_step(self) -> None:
        """An optimizer has made a step."""
        cuda: Any = torch.cuda  # torch 2.13 leaves the function untyped
        if not cuda.is_initialized():
            return
        self._exercised.add("memory-to-spare")
        left = min(_host_memory_left(), _device_memory_left())
        if left < LEAST_TO_SPARE:
            self._violated("memory-to-spare", f"{left:.0%} of the memory was left after a step")

    def on_forward(self, module: Module) -> None:
        """A module is about to run for the first time."""
        self._exercised |= OF_MODULES
        changed = _what_is_wrapped(module)
        if changed is not None:
            self._violated("plain-modules", changed)
        kind = type(module)
        if _is_of_torch(kind):
            return
        self._exercised.add("known-layers")
        if kind in self._known_classes:
            return
        self._known_classes[kind] = None
        looks = _look_at_gradients(kind)
        if looks is not None:
            self._violated("known-layers", f"{kind.__qualname__} asks for gradients, or looks at them", looks)

    def after_forward(self, module: Module) -> None:
        """A module has run."""
        if not _is_of_torch(type(module)) and "known-layers" not in self._violations:
            kept = next(_kept_results(module), None)
            if kept is not None:
                self._violated("known-layers", f"{type(module).__qualname__} keeps a result with its graph in `{kept}`")

    def rows(self) -> list[dict[str, Any]]:
        """What the run has shown, fit for JSON: each assumption's name, status, place and reason."""
        self._compare_methods()
        exercised_by = {
            "cuda-or-cpu": "operation on tensors",
            "one-stream": "operation on a CUDA device",
            "plain-tensors": "operation on tensors",
            "plain-batches": "batch of a DataLoader",
            "no-hooks": "module that runs",
            "no-lazy-modules": "module that runs",
            "no-clock": "operation on tensors",
            "memory-to-spare": "optimizer step on a CUDA device",
            "errors-are-bugs": "error that was raised and caught",
            "no-autocast": "operation on tensors",
            "plain-modules": "module that runs",
            "known-layers": "layer that is not torch's",
        }
        open_ = {
            "application": "a run shows its own callers only",
            "plain-objects": "what your own operators and properties change is for you to say",
            "cell-order": "in which order you run cells is for you to say",
            "runtime": "whether your program may import perflint_runtime is for you to say",
            "evaluation-rounding": "whether the last bits of a metric matter is for you to say",
        }
        if self._clocks.read_at is not None:
            open_["no-clock"] = "the program reads a clock here; whether its durations matter is for you to say"
        return [self._row(name, why, open_) for name, why in {**exercised_by, **open_}.items()]

    def _row(self, name: str, exercised_by: str, open_: Mapping[str, str]) -> dict[str, Any]:
        place, why = self._violations.get(name, (None, ""))
        if name in self._violations:
            status = "violated"
        elif name in open_:
            status, why = "open", open_[name]
            place = self._clocks.read_at if name == "no-clock" else None
        elif name in self._exercised:
            status = "held"
        else:
            status, why = "not exercised", f"the run had no {exercised_by}"
        file, line = place if place is not None else (None, None)
        return {"name": name, "status": status, "file": file, "line": line, "why": why}

    def _violated(self, name: str, why: str, place: Place | None = None) -> None:
        self._exercised.add(name)
        if name not in self._violations:
            self._violations[name] = place or asked_from()[:2], why

    def _on_stream(self, device: torch.device) -> None:
        self._exercised.add("one-stream")
        stream = torch.cuda.current_stream(device).cuda_stream
        if self._streams.setdefault(device.index, stream) != stream:
            self._violated("one-stream", "an operation runs on a second stream")

    def _watch_entries(self) -> None:
        """Look who enters regions of mixed precision, and modes that see operations."""
        violated = self._violated

        def on_autocast(region: Any) -> None:
            if region._enabled:
                violated("no-autocast", "a region of mixed precision begins here")

        def on_mode(mode: object) -> None:
            if not f"{type(mode).__module__}.".startswith(HARMLESS_MODES):
                violated("plain-tensors", f"the mode {type(mode).__qualname__} sees operations from here on")

        def on_saving(hooks: object) -> None:
            if type(hooks).__module__ != "torch.utils.checkpoint":
                violated("no-hooks", "hooks for what backward passes need begin here")

        _before(torch.amp.autocast_mode.autocast, "__enter__", on_autocast)
        for kind in (TorchFunctionMode, TorchDispatchMode):
            _before(kind, "__enter__", on_mode)
        _before(torch.autograd.graph.saved_tensors_hooks, "__enter__", on_saving)

    def _watch_hooks(self) -> None:
        def on_hook(name: str) -> Callable[..., None]:
            def note(*arguments: Any, **named: Any) -> None:
                hook = named.get("hook", arguments[-1] if arguments else None)
                if getattr(hook, "__name__", "") != "_infer_parameters":  # a lazy layer's own
                    self._violated("no-hooks", f"a hook is registered by `{name}`")

            return note

        for owner, names in ((Module, MODULE_HOOKS), (torch.nn.modules.module, GLOBAL_HOOKS)):
            for name in names:
                if hasattr(owner, name):  # some are younger than the oldest torch that scripts run with
                    _before(owner, name, on_hook(name))

    def _watch_modules(self) -> None:
        def on_lazy(module: object, *_: Any, **__: Any) -> None:
            self._violated("no-lazy-modules", f"a {type(module).__qualname__} is made")

        def on_compile(*_: Any, **__: Any) -> None:
            self._violated("plain-modules", "something is compiled")

        _before(torch.nn.modules.lazy.LazyModuleMixin, "__init__", on_lazy)
        _before(torch, "compile", on_compile)
        _before(Module, "__setattr__", self._on_attribute)
        _before(Module, "add_module", lambda owner, name, module: self._on_attribute(owner, name, module))

    def _on_attribute(self, module: Module, name: str, value: object) -> None:
        if isinstance(value, Module):
            is_container = isinstance(module, CONTAINERS)
            if is_container and name not in module._modules:
                return
            *inside, asking = _frames_to_program()
            if isinstance(_first_argument(asking), Module):
                return
            if not is_container and any(_first_argument(frame) is module for frame in inside):  # its own method, of torch
                return
            self._violated("plain-modules", f"`{name}` of a {type(module).__qualname__} is set by another's function")
        elif callable(value) and callable(getattr(type(module), name, None)):
            self._violated("plain-modules", f"the method `{name}` of a {type(module).__qualname__} is replaced")

    def _compare_methods(self) -> None:
        """Look whether classes of layers, and torch, have the functions that their source shows."""
        for kind in self._known_classes:
            replaced = _replaced_forward(kind)
            if replaced is not None:
                self._violated("plain-modules", f"`forward` of {kind.__qualname__} is not its own", replaced)
        for (owner, name), value in self._torch_functions.items():
            present = vars(owner).get(name)
            code = getattr(present, "__code__", None)
            is_own = (
                code is not None and code.co_filename.startswith(TORCH) and present.__name__ == name
            )  # torch wraps some late
            if present is not value and not is_own:
                place = (code.co_filename, code.co_firstlineno) if code is not None else ("?", 0)
                self._violated("plain-modules", f"torch's own `{name}` is replaced", place)


def _before(owner: Any, name: str, note: Callable[..., None]) -> None:
    """Let `note` see the arguments of each call of a function or method before it runs."""
    wrapped = getattr(owner, name)

    def noted(*args: Any, **kwargs: Any) -> Any:
        note(*args, **kwargs)
        return wrapped(*args, **kwargs)

    noted.__name__, noted.__qualname__, noted.__doc__ = wrapped.__name__, wrapped.__qualname__, wrapped.__doc__
    noted.__signature__ = inspect.signature(wrapped)  # type: ignore[attr-defined]  # what `inspect.signature` heeds
    setattr(owner, name, noted)


def _frames_to_program() -> list[FrameType]:
    """The frames from here to the innermost one outside of torch and of the probe, or to the outermost."""
    frames = [sys._getframe(1)]
    while frames[-1].f_code.co_filename.startswith((TORCH, HERE, "<")) and frames[-1].f_back is not None:
        frames.append(frames[-1].f_back)
    return [frame for frame in frames[:-1] if frame.f_code.co_filename.startswith(TORCH)] + frames[-1:]


def _first_argument(frame: FrameType) -> object:
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def _is_of_torch(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"


def _what_is_wrapped(module: Module) -> str | None:
    """What makes a module compute something else than its class shows, or nothing."""
    kind = type(module)
    if any(f"{base.__module__}.".startswith(tuple(f"{name}." for name in WRAPPERS)) for base in kind.__mro__):
        return f"a {kind.__qualname__} wraps the layers"
    if getattr(module, "_compiled_call_impl", None) is not None:
        return f"a {kind.__qualname__} is compiled"
    if "parametrizations" in module._modules:
        return f"parameters of a {kind.__qualname__} are computed from others"
    if any(type(hook).__module__.startswith("torch.nn.utils") for hook in module._forward_pre_hooks.values()):
        return f"parameters of a {kind.__qualname__} are computed from others"
    return None


def _replaced_forward(kind: type) -> Place | None:
    """Where a `forward` stands that a class has been given from outside."""
    for base in kind.__mro__:
        own = vars(base).get("forward")
        if own is None or _is_of_torch(base):
            continue
        function = inspect.unwrap(own)
        if not isinstance(function, FunctionType):
            continue
        if function.__module__ != base.__module__ or not function.__qualname__.startswith(f"{base.__qualname__}."):
            return function.__code__.co_filename, function.__code__.co_firstlineno
    return None


def _look_at_gradients(kind: type) -> Place | None:
    """Where the code of a layer names something of autograd: its `forward`, and what that names of its class and module."""
    todo = ["forward"]
    seen: set[int] = set()
    while todo:
        name = todo.pop()
        own = inspect.getattr_static(kind, name, None)
        function = inspect.unwrap(own) if callable(own) else getattr(own, "__func__", getattr(own, "fget", None))
        for found in _functions_named(function, seen):
            for code in _codes(found.__code__):
                if LOOKS_AT_GRADIENTS.intersection(code.co_names):
                    return code.co_filename, code.co_firstlineno
                todo += [other for other in code.co_names if hasattr(kind, other) and other not in vars(Module)]
    return None


def _functions_named(function: object, seen: set[int]) -> Iterator[FunctionType]:
    """A function, and those of its module that it names, each once; torch's own are left out."""
    if not isinstance(function, FunctionType) or id(function) in seen or function.__module__.partition(".")[0] == "torch":
        return
    seen.add(id(function))
    yield function
    for code in _codes(function.__code__):
        for name in code.co_names:
            yield from _functions_named(function.__globals__.get(name), seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _kept_results(module: Module) -> Iterator[str]:
    """The attributes of a module that hold a tensor with a graph."""
    for name, value in (*vars(module).items(), *module._buffers.items()):
        if name not in ("_parameters", "_buffers", "_modules"):
            if any(isinstance(leaf, Tensor) and leaf.grad_fn is not None for leaf in tree_iter(value)):
                yield name


def _not_plain(batch: object) -> Iterator[str]:
    """What in a batch is neither a tensor, nor plain data, nor a container of such, nor takes `non_blocking`."""
    kind = type(batch)
    if isinstance(batch, (Tensor, str, bytes, int, float, complex, bool, type(None))):
        return
    if kind.__module__ == "numpy":
        return
    send = getattr(batch, "to", None)
    if callable(send) and not _takes_non_blocking(send):
        yield f"a batch is a {kind.__qualname__}, whose `to` takes no `non_blocking`"
        return
    if isinstance(batch, Mapping):
        parts = list(batch.values())
    elif isinstance(batch, (tuple, list, set, frozenset)):
        parts = list(batch)
    elif callable(send) and hasattr(batch, "pin_memory"):
        return
    else:
        yield f"a batch holds a {kind.__qualname__}, whose memory cannot be pinned"
        return
    for part in parts:
        yield from _not_plain(part)


def _takes_non_blocking(send: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(send).parameters
    except (TypeError, ValueError):
        return False
    return "non_blocking" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _host_memory_left() -> float:
    """The part of the RAM, or of the container's share of it, that is not in use; all of it where the system does not say."""
    left = 1.0
    try:
        rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        left = int(rows["MemAvailable"].split()[0]) / int(rows["MemTotal"].split()[0])
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = dict(line.split() for line in Path("/sys/fs/cgroup/memory.stat").read_text(encoding="ascii").splitlines())
        return left if limit == "max" else min(left, 1 - int(used["anon"]) / int(limit))
    except (OSError, KeyError, ValueError):
        return left


def _device_memory_left() -> float:
    """The part of the device's memory that tensors did not need at the most."""
    free, total = torch.cuda.mem_get_info()
    return (free + torch.cuda.memory_reserved() - torch.cuda.max_memory_allocated()) / total
