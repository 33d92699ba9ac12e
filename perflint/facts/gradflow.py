"""Where the autograd graph of a value may be used: does it reach a backward pass, leave the function, or end here?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from perflint.facts.api_tables import BOOLEAN_RESULTS, HOST_ONLY_METHODS, INTEGER_RESULTS, READING_METHODS, TENSOR_METHODS
from perflint.facts.calls import HOST_ATTRIBUTES
from perflint.facts.facts import Facts
from perflint.facts.flow import Definition, flow_of, path_of
from perflint.facts.values import External, Instance, Literal, Number, Object, Tensor, Text
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout, words


class GradUse(Enum):
    """What the graph behind a value is used for."""

    BACKWARD = "a backward pass"
    LEAVES = "it leaves the function"
    UNKNOWN = "it is given to a function that may keep it"


@dataclass(frozen=True, eq=False)
class GradEnd:
    """One use that may need the graph. `node` is where."""

    use: GradUse
    node: ast.AST
    note: str


_FREE_METHODS = (READING_METHODS - {"cpu"}) | HOST_ONLY_METHODS | BOOLEAN_RESULTS | INTEGER_RESULTS | {"detach"}
_FREE_CALLS = words(
    """
    print float int bool len str repr format isinstance type save_image argmax eq make_grid imwrite imshow plot
    hasattr id argsort save accuracy_score f1_score
    """
)

_PAIRS = frozenset(("max", "min", "topk", "sort", "median"))
_COLLECTING = frozenset(("append", "extend", "insert", "appendleft", "add"))
_SHOWS_GRAPH = {
    "print": "it is printed",
    "str": "it is printed",
    "repr": "it is printed",
    "save": "it is saved, with its `requires_grad`",
}

_HOST_METHODS = (READING_METHODS - {"cpu"}) | HOST_ONLY_METHODS
_HOST_CALLS = _FREE_CALLS - {"argmax", "eq", "argsort"}


def graph_ends(facts: Facts, scope: Scope, node: ast.expr, depth: int = 2) -> list[GradEnd]:
    """The uses of a value's graph. Empty when every use drops it (`.detach()`, `.item()`, `argmax`, a comparison)."""
    return list(_Walk(facts, scope, depth).ends_of(node))


def tensor_ends(facts: Facts, scope: Scope, nodes: list[ast.expr], depth: int = 2) -> list[GradEnd]:
    """The uses of tensors and of all tensors computed from them, with or without a graph, up to where the host reads them."""
    walk = _Walk(facts, scope, depth, detached=True)
    return [end for node in nodes for end in walk.ends_of(node)]


