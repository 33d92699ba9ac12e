"""Classes of the project: ancestors, methods, attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.operations.api_tables import AUTOGRAD_FUNCTIONS, LOADER_CLASSES, MODULE_BASES
from perflint.facts.values import object_methods
from perflint.facts.values.annotations import annotated
from perflint.facts.values.attribute_stores import DATA, attribute_stores
from perflint.facts.values.frames import Frame, Inferring
from perflint.facts.values.names import hinted
from perflint.facts.values.values import (
    UNKNOWN,
    Alternative,
    ClassRef,
    Device,
    Elements,
    External,
    FunctionRef,
    Instance,
    Loader,
    Mapping,
    Object,
    Place,
    Sequence,
    Tensor,
    Value,
    join,
    one,
)
from perflint.project.project import MAX_IMPORTERS
from perflint.project.trace import LastingMemo
from perflint.source.syntax import Class, Scope, SyntaxProblem
from perflint.source.words import any_layout, made

FILLS_OBJECT = rb"parse_(?:known_)?args \( [^()\s][^()]*(?:\([^()]*\)[^()]*)*(?:,|namespace =)"
"""The part of a pattern that finds what stores options in an object that it is given: `parser.parse_args(argv, config)`."""
_SETS_BY_NAME = any_layout(rb"\bsetattr \(|\b__dict__\b|\bvars \(|" + FILLS_OBJECT)
_OF_MODULES = ("torch.nn.", "torch_geometric.nn.", "torchvision.models.")
"""Where all classes that are inherited from are modules."""
_MODULES_BY_NAME = ("Module", "PreTrainedModel", "MessagePassing")
_MODELS_OF_TRANSFORMERS = made(
    r"(?:transformers|pytorch_transformers|pytorch_pretrained_bert)\.(?:\w+\.)*(?!TF|Flax|DataCollator)\w+(?:Model|For[A-Z]\w+)$"
)
"""`transformers.BertForTokenClassification`, also under the names that the package had before."""
_NOT_CALLED = (*DATA, Elements, Loader, Mapping, Sequence)
"""What no call runs: an attribute of these shares its name with a method of another class."""
_CALLED = (ClassRef, External, FunctionRef, Instance, Object)


def ancestors(inference: Inferring, cls: Class) -> list[Class | str]:
    """The class itself and what it inherits from, in the order in which Python looks a name up; a class outside the project
    by its qualified name.
    """
    nothing: list[Class | str] = [cls]
    return inference.solver.solve(("ancestors", cls), lambda: [cls, *_merged(_bases(inference, cls))], nothing)


def _bases(inference: Inferring, cls: Class) -> list[list[Class | str]]:
    """The order of each base of a class, and the bases themselves: what Python's method resolution order is merged from."""
    frame = inference.frame(cls.module.top, (), 3)
    bases: list[Class | str] = []
    for base in cls.node.bases:
        node = base.value if isinstance(base, ast.Subscript) else base
        named = [
            a.cls if isinstance(a, ClassRef) else a.qualname
            for a in inference.infer(node, frame).alternatives
            if isinstance(a, (ClassRef, External))
        ]
        bases += [found for found in named or [path_of(node) or "?"] if found not in bases and found is not cls]
    orders: list[list[Class | str]] = [ancestors(inference, b) if isinstance(b, Class) else [b] for b in bases]
    return [*orders, bases]


def _merged(orders: list[list[Class | str]]) -> Iterator[Class | str]:
    """The first of the first order that comes later in no other one, again and again: C3."""
    orders = [order for order in orders if order]
    while orders:
        heads = [order[0] for order in orders]
        free = (head for head in heads if not any(head in order[1:] for order in orders))
        chosen = next(free, heads[0])  # Python refuses such classes: one of the bases is not what it seems
        yield chosen
        orders = [rest for order in orders if (rest := [found for found in order if found != chosen])]


