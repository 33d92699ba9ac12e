"""What calls of `perflint_runtime` return: a fixed program is known as well as the plain one."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Final

from perflint.facts.values.arguments import argument
from perflint.facts.values.frames import Frame, Inferring
from perflint.facts.values.values import UNKNOWN, Alternative, Loader, Object, Place, Tensor, Value, device_place, one

COPIES: Final = {"moved": "to", "moved_copy": "to", "moved_to_cuda": "cuda", "moved_copy_to_cuda": "cuda"}
"""The functions that stand in the place of a method of their first argument."""
_DEVICES: Final[dict[str, int | None]] = {"Trainer": None, "DevicePrefetcher": 1, "CachedFeatures": 2}
"""At which position what takes over copies is given a device; None: by its name only."""
_ROWS: Final = Object("perflint_runtime.TensorRows")
KNOWN: Final = frozenset((*COPIES, *_DEVICES, "uploaded", "TensorRows"))
"""The names of what is known about here."""


def of_runtime(inference: Inferring, name: str, node: ast.Call, frame: Frame) -> Value:
    """What a call returns, given the name of what is called."""
    if name in _DEVICES:
        device = argument(node, _DEVICES[name], "device")
        place = Place.UNKNOWN if device is None else device_place(inference.infer(device, frame))
        if name == "Trainer":
            return one(Object("perflint_runtime.Trainer", place, site=(frame.scope, node)))
        return one(Loader(default_collate=False, pinned=None, place=place))
    if name == "TensorRows":
        return one(_ROWS)
    plain = as_plain(name, node)
    return inference.call(plain, frame) if plain is not None else UNKNOWN


def has_rows(alternative: Alternative) -> bool:
    """Whether something gives rows of other tensors, which are on the host then."""
    return alternative == _ROWS


def row(inference: Inferring, wanted: ast.Tuple, frame: Frame) -> Value:
    """What `rows[values, index]` gives: `values[index]`, on the host where it was on CUDA."""
    if len(wanted.elts) != 2:
        return UNKNOWN
    values, index = wanted.elts
    plain = inference.infer(ast.Subscript(values, index, ast.Load()), frame)
    return plain.map(lambda a: one(replace(a, place=Place.HOST) if isinstance(a, Tensor) and a.place.is_cuda_or_host else a))


def as_plain(name: str, node: ast.Call) -> ast.Call | None:
    """The call that a fix has replaced: `x.to(device)` by `moved(x, device)`, `f(x)` by `uploaded(f, x)`."""
    if not node.args or isinstance(node.args[0], ast.Starred):
        return None
    first, *rest = node.args
    if name in COPIES:
        return ast.Call(ast.Attribute(first, COPIES[name], ast.Load()), rest, node.keywords)
    return ast.Call(first, rest, node.keywords) if name == "uploaded" else None