class _Walk:
    def __init__(self, facts: Facts, scope: Scope, depth: int, detached: bool = False) -> None:
        self.facts, self.scope, self.flow, self.depth = facts, scope, flow_of(scope), depth
        self.detached = detached
        self.free_methods = _HOST_METHODS if detached else _FREE_METHODS
        self.free_calls = _HOST_CALLS if detached else _FREE_CALLS
        self.seen: set[object] = set()

    def ends_of(self, node: ast.AST) -> Iterator[GradEnd]:
        flow = self.flow
        while True:
            parent = flow.parent.get(node)
            match parent:
                case None:
                    return
                case ast.Attribute(attr=attr):
                    if attr in ("requires_grad", "is_leaf", "grad_fn") and not self.detached:
                        yield GradEnd(GradUse.UNKNOWN, parent, f"`{attr}` is read")
                        return
                    if attr == "grad_fn" or attr in HOST_ATTRIBUTES or (attr == "data" and not self.detached):
                        if not self.facts.inference.value(self.scope, parent.value).may_be(Instance):
                            return
                    call = flow.parent.get(parent)
                    if isinstance(call, ast.Call) and call.func is parent:
                        if attr == "backward":
                            yield GradEnd(GradUse.BACKWARD, call, "it is back-propagated")
                            return
                        if attr in self.free_methods and not self.facts.loops.targets(self.scope, call):
                            return
                        if attr in ("register_hook", "retain_grad", "requires_grad_"):
                            yield GradEnd(GradUse.BACKWARD, call, f"`{attr}` is called on it")
                            return
                        node = call
                        continue
                    if isinstance(parent.ctx, ast.Store):
                        return
                    node = parent
                case ast.Call():
                    end = self._argument(parent, node)
                    if end is not None:
                        yield from end
                        return
                    node = parent
                case ast.Compare() if self.detached:
                    node = parent
                case ast.FormattedValue(format_spec=None) if not self.detached and not self._is_scalar(node):
                    yield GradEnd(GradUse.UNKNOWN, parent, "it is printed")
                    return
                case ast.Assert(msg=shown) if shown is node:
                    yield GradEnd(GradUse.LEAVES, parent, "it is raised")
                    return
                case ast.Compare() | ast.FormattedValue() | ast.If() | ast.While() | ast.Assert() | ast.Expr():
                    return
                case ast.Subscript(slice=key) if key is node and not self.detached:
                    return
                case ast.Subscript():
                    if self._takes_indices(parent) and not self.detached:
                        return
                    node = parent
                case ast.AugAssign(target=target):
                    yield from self._bound([target], parent.value, node)
                    return
                case ast.Assign(targets=targets, value=value):
                    yield from self._bound(targets, value, node)
                    return
                case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
                    yield from self._bound([target], node, node)
                    return
                case ast.Return():
                    yield GradEnd(GradUse.LEAVES, parent, "it is returned")
                    return
                case ast.Yield() | ast.YieldFrom() | ast.Await():
                    yield GradEnd(GradUse.LEAVES, parent, "it is yielded")
                    return
                case ast.For() | ast.comprehension():
                    yield from self._iterated(parent)
                    return
                case ast.Lambda():
                    yield GradEnd(GradUse.LEAVES, parent, "a lambda returns it")
                    return
                case ast.Raise():
                    yield GradEnd(GradUse.LEAVES, parent, "it is raised")
                    return
                case ast.withitem() | ast.Delete():
                    return
                case _:
                    node = parent

    def _takes_indices(self, node: ast.Subscript) -> bool:
        """`x.max(1)[1]`, `x.topk(k)[1]`: the indices of a pair carry no gradient."""
        base = node.value
        index = node.slice
        return self._gives_indices(base) and isinstance(index, ast.Constant) and index.value in (1, -1)

    def _gives_indices(self, node: ast.AST) -> bool:
        """Whether a call gives a pair of values and their indices."""
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in _PAIRS:
            return False
        return not self.facts.loops.targets(self.scope, node)

    def _bound(self, targets: list[ast.expr], value: ast.AST, node: ast.AST) -> Iterator[GradEnd]:
        for target in targets:
            if isinstance(target, (ast.Attribute, ast.Subscript)):
                yield from self._stored(target)
                continue
            parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            if len(parts) == 2 and not self.detached and self._gives_indices(value):
                parts = parts[:1]
            if isinstance(value, (ast.Tuple, ast.List)) and node in value.elts and len(parts) == len(value.elts):
                parts = [parts[value.elts.index(node)]]
            for part in parts:
                inner = part.value if isinstance(part, ast.Starred) else part
                yield from self._definitions(inner)

    def _definitions(self, target: ast.expr) -> Iterator[GradEnd]:
        if isinstance(target, (ast.Attribute, ast.Subscript)):
            yield from self._stored(target)
            return
        for definition in self.flow.definitions_at(target):
            if definition not in self.seen:
                self.seen.add(definition)
                yield from self.of_definition(definition)

    def of_definition(self, definition: Definition) -> Iterator[GradEnd]:
        """The uses of the graph of what a definition binds."""
        if definition.name in self.flow.inner_names:
            yield GradEnd(GradUse.UNKNOWN, definition.node, f"a function inside uses `{definition.name}`")
        if definition.name in self.flow.outer_names:
            yield GradEnd(GradUse.LEAVES, definition.node, f"`{definition.name}` is a global variable")
        for use in self.flow.uses[definition]:
            yield from self.ends_of(use)

    def _stored(self, target: ast.expr) -> Iterator[GradEnd]:
        """Stored in an attribute or an item: followed when the container is a local, else it leaves."""
        root = target
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if isinstance(root, ast.Name) and isinstance(target, ast.Subscript):
            base = self.facts.inference.value(self.scope, target.value)
            if base.must(lambda a: isinstance(a, Object) and a.qualname.startswith("numpy")):
                return
            definitions = self.flow.reaching.get(root, frozenset())
            if definitions and all(d.kind != "parameter" for d in definitions):
                for definition in definitions:
                    if definition not in self.seen:
                        self.seen.add(definition)
                        yield from self.of_definition(definition)
                return
        yield GradEnd(GradUse.LEAVES, target, f"it is stored in `{ast.unparse(target)}`")

    def _iterated(self, node: ast.For | ast.comprehension) -> Iterator[GradEnd]:
        for name in ast.walk(node.target):
            if isinstance(name, ast.Name):
                yield from self._definitions(name)
        if isinstance(node, ast.comprehension):
            yield from self.ends_of(self.flow.parent[node])

    def _argument(self, call: ast.Call, node: ast.AST) -> Iterator[GradEnd] | None:
        """What a call does with an argument; None when its result carries the graph on."""
        name = (path_of(call.func) or getattr(call.func, "attr", "") or "").rpartition(".")[2]
        if isinstance(call.func, ast.Attribute) and call.func is node:
            return None
        if "backward" in name or name == "grad" or (name == "Parameter" and self.detached):
            return iter((GradEnd(GradUse.BACKWARD, call, "it is back-propagated"),))
        shown = None if self.detached else self._shows(call, name)
        if shown is not None:
            return iter((GradEnd(GradUse.UNKNOWN, call, shown),))
        targets = self.facts.loops.targets(self.scope, call)
        if name in self.free_calls and not targets:
            return iter(())
        if isinstance(call.func, ast.Attribute) and name in _COLLECTING and not targets:
            return self._collected(call, call.func.value)
        value = self.facts.inference.value(self.scope, call)
        if value.must(lambda a: isinstance(a, (Number, Literal, Text)) or _is_array(a)):
            if not self._keeps(call):
                return iter(())
        callee = self.facts.inference.value(self.scope, call.func)
        if callee.may(lambda a: getattr(a, "qualname", "").startswith(("torch.", "builtins.", "torchvision.utils"))):
            return None
        if targets and self.depth > 0:
            inside = self._inside(call, targets, node)
            return chain(inside, self._given(call)) if self.facts.loops.may_run_others(self.scope, call) else inside
        if self.facts.inference.value(self.scope, call.func).may_be(Object):
            return None  # a module or a criterion of unknown class: the graph goes on in its result
        if isinstance(call.func, ast.Attribute):
            if name in TENSOR_METHODS:
                return None
            receiver = self.facts.inference.value(self.scope, call.func.value)
            if receiver.alternatives and not receiver.open:
                return None
        return self._given(call)

    def _given(self, call: ast.Call) -> Iterator[GradEnd]:
        yield GradEnd(GradUse.UNKNOWN, call, f"`{ast.unparse(call.func)}` gets it")

    def _shows(self, call: ast.Call, name: str) -> str | None:
        """What a call shows of the graph, under its own name or as a function that was passed."""
        for alternative in self.facts.inference.value(self.scope, call.func).alternatives:
            if isinstance(alternative, External):
                known = name if name in _SHOWS_GRAPH else alternative.qualname.removeprefix("builtins.")
                if known in _SHOWS_GRAPH:
                    return _SHOWS_GRAPH[known]
        return None

    def _is_scalar(self, node: ast.AST) -> bool:
        """Whether an f-string shows nothing but a number, and not `grad_fn=...`."""
        assert isinstance(node, ast.expr)
        return self.facts.inference.value(self.scope, node).must(lambda a: not isinstance(a, Tensor) or a.ndim == 0)

    def _keeps(self, call: ast.Call) -> bool:
        """Whether a project function that returns a plain number may still keep its argument."""
        return bool(self.facts.loops.targets(self.scope, call))

    def _collected(self, call: ast.Call, root: ast.expr) -> Iterator[GradEnd]:
        path = path_of(root)
        if isinstance(root, ast.Name):
            definitions = self.flow.reaching.get(root, frozenset())
            if not definitions:
                yield GradEnd(GradUse.LEAVES, call, f"it is kept in `{path}`")
            for definition in definitions:
                if definition not in self.seen:
                    self.seen.add(definition)
                    if definition.kind == "parameter":
                        yield GradEnd(GradUse.LEAVES, call, f"it is kept in `{path}`")
                    else:
                        yield from self.of_definition(definition)
            return
        yield GradEnd(GradUse.LEAVES, call, f"it is kept in `{path or ast.unparse(root)}`")

    def _inside(self, call: ast.Call, targets: list[Scope], node: ast.AST) -> Iterator[GradEnd]:
        result_carries = False
        for target in targets:
            try:
                walk = _Walk(self.facts, target, self.depth - 1, self.detached)
            except SyntaxProblem:
                yield from self._given(call)
                continue
            for definition in walk.flow.definitions:
                if definition.kind == "parameter" and definition.name not in ("self", "cls"):
                    for end in walk.of_definition(definition):
                        if end.use is GradUse.LEAVES and isinstance(end.node, ast.Return):
                            result_carries = True
                        else:
                            yield GradEnd(end.use, call, f"`{ast.unparse(call.func)}`: {end.note}")
        if result_carries:
            yield from self.ends_of(call)


