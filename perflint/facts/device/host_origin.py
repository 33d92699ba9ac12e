"""What the host had, before it was copied to the device, of a tensor that is read back."""

from __future__ import annotations

import ast
from dataclasses import replace

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.device.uploads import comes_from_host, copied_source
from perflint.facts.facts import Facts
from perflint.facts.operations.api_tables import LIGHTNING_STEP_HOOKS
from perflint.facts.values.bound_arguments import given
from perflint.facts.values.values import Literal, Number
from perflint.source.nodes import defaults_of
from perflint.source.records import dataclass
from perflint.source.syntax import Scope
from perflint.source.texts import last_name
from perflint.source.words import words

_DEPTH = 40
_LAYOUT = words("squeeze unsqueeze view reshape flatten long float int detach contiguous type")
_COMPUTES = words(
    """
    add sub mul div max min amax amin sum sort argsort eq ne ge gt le lt clamp any all unique cumsum flip abs floor ceil round
    bool unbind half double transpose permute t
    """
)
"""Methods, and functions of torch, that cost the host nothing for a batch's numbers: lengths, masks, labels."""

_MODULES = frozenset(("torch", "np", "numpy"))

_Path = tuple[int | str, ...]
"""The way from a value to a part of it: indices of tuples and keys of dicts."""


@dataclass(frozen=True)
class Upload:
    """Where something was copied to the device.

    node: None if the training framework copies it. exact: nothing is computed from it since.
    """

    scope: Scope
    node: ast.Call | None
    exact: bool = True


@dataclass(frozen=True)
class _OnHost:
    """A batch, or what is computed from it, before any copy. exact: nothing is computed from it."""

    exact: bool = True


_Origin = Upload | _OnHost


@dataclass(frozen=True)
class _Entered:
    """A call whose function is being looked through."""

    scope: Scope
    call: ast.Call
    target: Scope
    outer: _Entered | None


def upload_behind(facts: Facts, scope: Scope, tensor: ast.expr) -> Upload | None:
    """The copy to the device of which a tensor is the result, or from which alone it is computed, in the callers, too.

    None where the host cannot have had it: a network made it, or something writes to it meanwhile.
    """
    found = _Search(facts).of(scope, tensor, (), None, _DEPTH)
    return found if isinstance(found, Upload) else None


