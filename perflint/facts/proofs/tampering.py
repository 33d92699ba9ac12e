"""Whether somebody may write to the numbers of a tensor, or shares its memory."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.same_value import first_definitions
from perflint.facts.dataflow.uses import Step, Walk, Way
from perflint.facts.facts import Facts
from perflint.facts.operations import operations
from perflint.facts.operations.api_tables import ALIASING_MODULES, LEGACY_TENSOR_CLASSES
from perflint.facts.operations.operations import Memory
from perflint.facts.proofs.pinned_by_hand import pinned_by_hand
from perflint.facts.values.arguments import argument, transfer_target, works_in_place
from perflint.facts.values.values import (
    Alternative,
    Batch,
    Elements,
    External,
    FunctionRef,
    Instance,
    Literal,
    Loader,
    Mapping,
    Object,
    Output,
    Sequence,
    Tensor,
    Text,
    Value,
    device_place,
    is_none,
    place_of,
)
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import words

_HARMLESS_CALLS = words(
    """
    print float int bool len str repr format isinstance abs round min max sum type id hasattr callable range
    """
)
_HARMLESS_OBJECTS = {
    "torch.amp.GradScaler": frozenset(("scale",)),
    "accelerate.Accelerator": frozenset(("backward", "log", "print")),
    "torch.utils.tensorboard.SummaryWriter": frozenset(("add_scalar",)),
    "tensorboardX.SummaryWriter": frozenset(("add_scalar",)),
}
"""Methods that only look at the tensors that they are given."""
_CONTAINERS = frozenset(("Module", "Sequential", "ModuleList", "DataParallel", "DistributedDataParallel"))


def untouched(
    facts: Facts, scope: Scope, definition: Definition, last: ast.AST | None = None, *, first: ast.AST | None = None
) -> Obligation | None:
    """Whether what a definition binds keeps its numbers until `last` (D2, D5, D6), or for good: every use is harmless.

    first: from where on they matter; by default from the definition on.
    """
    return _Writes(facts, scope, last, first=first).of(definition)


def unshared(facts: Facts, scope: Scope, tensor: ast.expr) -> Obligation | None:
    """Whether a tensor is new memory that nothing longer-lived holds (D3)."""
    shared = Obligation(Kind.ALIASING, f"`{ast.unparse(tensor)}` may share memory with a tensor that lives longer")
    if not facts.inference.value(scope, tensor).must(lambda a: isinstance(a, Tensor) and a.fresh):
        return shared
    flow = flow_of(scope)
    made = [d for d in first_definitions(flow, *flow.reaching.get(tensor, ())) if d.kind != "augmented"]
    return (
        None if made and all(isinstance(d.value, ast.Constant) or _is_new(facts, scope, d.value, 2) for d in made) else shared
    )


def _is_new(facts: Facts, scope: Scope, value: ast.expr | None, depth: int) -> bool:
    """Whether an expression computes its result, and no function of the project that it calls keeps it."""
    match value:
        case ast.UnaryOp(op=ast.UAdd()):
            return False
        case ast.BinOp() | ast.UnaryOp() | ast.Compare():
            return True
        case ast.IfExp(body=body, orelse=orelse):
            return _is_new(facts, scope, body, depth) and _is_new(facts, scope, orelse, depth)
        case ast.Call():
            targets = facts.loops.targets(scope, value)
            if targets and facts.loops.may_run_others(scope, value):
                return False
            return not targets or (depth > 0 and all(_returns_new(facts, target, depth - 1) for target in targets))
    return False


def _returns_new(facts: Facts, scope: Scope, depth: int) -> bool:
    """Whether a function hands out only what it has computed and does not keep."""
    try:
        flow = flow_of(scope)
    except SyntaxProblem:
        return False
    kept = _Writes(facts, scope)
    for returned in flow.returns:
        for part in returned.value.elts if isinstance(returned.value, ast.Tuple) else [returned.value]:
            if isinstance(part, ast.Name):
                for definition in flow.reaching.get(part, ()):
                    if definition.name in flow.inner_names or kept.of(definition) is not None:
                        return False
                    if not _is_new(facts, scope, definition.value, depth):
                        return False
            elif not isinstance(part, ast.Constant) and not _is_new(facts, scope, part, depth):
                return False
    return True


class _Writes(Walk[Obligation]):
    """Which uses may write to a tensor, a view of it or an alias: between `first` and `last` its numbers matter."""

    def __init__(
        self, facts: Facts, scope: Scope, last: ast.AST | None = None, depth: int = 2, *, first: ast.AST | None = None
    ) -> None:
        super().__init__(scope)
        self.facts, self.last, self.depth, self.first = facts, last, depth, first
        self.tensor: Definition | None = None
        """What is followed; the other definitions are its aliases and views."""

    def of(self, definition: Definition) -> Obligation | None:
        """Why what a definition binds may be written to, under any of its names."""
        self.tensor = self.tensor or definition
        if definition.kind == "augmented":
            self.first = self.first or definition.node  # what stands before is done, but for other names of the same tensor
        bound = first_definitions(self.flow, definition)
        wholes = [d.value for d in bound if d.kind in ("assign", "walrus") and not d.index and d.value is not None]
        return next(self.ends(*bound, *wholes), None)

    def uses(self, definition: Definition) -> list[ast.expr]:
        """The uses before `last`, and those that run again after it: an alias holds the same tensor in the next iteration."""
        return [use for use in self.flow.uses[definition] if self._counts(use)]

    def _counts(self, use: ast.expr) -> bool:
        if self.last is None or self.tensor is None:
            return True
        return self.flow.order[use] < self.flow.order[self.last] or self._runs_again(use, self.last)

    def _runs_again(self, node: ast.AST, place: ast.AST) -> bool:
        """Whether a loop within the iteration that binds the tensor holds both: each runs before and after the other."""
        assert self.tensor is not None
        own = self.tensor.block.loop
        around = {id(loop) for loop in own.ancestry()} if own is not None else set()
        loop_of_place = self.flow.loop(place)
        return loop_of_place is not None and any(
            id(loop) not in around and self.flow.within(node, loop.block) for loop in loop_of_place.ancestry()
        )

    def _is_over(self, node: ast.AST) -> bool:
        """Whether something has run for the last time when the numbers begin to matter."""
        if self.first is None or self.flow.order.get(node, self.flow.order[self.first]) >= self.flow.order[self.first]:
            return False
        return not self._runs_again(node, self.first)

    def judge(self, step: Step) -> Iterator[Obligation | ast.AST | Definition]:
        for found in self._harm(step):
            if isinstance(found, Obligation) and found.kind is Kind.WRITE and self._is_over(step.node):
                yield from step.definitions
                yield from filter(None, [step.result])  # what works in place gives its receiver
            else:
                yield found

    def _harm(self, step: Step) -> Iterator[Obligation | ast.AST | Definition]:
        match step.way:
            case Way.TESTED | Way.FORMATTED | Way.RETURNED | Way.DELETED | Way.DROPPED:
                return
            case Way.ALIAS | Way.UNPACKED | Way.ITEM:
                yield from filter(None, [step.result])
            case Way.BOUND:
                yield from step.definitions
            case Way.ATTRIBUTE:
                yield from self._read(step)
            case Way.METHOD:
                yield from self._called(step)
            case Way.ARGUMENT:
                yield from self._given(step.node, step.value, step.name)
            case Way.INDEX | Way.OPERAND | Way.COMPARED:
                yield from self._operated(step)
            case Way.CONTAINED:
                yield from self._contained(step)
            case _:
                kind, words_for = _HARM.get(step.way, (Kind.MUTATION, "nothing is known of `{node}`"))
                value = step.name or ast.unparse(step.value)
                yield Obligation(kind, words_for.format(value=value, node=ast.unparse(step.node)))

    def _value(self, node: ast.AST) -> Value:
        assert isinstance(node, ast.expr)
        return self.facts.inference.value(self.scope, node)

    def _operated(self, step: Step) -> Iterator[Obligation | ast.AST]:
        """What an operator does to one operand: a class of the project may define it for the other ones."""
        others: list[ast.expr] = []
        match step.node:
            case ast.UnaryOp(op=op):
                yield from [step.node] if isinstance(op, ast.UAdd) else []
            case ast.BinOp(left=left, right=right):
                others = [right if left is step.value else left]
            case ast.Compare(left=left, comparators=comparators):
                others = [other for other in (left, *comparators) if other is not step.value]
            case ast.AugAssign(target=other) | ast.Subscript(value=other):
                others = [other]
            case _:
                yield Obligation(Kind.MUTATION, f"`{ast.unparse(step.value)}` is compared in a pattern")
        for other in others:
            if self._value(other).may_be(Instance):
                words_for = f"the operator of `{ast.unparse(other)}` may change `{ast.unparse(step.value)}`"
                yield Obligation(Kind.MUTATION, words_for)

    def _read(self, step: Step) -> Iterator[Obligation | ast.AST]:
        part, row = operations.attribute(step.name), operations.method(step.name)
        if part is not None and part.memory is Memory.VIEW:
            yield step.node
        elif step.name.endswith("_") or (row is not None and row.shares_memory):
            yield Obligation(Kind.MUTATION, f"the method `{ast.unparse(step.node)}` may be called later")

    def _called(self, step: Step) -> Iterator[Obligation | ast.AST]:
        call, name = step.node, step.name
        assert isinstance(call, ast.Call)
        row = operations.method(name)
        if name == "requires_grad_":
            yield call
        elif name.endswith("_") and not name.startswith("__"):
            yield Obligation(Kind.WRITE, f"`{name}` works in place")
        elif any(k.arg == "out" for k in call.keywords):
            yield Obligation(Kind.WRITE, "`out=` writes to a tensor")
        elif row is not None and row.shares_memory:
            yield call
        elif row is None:
            yield Obligation(Kind.MUTATION, f"`{name}` may change it")

    def _given(self, call: ast.AST, given: ast.AST, keyword: str = "") -> Iterator[Obligation | ast.AST]:
        """What a call does with an argument."""
        assert isinstance(call, ast.Call)
        inference = self.facts.inference
        func, shown = call.func, f"`{ast.unparse(call.func)}`"
        changes = Obligation(Kind.MUTATION, f"{shown} may change `{ast.unparse(given)}`")
        if keyword == "out":
            yield Obligation(Kind.WRITE, f"`out=` writes to `{ast.unparse(given)}`")
            return
        if isinstance(func, ast.Name) and func.id in _HARMLESS_CALLS:
            if inference.value(self.scope, func).must(lambda a: a == External(f"builtins.{func.id}")):
                yield from self._given_to_builtin(call, func.id)
                return
        callee = inference.value(self.scope, func).single
        if isinstance(callee, External) and callee.qualname.startswith("torch."):
            last = callee.qualname.rpartition(".")[2]
            row = operations.function(callee.qualname)
            if callee.qualname.startswith("torch.distributed"):
                kind = Kind.TRANSFER if _may_go_on(call, last) else Kind.WRITE
                yield Obligation(kind, f"{shown} writes to it")
            elif last.endswith("_") or works_in_place(call):
                yield Obligation(Kind.WRITE, f"`{ast.unparse(call)}` works in place")
            elif last in LEGACY_TENSOR_CLASSES or (row is not None and row.shares_memory):
                yield call
            elif row is None or not row.only_computes:
                yield changes
            return
        if isinstance(callee, Object) and callee.qualname.startswith("torch.nn."):
            made = callee.site[1] if isinstance(callee.site, tuple) else None
            if callee.qualname.rpartition(".")[2] in _CONTAINERS:
                yield changes
            elif isinstance(made, ast.Call) and works_in_place(made):
                yield Obligation(Kind.WRITE, f"{shown} works in place")
            elif callee.qualname.rpartition(".")[2] in ALIASING_MODULES:
                yield call
            return
        if isinstance(func, ast.Attribute):
            receiver = inference.value(self.scope, func.value).without(is_none)
            if receiver.must(lambda a: isinstance(a, Object) and func.attr in _HARMLESS_OBJECTS.get(a.qualname, ())):
                yield call
                return
            if receiver.must(_is_text):
                return
            row = operations.method(func.attr)
            if receiver.must_be(Tensor) and row is not None and not row.gradients:
                return  # a method that works in place writes to its receiver, and shares memory with it
        yield call if self._project_leaves(call, given) else changes  # a function may return what it was given

    def _given_to_builtin(self, call: ast.Call, name: str) -> Iterator[Obligation | ast.AST]:
        """What a builtin function does to its arguments: `key` is called with them, `sum` and `max` work by operators."""
        others = [part for part in ast.walk(call) if isinstance(part, ast.expr) and part is not call.func]
        runs = any(k.arg in ("key", None) for k in call.keywords) or (
            name in ("sum", "max", "min") and any(self._value(part).may_be(Instance) for part in others)
        )
        if runs:
            yield Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(call)}` may run code of the project")
        elif name in ("max", "min"):
            yield call  # they hand out what they are given

    def _project_leaves(self, call: ast.Call, given: ast.AST) -> bool:
        """Whether a call runs nothing but functions of the project that leave an argument alone."""
        targets = self.facts.loops.targets(self.scope, call)
        if not targets or self.depth <= 0 or self.facts.loops.may_run_others(self.scope, call):
            return False
        for target in targets:
            try:
                inner = type(self)(self.facts, target, None, self.depth - 1)
            except SyntaxProblem:
                return False
            parameters = [d for d in inner.flow.definitions if d.kind == "parameter"]
            receiving = [d for d in parameters if _passed(target, call, d.name) is given]
            if inner.flow.yields or any(inner.of(parameter) is not None for parameter in receiving or parameters):
                return False
        return True

    def _contained(self, step: Step) -> Iterator[Obligation | ast.AST]:
        """A tuple or list that holds the tensor: harmless where it is formatted or returned at once."""
        match self.flow.parent.get(step.node):
            case ast.BinOp(op=ast.Mod()) | ast.Return() | ast.Expr() if isinstance(step.node, _DISPLAYS):
                return
            case ast.Call() as call if isinstance(step.node, _DISPLAYS):
                yield from self._given(call, step.node)
            case _:
                yield Obligation(Kind.RETENTION, f"`{ast.unparse(step.value)}` is kept in a container")


def _may_go_on(call: ast.Call, function: str) -> bool:
    """Whether a collective operation may write after its call has returned: `isend`, `irecv`, or with `async_op`."""
    return function.startswith("i") or len(call.args) > 2 or any(k.arg in ("async_op", None) for k in call.keywords)


_DISPLAYS = (ast.Tuple, ast.List, ast.Set, ast.Dict)
_HARM = {
    Way.STORED: (Kind.RETENTION, "it is stored in `{node}`"),
    Way.CAPTURED: (Kind.NAMES, "a function may read `{value}`"),
    Way.CALLED: (Kind.MUTATION, "`{value}` is called"),
    Way.CHANGED: (Kind.WRITE, "`{value}` is changed in place"),
    Way.ITERATED: (Kind.MUTATION, "`{value}` is iterated over"),
    Way.MATCHED: (Kind.NAMES, "a `match` may give `{value}` another name"),
    Way.ENTERED: (Kind.MUTATION, "a `with` enters `{value}`"),
    Way.YIELDED: (Kind.CONTROL_FLOW, "the function is suspended in between"),
    Way.RAISED: (Kind.RETENTION, "an error holds `{value}`"),
}
"""What a way means for the numbers of a tensor, and how it is said."""


def _passed(target: Scope, call: ast.Call, name: str) -> ast.expr | None:
    """The argument that a call of a project function passes for a parameter, if it is written out."""
    node = target.node
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    positional = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    if positional[:1] in (["self"], ["cls"]):
        positional = positional[1:]
    return argument(call, positional.index(name) if name in positional else None, name)


class _HostWrites(_Writes):
    """Which uses may write to host memory. What is on a device is another memory."""

    def judge(self, step: Step) -> Iterator[Obligation | ast.AST | Definition]:
        match step.way, step.node:
            case Way.ITERATED, _:
                yield from step.definitions
            case Way.CONTAINED, ast.DictComp(key=key) if key is step.value:
                return
            case Way.CONTAINED, ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                yield step.node
            case Way.CHANGED, ast.Subscript(slice=key) if self._value(key).must(_is_text):
                return  # binds an item of a dict
            case _:
                yield from super().judge(step)

    def _called(self, step: Step) -> Iterator[Obligation | ast.AST]:
        call, inference = step.node, self.facts.inference
        assert isinstance(call, ast.Call)
        if step.name in ("items", "values", "get", "numpy"):
            yield call
        elif step.name in ("keys", "cuda") or (
            _may_be_itself(step.name) and self._value(call).must(lambda a: place_of(a).may_be_device)
        ):
            return
        elif step.name != "to" or not device_place(transfer_target(inference, call, inference.frame(self.scope))).may_be_device:
            yield from super()._called(step)


def _is_text(alternative: Alternative) -> bool:
    return isinstance(alternative, Text) or (isinstance(alternative, Literal) and isinstance(alternative.value, str))


def stays_as_is(facts: Facts, scope: Scope, node: ast.expr) -> Obligation | None:
    """Whether nobody writes to the host memory of a tensor once an asynchronous copy of it has begun (D10).

    All uses of the memory count, also those before the copy: they run again in the next iteration, or made a view.
    """
    return _HostMemory(facts, scope, 2).of(node)


class _HostMemory:
    """Follows a tensor back to the names and calls that hold its memory."""

    def __init__(self, facts: Facts, scope: Scope, depth: int) -> None:
        self.facts, self.scope, self.flow, self.depth = facts, scope, flow_of(scope), depth
        self.seen: set[Definition] = set()

    def of(self, node: ast.expr) -> Obligation | None:
        loaders = [a for a in self._value(node).alternatives if isinstance(a, Loader)]
        if loaders:  # each batch is new memory, but for what a `collate_fn` may fill again
            is_own = all(loader.default_collate for loader in loaders)
            return None if is_own else pinned_by_hand(self.facts, self.scope.module.source.path)
        match node:
            case ast.Subscript(value=base) | ast.Starred(value=base) | ast.NamedExpr(value=base):
                return self.of(base)
            case ast.Attribute(value=base):
                if self._value(base).may_be(Tensor, Batch, Output, Mapping, Sequence, Elements):
                    return self.of(base)
                return Obligation(Kind.MUTATION, f"others may write to `{ast.unparse(node)}`")
            case ast.Name():
                return self._named(node)
            case ast.Call():
                return self._result(node)
            case ast.IfExp(body=body, orelse=orelse):
                return self._first([body, orelse])
            case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                return self._first(parts)
            case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.GeneratorExp(elt=part) | ast.DictComp(value=part):
                return self.of(part)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.of(operand)
            case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Constant() | ast.JoinedStr():
                return None  # new memory
        return Obligation(Kind.MUTATION, f"`{ast.unparse(node)}` may be memory that others write to")

    def _value(self, node: ast.expr) -> Value:
        return self.facts.inference.value(self.scope, node)

    def _first(self, nodes: Iterable[ast.expr]) -> Obligation | None:
        return next(filter(None, map(self.of, nodes)), None)

    def _result(self, node: ast.Call) -> Obligation | None:
        """The memory of a call's result: that of a tensor that goes in, or memory that only the result holds."""
        value = self._value(node)
        if value.must(lambda a: isinstance(a, Tensor) and a.fresh and not a.guessed):
            return None
        if isinstance(node.func, ast.Attribute):
            owner = self._value(node.func.value)
            if owner.may_be(Tensor, Batch, Output, Mapping) or owner.may(lambda a: a == Object("numpy.ndarray")):
                return self.of(node.func.value)
        if self._value(node.func).must_be(External):
            return self._first(node.args)
        return Obligation(Kind.MUTATION, f"`{ast.unparse(node)}` may be memory that others write to")

    def _named(self, node: ast.Name) -> Obligation | None:
        definitions = self.flow.reaching.get(node, frozenset())
        if not definitions or node.id in self.flow.outer_names:
            return (
                None
                if self._value(node).must_be(FunctionRef)
                else Obligation(Kind.NAMES, f"`{node.id}` is not a local variable")
            )
        if node.id in self.flow.inner_names:
            return Obligation(Kind.NAMES, f"a function inside uses `{node.id}`")
        return next(filter(None, map(self._defined, sorted(definitions, key=lambda d: d.order))), None)

    def _defined(self, definition: Definition) -> Obligation | None:
        if definition in self.seen:
            return None
        self.seen.add(definition)
        reason = _HostWrites(self.facts, self.scope, None).of(definition)
        if reason is not None:
            return reason
        if definition.kind == "parameter":
            return self._argument(definition.name)
        if definition.value is None:
            return Obligation(Kind.MUTATION, f"`{definition.name}` may be memory that others write to")
        return self.of(definition.value)

    def _argument(self, name: str) -> Obligation | None:
        unknown = Obligation(Kind.MUTATION, f"a caller may write to `{name}`")
        found = self.facts.inference.callers.sites(self.scope)
        if not found.sites or not found.complete or self.depth == 0:
            return unknown
        for site in found.sites:
            given = _passed(self.scope, site.node, name)
            if given is None or _HostMemory(self.facts, site.scope, self.depth - 1).of(given) is not None:
                return unknown
        return None


def _may_be_itself(name: str) -> bool:
    """Whether a method of a tensor gives new memory or the receiver."""
    row = operations.method(name)
    return row is not None and row.memory is Memory.ALIAS
