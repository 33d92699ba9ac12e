"""What the statements of a file put in the place of attributes of objects, classes and modules."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.values.frames import Frame, Inferring
from perflint.facts.values.values import UNKNOWN, Batch, Device, Literal, Number, Tensor, Text, Value, join
from perflint.source.scopes import scopes_with
from perflint.source.stored import stored_attributes
from perflint.source.syntax import Module

DATA: Final = (Batch, Device, Literal, Number, Tensor, Text)
"""What no call runs: an attribute of an object that is not known shares its name with a function."""


def attribute_stores(
    inference: Inferring, module: Module | None, name: str, depth: int
) -> Iterator[tuple[Value, Callable[[], Value]]]:
    """The objects whose attribute of a name a file sets, each with what gives the value that it gets."""
    for scope in scopes_with(module, name) if module is not None else ():
        if name.encode() not in stored_attributes(scope.text):
            continue
        flow = flow_of(scope)
        frame = inference.frame(scope, (), depth - 1)
        for target in flow.stores:
            if isinstance(target, ast.Attribute) and target.attr == name:
                yield inference.infer(target.value, frame), partial(_stored, inference, flow, frame, target)


def _stored(inference: Inferring, flow: Flow, frame: Frame, target: ast.Attribute) -> Value:
    found = [inference.definition(d, frame, flow) for d in flow.definitions_at(target)]
    return join(found) if found else UNKNOWN  # `nets[0].head = ...` is followed nowhere
