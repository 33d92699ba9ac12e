"""What an annotation says of a value. Nobody enforces it, so the value is open."""

from __future__ import annotations

import ast

from perflint.facts.values.frames import Inferring
from perflint.facts.values.values import (
    ClassRef,
    Device,
    External,
    Instance,
    Loader,
    Number,
    Object,
    Place,
    Tensor,
    Text,
    Value,
)
from perflint.source.ordered import OrderedFrozenSet
from perflint.source.syntax import Module

_TYPES = (
    ("torch.device", Device(Place.ELSEWHERE)),
    ("DataLoader", Loader(False, None)),
    ("nn.Module", Object("torch.nn.Module")),
    ("torch.nn.Module", Object("torch.nn.Module")),
    ("Module", Object("torch.nn.Module")),
    ("torch.Tensor", Tensor()),
    ("Tensor", Tensor()),
    ("Optimizer", Object("torch.optim.Optimizer")),
    ("torch.optim.Optimizer", Object("torch.optim.Optimizer")),
    ("optim.Optimizer", Object("torch.optim.Optimizer")),
    ("np.ndarray", Object("numpy.ndarray")),
    ("numpy.ndarray", Object("numpy.ndarray")),
    ("pd.DataFrame", Object("pandas.DataFrame")),
    ("GradScaler", Object("torch.amp.GradScaler")),
    ("int", Number("int")),
    ("float", Number("float")),
    ("bool", Number("bool")),
    ("str", Text("")),
)


def annotated(inference: Inferring, module: Module, annotation: ast.expr) -> Value | None:
    """What a variable with an annotation holds; None when the annotation says nothing that is known."""
    text = ast.unparse(annotation).replace("Optional[", "").rstrip("]").strip("'\"")
    text = text.split("|")[0].strip()
    package, dot, rest = text.partition(".")
    if dot and inference.module_name(module, package, 1).must(lambda a: a == External("torch")):
        text = f"torch.{rest}"
    for spelling, alternative in _TYPES:
        if text in (spelling, spelling.rpartition(".")[2]):
            return Value(frozenset((alternative,)), open=True)
    if not text.isidentifier():
        return None
    classes = [a.cls for a in inference.module_name(module, text, 1).alternatives if isinstance(a, ClassRef)]
    return Value(OrderedFrozenSet(map(Instance, classes)), open=True) if classes else None
