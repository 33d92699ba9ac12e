"""Tensors that the step itself makes on the host, in ordinary memory: no rule by itself."""

import ast

from perflint.api import (
    Batch,
    Code,
    External,
    Number,
    Tensor,
    comes_from_host,
    last_name,
    words,
)

_JOINS = words("torch.cat torch.concat torch.stack torch.vstack torch.hstack")
_OF_DATA = words("torch.from_numpy torch.tensor torch.as_tensor")
_TYPES = words("Tensor FloatTensor DoubleTensor HalfTensor LongTensor IntTensor ShortTensor ByteTensor BoolTensor")
_FACTORIES = words("torch.zeros torch.ones torch.full torch.rand torch.randn torch.arange torch.empty")
_MADE = _OF_DATA | _FACTORIES | {f"torch.{name}" for name in _TYPES}
_SHAPES = words("view reshape unsqueeze squeeze flatten transpose permute")
_CONVERSIONS = words("float double half long int short byte bool")
_PLACES = frozenset((None, "device", "pin_memory", "out"))


def made_in_step(code: Code, node: ast.expr, depth: int = 3) -> ast.expr | None:
    """What an expression is, or what its name is bound to in the same round, but for its shape and a `Variable` around it."""
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SHAPES:
            node = node.func.value
        elif last_name(node.func) == "Variable" and node.args:
            node = node.args[0]
        else:
            break
    if not isinstance(node, ast.Name):
        return node
    bound = code.flow.reaching.get(node, frozenset())
    only = next(iter(bound)) if len(bound) == 1 else None
    if only is None or only.kind != "assign" or only.index or code.flow.loop(only.node) is not code.flow.loop(node):
        return None
    return made_in_step(code, only.value, depth - 1) if only.value is not None and depth else None


def is_pageable(code: Code, made: ast.expr | None, copied: ast.expr) -> bool:
    """Whether an expression makes a tensor in ordinary memory: of arrays and numbers, of host tensors, or of their rows."""
    if isinstance(made, ast.Subscript):
        return _picks_rows(code, made)
    if not isinstance(made, ast.Call):
        return False
    if is_joined(code, made):
        return comes_from_host(code.facts.inference, code.facts.loops, code.scope, copied)
    unplaced = _PLACES.isdisjoint(keyword.arg for keyword in made.keywords)
    return unplaced and code.value(made.func).must(lambda a: isinstance(a, External) and a.qualname in _MADE)


def _picks_rows(code: Code, made: ast.Subscript) -> bool:
    """`features[nodes]`: what a tensor picks is a copy."""
    held = [a for a in code.value(made.value).alternatives if isinstance(a, Tensor)]
    return bool(held) and not any(a.place.may_be_device for a in held) and code.value(made.slice).may_be(Tensor, Batch)


def is_joined(code: Code, made: ast.expr | None) -> bool:
    """`torch.cat(images)`."""
    return isinstance(made, ast.Call) and code.value(made.func).must(lambda a: isinstance(a, External) and a.qualname in _JOINS)


def is_ordinary(code: Code, copied: ast.expr) -> bool:
    """Whether what is copied lies in memory that nothing pins: the step makes it, or it is an array's."""
    made = made_in_step(code, copied)
    if isinstance(made, ast.BinOp) or is_pageable(code, made, copied):
        return True
    return any(isinstance(a, Tensor) and a.from_numpy for a in code.value(copied).alternatives)


def hint_at_memory(code: Code, copied: ast.expr) -> str:
    """What is to be known of a copy whose source lies in ordinary memory; nothing where it may be pinned."""
    made = made_in_step(code, copied)
    if isinstance(made, ast.BinOp):
        return " (what the host computes is not pinned, so the driver may still wait: copy first, and compute there)"
    if _is_converted(code, copied):
        return (
            " (what the host converts is not pinned, so the driver may still wait: convert it in the dataset, or copy it first)"
        )
    if not is_ordinary(code, copied):
        batches = [a for a in code.value(copied).alternatives if isinstance(a, Batch)]
        unpinned = bool(batches) and all(a.pinned is False for a in batches)
        return ", and `pin_memory=True` to the loader: then it is made beside the computation" if unpinned else ""
    if is_pageable(code, made, copied):
        if is_joined(code, made):
            return " (what is joined on the host is not pinned, so the driver may still wait: copy the parts, join them there)"
        if not _is_of_data(code, made):
            return " (it is not pinned, so the driver may still wait: better make it on the device)"
    return " (it is not pinned, so the driver may still wait)"


def _is_converted(code: Code, copied: ast.expr) -> bool:
    """`x.float()` of a batch, whose type is not known to be that: people write it where it is another."""
    made = made_in_step(code, copied)
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Attribute) or made.func.attr not in _CONVERSIONS:
        return False
    return not made.args and code.value(made.func.value).must(lambda a: isinstance(a, Batch))


def _is_of_data(code: Code, made: ast.expr | None) -> bool:
    """`torch.from_numpy(x)`, `torch.Tensor([1, 2])`, `torch.FloatTensor(rows)`, `x[rows]`, but not `torch.Tensor(3, 4)`."""
    if not isinstance(made, ast.Call):
        return isinstance(made, ast.Subscript)
    match made.args:
        case [ast.List() | ast.Tuple(), *_]:
            return True
        case [given] if code.value(made.func).must(lambda a: isinstance(a, External) and a.qualname.endswith("Tensor")):
            return not code.value(given).may_be(Number, Tensor, Batch)
    return code.value(made.func).must(lambda a: isinstance(a, External) and a.qualname in _OF_DATA)
