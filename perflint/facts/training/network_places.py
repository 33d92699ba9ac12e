"""Where networks are moved: what makes one, the names and attributes that it goes through, and what is done to it there."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from enum import Enum
from functools import cache

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.reach import called_from
from perflint.facts.training.configured_device import KEEPS_SETTINGS, is_configured_cpu
from perflint.facts.training.training_objects import is_neural_module
from perflint.facts.values.arguments import argument, transfer_target
from perflint.facts.values.bound_arguments import given, parameter_of
from perflint.facts.values.classes import ancestors, is_module
from perflint.facts.values.frames import MAX_DEPTH
from perflint.facts.values.values import (
    NOTHING,
    Alternative,
    Batch,
    ClassRef,
    External,
    FunctionRef,
    Instance,
    ModuleRef,
    Output,
    Place,
    Tensor,
    device_place,
)
from perflint.source.cells import SUFFIX
from perflint.source.chunks import STRING_OR_COMMENT
from perflint.source.nodes import defaults_of
from perflint.source.syntax import Class, Scope, SyntaxProblem
from perflint.source.texts import last_name
from perflint.source.words import any_layout, made, words


class Hint(Enum):
    """What a piece of code says about where tensors are."""

    DEVICE = "something is moved to a device that may be an accelerator, or made there"
    HOST = "something is moved to a device which is the CPU, or made there"
    HIDDEN = "where it comes from is not in sight"


_MAY_MOVE = any_layout(rb"\. (?:to|cuda|to_empty) \(|\bdevice =")
_HAS_MOVED = any_layout(
    rb"Accelerator \(|\baccelerator \.|\b[Ff]abric \.|Fabric \(|\w*Trainer \(|\bdeepspeed \.|DataParallel \(|fully_shard \("
    rb"|set_default_(?:device \( (?!['\"]cpu)|tensor_type \( ['\"]?torch \. cuda)|\bdevice_map =|['\"]nccl['\"]|\bxla_device \("
    rb"|autocast \( (?:device_type = )?['\"]cuda|GradScaler \("
)
"""What moves networks, or is of no use without an accelerator."""
_MOVING_CLASSES = (
    *("lightning.", "pytorch_lightning.", "transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.", "accelerate."),
    *("composer.", "detectron2.", "fastai.", "catalyst.", "mmengine.", "mmcv."),
)
"""Whose objects are moved, and what is given to them, by packages."""
_SAME = words("train eval float double half bfloat16 requires_grad_ apply share_memory parameters named_parameters modules")
_SAME_ATTRIBUTES = words("module _orig_mod")
_NAMED_NETWORK = made(
    r"(?:^|_)(?:model|net|network|module|encoder|decoder|backbone|actor|critic|policy|generator|head)s?\d*$", re.I
)
_DEPTH = 4
"""Through how many calls a network is followed."""
_MAX_STEPS = 60


def hints_in(facts: Facts, scope: Scope) -> frozenset[Hint]:
    """What a whole function, with those inside it, says about where tensors are."""
    return facts.device_hints.get(scope, lambda: frozenset(_hints_in(facts, scope)))


def _hints_in(facts: Facts, scope: Scope) -> Iterator[Hint]:
    if _HAS_MOVED.search(STRING_OR_COMMENT.sub(_no_comment, scope.text)):
        yield Hint.DEVICE
        return
    if not _MAY_MOVE.search(scope.text):
        return
    try:
        flow = flow_of(scope)
    except SyntaxProblem:
        return
    for call in flow.calls:
        hint = _hint_of(facts, scope, call)
        if hint is not None:
            yield hint
    for part in flow.parts():
        yield from hints_in(facts, part)


def _no_comment(token: re.Match[bytes]) -> bytes:
    return b"" if token[0].startswith(b"#") else token[0]


def hints_in_class(facts: Facts, cls: Class) -> frozenset[Hint]:
    """What the methods of a class, and those that it inherits, say about where tensors are."""
    found: set[Hint] = set()
    for ancestor in _lineage(facts, cls):
        if isinstance(ancestor, str):
            found.update([Hint.DEVICE] if ancestor.startswith(_MOVING_CLASSES) else [])
        else:
            found.update(hint for method in ancestor.methods.values() for hint in hints_in(facts, method))
    return frozenset(found)


def _hint_of(facts: Facts, scope: Scope, call: ast.Call) -> Hint | None:
    """What one call says: it moves something, or makes a tensor on a device."""
    inference = facts.inference
    if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
        return Hint.DEVICE
    moves = isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "to_empty")
    target = argument(call, 0 if moves else None, "device")
    if (
        target is None
        or (isinstance(target, ast.Constant) and target.value in (None, "cpu"))
        or _follows(flow_of(scope), target)
    ):
        return None  # a result that is copied back, or a tensor that goes where another one is
    value = transfer_target(inference, call, inference.frame(scope)) if moves else inference.value(scope, target)
    if value == NOTHING or value.must(lambda a: isinstance(a, (Tensor, Batch, Output))):
        return None
    place = device_place(value)
    if place in (Place.ELSEWHERE, Place.CUDA_OR_HOST) and {*_Devices(facts).of(scope, target)} == {Hint.HOST}:
        place = Place.HOST
    return Hint.HOST if place is Place.HOST else Hint.DEVICE


def _follows(flow: Flow, target: ast.expr, depth: int = 2) -> bool:
    """Whether a device is where some tensor or network is: `x.device`, but for those that objects keep."""
    match target:
        case ast.Attribute(value=ast.Name(id=name), attr="device"):
            return name not in ("self", "cls") and not KEEPS_SETTINGS.search(name)
        case ast.Attribute(value=ast.Call() | ast.Subscript(), attr="device"):
            return True
        case ast.Attribute(value=ast.Attribute(attr=name), attr="device"):
            return not KEEPS_SETTINGS.search(name)
        case ast.Name():
            found = flow.reaching.get(target, frozenset())
            values = [d.value for d in found if d.value is not None and d.kind == "assign"]
            return depth > 0 and len(values) == len(found) > 0 and all(_follows(flow, v, depth - 1) for v in values)
    return False


def _lineage(facts: Facts, cls: Class) -> list[Class | str]:
    """A class and what it inherits from, also of a package in a folder of the project that is installed from there."""
    found = ancestors(facts.inference, cls)
    for name in [a for a in found if isinstance(a, str) and not a.startswith(("torch.", "builtins."))]:
        here = _installed_here(facts, name)
        found = [*found, *ancestors(facts.inference, here)] if here is not None else found
    return found


def _installed_here(facts: Facts, qualname: str) -> Class | None:
    """The class that a package's name means if a folder somewhere in the project is that package: `pip install -e tools/`."""
    project, (module, _, name) = facts.project, qualname.rpartition(".")
    if not module or not project.anywhere(_class_named(name)):
        return None
    package = os.path.join(os.sep, module.partition(".")[0], "__init__.py")
    starts = [file for file in sorted(project.files) if file.endswith(package)]
    path = project.resolve(module, starts[0].removesuffix(package) + os.sep) if len(starts) == 1 else None
    found = project.module(path) if path is not None else None
    values = facts.inference.module_name(found, name, MAX_DEPTH).alternatives if found is not None else ()
    return next((a.cls for a in values if isinstance(a, ClassRef)), None)