class _Search:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.known: dict[tuple[Scope, ast.expr, _Path, _Entered | None], _Origin | None] = {}

    def of(self, scope: Scope, node: ast.expr, path: _Path, entered: _Entered | None, depth: int) -> _Origin | None:
        """Where the part of an expression's value that a path leads to has its numbers from."""
        key = (scope, node, path, entered)
        if key not in self.known:
            self.known[key] = None  # what a loop hands on to its next round is no part of a batch
            self.known[key] = self._found(scope, node, path, entered, depth - 1)
        return self.known[key]

    def _found(self, scope: Scope, node: ast.expr, path: _Path, entered: _Entered | None, depth: int) -> _Origin | None:
        if depth <= 0 or node not in flow_of(scope).block:
            return None
        if comes_from_host(self.facts.inference, self.facts.loops, scope, node):
            return _OnHost()
        match node:
            case ast.Tuple() | ast.List() | ast.Dict() | ast.GeneratorExp() | ast.ListComp() | ast.DictComp():
                part = _held(node, path[0]) if path else None
                return self.of(scope, part, path[1:], entered, depth) if part is not None else None
            case ast.Name():
                return self._of_name(scope, node, path, entered, depth)
            case ast.Attribute(value=held, attr="data"):
                return self.of(scope, held, path, entered, depth)
            case ast.Subscript(value=held, slice=ast.Constant(value=(int() | str()) as at)):
                found = self.of(scope, held, (at, *path), entered, depth)
                return found or (None if path or isinstance(at, str) else _computed(self.of(scope, held, (), entered, depth)))
            case ast.Subscript(value=held, slice=key) if not path and self._is_of_host(scope, key):
                return _computed(self.of(scope, held, (), entered, depth))
            case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]) if not path:
                return _computed(self._of_all(scope, (left, right), entered, depth))
            case ast.UnaryOp(operand=operand) if not path:
                return _computed(self.of(scope, operand, (), entered, depth))
            case ast.Call():
                return self._of_call(scope, node, path, entered, depth)
        return None

    def _of_all(self, scope: Scope, nodes: tuple[ast.expr, ...], entered: _Entered | None, depth: int) -> _Origin | None:
        """The origin of the operands of a computation that are no numbers of the host."""
        return _all([self.of(scope, node, (), entered, depth) for node in nodes if not self._is_of_host(scope, node)])

    def _is_of_host(self, scope: Scope, node: ast.expr) -> bool:
        match node:
            case ast.Constant() | ast.Slice():
                return True
            case ast.UnaryOp(operand=operand):
                return self._is_of_host(scope, operand)
            case ast.Call(func=ast.Attribute(attr="size" | "dim" | "numel")) | ast.Call(func=ast.Name(id="len" | "int")):
                return True
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return True
            case ast.Tuple(elts=parts):
                return all(self._is_of_host(scope, part) for part in parts)
        return self.facts.inference.value(scope, node).must(lambda a: isinstance(a, (Number, Literal)))

    def _of_name(self, scope: Scope, node: ast.Name, path: _Path, entered: _Entered | None, depth: int) -> _Origin | None:
        definitions = sorted(flow_of(scope).reaching.get(node, ()), key=lambda d: d.order)
        return _all([self._of_definition(scope, definition, path, entered, depth) for definition in definitions])

    def _of_definition(
        self, scope: Scope, definition: Definition, path: _Path, entered: _Entered | None, depth: int
    ) -> _Origin | None:
        flow = flow_of(scope)
        computed = [flow.parent.get(use) for use in flow.uses[definition] if self._is_computed_in_place(scope, use)]
        if any(_writes(parent, path) for use in flow.uses[definition] if (parent := flow.parent.get(use)) not in computed):
            return None
        if computed:
            return _computed(self._of_binding(scope, definition, path, entered, depth))
        return self._of_binding(scope, definition, path, entered, depth)

    def _is_computed_in_place(self, scope: Scope, use: ast.expr) -> bool:
        """`lengths.mul_(2)`: the host could do the same."""
        flow = flow_of(scope)
        method = flow.parent.get(use)
        call = flow.parent.get(method) if isinstance(method, ast.Attribute) and method.attr.endswith("_") else None
        if not isinstance(call, ast.Call) or not isinstance(method, ast.Attribute) or call.func is not method:
            return False
        return method.attr[:-1] in _COMPUTES and all(self._is_of_host(scope, argument) for argument in call.args)

    def _of_binding(
        self, scope: Scope, definition: Definition, path: _Path, entered: _Entered | None, depth: int
    ) -> _Origin | None:
        if definition.kind == "parameter":
            return self._of_parameter(scope, definition.name, path, entered, depth)
        whole = tuple(at for at in definition.index if at is not None)
        if definition.value is None or len(whole) != len(definition.index):
            return None
        if definition.kind == "assign":
            return self.of(scope, definition.value, (*whole, *path), entered, depth)
        if definition.kind == "for" and isinstance(self.of(scope, definition.value, (), entered, depth), _OnHost):
            return _OnHost()
        return None

    def _of_parameter(self, scope: Scope, name: str, path: _Path, entered: _Entered | None, depth: int) -> _Origin | None:
        if entered is not None and entered.target is scope:
            handed = _given(scope, entered.call, name)
            return self.of(entered.scope, handed, path, entered.outer, depth) if handed is not None else None
        if scope.name in LIGHTNING_STEP_HOOKS and [a.arg for a in scope.parameters[1:2]] == [name]:
            return Upload(scope, None)
        callers = self.facts.inference.callers
        sites = (*callers.sites(scope).sites, *callers.forward_sites(scope))
        passed = [(site.scope, _given(scope, site.node, name)) for site in sites]
        tensors = [(caller, node) for caller, node in passed if not (isinstance(node, ast.Constant) and node.value is None)]
        if len(tensors) > 1:  # the reader knows the copy of the training, not that of a demonstration
            tensors.sort(key=lambda given: not self._is_of_training(*given))
        return _all([self.of(caller, node, path, None, depth) if node is not None else None for caller, node in tensors])

    def _is_of_training(self, caller: Scope, node: ast.expr | None) -> bool:
        """Whether a caller hands an expression on in a training; a default is written elsewhere."""
        return node in flow_of(caller).block and node is not None and self.facts.loops.is_of_training(caller, node)

    def _of_call(self, scope: Scope, call: ast.Call, path: _Path, entered: _Entered | None, depth: int) -> _Origin | None:
        copied = copied_source(self.facts.inference, scope, call)
        if copied is not None:
            found = self.of(scope, copied, path, entered, depth)
            return Upload(scope, call, found.exact) if isinstance(found, _OnHost) else found
        match call.func:
            case ast.Attribute(value=source, attr="items" | "values") if not call.args:
                return self.of(scope, source, path, entered, depth)
            case ast.Attribute(value=source, attr=name) if name.rstrip("_") in _LAYOUT:
                return self.of(scope, source, path, entered, depth)
            case ast.Attribute(value=source, attr=name) if (
                name.rstrip("_") in _COMPUTES and path[1:] == () and path_of(source) not in _MODULES
            ):
                others = (*call.args, *(k.value for k in call.keywords))
                return _computed(self._of_all(scope, (source, *others), entered, depth))
            case _ if last_name(call.func) in ("Variable", "tuple", "list") and len(call.args) == 1:
                return self.of(scope, call.args[0], path, entered, depth)
            case ast.Attribute(attr=name) if name in _COMPUTES and call.args and path[1:] == ():
                return _computed(self._of_all(scope, tuple(call.args), entered, depth))
        return self._returned(scope, call, path, entered, depth)

    def _returned(self, scope: Scope, call: ast.Call, path: _Path, entered: _Entered | None, depth: int) -> _Origin | None:
        """The upload behind what a function of the project returns; what a network computes is none."""
        origins: list[_Origin | None] = []
        for target in self.facts.loops.targets(scope, call):
            flow = flow_of(target)
            returned = [node.value for node in flow.returns if node.value is not None]
            if target.name in ("forward", "__call__") or target.is_module or flow.yields or not returned:
                return None
            inner = _Entered(scope, call, target, entered)
            origins += [self.of(target, value, path, inner, depth) for value in returned]
        found = _all(origins)
        if isinstance(found, Upload) and found.node is not None and not path:
            return replace(found, scope=scope, node=call)  # a helper that copies what it is given
        return found


