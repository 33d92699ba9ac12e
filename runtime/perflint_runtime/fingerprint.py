"""Hashes of what a result depends on: a model, a loader's data, a function. What cannot be seen is refused, not guessed."""

from __future__ import annotations

import contextlib
import dis
import functools
import hashlib
import importlib.metadata
import logging
import sys
import sysconfig
import weakref
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset, default_collate

from perflint_runtime.collate import pad_collate
from perflint_runtime.packing import packed_collate
from perflint_runtime.prefetch import DevicePrefetcher
from perflint_runtime.tensor_loader import BatchedTensorLoader

_LOOKS_ELSEWHERE = frozenset({"__import__", "compile", "eval", "exec", "globals", "input", "open"})
"""Builtins through which code depends on more than it names."""
_READS = frozenset(
    {
        *("environ", "environb", "getenv", "getenvb", "import_module"),
        *("fromfile", "genfromtxt", "load", "loadtxt", "read_bytes", "read_csv", "read_text", "safe_open"),
    }
)
"""Attributes through which code depends on the environment or on files."""
_BY_NAME = frozenset({"getattr", "hasattr", "vars", "dir", "attrgetter", "methodcaller", "__dict__"})
"""Through these, code may use any attribute and method."""
_DEEPEST = 150
_SHOWN = 6
"""How many parts of a path an error names."""
_FORWARD_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_OF_MODULES = frozenset(vars(nn.Module()))
_INSTALLED = tuple(sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib"))
_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, type(...)),
    *(torch.dtype, torch.device, torch.memory_format, torch.layout),
)
_CONTAINERS = (list, tuple, torch.Size, set, frozenset, dict, OrderedDict, Counter, MappingProxyType)
_IN_C = (
    BuiltinFunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
    np.ufunc,
)


class CannotBeSeen(ValueError):
    """Something on which a result may depend has no fingerprint."""


def fingerprint(**parts: object) -> str:
    """Hash objects of any kind with all that they depend on, the same in each process: models, functions, settings.

    Seen are: values and tensors (bytes, dtype, shape); containers; modules with their parameters, buffers, children, forward
    hooks and attributes, also in plain lists; functions with their code, defaults, closures, and the global values and
    functions that they name; partials and bound methods; other objects by their class and the state that pickle would keep.
    Of code of the program itself all is followed that the names in it can reach; installed packages count by their version.
    Not seen is what library functions read by themselves, and what pickle drops. Weights are read on the CPU: it waits for the
    device here.

    Raises:
        CannotBeSeen: something in it has a state that cannot be looked at, or code that reads files or runs texts.

    """
    names: frozenset[str] = frozenset({"forward", "__call__"})
    tensors: dict[int, str] = {}
    while True:
        look = _Look(names, tensors, strict=True)
        result = look.at_all(parts)
        if look.names <= names:
            return result
        names |= look.names


def fingerprint_visible(**parts: object) -> str:
    """The same, leaving out what cannot be seen: for results that somebody has given a name."""
    return _Look(frozenset({"forward", "__call__", *_BY_NAME}), {}, strict=False).at_all(parts)


def fingerprint_data(loader: object) -> str:
    """Hash what a loader yields without reading it, where that is possible.

    Raises:
        CannotBeSeen: it is not possible; the message says what is missing.

    """
    if type(loader) is DevicePrefetcher:
        return fingerprint_data(loader.loader)
    if type(loader) is BatchedTensorLoader:
        return fingerprint(keys=loader.keys, batch_size=loader.batch_size, tensors=list(loader.tensors))
    if type(loader) is not DataLoader:
        raise CannotBeSeen(f"a {type(loader).__name__} has no fingerprint")
    collate = loader.collate_fn
    plain = collate.func if isinstance(collate, functools.partial) else collate
    if plain not in (default_collate, pad_collate, packed_collate):
        raise CannotBeSeen(f"what the collate_fn {collate!r} does cannot be seen")
    return fingerprint(dataset=_of_dataset(loader.dataset), collate=collate, batch_size=loader.batch_size)


