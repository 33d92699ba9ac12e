"""Where the autograd graph of a value may be used: does it reach a backward pass, leave the function, or end here?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum

from perflint.facts.autograd.keeps_nothing import holds_numbers
from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.uses import Step, Walk, Way, is_shown_whole
from perflint.facts.facts import Facts
from perflint.facts.operations import operations
from perflint.facts.operations.operations import Result
from perflint.facts.proofs.reach import called_from, can_be_parsed
from perflint.facts.training.training_objects import is_neural_module
from perflint.facts.values.bound_arguments import parameter_of
from perflint.facts.values.tensor_methods import HOST_ATTRIBUTES
from perflint.facts.values.values import (
    UNKNOWN,
    ClassRef,
    External,
    FunctionRef,
    Instance,
    Literal,
    Number,
    Object,
    Tensor,
    Text,
    Value,
)
from perflint.source.records import dataclass
from perflint.source.syntax import Class, Scope, SyntaxProblem
from perflint.source.words import any_layout, words


class GradUse(Enum):
    """What the graph behind a value is used for."""

    BACKWARD = "a backward pass"
    LEAVES = "it leaves the function"
    UNKNOWN = "it is given to a function that may keep it"


@dataclass(frozen=True, eq=False)
class GradEnd:
    """One use that may need the graph. `node` is where.

    is_layer: whether a layer that cannot be followed gets it, and hands on what it makes of it: a matter of `known-layers`.
    """

    use: GradUse
    node: ast.AST
    note: str
    is_layer: bool = False


_FREE_CALLS = words(
    """
    print float int bool len str repr format isinstance type save_image argmax eq make_grid imwrite imshow plot
    hasattr id argsort save accuracy_score f1_score
    """
)

_COLLECTING = frozenset(("append", "extend", "insert", "appendleft", "add"))
_CONTAINERS = ("builtins.list", "builtins.dict", "builtins.set", "builtins.tuple", "collections.", "torch.", "numpy.")
"""The beginnings of what gives new containers and tensors."""
_GIVES_BACK = ("torch.", "builtins.", "torchvision.", "tqdm.", "numpy.", "math.", "einops.", "PIL.", "copy.", "os.")
"""The beginnings of functions and callable objects which hand on what they are given by their result alone."""

_SHOWS_GRAPH = {
    "print": "it is printed",
    "str": "it is printed",
    "repr": "it is printed",
    "save": "it is saved, with its `requires_grad`",
}

_HOST_CALLS = _FREE_CALLS - {"argmax", "eq", "argsort"}


def graph_ends(facts: Facts, scope: Scope, node: ast.expr, depth: int = 2) -> list[GradEnd]:
    """The uses of a value's graph. Empty when every use drops it (`.detach()`, `.item()`, `argmax`, a comparison)."""
    return list(TensorWalk(facts, scope, depth).ends(node))


def tensor_ends(facts: Facts, scope: Scope, nodes: list[ast.expr], depth: int = 2) -> list[GradEnd]:
    """The uses of tensors and of all tensors computed from them, with or without a graph, up to where the host reads them."""
    return list(TensorWalk(facts, scope, depth, detached=True).ends(*nodes))