def _all(origins: list[_Origin | None]) -> _Origin | None:
    """The origin of a value that is one of several; one branch may leave on the host what the other one copies."""
    known = [origin for origin in origins if origin is not None]
    uploads = [origin for origin in known if isinstance(origin, Upload)]
    return next(iter((*uploads, *known)), None) if len(known) == len(origins) else None


def _computed(origin: _Origin | None) -> _Origin | None:
    return replace(origin, exact=False) if origin is not None else None


def _held(holder: ast.expr, key: int | str) -> ast.expr | None:
    """What stands at a place of something written out; a comprehension makes all of its parts alike."""
    match holder:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            known = isinstance(key, int) and 0 <= key < len(parts) and not any(isinstance(p, ast.Starred) for p in parts)
            return parts[int(key)] if known else None
        case ast.Dict(keys=keys, values=values):
            found = [v for k, v in zip(keys, values, strict=True) if isinstance(k, ast.Constant) and k.value == key]
            return found[0] if len(found) == 1 and None not in keys else None
        case (
            ast.GeneratorExp(elt=part, generators=[_])
            | ast.ListComp(elt=part, generators=[_])
            | ast.DictComp(value=part, generators=[_])
        ):
            return part
    return None


def _given(scope: Scope, call: ast.Call, name: str) -> ast.expr | None:
    return given(scope, call, name) or defaults_of(scope.node).get(name)


def _writes(parent: ast.AST | None, path: _Path) -> bool:
    """Whether a use of a value may write to a part of it: a method that works in place, or an item that is assigned."""
    match parent:
        case ast.Attribute(attr="update" | "append" | "insert" | "extend" | "pop"):
            return bool(path)
        case ast.Attribute(attr=name):
            return name.endswith("_") and not name.endswith("__")
        case ast.Subscript(ctx=ast.Store(), slice=ast.Constant(value=key)) if path:
            return bool(key == path[0])
        case ast.Subscript(ctx=ast.Store()) | ast.AugAssign():
            return True
    return False