def switches(device: torch.device) -> dict[str, object]:
    """What changes the numbers that torch computes, and is no part of a model."""
    found: dict[str, object] = {
        "torch": torch.__version__,
        "device": device.type,
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "flush denormal": float(torch.tensor(1e-40) * 1.0) == 0.0,
        "mkldnn": torch.backends.mkldnn.enabled,
        "cudnn": (torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic),
        "float32": _float32_precisions(),
        "float16": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "bfloat16": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "hooks": (nn.modules.module._global_forward_pre_hooks, nn.modules.module._global_forward_hooks),
    }
    for kind in {"cpu", device.type}:
        found[f"autocast {kind}"] = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind)
    return found


def _float32_precisions() -> list[str]:
    """How products of float32 are computed. torch has two interfaces for it, and raises in one after the other was used."""
    found = [
        str(getattr(getattr(backend, operation, None), "fp32_precision", ""))
        for backend in (torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn)
        for operation in ("matmul", "conv", "rnn")
    ]
    for legacy in (torch.get_float32_matmul_precision, lambda: torch.backends.cudnn.allow_tf32):
        with contextlib.suppress(RuntimeError):
            found.append(str(legacy()))
    return found


def _of_dataset(dataset: object) -> object:
    """What stands for a data set; only these very types, since a subclass may read its samples in another way."""
    if type(dataset) is TensorDataset:
        return list(dataset.tensors)
    if type(dataset) is Subset:
        return [np.asarray(dataset.indices, dtype=np.int64), _of_dataset(dataset.dataset)]
    found = getattr(dataset, "_fingerprint", None)  # of Hugging Face datasets: a hash of data, transforms and format
    if isinstance(found, str) and type(dataset).__module__.startswith("datasets."):
        return found
    raise CannotBeSeen(f"a {type(dataset).__name__} has no fingerprint")


