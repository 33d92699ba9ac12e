"""Whether tensors are torch's own in a program: no heir of their class, no other method in the place of one of theirs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.fears import OWN_TENSORS, feared
from perflint.facts.values.classes import is_super_call
from perflint.facts.values.frames import Frame
from perflint.facts.values.values import (
    Alternative,
    ClassRef,
    Device,
    Elements,
    External,
    FunctionRef,
    Instance,
    Literal,
    Mapping,
    ModuleRef,
    Number,
    Object,
    Sequence,
    Tensor,
    Text,
    Value,
)
from perflint.rule.obligations import Kind, Obligation, one_of_each_kind
from perflint.source.scopes import scopes_where
from perflint.source.syntax import Module, Scope, SyntaxProblem
from perflint.source.words import any_layout, words

_METHODS: Final = words("item to cpu numpy tolist detach double clone non_blocking is_cuda")
"""Those that fixes leave out, add, or call in another way. What is no function (`args.cpu = True`) is no method."""
_ONE_OF: Final = "|".join(sorted(_METHODS)).encode()
_HEIRS: Final = any_layout(
    rb"\bclass [A-Za-z_]\w*(?: \[[^]\n]*\])? \((?! (?:\)|(?:(?:torch \. )?nn \. )?Module \)|object \)"
    rb"|(?:torch \. )?(?:utils \. )?(?:data \. )?(?:Iterable)?Dataset \)"
    rb"|(?:\w*Exception|\w*Error|ABC|(?:Int)?Enum|NamedTuple|TypedDict|Protocol) \)))"
)
"""A class statement with another base than those that most classes have, and that are no tensors under any import."""
_MADE: Final = any_layout(rb"\b(?:type|new_class|make_dataclass) \([^()]*,|\(['\"\w]+ , \([^()]*\b\w*(?:Tensor|Parameter)\b")
_SETS: Final = any_layout(
    rb"\. (?:%b)(?: [)\]]+| :[^=\n]+)? (?:[,=](?!=)|in\b)|\bas [\w.]+ \. (?:%b)\b|\b(?:set|del)attr\b|__(?:set|del)attr__"
    rb"|\bpatch\w* \(|\bpatch \. |\bcurse \(" % (_ONE_OF, _ONE_OF)
)
_TENSOR: Final = re.compile(r"(?:Tensor|TensorBase)$|(?:^|\.)(?:Uninitialized)?(?:Parameter|Buffer)$|tv_tensors|datapoints")
"""Names of torch's classes of tensors, and of those of others."""
_ASKS: Final = words("isinstance issubclass cast register TypeVar Union Optional overload")
_NO_FUNCTION: Final = (Number, Literal, Text, Device, Tensor)
_SETTERS: Final = words("setattr delattr patch object multiple curse")
_SETTING_METHODS: Final = words("__setattr__ __delattr__")


def own_tensors(facts: Facts, path: str) -> Iterator[Obligation]:
    """Why a tensor in the program of a file may not be one of torch's, with the methods that torch gives it."""
    project = facts.project
    found = [*feared(project, path, OWN_TENSORS)]
    yield from found
    if found:
        return
    if not any(project.program_may_hold(path, gate) for gate in (_HEIRS, _MADE, _SETS)):
        return
    members = project.members(path)
    if members is None:
        yield Obligation(Kind.PLAIN_TENSORS, "the program is too large to be looked through for tensors of its own")
        return
    for file in members:
        if any(project.holds(file, gate) for gate in (_HEIRS, _MADE, _SETS)):
            yield from facts.own_tensors.get(file, partial(_found, facts, file))


def _found(facts: Facts, file: str) -> list[Obligation]:
    module = facts.project.module(file)
    if module is None:
        return []
    try:
        return one_of_each_kind(_in_module(facts, module, file))
    except SyntaxProblem:
        return [Obligation(Kind.UNKNOWN_CODE, f"`{module.name}` cannot be parsed")]


def _in_module(facts: Facts, module: Module, file: str) -> Iterator[Obligation]:
    if facts.project.holds(file, _HEIRS):
        frame = facts.inference.frame(module.top, (), 3)
        for cls in module.classes.values():
            yield from _heir(facts, module, cls.node, frame, file)
    for scope in scopes_where(module, _HEIRS, _MADE, _SETS):
        yield from _in_scope(facts, scope, file)


def _in_scope(facts: Facts, scope: Scope, file: str) -> Iterator[Obligation]:
    text = scope.text
    heirs = not scope.is_module and _HEIRS.search(text) is not None
    makes, sets = _MADE.search(text), _SETS.search(text)
    if not (heirs or makes or sets):
        return
    flow = flow_of(scope)
    for node in flow.order if heirs else ():
        if isinstance(node, ast.ClassDef):
            yield from _heir(facts, scope.module, node, facts.inference.frame(scope, (), 3), file)
    for call in flow.calls if makes else ():
        if any(_is_tensor_class(facts, scope, part) for part in _bases_given(call)):
            yield _fear(f"`{ast.unparse(call.func)}` makes an heir of a tensor's class in {scope.module.name}", file)
    if sets:
        for store in flow.stores:
            if isinstance(store, ast.Attribute) and store.attr in _METHODS and not _gets_no_function(facts, scope, store):
                yield from _set(facts, scope, store.value, store, file)
        for call in flow.calls:
            for owner in _owners_set(call):
                found = [*_set(facts, scope, owner, call, file)]
                yield from found if found and not _sets_no_function(facts, scope, call) else ()
        for name in ("setattr", "delattr"):
            for mention in flow.mentions.get(name, ()):
                around = flow.parent.get(mention)
                if not (isinstance(around, ast.Call) and around.func is mention):
                    yield _fear(f"`{name}` is handed on in {scope.module.name}, and may replace a method of a tensor", file)
    for inner in flow.parts():
        yield from _in_scope(facts, inner, file)