def derives_from(inference: Inferring, cls: Class, names: frozenset[str]) -> bool:
    """Whether a class inherits, as far as is known, from one of some classes outside the project."""
    return any(isinstance(a, str) and a in names for a in ancestors(inference, cls))


def is_module(inference: Inferring, cls: Class) -> bool:
    """Whether a class is a `torch.nn.Module`; an unknown base counts by its name."""
    for ancestor in ancestors(inference, cls):
        if isinstance(ancestor, str):
            last = ancestor.rpartition(".")[2]
            if ancestor in MODULE_BASES or ancestor.startswith(_OF_MODULES) or last.endswith(_MODULES_BY_NAME):
                return True
            if _MODELS_OF_TRANSFORMERS.match(ancestor):
                return True
    return False


def is_optimizer_class(inference: Inferring, cls: Class) -> bool:
    """Whether a class derives from torch's `Optimizer`, or from one of its optimizers."""
    return any(isinstance(a, str) and object_methods.is_optimizer_name(a) for a in ancestors(inference, cls))


def is_function_of_autograd(inference: Inferring, cls: Class) -> bool:
    """Whether a class is a `torch.autograd.Function`: `Cls.apply(x)` runs its `forward`, a backward pass its `backward`."""
    return derives_from(inference, cls, AUTOGRAD_FUNCTIONS)


def find_method(inference: Inferring, cls: Class, name: str) -> Scope | None:
    """The method that `instance.name` runs, if the project defines it."""
    for ancestor in ancestors(inference, cls):
        if isinstance(ancestor, Class):
            if name in ancestor.variables:  # `forward = wrapped(forward)`, perhaps behind the method of that name
                return None
            if name in ancestor.methods:
                method = ancestor.methods[name]
                return None if _is_hidden(inference, cls, method) else method
    return None


def _is_hidden(inference: Inferring, cls: Class, method: Scope) -> bool:
    """Whether objects of a class may hold something else under the name of a method: `self.log = self.keep`."""
    found = [m for a in ancestors(inference, cls) if isinstance(a, Class) for m in a.methods_assigning(method.name)]
    return bool(found) and not _is_property(method) and any(_sets_own(setter, method.name) for setter in found)


def _is_property(method: Scope) -> bool:
    return any((path_of(d) or "").endswith("property") for d in method.decorators)


def _sets_own(method: Scope, name: str) -> bool:
    """Whether a method sets an attribute of its object, which comes before what its class has by that name."""
    own = method.parameters[0].arg if method.parameters else None
    try:
        stores = flow_of(method).stores
    except SyntaxProblem:
        return True
    return any(isinstance(s, ast.Attribute) and s.attr == name and path_of(s.value) == own for s in stores)


def is_super_call(node: ast.expr) -> bool:
    """Whether an expression is a call of `super`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def super_call(inference: Inferring, node: ast.Call, frame: Frame) -> Value:
    """What `super().name(...)` returns."""
    owner = frame.scope.owner
    if owner is None or not isinstance(node.func, ast.Attribute) or not frame.scope.parameters:
        return UNKNOWN
    receiver = inference.parameter(frame, frame.scope.parameters[0].arg)
    for ancestor in ancestors(inference, owner)[1:]:
        if isinstance(ancestor, Class) and node.func.attr in ancestor.variables:
            return UNKNOWN
        if isinstance(ancestor, Class) and node.func.attr in ancestor.methods:
            return inference.inline(FunctionRef(ancestor.methods[node.func.attr], receiver), node, frame)
    return receiver.map(lambda a: _moved_module(inference, a, node, frame))


def _moved_module(inference: Inferring, receiver: Alternative, node: ast.Call, frame: Frame) -> Value:
    """`super().to(device)` in a network that moves more than its parameters: it gives the network back."""
    assert isinstance(node.func, ast.Attribute)
    if not isinstance(receiver, Instance) or not is_module(inference, receiver.cls):
        return UNKNOWN
    return object_methods.moved_module(inference, receiver, node.func.attr, node, frame)


def construct(inference: Inferring, cls: Class, node: ast.Call, frame: Frame) -> Value:
    """What calling a class of the project gives."""
    if derives_from(inference, cls, LOADER_CLASSES):
        return one(Loader(False, None, (frame.scope, node)))
    return one(Instance(cls))


def is_loss(cls: Class) -> bool:
    """Whether a class computes a loss, by its name."""
    return "loss" in cls.name.lower() or "criterion" in cls.name.lower()


def item(inference: Inferring, owner: Instance, depth: int) -> Value:
    """What `owner[key]` gives, by its class: a dataset's sample, say."""
    method = find_method(inference, owner.cls, "__getitem__")
    frame = inference.bound(method, owner, depth - 1) if method is not None else None
    return inference.returned(frame) if frame is not None else UNKNOWN


