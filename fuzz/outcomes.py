"""Runs a small program in this process and notes all that can be observed of it."""

from __future__ import annotations

import contextlib
import io
import random
import signal
import sys
import threading
import types
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from perflint_runtime.host_dict import HostDict
from perflint_runtime.host_list import HostList
from perflint_runtime.item_sum import ItemSum
from perflint_runtime.late_items import LateItem
from perflint_runtime.late_meter import LateMeter, _caught_up
from torch import nn

Files = Mapping[str, str]
"""The texts of a program's modules, by file name; `main.py` is run."""

LIMIT_S = 20
"""A program that runs longer is given up."""


@dataclass(frozen=True)
class Outcome:
    """All that can be observed of a run."""

    printed: str
    error: str | None
    variables: Mapping[str, object]
    generators: object

    def differences(self, other: Outcome) -> list[str]:
        """What is not the same in another run, in words."""
        found = []
        if self.printed != other.printed:
            pairs = zip([*self.printed.splitlines(), None], [*other.printed.splitlines(), None], strict=False)
            found.append(next((f"printed {a!r} -> {b!r}" for a, b in pairs if a != b), "printed something else"))
        if self.error != other.error:
            found.append(f"error {self.error!r} -> {other.error!r}")
        found += [
            f"`{name}` {self.variables.get(name)!r:.300} -> {other.variables.get(name)!r:.300}"
            for name in sorted({*self.variables, *other.variables})
            if self.variables.get(name) != other.variables.get(name)
        ]
        if self.generators != other.generators:
            found.append("a random generator, or the mode of autograd")
        return found


class TooLong(BaseException):
    """The program ran longer than `LIMIT_S`."""


_LIMITS = ((signal.SIGPROF, signal.ITIMER_PROF, LIMIT_S), (signal.SIGALRM, signal.ITIMER_REAL, 30 * LIMIT_S))
"""Work, and time for what would wait for ever: a busy machine ends no program before it has put back what it replaced."""


def outcome(files: Files) -> Outcome:
    """Run a program in this process, from the same state each time.

    Raises:
        TooLong: it did not end in `LIMIT_S` seconds of work.

    """
    _reset()
    modules = {name.removesuffix(".py"): types.ModuleType(name.removesuffix(".py")) for name in files}
    printed = io.StringIO()
    error = None
    for signum, timer, seconds in _LIMITS:
        signal.signal(signum, _too_long)
        signal.setitimer(timer, seconds)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for name, module in sorted(modules.items(), key=lambda item: item[0] == "main"):
                    sys.modules[name] = module
                    exec(compile(files[f"{name}.py"], f"{name}.py", "exec"), module.__dict__)
            except Exception as problem:
                error = f"{type(problem).__name__}: {problem}"
    finally:
        for _, timer, _ in _LIMITS:
            signal.setitimer(timer, 0)
        _drop_hooks()
        for name in modules:
            sys.modules.pop(name, None)
    variables = {
        f"{module}.{name}": _observed(value, set(), error is None)
        for module, namespace in modules.items()
        for name, value in vars(namespace).items()
        if not name.startswith("__") and not isinstance(value, (type, types.ModuleType, types.FunctionType))
    }
    return Outcome(printed.getvalue(), error, variables, _generators())


def _drop_hooks() -> None:
    """A program that does not leave its hooks would give them to all that runs in this process later."""
    for name, registered in vars(nn.modules.module).items():
        if name.startswith("_global_") and isinstance(registered, dict):
            registered.clear()
    while torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        torch._C._autograd._pop_saved_tensors_default_hooks()


def _too_long(number: int, frame: object) -> None:
    raise TooLong


def _reset() -> None:
    _seed(0)
    np.random.seed(0)
    random.seed(0)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.utils.hooks.RemovableHandle.next_id = 0  # modules know their hooks by these numbers


def _seed(number: int) -> None:
    """`torch.manual_seed`, which without a device would note a call, with its stack, for each kind that is not there."""
    if torch.cuda.is_available():
        torch.manual_seed(number)
    torch.default_generator.manual_seed(number)


def _generators() -> object:
    modes = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.is_autocast_enabled("cpu"),
    )
    _, numbers, *rest = np.random.get_state()
    return torch.get_rng_state().numpy().tobytes(), numbers.tobytes(), rest, random.getstate(), modes


def _observed(value: object, seen: set[int], with_gradients: bool) -> object:
    """A value as something that can be compared: tensors bit by bit, objects by what they hold.

    Gradients, and what requires them, are left out where an exception has ended the program: nobody can look at them any
    more.
    """
    match value:
        case None | bool() | int() | str() | bytes():
            return value
        case float():
            return value.hex()
        case torch.Tensor():
            gradient = _observed(value.grad, seen, False) if with_gradients and value.is_leaf else None
            requires_gradient = value.requires_grad if with_gradients else None
            kind = type(value).__name__, str(value.dtype), tuple(value.shape), requires_gradient
            return *kind, repr(value.detach().tolist()), gradient  # to the last bit, NaNs apart
        case np.ndarray():
            return "ndarray", str(value.dtype), value.shape, value.tobytes()
        case np.generic():
            return type(value).__name__, value.tobytes()
    late = _as_plain_code_has_it(value)
    if late is not value:
        return _observed(late, seen, with_gradients)
    if id(value) in seen:
        return "again"
    seen = seen | {id(value)}
    match value:
        case list() | tuple():
            return type(value).__name__, [_observed(item, seen, with_gradients) for item in value]
        case dict():
            return [
                (_observed(key, seen, with_gradients), _observed(item, seen, with_gradients)) for key, item in value.items()
            ]
        case torch.optim.Optimizer():
            return _observed(value.state_dict(), seen, with_gradients)
        case torch.utils.data.DataLoader() | BaseException() | types.FunctionType() | types.MethodType() | types.ModuleType():
            return type(value).__name__
        case threading.Thread():
            return type(value).__name__
    held = getattr(value, "__dict__", {})
    return type(value).__name__, [
        (name, _observed(item, seen, with_gradients)) for name, item in held.items() if name[:3] != "_ba"
    ]


def _as_plain_code_has_it(value: object) -> Any:
    """What the plain code has where fixed code has an object of the runtime; any other value itself."""
    match value:
        case ItemSum():
            return value.value()
        case LateItem():
            return value.item()
        case HostList():
            return value.values()
        case HostDict():
            return value.read()
        case LateMeter():
            return _caught_up(value)
    return value
