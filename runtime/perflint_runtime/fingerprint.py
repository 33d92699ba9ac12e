"""Hashes of what a result depends on: a model, a loader's data, a function. What cannot be seen is refused, not guessed."""

from __future__ import annotations

import functools
import hashlib
from types import CodeType, FunctionType

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset, default_collate

from perflint_runtime.collate import pad_collate
from perflint_runtime.packing import packed_collate
from perflint_runtime.prefetch import DevicePrefetcher
from perflint_runtime.tensor_loader import BatchedTensorLoader


def fingerprint_model(model: nn.Module) -> str:
    """Hash all that decides what a model computes, as far as it can be seen.

    Every parameter and buffer (bytes, dtype, shape, also those that are not saved), the printed structure, the attributes
    of its modules (numbers, texts, tensors, functions: heads, dropout, activations), hooks, `config`, the compiled code of
    module classes outside of torch and transformers with the plain globals that it names, and the versions of torch and
    transformers. Not seen: other functions that a `forward` calls, and what other objects kept as attributes hold. The
    weights are read on the CPU once: the CPU waits here for the device.
    """
    digest = hashlib.blake2b(digest_size=20)
    digest.update(f"torch {torch.__version__}\n{model!r}\n".encode())
    kinds: set[type] = set()
    for name, module in model.named_modules(remove_duplicate=False):
        kinds.update(type(module).__mro__)
        digest.update(f"{name}: {type(module).__module__}.{type(module).__qualname__}\n".encode())
        for key, value in sorted(vars(module).items()):
            if key not in ("training", "_parameters", "_buffers", "_modules", "config"):
                digest.update(f"{key}={_of_attribute(value)}\n".encode())
    for kind in sorted(kinds, key=lambda kind: (kind.__module__, kind.__qualname__)):
        digest.update(_of_class(kind).encode())
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "to_json_string"):
        digest.update(config.to_json_string().encode())
    for tensors in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, tensor in tensors:
            digest.update(name.encode())
            _hash_tensor(digest, tensor)
    return digest.hexdigest()


def fingerprint_data(loader: object) -> str:
    """Hash what a loader yields without reading it, where that is possible.

    Raises:
        ValueError: it is not possible; the message says what is missing.

    """
    if isinstance(loader, DevicePrefetcher):
        return fingerprint_data(loader.loader)
    if isinstance(loader, BatchedTensorLoader):
        return _of_tensors([*(loader.keys or []), f"batches of {loader.batch_size}"], loader.tensors)
    if not isinstance(loader, DataLoader):
        raise ValueError(_needs_key(f"a {type(loader).__name__} has no fingerprint"))
    reading = f"{_of_collate(loader.collate_fn)}, batches of {loader.batch_size}"
    return f"{_of_dataset(loader.dataset)} {reading}"


def fingerprint_function(function: object, argument: str) -> str:
    """Hash a function's code, constants and defaults.

    Raises:
        ValueError: it has a state that cannot be seen: a closure, a bound object, or it is no Python function.

    """
    if isinstance(function, functools.partial):
        inside = fingerprint_function(function.func, argument)
        given = [*function.args, *(item for pair in sorted(function.keywords.items()) for item in pair)]
        if not all(_is_plain(value) for value in given):
            raise ValueError(f"{argument}: a partial with other arguments than numbers and texts cannot key a cache")
        return f"{inside} {given!r}"
    if not isinstance(function, FunctionType) or function.__closure__:
        raise ValueError(
            f"{argument}: only a plain function can key a cache, because a change of what it closes over or is bound to cannot "
            f"be seen; {function!r} is not one. Define it at the top of a module with all it needs as arguments"
        )
    return _of_code(function)


def _of_code(function: FunctionType) -> str:
    """Code, defaults, and the globals it names as far as they are numbers, texts or None."""
    digest = hashlib.blake2b(f"{function.__module__}.{function.__qualname__}".encode(), digest_size=20)
    _hash_code(digest, function.__code__)
    seen = {name: function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__}
    # not lists and dicts, which may grow while the program runs
    constants = {name: value for name, value in seen.items() if _is_plain(value) and not isinstance(value, list | dict)}
    for value in (function.__defaults__, function.__kwdefaults__, constants):
        digest.update(repr(value if _is_plain(value) else type(value)).encode())
    return digest.hexdigest()


def _hash_code(digest: hashlib.blake2b, code: CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _hash_code(digest, constant)
        else:
            digest.update(repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant).encode())


def _of_dataset(dataset: object) -> str:
    if isinstance(dataset, TensorDataset):
        return _of_tensors([], dataset.tensors)
    if isinstance(dataset, Subset):
        indices = hashlib.blake2b(np.asarray(dataset.indices, dtype=np.int64).tobytes(), digest_size=20).hexdigest()
        return f"subset {indices} of {_of_dataset(dataset.dataset)}"
    found = getattr(dataset, "_fingerprint", None)  # of Hugging Face datasets: a hash of data, transforms and format
    if isinstance(found, str) and type(dataset).__module__.startswith("datasets."):
        return found
    raise ValueError(_needs_key(f"a {type(dataset).__name__} has no fingerprint"))


def _of_tensors(about: list[str], tensors: list[Tensor] | tuple[Tensor, ...]) -> str:
    digest = hashlib.blake2b(repr(about).encode(), digest_size=20)
    for tensor in tensors:
        _hash_tensor(digest, tensor)
    return digest.hexdigest()


def _of_collate(collate: object) -> str:
    if collate is default_collate:
        return "default_collate"
    plain = collate.func if isinstance(collate, functools.partial) else collate
    if plain not in (pad_collate, packed_collate):
        raise ValueError(_needs_key(f"what the collate_fn {collate!r} does cannot be seen"))
    return plain.__name__ + (repr(sorted(collate.keywords.items())) if isinstance(collate, functools.partial) else "")


def _needs_key(reason: str) -> str:
    return f"{reason}: pass data_key='...', a name for this data and its processing, and change it when they change"


def _hash_tensor(digest: hashlib.blake2b, tensor: Tensor) -> None:
    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    flat = tensor.detach().cpu().contiguous().reshape(-1)  # the CPU waits for the device here
    if flat.numel():
        digest.update(flat.view(torch.uint8).numpy().data)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_is_plain(item) for pair in value.items() for item in pair)
    return value is None or isinstance(value, int | float | str | bool | torch.dtype)


def _of_attribute(value: object, depth: int = 3) -> str:
    """What can be seen of an attribute; of other objects their type only, whose repr may hold an address."""
    if _is_plain(value):
        return repr(value)
    if isinstance(value, Tensor | np.ndarray):
        digest = hashlib.blake2b(digest_size=20)
        _hash_tensor(digest, torch.as_tensor(value))
        return digest.hexdigest()
    if isinstance(value, FunctionType):
        return _of_code(value)
    if isinstance(value, dict | list | tuple) and depth:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        # the keys of hooks are counters that differ from run to run
        return repr([_of_attribute(item, depth - 1) for _, item in items])
    named = value if isinstance(value, type) or hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"


def _of_class(kind: type) -> str:
    """The code and the constants of a class; torch's and transformers' are known by their versions."""
    package = kind.__module__.split(".")[0]
    if package in ("torch", "typing") or kind is object:
        return ""
    if package == "transformers":
        import transformers

        return f"transformers {transformers.__version__}"
    seen = [f"{kind.__module__}.{kind.__qualname__}"]
    for name, value in sorted(vars(kind).items()):
        if name not in ("__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__firstlineno__"):
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            seen.append(f"{name}={_of_attribute(function)}")
    return repr(seen)