class TensorWalk(Walk[GradEnd]):
    """Which uses need the graph behind a value. detached: which follow the tensor itself, with or without a graph."""

    def __init__(self, facts: Facts, scope: Scope, depth: int, detached: bool = False) -> None:
        super().__init__(scope)
        self.facts, self.depth, self.detached = facts, depth, detached
        self.free_calls = _HOST_CALLS if detached else _FREE_CALLS

    def judge(self, step: Step) -> Iterator[GradEnd | ast.AST | Definition]:
        match step.way:
            case Way.TESTED | Way.DROPPED | Way.DELETED:
                return
            case Way.COMPARED | Way.INDEX if not self.detached:
                return
            case Way.FORMATTED:
                if not self.detached and is_shown_whole(step.node) and not self._is_scalar(step):
                    yield GradEnd(GradUse.UNKNOWN, step.node, "it is printed")
            case Way.ATTRIBUTE:
                yield from self._read(step)
            case Way.METHOD:
                yield from self._called(step)
            case Way.ARGUMENT:
                assert isinstance(step.node, ast.Call)
                yield from self._argument(step.node, step.value)
            case Way.CHANGED if isinstance(step.node, ast.Subscript) and isinstance(step.node.ctx, ast.Store):
                yield from self._stored(step.node)
            case Way.CHANGED | Way.OPERAND if step.result is None:
                yield from self._added(step)
            case Way.STORED if step.name:
                yield GradEnd(GradUse.LEAVES, step.node, f"`{step.name}` is a global variable")
            case Way.STORED | Way.BOUND:
                if self.detached or step.index != (1,) or not self._gives_indices(step.value):
                    yield from self._stored(step.node) if step.way is Way.STORED else self._bound(step)
            case Way.OPERAND | Way.FORMATTED if step.result is not None and self._value(step.result).must_be(Text, Literal):
                return
            case Way.ITEM:
                if self.detached or not self._takes_indices(step.node):
                    yield from filter(None, [step.result])
            case Way.ENTERED if self._value(step.value).may_be(Instance):
                yield GradEnd(GradUse.UNKNOWN, step.node, f"a `with` enters `{ast.unparse(step.value)}`")
            case Way.ITERATED | Way.MATCHED | Way.ENTERED:
                yield from step.definitions
                yield from filter(None, [step.result])
            case Way.ALIAS | Way.CONTAINED | Way.UNPACKED | Way.OPERAND | Way.COMPARED | Way.INDEX | Way.CALLED:
                yield from filter(None, [step.result])
            case Way.RETURNED | Way.YIELDED | Way.RAISED:
                yield GradEnd(GradUse.LEAVES, step.node, f"it is {step.way.name.lower()}")
            case Way.CAPTURED:
                yield GradEnd(GradUse.UNKNOWN, step.node, f"a function inside uses `{step.name or ast.unparse(step.value)}`")
            case _:
                yield GradEnd(GradUse.UNKNOWN, step.node, f"nothing is known of `{ast.unparse(step.node)}`")

    def _value(self, node: ast.AST) -> Value:
        assert isinstance(node, ast.expr)
        return self.facts.inference.value(self.scope, node)

    def _bound(self, step: Step) -> Iterator[Definition]:
        """The names that hold a value, or a part of it, but for parts of which is known that they are numbers or texts."""
        inference = self.facts.inference
        for definition in step.definitions:
            parts = inference.definition(definition, inference.frame(self.scope), self.flow) if definition.index else UNKNOWN
            if not parts.must_be(Number, Literal, Text):
                yield definition

    def _read(self, step: Step) -> Iterator[GradEnd | ast.AST | Definition]:
        """What an attribute hands on of the graph."""
        if step.name in ("requires_grad", "is_leaf", "grad_fn") and not self.detached:
            yield GradEnd(GradUse.UNKNOWN, step.node, f"`{step.name}` is read")
            return
        plain = step.name == "grad_fn" or step.name in HOST_ATTRIBUTES or (step.name == "data" and not self.detached)
        if step.result is not None and not (plain and not self._value(step.value).may_be(Instance)):
            yield step.result

    def _called(self, step: Step) -> Iterator[GradEnd | ast.AST | Definition]:
        call = step.node
        assert isinstance(call, ast.Call)
        if step.name == "backward":
            yield GradEnd(GradUse.BACKWARD, call, "it is back-propagated")
        elif self._is_free(step.name) and not self.facts.loops.targets(self.scope, call):
            return
        elif step.name in ("register_hook", "retain_grad", "requires_grad_"):
            yield GradEnd(GradUse.BACKWARD, call, f"`{step.name}` is called on it")
        else:
            yield call

    def _is_free(self, name: str) -> bool:
        """Whether a method of a tensor gives something without its graph; of a detached one, something that is no tensor."""
        row = operations.method(name)
        return row is not None and not row.gradients and (row.result.is_host if self.detached else not row.graph)

    def _takes_indices(self, node: ast.AST) -> bool:
        """`x.max(1)[1]`, `x.topk(k)[1]`: the indices of a pair carry no gradient."""
        if not isinstance(node, ast.Subscript):
            return False
        return self._gives_indices(node.value) and isinstance(node.slice, ast.Constant) and node.slice.value in (1, -1)

    def _gives_indices(self, node: ast.AST) -> bool:
        """Whether a call gives a pair of values and their indices."""
        row = operations.method(getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or row is None or row.result not in (Result.PAIR, Result.PAIR_ALONG_DIM):
            return False
        return not self.facts.loops.targets(self.scope, node)

    def _added(self, step: Step) -> Iterator[GradEnd | ast.AST | Definition]:
        """What becomes of a value that `+=` adds, or that it adds to."""
        target = step.node.target if isinstance(step.node, ast.AugAssign) else None
        yield from self._stored(target) if isinstance(target, (ast.Attribute, ast.Subscript)) else step.definitions

    def _stored(self, target: ast.AST) -> Iterator[GradEnd | ast.AST | Definition]:
        """Stored in an attribute or an item: followed when the container is a local, else it leaves."""
        root = target
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if isinstance(root, ast.Name) and isinstance(target, ast.Subscript):
            if holds_numbers(self.facts.inference, self.scope, target.value):
                return
            definitions = self.flow.reaching.get(root, frozenset())
            if definitions and all(self._is_made_here(d) for d in definitions):
                yield from definitions
                return
        yield GradEnd(GradUse.LEAVES, target, f"it is stored in `{ast.unparse(target)}`")

    def _argument(self, call: ast.Call, value: ast.AST) -> Iterator[GradEnd | ast.AST | Definition]:
        """What a call does with an argument."""
        name = (path_of(call.func) or getattr(call.func, "attr", "") or "").rpartition(".")[2]
        if "backward" in name or name == "grad" or (name == "Parameter" and self.detached):
            yield GradEnd(GradUse.BACKWARD, call, "it is back-propagated")
            return
        shown = None if self.detached else self._shows(call, name)
        if shown is not None:
            yield GradEnd(GradUse.UNKNOWN, call, shown)
            return
        targets = self.facts.loops.targets(self.scope, call)
        if name in self.free_calls and not targets:
            return
        if isinstance(call.func, ast.Attribute) and name in _COLLECTING and not targets:
            yield from self._collected(call, call.func.value)
        elif not targets and self._value(call).must(_is_of_the_host):
            if not self.detached and self._value(call).may_be(Text) and name != "format":
                yield GradEnd(GradUse.UNKNOWN, call, "a text is made of it")
        elif self._result_carries(call, name, bool(targets)):
            yield call
        elif targets and self.depth > 0:
            yield from self._inside(call, value, targets)
            if self.facts.loops.may_run_others(self.scope, call):
                yield self._given(call)
        elif not targets and self._is_layer(call.func):
            yield replace(self._given(call), is_layer=True)
            yield call
        else:
            yield self._given(call)

    def _result_carries(self, call: ast.Call, name: str, followed: bool) -> bool:
        """Whether a call gives an argument to nobody but its result. followed: what it runs is looked at."""
        callee = self._value(call.func)
        if callee.must(_gives_back):
            return not self._value(call).must(_is_nothing)
        if followed and self.depth > 0:
            return False
        if callee.may(lambda a: isinstance(a, Object) and _gives_back(a)):
            return True  # a module or a criterion of unknown class: the graph goes on in its result
        if not isinstance(call.func, ast.Attribute):
            return False
        return operations.method(name) is not None or self._value(call.func.value).must(_gives_back)

    def _is_layer(self, func: ast.expr) -> bool:
        """Whether what is called is an item of a container of layers: `self.blocks[0]`, or a name that goes through them."""
        owner = self.scope.owner
        if owner is None or not is_neural_module(self.facts.inference, Instance(owner)):
            return False
        if isinstance(func, ast.Name):
            definitions = self.flow.reaching.get(func, frozenset())
            return bool(definitions) and all(
                d.kind == "for" and d.value is not None and _is_of_self(d.value) for d in definitions
            )
        return isinstance(func, ast.Subscript) and _is_of_self(func.value)

    def _given(self, call: ast.Call) -> GradEnd:
        return GradEnd(GradUse.UNKNOWN, call, f"it is passed to `{ast.unparse(call.func)}`")

    def _shows(self, call: ast.Call, name: str) -> str | None:
        """What a call shows of the graph, under its own name or as a function that was passed."""
        for alternative in self._value(call.func).alternatives:
            if isinstance(alternative, External):
                known = name if name in _SHOWS_GRAPH else alternative.qualname.removeprefix("builtins.")
                if known in _SHOWS_GRAPH:
                    return _SHOWS_GRAPH[known]
        return None

    def _is_scalar(self, step: Step) -> bool:
        """Whether an f-string shows nothing but a number, and not `grad_fn=...`, as `!r` does."""
        converted = isinstance(step.node, ast.FormattedValue) and step.node.conversion != -1
        return not converted and self._value(step.value).must(lambda a: not isinstance(a, Tensor) or a.ndim == 0)

    def _collected(self, call: ast.Call, root: ast.expr) -> Iterator[GradEnd | ast.AST | Definition]:
        definitions = self.flow.reaching.get(root, frozenset()) if isinstance(root, ast.Name) else frozenset()
        if not definitions or not all(self._is_made_here(definition) for definition in definitions):
            yield GradEnd(GradUse.LEAVES, call, f"it is kept in `{path_of(root) or ast.unparse(root)}`")
        yield from (definition for definition in definitions if definition.kind != "parameter")

    def _is_made_here(self, definition: Definition) -> bool:
        """Whether a container has no other name that somebody else may look at it by: it is no attribute, item or alias."""
        if definition.kind == "augmented":
            return True
        if definition.kind != "assign" or not self.flow.binds_alone(definition.node):
            return False
        match definition.value:
            case ast.Attribute() | ast.Subscript() | ast.Name() | ast.IfExp() | ast.BoolOp() | ast.NamedExpr() | ast.Await():
                return False
            case ast.Call(func=func) as call:
                made = self._value(call).must(lambda a: isinstance(a, Tensor) or _is_array(a))
                return made or self._value(func).must(lambda a: isinstance(a, ClassRef) or _makes_containers(a))
        return True

    def _inside(self, call: ast.Call, value: ast.AST, targets: list[Scope]) -> Iterator[GradEnd | ast.AST]:
        """What functions of the project do with an argument: with the parameter that takes it, or, if not known, with all."""
        callee = ast.unparse(call.func)
        for target in targets:
            if isinstance(target.node, ast.AsyncFunctionDef) or (can_be_parsed(target) and flow_of(target).yields):
                yield call  # it holds what it is given until somebody lets it run
            try:
                ends = self._of_parameters(target, self._taken_by(call, value, target))
            except SyntaxProblem:
                yield self._given(call)
                continue
            for end in ends:
                if end.use is GradUse.LEAVES and isinstance(end.node, ast.Return):
                    yield call
                else:
                    yield GradEnd(end.use, call, f"in `{callee}` {end.note}", end.is_layer)

    def _taken_by(self, call: ast.Call, value: ast.AST, target: Scope) -> str | None:
        """The parameter that takes an argument, where nothing such as a decorator stands between the call and the function."""
        is_method = target.owner is not None
        plain = self._value(call.func).must(lambda a: isinstance(a, FunctionRef) and (a.receiver is not None) is is_method)
        function = target.node
        if not plain or target.decorators or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        return None if function.args.posonlyargs else parameter_of(target, call, value)

    def _of_parameters(self, target: Scope, name: str | None) -> list[GradEnd]:
        """What a function does with what it is given: by one parameter, or by any."""

        def found() -> list[GradEnd]:
            walk = TensorWalk(self.facts, target, self.depth - 1, self.detached)
            parameters = [d for d in walk.flow.definitions if d.kind == "parameter" and d.name not in ("self", "cls")]
            return list(walk.ends(*(d for d in parameters if name in (None, d.name))))

        ends: list[GradEnd] = self.facts.parameter_ends.get((target, name, self.depth, self.detached), found)
        return ends


def _makes_containers(alternative: object) -> bool:
    return isinstance(alternative, External) and alternative.qualname.startswith(_CONTAINERS)


def _gives_back(alternative: object) -> bool:
    """Whether a function, or something that is called or has methods, keeps none of its arguments."""
    match alternative:
        case External(qualname) | Object(qualname):
            return qualname.startswith(_GIVES_BACK)
        case Instance() | ClassRef() | FunctionRef():
            return False
    return True


def _is_of_the_host(alternative: object) -> bool:
    """Whether a result is a number, a text or an array; what gives nothing back does something else with its arguments."""
    known = isinstance(alternative, (Number, Literal, Text)) or _is_array(alternative)
    return known and not _is_nothing(alternative)


def _is_nothing(alternative: object) -> bool:
    return isinstance(alternative, Literal) and alternative.value is None


def _is_array(alternative: object) -> bool:
    return isinstance(alternative, Object) and alternative.qualname.startswith(("numpy.", "pandas."))


_ASKS_FOR_GRADIENTS = any_layout(
    rb"grad(?:(?<=autograd) \. grad\b|(?<!no_grad)(?<!zero_grad) \()|gradient_update_parameters|innerloop_ctx"
)
"""Of torch, torchmeta and higher."""


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


def adapts(facts: Facts, scope: Scope) -> bool:
    """Whether a function asks for gradients to go on with, itself or below: meta-learning does so in an evaluation, too."""
    below = called_from(facts, scope, depth=3)
    return any(can_be_parsed(function) and _ASKS_FOR_GRADIENTS.search(function.text) for function in below)


def backward_below(facts: Facts, scope: Scope, depth: int = 3) -> bool:
    """Whether something that a scope calls may run a backward pass, also in a loop: a training run within an evaluation."""
    below = (function for function in called_from(facts, scope, depth=depth) if function is not scope)
    return not can_be_parsed(scope) or any(not can_be_parsed(function) or backward_in(facts, function) for function in below)


def trains_near(facts: Facts, scope: Scope) -> bool:
    """Whether a backward pass runs in a function, in one that it calls, or in one whose step calls it."""
    near = [scope, *(call.scope for call in facts.loops.hot_calls(scope))]
    return any(backward_in(facts, other) or backward_below(facts, other) for other in near)


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
            owner = scope.owner
            return facts.trained_attributes.get((owner, name), lambda: _read_by_training(facts, owner, name))
    return None


def _read_by_training(facts: Facts, owner: Class, name: str) -> ast.expr | None:
    """Where a method of a class with a backward pass gives an attribute on with autograd."""
    word = name.encode()
    for method in owner.methods.values():
        if word not in method.text or not backward_in(facts, method):
            continue
        for mention in flow_of(method).mentions[name]:
            if isinstance(mention, ast.Attribute) and isinstance(mention.ctx, ast.Load):
                if any(e.use is GradUse.BACKWARD for e in graph_ends(facts, method, mention)):
                    return mention
    return None


def _is_of_self(node: ast.expr) -> bool:
    """Whether an expression is an attribute of `self`, or goes through some: `self.blocks`, `zip(self.blocks, self.norms)`."""
    while isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name):
            return node.value.id == "self"
        node = node.value
    return isinstance(node, ast.Call) and path_of(node.func) in ("enumerate", "zip") and all(map(_is_of_self, node.args))
