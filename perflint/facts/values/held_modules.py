"""What an expression that is called may be, also an element of a container of layers: `for block in self.blocks`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.values.frames import Inferring
from perflint.facts.values.values import (
    Alternative,
    ClassRef,
    Elements,
    FunctionRef,
    Instance,
    Mapping,
    Object,
    Sequence,
    Value,
)
from perflint.source.syntax import Scope
from perflint.source.words import words

_CONTAINERS: Final = words("torch.nn.ModuleList torch.nn.ModuleDict torch.nn.Sequential")
_NO_LAYERS: Final = _CONTAINERS | {"torch.nn.Module"}
_FILLING: Final = words("append extend insert add_module register_module update")
_PASSING: Final = words("list tuple reversed iter cycle tqdm islice")
MAX_HOPS: Final = 6
"""Through how many names and containers an element is followed."""


def modules(inference: Inferring, scope: Scope, node: ast.expr, hops: int = MAX_HOPS) -> list[Alternative]:
    """The functions, classes and objects of the project, and torch's layers, that an expression may be, if they are known.

    A `torch.nn.Sequential` stands for the layers that it was built with.
    """
    found: dict[Alternative, None] = {}
    for alternative in inference.value(scope, node).alternatives:
        found.update(dict.fromkeys(_opened(inference, alternative, hops)))
    if not found and hops:
        found.update(dict.fromkeys(_followed(inference, scope, node, hops - 1)))
    return list(found)


def _opened(inference: Inferring, alternative: Alternative, hops: int) -> Iterator[Alternative]:
    """An alternative that can be called, or those in a container of layers."""
    match alternative:
        case FunctionRef() | Instance() | ClassRef():
            yield alternative
        case Object("torch.nn.Sequential") if hops:
            yield from _contents(inference, alternative, hops - 1)
        case Object(qualname) if qualname.startswith("torch.nn.") and qualname not in _NO_LAYERS:
            yield alternative


def _followed(inference: Inferring, scope: Scope, node: ast.expr, hops: int) -> Iterator[Alternative]:
    """What a name is bound to by a loop over a container, or what stands in one."""
    match node:
        case ast.Name(id=name):
            for definition in flow_of(scope).reaching.get(node, frozenset()):
                if definition.kind == "parameter":
                    yield from _annotated(inference, scope, name)
                else:
                    yield from _bound(inference, scope, definition, hops)
        case ast.Subscript(value=container):
            yield from _held(inference, scope, container, (), hops)
        case ast.Call(func=ast.Name(id="next"), args=[iterated, *_]):
            yield from _held(inference, scope, iterated, (), hops)


def _annotated(inference: Inferring, scope: Scope, name: str) -> Iterator[Alternative]:
    """What the annotation of a parameter names, if it is a class of the project."""
    for parameter in scope.parameters:
        if parameter.arg == name and parameter.annotation is not None:
            text = ast.unparse(parameter.annotation).strip("'\"")
            if text.isidentifier():
                named = inference.module_name(scope.module, text, 2).alternatives
                yield from (Instance(a.cls) for a in named if isinstance(a, ClassRef))


def _bound(inference: Inferring, scope: Scope, definition: Definition, hops: int) -> Iterator[Alternative]:
    if definition.value is None:
        return
    if definition.kind == "for":
        yield from _held(inference, scope, definition.value, definition.index, hops)
    elif definition.kind in ("assign", "walrus") and not definition.index:
        yield from modules(inference, scope, definition.value, hops)


def _held(
    inference: Inferring, scope: Scope, node: ast.expr, index: tuple[int | None, ...], hops: int
) -> Iterator[Alternative]:
    """The elements of what an expression gives; index: the way from an element to the part that is asked for."""
    if not hops:
        return
    match node:
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]) if index[:1] == (1,):
            yield from _held(inference, scope, inner, index[1:], hops - 1)
        case ast.Call(func=ast.Name(id="zip"), args=args) if index and index[0] is not None and index[0] < len(args):
            yield from _held(inference, scope, args[index[0]], index[1:], hops - 1)
        case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in _PASSING:
            yield from _held(inference, scope, inner, index, hops - 1)
        case ast.Call(func=ast.Attribute(value=inner, attr="values" | "children" | "modules")) if not index:
            yield from _held(inference, scope, inner, index, hops - 1)
        case ast.Call(func=ast.Attribute(value=inner, attr="items" | "named_children")) if index[:1] == (1,):
            yield from _held(inference, scope, inner, index[1:], hops - 1)
        case ast.Subscript(value=inner, slice=ast.Slice()):
            yield from _held(inference, scope, inner, index, hops - 1)
        case _ if not index:
            value = inference.value(scope, node)
            for alternative in value.alternatives:
                yield from _contents(inference, alternative, hops - 1)
            if isinstance(node, ast.Attribute):
                yield from _entries(inference, scope, node, hops - 1)
            yield from _put_in(inference, scope, node, hops - 1)


def _entries(inference: Inferring, scope: Scope, node: ast.Attribute, hops: int) -> Iterator[Alternative]:
    """What stands under a name in a `ModuleDict` that is a container itself: `self.layers.blocks`."""
    for alternative in inference.value(scope, node.value).alternatives:
        if isinstance(alternative, Object) and alternative.qualname == "torch.nn.ModuleDict":
            for inner, entry in _arguments(alternative):
                for name, item in _items(entry):
                    if name == node.attr:
                        for held in inference.value(inner, item).alternatives:
                            yield from _contents(inference, held, hops)


def _items(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The entries of a dict that is written out, by display or by call."""
    match node:
        case ast.Dict(keys=keys, values=values):
            for key, item in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, item
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            yield from ((k.arg, k.value) for k in keywords if k.arg is not None)