@cache
def _class_named(name: str) -> re.Pattern[bytes]:
    return made(rb"^class[ \t]+%b\b" % re.escape(name.encode()), re.M)


class _Devices:
    """Follows devices back to where they are named, through more calls and constructors than inference does."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._seen: set[ast.AST] = set()

    def of(self, scope: Scope, node: ast.expr, depth: int = _DEPTH) -> Iterator[Hint]:
        """Which devices an expression may be; nothing for a default that no call in sight leaves as it is."""
        if node in self._seen or len(self._seen) > _MAX_STEPS:
            return
        self._seen.add(node)
        if is_configured_cpu(self._facts, scope, node):
            yield Hint.HOST
            return
        match node:
            case ast.Constant(value=name):
                yield from [] if name is None else [Hint.HOST if name == "cpu" else Hint.DEVICE]
            case ast.Call(func=ast.Attribute(attr="device") | ast.Name(id="device"), args=[named]):
                yield from self.of(scope, named, depth)
            case ast.IfExp(body=first, orelse=second):
                yield from self.of(scope, first, depth)
                yield from self.of(scope, second, depth)
            case ast.BoolOp(values=parts):
                for part in parts:
                    yield from self.of(scope, part, depth)
            case ast.Name() | ast.Attribute():
                yield from self._named(scope, node, depth)
            case ast.Call(func=func, args=[named]) if "device" in last_name(func):  # `get_device(name)`
                is_cpu = is_configured_cpu(self._facts, scope, named)
                yield Hint.HOST if is_cpu else Hint.HIDDEN
            case _:
                yield Hint.HIDDEN

    def _named(self, scope: Scope, node: ast.Name | ast.Attribute, depth: int) -> Iterator[Hint]:
        found = _bound_to(self._facts, scope, node)
        if not found:
            yield Hint.HIDDEN
        for outer, definition in found:
            if definition.kind == "parameter":
                yield from self._parameter(outer, definition.name, depth)
            elif definition.kind == "assign" and definition.value is not None and not definition.index:
                yield from self.of(outer, definition.value, depth)
            else:
                yield Hint.HIDDEN

    def _parameter(self, scope: Scope, name: str, depth: int) -> Iterator[Hint]:
        if depth <= 0:
            yield Hint.HIDDEN
            return
        default = defaults_of(scope.node).get(name)
        sites = self._facts.inference.callers.sites(scope).sites
        if not sites and default is None:
            yield Hint.HIDDEN
        for site in sites:
            passed = given(scope, site.node, name)
            if passed is not None:
                yield from self.of(site.scope, passed, depth - 1)
            elif any(k.arg is None for k in site.node.keywords):  # `super().__init__(**kwargs)`
                yield from self._handed_on(site.scope, name, depth - 1)
            elif default is not None:
                yield from self.of(scope, default, depth - 1)
            else:
                yield Hint.HIDDEN

    def _handed_on(self, scope: Scope, name: str, depth: int) -> Iterator[Hint]:
        """What the callers of a function give one that it calls, by a keyword that it hands on with all others."""
        for site in self._facts.inference.callers.sites(scope).sites if depth > 0 else ():
            yield from (hint for k in site.node.keywords if k.arg == name for hint in self.of(site.scope, k.value, depth))


def _bound_to(facts: Facts, scope: Scope, node: ast.Name | ast.Attribute) -> list[tuple[Scope, Definition]]:
    """What binds a name, or an attribute of an object of the project, and where; nothing where that is not in sight."""
    flow = flow_of(scope)
    found = flow.reaching.get(node)
    if found:
        return [(scope, definition) for definition in sorted(found, key=lambda d: d.order)]
    if isinstance(node, ast.Name):
        outer = scope
        while not outer.is_module:
            outer = outer.parent or outer.module.top
            if definitions := flow_of(outer).definitions_of(node.id):
                return [(outer, definition) for definition in definitions]
        return []
    owners = facts.inference.value(scope, node.value).alternatives
    bound: list[tuple[Scope, Definition]] = []
    for owner in owners:
        match owner:
            case Instance(cls):
                bound += _setters(facts, cls, node.attr)
            case ModuleRef(module):
                bound += ((module.top, definition) for definition in flow_of(module.top).definitions_of(node.attr))
            case _:
                return []
    return bound


def _setters(facts: Facts, cls: Class, name: str) -> Iterator[tuple[Scope, Definition]]:
    """Where a class and its ancestors assign an attribute."""
    for ancestor in _lineage(facts, cls):
        for method in ancestor.methods_assigning(name) if isinstance(ancestor, Class) else ():
            if method.parameters:
                yield from ((method, d) for d in flow_of(method).definitions_of(f"{method.parameters[0].arg}.{name}"))


class Networks:
    """Follows networks back to what makes them, and along to what is done to them on the way."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._seen: set[object] = set()

    def of(self, scope: Scope, node: ast.expr, depth: int = _DEPTH) -> Iterator[Hint]:
        """What is said about where a network is: nothing where all is in sight, and nothing moves it."""
        if node in self._seen:
            return
        self._seen.add(node)
        if len(self._seen) > _MAX_STEPS:
            yield Hint.HIDDEN
            return
        match node:
            case ast.NamedExpr(value=inner) | ast.Starred(value=inner) | ast.Subscript(value=inner):
                yield from self.of(scope, inner, depth)
            case ast.IfExp(body=first, orelse=second):
                for part in (first, second):
                    yield from self.of(scope, part, depth)
            case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
                for part in parts:
                    yield from self.of(scope, part, depth)
            case ast.ListComp(elt=inner) | ast.GeneratorExp(elt=inner) | ast.DictComp(value=inner):
                yield from self.of(scope, inner, depth)
            case ast.Call():
                yield from self._call(scope, node, depth)
            case ast.Name():
                yield from self._named(scope, node, depth)
            case ast.Attribute():
                yield from self._attribute(scope, node, depth)
            case ast.Constant():
                pass
            case _:
                yield Hint.HIDDEN

    def _call(self, scope: Scope, call: ast.Call, depth: int) -> Iterator[Hint]:
        if isinstance(call.func, ast.Attribute):
            hint = _hint_of(self._facts, scope, call)
            if hint is not None:
                yield hint
                return  # the last move counts
            if call.func.attr in _SAME or call.func.attr in ("to", "cpu"):
                yield from self.of(scope, call.func.value, depth)
                return
        called = self._facts.inference.value(scope, call.func)
        if _hint_of(self._facts, scope, call) is Hint.DEVICE or argument(call, None, "device_map") is not None:
            yield Hint.DEVICE
        for alternative in called.alternatives:
            yield from self._made_by(alternative, depth)
        if called.open and not called.alternatives:
            yield Hint.HIDDEN
        for part in (*call.args, *(k.value for k in call.keywords)):
            if self._is_network(scope, part):
                yield from self.of(scope, part, depth)

    def _made_by(self, called: Alternative, depth: int) -> Iterator[Hint]:
        """What is said by the function or the class that makes a network."""
        match called:
            case ClassRef(cls):
                yield from hints_in_class(self._facts, cls)
                makers = [m for a in ancestors(self._facts.inference, cls) if isinstance(a, Class) for m in _maker(a)]
                for function in called_from(self._facts, *makers, depth=2):
                    yield from hints_in(self._facts, function)
            case FunctionRef(function):
                yield from hints_in(self._facts, function)
                if depth <= 0:
                    yield Hint.HIDDEN
                    return
                for returned in flow_of(function).returns:
                    if returned.value is not None:
                        yield from self.of(function, returned.value, depth - 1)
            case External(qualname):
                yield from [Hint.DEVICE] if qualname.startswith(_MOVING_CLASSES) or "parallel" in qualname.lower() else []
            case _:
                yield Hint.HIDDEN

    def _is_network(self, scope: Scope, node: ast.expr) -> bool:
        """Whether an argument is a network, which what is made of it holds."""
        if isinstance(node, ast.Constant):
            return False
        value = self._facts.inference.value(scope, node)
        if value.alternatives:
            return value.may(lambda a: is_neural_module(self._facts.inference, a))
        return _NAMED_NETWORK.search(path_of(node) or "") is not None

    def _named(self, scope: Scope, node: ast.Name | ast.Attribute, depth: int) -> Iterator[Hint]:
        found = _bound_to(self._facts, scope, node)
        if not found:
            yield Hint.HIDDEN
        for outer, definition in found:
            yield from self._definition(outer, definition, depth)

    def _definition(self, scope: Scope, definition: Definition, depth: int) -> Iterator[Hint]:
        """What is said where a name is bound, and by what is done to it by that name."""
        flow = flow_of(scope)
        if definition in self._seen:
            return
        self._seen.add(definition)
        yield from self._around(scope)
        for use in flow.uses[definition]:
            yield from self._used(scope, flow, use, depth)
        if definition.kind == "parameter":
            yield from self._parameter(scope, definition.name, depth)
        elif definition.kind in ("assign", "walrus", "for", "with") and definition.value is not None:
            value = definition.value
            for at in definition.index:
                value = value.elts[at] if isinstance(value, ast.Tuple) and at is not None and at < len(value.elts) else value
            yield from self.of(scope, value, depth)
        else:
            yield Hint.HIDDEN

    def _used(self, scope: Scope, flow: Flow, use: ast.expr, depth: int) -> Iterator[Hint]:
        """What one use of a network does to it: `net.to(device)`, `net.head.cuda()`, `prepare(net)`."""
        node: ast.AST = use
        while isinstance(flow.parent.get(node), ast.Attribute):
            node = flow.parent[node]
        call = flow.parent.get(node)
        if not isinstance(call, ast.Call):
            return
        if call.func is node:
            hint = _hint_of(self._facts, scope, call) if node is not use else None
            yield from [hint] if hint is not None else []
            return
        called = self._facts.inference.value(scope, call.func)
        for alternative in called.alternatives:
            match alternative:
                case External(qualname) if qualname.startswith(_MOVING_CLASSES) or "parallel" in qualname.lower():
                    yield Hint.DEVICE
                case ClassRef(cls):
                    yield from hints_in_class(self._facts, cls)
                case FunctionRef(function) if depth > 0 and node is use:
                    name = parameter_of(function, call, use)
                    inner = flow_of(function)
                    for definition in inner.definitions_of(name) if name is not None else ():
                        for other in inner.uses[definition] if definition.kind == "parameter" else ():
                            yield from self._used(function, inner, other, depth - 1)

    def _parameter(self, scope: Scope, name: str, depth: int) -> Iterator[Hint]:
        if scope.owner is not None and scope.parameters and scope.parameters[0].arg == name:
            yield from self._object(scope.owner, depth)
            return
        sites = self._facts.inference.callers.sites(scope).sites if depth > 0 else ()
        if not sites:
            yield Hint.HIDDEN
        for site in sites:
            passed = given(scope, site.node, name)
            yield from self._around(site.scope)
            if passed is None:
                yield Hint.HIDDEN
            else:
                yield from self.of(site.scope, passed, depth - 1)

    def _around(self, scope: Scope) -> Iterator[Hint]:
        """What is said by a function that a network comes through; the cells of a notebook are programs of their own."""
        if not (scope.is_module and scope.module.source.path.endswith(SUFFIX)):
            yield from hints_in(self._facts, scope)

    def _object(self, cls: Class, depth: int) -> Iterator[Hint]:
        """What is said about an object of a class, by the class itself and where objects of it are made."""
        yield from hints_in_class(self._facts, cls)
        if not is_module(self._facts.inference, cls):
            return
        maker = next((m for a in ancestors(self._facts.inference, cls) if isinstance(a, Class) for m in _maker(a)), None)
        sites = self._facts.inference.callers.sites(maker).sites if maker is not None and depth > 0 else ()
        if not sites:
            yield Hint.HIDDEN
        for site in sites:
            yield from hints_in(self._facts, site.scope)
            yield Hint.HIDDEN

    def _attribute(self, scope: Scope, node: ast.Attribute, depth: int) -> Iterator[Hint]:
        if node.attr in _SAME_ATTRIBUTES:
            yield from self.of(scope, node.value, depth)
            return
        yield from self._named(scope, node, depth)
        for owner in self._facts.inference.value(scope, node.value).alternatives:
            if isinstance(owner, Instance):
                yield from hints_in_class(self._facts, owner.cls)
            if is_neural_module(self._facts.inference, owner):  # which is moved with its parts
                yield from self.of(scope, node.value, depth)


def _maker(cls: Class) -> list[Scope]:
    return [cls.methods["__init__"]] if "__init__" in cls.methods else []