def _fear(text: str, file: str) -> Obligation:
    return Obligation(Kind.PLAIN_TENSORS, text, file)


def _heir(facts: Facts, module: Module, cls: ast.ClassDef, frame: Frame, file: str) -> Iterator[Obligation]:
    """Whether a class may be a tensor's: by what its bases are known to be, under whatever name."""
    for base in cls.bases:
        node = base.value if isinstance(base, ast.Subscript) else base
        root = _root(node)
        if root is not None and root not in module.bindings and not module.star_imports and frame.scope.is_module:
            continue  # Python's own, or nobody's
        value = facts.inference.infer(node, frame)
        if isinstance(node, ast.Call) and not value.alternatives:
            if facts.inference.infer(node.func, frame).must_be(External):
                continue  # `namedtuple("Point", "x y")`: made by a library, of what it is given
        named = [a.qualname for a in value.alternatives if isinstance(a, External)] or [path_of(node) or "Tensor"]
        unknown = not value.must(_is_class)
        if any(map(_TENSOR.search, named)) or (unknown and not _is_imported(node, module)):
            yield _fear(f"`{cls.name}` in {module.name} may be a class of tensors", file)


def _is_class(alternative: Alternative) -> bool:
    return isinstance(alternative, (External, ClassRef)) or alternative == Literal(None)


def _is_imported(node: ast.expr, module: Module) -> bool:
    """Whether an expression is what an import names, or a part of it: a library's class is known by its name."""
    root = _root(node)
    return any(
        root == (alias.asname or alias.name.partition(".")[0])
        for statement in ast.walk(module.tree)
        if isinstance(statement, (ast.Import, ast.ImportFrom))
        for alias in statement.names
    )


def _root(node: ast.expr) -> str | None:
    """The name that a path of attributes begins with."""
    return (path_of(node) or "").partition(".")[0] or None


def _bases_given(call: ast.Call) -> Iterator[ast.expr]:
    """The classes in a tuple that a call gets: `type("Heir", (torch.Tensor,), {})`, `Meta(...)`."""
    if (path_of(call.func) or "").rpartition(".")[2] not in _ASKS:
        for given in call.args:
            if isinstance(given, ast.Tuple):
                yield from given.elts


def _is_tensor_class(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    value = facts.inference.value(scope, node.value if isinstance(node, ast.Starred) else node)
    return value.may(lambda a: isinstance(a, External) and _TENSOR.search(a.qualname) is not None)


def _owners_set(call: ast.Call) -> Iterator[ast.expr]:
    """Whose attributes a call may set by one of the methods' names, or by one that is not known."""
    func = call.func
    last = func.attr if isinstance(func, ast.Attribute) else path_of(func)
    if last in _SETTING_METHODS and isinstance(func, ast.Attribute) and not is_super_call(func.value):
        given, name = [func.value, *call.args], call.args[-2:-1] if last == "__setattr__" else call.args[-1:]
        owner = given[1] if len(given) == (4 if last == "__setattr__" else 3) else given[0]
    elif last in _SETTERS and call.args:
        owner, name = call.args[0], call.args[1:2]
    else:
        return
    texts = [n.value for n in (name or [owner]) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    if not texts or texts[0].rpartition(".")[2] in _METHODS:
        yield owner


def _gets_no_function(facts: Facts, scope: Scope, store: ast.Attribute) -> bool:
    """Whether what an attribute is set to is known, and nothing that can be called."""
    definitions = flow_of(scope).definitions_at(store)
    values = [facts.inference.value(scope, d.value) for d in definitions if d.value is not None and not d.index]
    return bool(values) and len(values) == len(definitions) and all(v.must_be(*_NO_FUNCTION) for v in values)


def _sets_no_function(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether `setattr(x, name, value)` gets a value that cannot be called."""
    return len(call.args) == 3 and facts.inference.value(scope, call.args[2]).must_be(*_NO_FUNCTION)


def _set(facts: Facts, scope: Scope, owner: ast.expr, node: ast.expr, file: str) -> Iterator[Obligation]:
    value = facts.inference.value(scope, owner)
    text = f"`{ast.unparse(node)}` in {scope.module.name}"
    if value.may(lambda a: isinstance(a, External) and _TENSOR.search(a.qualname) is not None):
        yield Obligation(Kind.NAMES, f"{text} puts something else in the place of a method of tensors", file)
    elif not _is_no_tensor(value):
        yield _fear(f"{text} may replace a method of a tensor", file)


def _is_no_tensor(value: Value) -> bool:
    """Whether something is known, and neither a tensor nor a class of tensors."""
    plain = (Instance, ClassRef, ModuleRef, FunctionRef, Number, Literal, Text, Object, Sequence, Elements, Mapping, External)
    return value.must_be(*plain)