def _contents(inference: Inferring, container: Alternative, hops: int) -> Iterator[Alternative]:
    """What a container was built with."""
    match container:
        case Object(qualname) if qualname in _CONTAINERS:
            for scope, given in _arguments(container):
                part = given.value if isinstance(given, ast.Starred) else given
                value = inference.value(scope, part)
                if qualname != "torch.nn.Sequential" or isinstance(given, ast.Starred) or not value.may_be(Instance, Object):
                    value = inference.element(value) if not value.may_be(Mapping) else _values(value)
                for alternative in value.alternatives:
                    yield from _opened(inference, alternative, hops)
        case Sequence(items):
            for item in items:
                for alternative in item.alternatives:
                    yield from _opened(inference, alternative, hops)
        case Elements(element):
            for alternative in element.alternatives:
                yield from _opened(inference, alternative, hops)
        case Mapping():
            for alternative in _values(Value(frozenset((container,)))).alternatives:
                yield from _opened(inference, alternative, hops)


def _values(value: Value) -> Value:
    return value.map(lambda a: _join(a) if isinstance(a, Mapping) else Value())


def _join(mapping: Mapping) -> Value:
    held = [item for _, item in mapping.items] + [mapping.rest]
    return Value(frozenset(a for item in held for a in item.alternatives))


def _arguments(container: Object) -> Iterator[tuple[Scope, ast.expr]]:
    """The arguments that an object was built with, and where they stand."""
    if isinstance(container.site, tuple):
        scope, call = container.site
        yield from ((scope, given) for given in call.args)


def _put_in(inference: Inferring, scope: Scope, node: ast.expr, hops: int) -> Iterator[Alternative]:
    """What the methods of a class put into a container that is an attribute: `self.layers.append(Block())`."""
    path = path_of(node)
    if path is None or scope.owner is None or not scope.parameters or not path.startswith(f"{scope.parameters[0].arg}."):
        return
    name = path.partition(".")[2]
    for method in scope.owner.methods.values():
        if name.encode() not in method.text or not method.parameters:
            continue
        flow, target = flow_of(method), f"{method.parameters[0].arg}.{name}"
        for filling in _FILLING:
            for call in flow.calls_named[filling]:
                if isinstance(call.func, ast.Attribute) and path_of(call.func.value) == target and call.args:
                    yield from modules(inference, method, call.args[-1], hops)
        for store in flow.stores:
            if isinstance(store, ast.Subscript) and path_of(store.value) == target:
                for definition in flow.definitions_at(store):
                    if definition.value is not None:
                        yield from modules(inference, method, definition.value, hops)
                parent = flow.parent.get(store)
                if not flow.definitions_at(store) and isinstance(parent, ast.Assign):
                    yield from modules(inference, method, parent.value, hops)