def _is_array(alternative: object) -> bool:
    return isinstance(alternative, Object) and alternative.qualname.startswith(("numpy.", "pandas."))


_ASKS_FOR_GRADIENTS = any_layout(rb"grad(?:(?<=autograd) \. grad\b|(?<!no_grad)(?<!zero_grad) \()")


def backward_in(facts: Facts, scope: Scope) -> bool:
    """Whether a scope runs a backward pass or asks for gradients, itself or through what it calls."""
    text = scope.text
    if b"backward" in text or _ASKS_FOR_GRADIENTS.search(text):
        return True
    calls = flow_of(scope).calls_named
    helpers = facts.project.backward_helpers(calls)
    return any(
        any(facts.loops.training_acts(scope, call))
        for name in [n for n in calls if n in helpers or n == "step"]
        for call in calls[name]
    )


def backward_below(facts: Facts, scope: Scope, depth: int = 3) -> bool:
    """Whether something that a scope calls may run a backward pass, also in a loop: a training run within an evaluation."""
    if depth == 0:
        return False
    try:
        calls = flow_of(scope).calls
    except SyntaxProblem:
        return True
    return any(
        backward_in(facts, target) or backward_below(facts, target, depth - 1)
        for call in calls
        for target in facts.loops.targets(scope, call)
        if target is not scope
    )


def stored_for_training(facts: Facts, scope: Scope, end: GradEnd) -> ast.expr | None:
    """Where training reads the attribute that a tensor is stored in; None when the tensor ends in another way.

    `self.replay = tensor`, `self.replay[i] = tensor` and `self.replay.append(tensor)`, and a method of the same class with a
    backward pass that gives `self.replay` on with autograd.
    """
    node = end.node
    while isinstance(node, ast.Call):
        node = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    while isinstance(node, ast.Subscript):
        node = node.value
    if end.use is not GradUse.LEAVES or scope.owner is None:
        return None
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            word = name.encode()
            for method in scope.owner.methods.values():
                if word not in method.text or not backward_in(facts, method):
                    continue
                for mention in flow_of(method).mentions[name]:
                    if isinstance(mention, ast.Attribute) and isinstance(mention.ctx, ast.Load):
                        if any(e.use is GradUse.BACKWARD for e in graph_ends(facts, method, mention)):
                            return mention
    return None