def attribute(inference: Inferring, base: Instance | ClassRef, name: str, depth: int) -> Value:
    """`instance.name`: a method, a property, or the join of everything that the class's methods assign to it."""
    return inference.solve(("attribute", base, name, depth), lambda: _attribute(inference, base, name, depth))


def _attribute(inference: Inferring, base: Instance | ClassRef, name: str, depth: int) -> Value:
    cls = base.cls
    method = find_method(inference, cls, name)
    if method is not None:
        if _is_property(method):
            bound = inference.bound(method, base, depth - 1)
            return inference.returned(bound) if bound is not None else UNKNOWN
        written = inference.reference(method, one(base) if isinstance(base, Instance) else None)
        return join((written, *put_in_its_place(inference, cls, name, depth)))
    if depth <= 0:
        return UNKNOWN
    values: list[Value] = []
    for ancestor in ancestors(inference, cls):
        if isinstance(ancestor, Class):
            values += _assigned(inference, ancestor, base, name, depth)
        elif not values:
            values += _inherited(ancestor, name)
    if values:
        is_method = any(isinstance(a, Class) and name in a.methods for a in ancestors(inference, cls))
        outside = [*_assigned_from_outside(inference, cls, name, depth)]
        if any(value.may_be(*_CALLED) for value in values):
            outside += _assigned_by_strangers(inference, cls, name, depth)
        return join((*values, *outside, *((UNKNOWN,) if is_method else ())))
    return hinted(name)


def put_in_its_place(inference: Inferring, cls: Class, name: str, depth: int) -> Iterator[Value]:
    """What other code puts in the place of a method: `net.init_hidden = other`."""
    project, path = inference.project, cls.module.source.path
    importers = project.importers(path)
    files = {path, *importers} if depth > 0 and len(importers) <= MAX_IMPORTERS else {path}
    if depth > 0 and any(name.encode() in project.attributes_stored(file) for file in files):
        yield from (v for v in _assigned_from_outside(inference, cls, name, depth) if not v.must_be(*_NOT_CALLED))
    yield from _assigned_by_strangers(inference, cls, name, depth)


def _assigned_by_strangers(inference: Inferring, cls: Class, name: str, depth: int) -> Iterator[Value]:
    """What files that do not have the class put in the place of what is called: they get its objects from others."""
    known: LastingMemo[str, dict[str, list[str]]] = inference.project.lasting("set by strangers")
    path = cls.module.source.path
    files = known.get(path, lambda: _strangers(inference, path)).get(name, []) if depth > 0 else []
    yield from (v for v in _put_by(inference, cls, files, name, depth) if not v.must_be(*_NOT_CALLED))


def _strangers(inference: Inferring, path: str) -> dict[str, list[str]]:
    """Files of a program that do not have what a file defines, by the names of attributes that they set."""
    project = inference.project
    near = {path, *project.importers(path)}
    found: dict[str, list[str]] = {}
    for file in sorted({*(project.members(path) or ())} - near):
        for attribute in project.attributes_stored(file):
            found.setdefault(attribute.decode(errors="replace"), []).append(file)
    return found