class _Look:
    """One walk over objects. Attributes and methods of the program's own classes count if one of `names` names them."""

    def __init__(self, names: frozenset[str], tensors: dict[int, str], *, strict: bool) -> None:
        self.wanted = names
        self.wants_all = not _BY_NAME.isdisjoint(names)
        self.tensors = tensors
        self.strict = strict
        self.names: set[str] = set()
        self.path: list[str] = []
        self.numbers: dict[int, int] = {}
        self.kept: list[object] = []
        self.digest = hashlib.blake2b(digest_size=20)

    def at_all(self, parts: Mapping[str, object]) -> str:
        """Hash some objects under their names."""
        for name, value in parts.items():
            self.at(name, value)
        return self.digest.hexdigest()

    def at(self, name: str, value: object) -> None:
        """Hash one object; `name` says where it stands."""
        self.path.append(name)
        self.add(name)
        if isinstance(value, _PLAIN):
            self.add(f"{type(value).__name__} {value!r}")
        elif len(self.path) > _DEEPEST:
            self.refuse("it is nested too deeply to be looked at")
        elif id(value) in self.numbers:
            self.add(f"again {self.numbers[id(value)]}")
        else:
            self.numbers[id(value)] = len(self.numbers)
            self.kept.append(value)  # so that no other object gets its id
            self.at_new(value)
            if type(value) in _CONTAINERS:  # whether two equal ones are the same differs from run to run
                del self.numbers[id(value)]
        self.add("end")
        self.path.pop()

    def add(self, text: str) -> None:
        data = text.encode(errors="backslashreplace")
        self.digest.update(len(data).to_bytes(8, "little") + data)

    def refuse(self, why: str) -> None:
        if self.strict:
            raise CannotBeSeen(f"{'.'.join(self.path[:_SHOWN])}: {why}")
        self.add("not seen")

    def at_new(self, value: Any) -> None:
        kind = type(value)
        match value:
            case Tensor():
                self.at_tensor(value)
            case np.ndarray() if value.dtype != object:
                self.add(f"array {value.dtype} {value.shape}")
                self.digest.update(np.ascontiguousarray(value).data.cast("B") if value.size else b"")
            case nn.Module() if isinstance(compiled := getattr(value, "_orig_mod", None), nn.Module):
                self.at("compiled", compiled)
            case nn.DataParallel() | nn.parallel.DistributedDataParallel():
                self.at("module", value.module)
            case torch.jit.ScriptModule() | torch.jit.ScriptFunction():
                self.refuse("what was compiled by torch.jit cannot be seen")
            case nn.Module():
                self.at_module(value)
            case list() | tuple() if kind in _CONTAINERS:
                self.each(kind.__name__, enumerate(value))
            case dict() | MappingProxyType() if kind in _CONTAINERS:
                self.each(kind.__name__, enumerate(part for pair in value.items() for part in pair))
            case set() | frozenset() if kind in _CONTAINERS:
                self.add(f"{kind.__name__} {sorted(map(self.alone, value))}")
            case FunctionType():
                self.at_function(value)
            case functools.partial():
                self.each("partial", [("func", value.func), ("args", value.args), ("keywords", value.keywords)])
            case MethodType():
                self.each("method", [("function", value.__func__), ("self", value.__self__)])
            case CellType():
                with contextlib.suppress(ValueError):  # an empty cell
                    self.at("closure", value.cell_contents)
            case type():
                self.at_class(value)
            case ModuleType():
                self.at_package(value)
            case property():
                self.each("property", [("get", value.fget)])
            case staticmethod() | classmethod():
                self.each(kind.__name__, [("function", value.__func__)])
            case weakref.ReferenceType():
                self.each("reference", [("to", value())])
            case logging.Logger():
                self.add("logger")
            case _ if kind.__module__.startswith("transformers.") and hasattr(value, "to_dict"):
                self.each(kind.__name__, [("settings", value.to_dict())])  # its state holds numbers that differ from run to run
            case _ if isinstance(value, _IN_C):
                self.add(f"{getattr(value, '__module__', '')} {value.__name__}")
                owner = getattr(value, "__self__", None)
                if owner is not None and not isinstance(owner, ModuleType):
                    self.at("self", owner)
            case _:
                self.at_object(value)

    def alone(self, value: object) -> str:
        """The hash of an object by itself, for what has no order."""
        look = _Look(self.wanted, self.tensors, strict=self.strict)
        found = look.at_all({".".join(self.path): value})
        self.names |= look.names
        return found

    def each(self, what: str, parts: Iterable[tuple[object, object]]) -> None:
        self.add(what)
        for name, part in parts:
            self.at(str(name), part)

    def at_tensor(self, tensor: Tensor) -> None:
        if id(tensor) not in self.tensors:
            digest = hashlib.blake2b(f"{type(tensor).__name__} {tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=20)
            try:
                flat = tensor.detach().cpu().contiguous().reshape(-1)  # the CPU waits for the device here
                if flat.numel():
                    digest.update(flat.view(torch.uint8).numpy().data)
            except (RuntimeError, TypeError, NotImplementedError):
                return self.refuse(f"a tensor of layout {tensor.layout} has no bytes to look at")
            self.tensors[id(tensor)] = digest.hexdigest()
        self.add(self.tensors[id(tensor)])

    def at_module(self, module: nn.Module) -> None:
        self.at("class", type(module))
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            self.at(name, tensor)
        for name, child in module._modules.items():
            self.at(name, child)
        for hooks in _FORWARD_HOOKS:  # their keys are counters, which differ from run to run
            for hook in getattr(module, hooks).values():
                self.at(hooks, hook)
        self.at_attributes(type(module), {name: value for name, value in vars(module).items() if name not in _OF_MODULES})

    def at_attributes(self, kind: type, attributes: Mapping[str, object]) -> None:
        """Those that the program's own code can name; all, if an installed class other than nn.Module may use them."""
        bases = [base for base in kind.__mro__ if base not in (nn.Module, object)]
        prunes = not self.wants_all and all(_is_own(base.__module__) for base in bases)
        for name, value in sorted(attributes.items()):
            if not prunes or name in self.wanted:
                self.at(name, value)

    def at_function(self, function: FunctionType) -> None:
        if (inner := getattr(function, "__wrapped__", None)) is not None:
            self.at("wrapped", inner)
        self.each("function", [("defaults", function.__defaults__), ("keyword defaults", function.__kwdefaults__)])
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.at(name, cell)
        module = str(function.__globals__.get("__name__"))  # a wrapper bears the module of what it wraps
        if not _is_own(module):
            return self.add(f"{function.__qualname__} of {_version(module)}")
        names = {name for code in _codes(function.__code__) for name in code.co_names}
        self.names |= names
        self.at_code(function.__code__)
        used = dict(_uses(function.__code__))
        for name, how in sorted(used.items()):
            if how == "IMPORT_NAME":
                self.at(name, sys.modules.get(name.split(".")[0], name))
            elif name in function.__globals__:
                self.at(name, function.__globals__[name])
        elsewhere = (names & _READS) | (_LOOKS_ELSEWHERE & used.keys() - function.__globals__.keys())
        for name in sorted(elsewhere):
            self.refuse(f"what {function.__qualname__} gets from `{name}` cannot be seen")

    def at_code(self, code: CodeType) -> None:
        self.digest.update(code.co_code)
        self.add(repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags)))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.at_code(constant)
            else:
                self.add(repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant))

    def at_class(self, kind: type) -> None:
        self.add(f"{kind.__module__}.{kind.__qualname__}")
        if kind.__module__ == "builtins":
            return
        if not _is_own(kind.__module__):
            return self.add(_version(kind.__module__))
        for base in kind.__bases__:
            self.at("base", base)
        unused = {"__repr__", "__init__"} if issubclass(kind, nn.Module) else {"__repr__"}
        for name, value in sorted(vars(kind).items()):
            # a module's state is looked at already; other objects may be made by the code that names the class
            is_operator = isinstance(value, FunctionType) and name.startswith("__") and name not in unused
            if (self.wants_all or name in self.wanted or is_operator) and not isinstance(value, MemberDescriptorType):
                self.at(name, value)

    def at_package(self, module: ModuleType) -> None:
        """A module that code names: what it takes from it, if the module is the program's own."""
        self.add(f"module {module.__name__}")
        if not _is_own(module.__name__):
            return self.add(_version(module.__name__))
        for name, value in sorted(vars(module).items()):
            if name in self.wanted:
                self.at(name, value)
        if self.wants_all:
            self.refuse("code that reads attributes by computed names may read any of this module")

    def at_object(self, value: object) -> None:
        """An object of another class, by what pickle would keep of it."""
        self.at("class", type(value))
        try:
            reduced = value.__reduce_ex__(2)
        except Exception:
            return self.refuse(f"a {type(value).__name__} has a state that cannot be seen")
        if isinstance(reduced, str):
            return self.add(reduced)
        make, arguments, state, *rest = (*reduced, None)
        # the class itself is hashed already
        self.each("made", [("by", make), ("with", [None if part is type(value) else part for part in arguments])])
        own_state, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
        for attributes in (own_state, slots):
            if type(attributes) is dict:
                self.at_attributes(type(value), {str(name): part for name, part in attributes.items()})
            else:
                self.at("state", attributes)
        for contents in rest:  # of subclasses of lists and dicts
            self.each("contents", enumerate(contents or ()))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code and those of the functions that it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _uses(code: CodeType) -> Iterator[tuple[str, str]]:
    """The global names and the imports of a code."""
    for part in _codes(code):
        for instruction in dis.get_instructions(part):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME"):
                yield str(instruction.argval), instruction.opname


@functools.lru_cache(maxsize=4096)
def _is_own(module: str | None) -> bool:
    """Whether a module is the program's own text, not an installed package's."""
    name = module or ""
    if name in ("__main__", "__mp_main__"):
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return name.split(".")[0] not in sys.stdlib_module_names | {"torch", "numpy", "builtins"}
    return not str(file).startswith(_INSTALLED) and not {"site-packages", "dist-packages"} & set(Path(file).parts)


def _version(module: str) -> str:
    """The package that a module is of, and what tells its text from others."""
    return _version_of_package(module.split(".")[0])


@functools.lru_cache(maxsize=256)
def _version_of_package(package: str) -> str:
    if package in sys.stdlib_module_names:
        return f"Python {sys.version}"
    try:
        names = [importlib.metadata.distribution(package).name]
    except importlib.metadata.PackageNotFoundError:
        names = list(importlib.metadata.packages_distributions().get(package, ()))
    # the records of its files: who installs a package again may have changed it without another version
    records = "".join(importlib.metadata.distribution(name).read_text("RECORD") or "" for name in sorted(set(names)))
    version = getattr(sys.modules.get(package), "__version__", "")
    return f"{package} {version} {hashlib.blake2b(records.encode(), digest_size=20).hexdigest()}"