def _assigned_from_outside(inference: Inferring, cls: Class, name: str, depth: int) -> Iterator[Value]:
    """What functions elsewhere put in the place of an attribute: `model.head = nn.Linear(64, 10)`."""
    path = cls.module.source.path
    importers = inference.project.importers(path)
    if len(importers) > MAX_IMPORTERS:
        yield UNKNOWN
    else:
        yield from _put_by(inference, cls, sorted({path, *importers}), name, depth)


def _put_by(inference: Inferring, cls: Class, files: Iterable[str], name: str, depth: int) -> Iterator[Value]:
    """What the statements of some files put in the place of an attribute of a class, or of its objects."""
    project = inference.project
    for file in files:
        if name.encode() not in project.attributes_stored(file):
            continue
        module = cls.module if file == cls.module.source.path else project.module(file)
        for base, stored in attribute_stores(inference, module, name, depth):
            related = base.may(lambda a: isinstance(a, (Instance, ClassRef)) and cls in ancestors(inference, a.cls))
            if related or not base.alternatives:
                yield stored()


def _assigned(inference: Inferring, cls: Class, base: Instance | ClassRef, name: str, depth: int) -> list[Value]:
    """What one class assigns to an attribute, in its body and in its methods."""
    values: list[Value] = []
    frame = inference.frame(cls.module.top, (), depth - 1)
    given_elsewhere = _may_be_given(inference, cls)
    for statement in cls.node.body:
        match statement:
            case ast.Assign(targets=targets, value=value) if any(path_of(t) == name for t in targets):
                values.append(_evaluate(inference, value, frame, given_elsewhere))
            case ast.AnnAssign(target=ast.Name(id=target), value=None, annotation=annotation) if target == name:
                values.append(annotated(inference, cls.module, annotation) or hinted(name))
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                values.append(_evaluate(inference, value, frame, given_elsewhere or _makes_constructor(cls)))
    for method in cls.methods_assigning(name):
        if not method.parameters:
            continue
        flow = flow_of(method)
        receiver = method.parameters[0].arg
        bound = inference.bound(method, base, depth - 1)
        if bound is None:
            return [UNKNOWN]
        values += [inference.definition(d, bound, flow) for d in flow.definitions_of(f"{receiver}.{name}")]
        registered = [call.args for call in flow.calls_named["register_buffer"] if len(call.args) > 1]
        buffers = (inference.infer(args[1], bound) for args in registered if inference.infer(args[0], bound).literal == name)
        values += map(_where_the_network_is, buffers)
    return values


def _where_the_network_is(buffer: Value) -> Value:
    """A tensor that a network registers as a buffer: it goes where the network goes."""
    return buffer.map(lambda a: one(replace(a, place=Place.UNKNOWN) if isinstance(a, Tensor) and a.place is Place.HOST else a))


def _evaluate(inference: Inferring, node: ast.expr, frame: Frame, is_default: bool) -> Value:
    """A class-level value, of which only constants are understood. is_default: objects may have another one."""
    if isinstance(node, ast.Constant):
        value = inference.infer(node, frame)
        return Value(value.alternatives, open=True) if is_default else value
    return UNKNOWN


def _makes_constructor(cls: Class) -> bool:
    """Whether a field with a type is an argument of a constructor that nobody wrote: of a dataclass, attrs, pydantic."""
    return bool(cls.node.decorator_list or cls.node.bases)


def _may_be_given(inference: Inferring, cls: Class) -> bool:
    """Whether a program sets attributes by their names, perhaps those of a class that holds settings."""
    return inference.project.program_may_hold(cls.module.source.path, _SETS_BY_NAME)


def _inherited(base: str, name: str) -> list[Value]:
    """Attributes that a known class outside the project provides."""
    if base == "lightning.LightningModule" and name == "device":
        return [one(Device(Place.ELSEWHERE))]
    if base.startswith("transformers.") and name == "device":
        return [one(Device(Place.ELSEWHERE))]
    if name == "param_groups" and object_methods.is_optimizer_name(base):
        return [object_methods.PARAM_GROUPS]
    return []
