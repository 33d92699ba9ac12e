"""The proof obligations that rewrites share, as functions over the facts.

Each returns None when the proof holds, and else one line that says what stands against it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from perflint.facts.api_tables import (
    ALIASING_FUNCTIONS,
    ALIASING_MODULES,
    COMPUTING_FUNCTIONS,
    HARMLESS_METHODS,
    LEGACY_TENSOR_CLASSES,
    MAY_ALIAS,
    READING_METHODS,
    VIEWS,
)
from perflint.facts.calls import argument, transfer_target, works_in_place
from perflint.facts.classes import find_method
from perflint.facts.decorators import decorator_name
from perflint.facts.facts import Facts
from perflint.facts.flow import Definition, Flow, flow_of, path_of
from perflint.facts.loops import is_neural_module
from perflint.facts.values import (
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
    Place,
    Sequence,
    Tensor,
    Text,
    Value,
    device_place,
    place_of,
)
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout, words

_HARMLESS_CALLS = words(
    """
    print float int bool len str repr format isinstance abs round min max sum type id hasattr callable
    """
)
_HARMLESS_OBJECTS = {
    "torch.amp.GradScaler": frozenset(("scale",)),
    "accelerate.Accelerator": frozenset(("backward", "log", "print")),
    "torch.utils.tensorboard.SummaryWriter": frozenset(("add_scalar",)),
}
"""Methods that only look at the tensors that they are given."""
_CONTAINERS = frozenset(("Module", "Sequential", "ModuleList", "DataParallel", "DistributedDataParallel"))
_TIMING = words(
    """
    time perf_counter monotonic process_time perf_counter_ns monotonic_ns process_time_ns time_ns thread_time now
    utcnow synchronize elapsed_time record default_timer tic toc
    """
)
_LOCALS = frozenset(("locals", "vars", "eval", "exec", "globals", "dir"))


def single_definition(flow: Flow, *uses: ast.expr) -> Definition | None:
    """The one definition that reaches all uses in one iteration (D1); None when there is none."""
    found = {flow.reaching.get(use, frozenset()) for use in uses}
    if len(found) != 1:
        return None
    (definitions,) = found
    if len(definitions) != 1:
        return None
    (definition,) = definitions
    first = min(flow.order[use] for use in uses)
    if definition.kind == "parameter":
        return definition
    if definition.order >= first:
        return None
    if not all(any(b is definition.block for b in flow.block[use].ancestry()) for use in uses):
        return None
    return definition


def step_definitions(flow: Flow, *uses: ast.expr) -> list[Definition]:
    """The definitions that reach all uses in one iteration (D1): one, or one for each branch; empty when that is not certain.

    Each path through the iteration comes through one of them before the first use, so no older value reaches the uses.
    """
    single = single_definition(flow, *uses)
    if single is not None:
        return [single]
    found = {flow.reaching.get(use, frozenset()) for use in uses}
    if len(found) != 1:
        return []
    (definitions,) = found
    first = min(uses, key=flow.order.__getitem__)
    low = flow.order[first]
    if not definitions or not all(d.kind == "assign" and d.order < low for d in definitions):
        return []
    targets = {id(d.node) for d in definitions}
    for block in flow.block[first].ancestry():
        if not all(flow.within(use, block) for use in uses):
            continue
        top = flow.top(first, block)
        before = [s for s in flow.siblings(top) if flow.order[s] < flow.order[top]] if top is not None else []
        if _binds(flow, before, targets):
            return sorted(definitions, key=lambda d: d.order)
        if block.kind in ("loop", "loop-else"):
            return []  # what is bound further out is older than the iteration
    return []


def _binds(flow: Flow, statements: list[ast.stmt], targets: set[int]) -> bool:
    """Whether whoever comes through the statements comes through one of the targets."""
    for statement in statements:
        match statement:
            case ast.Assign(targets=assigned):
                if any(id(part) in targets for target in assigned for part in ast.walk(target)):
                    return True
            case ast.With(body=body) if Flow.always(flow.block[body[0]]) is Flow.always(flow.block[statement]):
                if _binds(flow, body, targets):
                    return True
            case ast.If(body=body, orelse=orelse):
                if all(_binds(flow, arm, targets) for arm in (body, orelse)):
                    return True
            case ast.Try(body=body, handlers=handlers, finalbody=final):
                if all(_binds(flow, part, targets) for part in (body, *(h.body for h in handlers))):
                    return True
                if _binds(flow, final, targets):
                    return True
            case ast.Continue() | ast.Break() | ast.Return() | ast.Raise():
                return True
    return False


def untouched(facts: Facts, scope: Scope, definition: Definition, last: ast.AST | None = None) -> Obligation | None:
    """Whether what a definition binds keeps its numbers until `last` (D2, D5, D6), or for good: every use is harmless."""
    flow = flow_of(scope)
    name = definition.name
    if name in flow.outer_names:
        return Obligation(Kind.NAMES, f"`{name}` is not a local variable")
    if name in flow.inner_names:
        return Obligation(Kind.NAMES, f"a function inside reads `{name}`")
    if scope.is_module and any(name.encode() in function.text for function in scope.module.functions()):
        return Obligation(Kind.NAMES, f"a function may read the global `{name}`")
    return _Tampering(facts, scope, last).of(definition)


def unshared(facts: Facts, scope: Scope, tensor: ast.expr) -> Obligation | None:
    """Whether a tensor is new memory that nothing longer-lived holds (D3)."""
    shared = Obligation(Kind.ALIASING, f"`{ast.unparse(tensor)}` may share memory with a tensor that lives longer")
    if not facts.inference.value(scope, tensor).must(lambda a: isinstance(a, Tensor) and a.fresh):
        return shared
    definitions = flow_of(scope).reaching.get(tensor, frozenset())
    return None if definitions and all(_is_new(facts, scope, d.value, 2) for d in definitions) else shared


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
    kept = _Tampering(facts, scope, None)
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


class _Tampering:
    """Looks for a use that may write to a tensor, follows views and aliases."""

    def __init__(self, facts: Facts, scope: Scope, last: ast.AST | None, depth: int = 2) -> None:
        self.facts, self.scope, self.flow, self.last, self.depth = facts, scope, flow_of(scope), last, depth
        self.seen: set[Definition] = set()
        self.tensor: Definition | None = None
        """What is followed; the other definitions are its aliases and views."""

    def of(self, definition: Definition) -> Obligation | None:
        if definition in self.seen:
            return None
        self.tensor = self.tensor or definition
        self.seen.add(definition)
        if definition.name in self.flow.outer_names:
            return Obligation(Kind.NAMES, f"`{definition.name}` is not a local variable")
        if definition.value is not None and definition.kind in ("assign", "walrus") and not definition.index:
            reason = self._bound_as_well(definition.value)
            if reason is not None:
                return reason
        for use in self.flow.uses[definition]:
            if self._counts(use):
                reason = self.carried(use)
                if reason is not None:
                    return reason
        return None

    def _counts(self, use: ast.expr) -> bool:
        """Whether a use may run before `last`: an alias that is bound in a loop holds the same tensor in the next iteration."""
        if self.last is None or self.tensor is None:
            return True
        if self.flow.order[use] < self.flow.order[self.last]:
            return True
        own = self.tensor.block.loop
        around = {id(loop) for loop in own.ancestry()} if own is not None else set()
        last_loop = self.flow.loop(self.last)
        return last_loop is not None and any(
            id(loop) not in around and self.flow.within(use, loop.block) for loop in last_loop.ancestry()
        )

    def _bound_as_well(self, value: ast.expr) -> Obligation | None:
        """What happens to the other targets of `a = b = value`, and to the value of `(a := value)`."""
        parent = self.flow.parent.get(value)
        match parent:
            case ast.Assign(targets=targets) if len(targets) > 1:
                return self._bound(value, targets, value)
            case ast.NamedExpr():
                return self.carried(parent)
        return None

    def carried(self, node: ast.expr) -> Obligation | None:
        """What happens to an expression that shares the tensor's memory."""
        parent = self.flow.parent.get(node)
        match parent:
            case ast.Attribute():
                return self._member(parent)
            case ast.Call():
                return self._argument(parent, node)
            case ast.keyword(arg=arg):
                call = self.flow.parent[parent]
                if arg == "out":
                    return Obligation(Kind.WRITE, f"`out=` writes to `{ast.unparse(node)}`")
                return self._argument(call, node) if isinstance(call, ast.Call) else None
            case ast.Subscript(ctx=ast.Load()) if parent.value is node:
                return self.carried(parent)
            case ast.Subscript(ctx=ast.Store()) if parent.value is node:
                return Obligation(Kind.WRITE, f"an item of `{ast.unparse(node)}` is assigned")
            case ast.Subscript(value=container) if parent.slice is node:
                return self._operated(node, container)
            case ast.Slice():
                return self.carried(parent)
            case ast.Compare(left=left, comparators=others):
                return next(filter(None, (self._operated(node, o) for o in (left, *others) if o is not node)), None)
            case ast.AugAssign(target=target) if target is node:
                return Obligation(Kind.WRITE, f"`{ast.unparse(node)}` is changed in place")
            case ast.Assign(targets=targets):
                return self._bound(parent.value, targets, node)
            case ast.AnnAssign(target=target):
                return self._bound(node, [target], node)
            case ast.NamedExpr(target=target):
                return self._bound(node, [target], node) or self.carried(parent)
            case ast.IfExp() if parent.test is not node:
                return self.carried(parent)
            case ast.BoolOp() | ast.Starred() | ast.UnaryOp(op=ast.UAdd()):
                return self.carried(parent)
            case ast.BinOp(left=left, right=right):
                return self._operated(node, right if left is node else left)
            case ast.AugAssign(target=target):
                return self._operated(node, target)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return Obligation(Kind.RETENTION, f"`{ast.unparse(node)}` is kept in a container")
            case ast.Tuple() | ast.List() | ast.Set() | ast.Dict():
                return self._contained(parent, node)
            case ast.Yield() | ast.YieldFrom() | ast.Await():
                return Obligation(Kind.CONTROL_FLOW, "the function is suspended in between")
            case ast.For() | ast.comprehension():
                return Obligation(Kind.MUTATION, f"`{ast.unparse(node)}` is iterated over")
            case ast.Assert(msg=shown) if shown is node:
                return Obligation(Kind.RETENTION, f"an error holds `{ast.unparse(node)}`")
            case ast.Match():
                return Obligation(Kind.NAMES, f"a `match` may give `{ast.unparse(node)}` another name")
        return None

    def _operated(self, node: ast.expr, other: ast.expr) -> Obligation | None:
        """What an operator does to one operand: a class of the project may define it for the other one."""
        if self.facts.inference.value(self.scope, other).may_be(Instance):
            return Obligation(Kind.MUTATION, f"the operator of `{ast.unparse(other)}` may change `{ast.unparse(node)}`")
        return None

    def _member(self, node: ast.Attribute) -> Obligation | None:
        if isinstance(node.ctx, ast.Store):
            return Obligation(Kind.WRITE, f"`{ast.unparse(node)}` is assigned")
        call = self.flow.parent.get(node)
        if isinstance(call, ast.Call) and call.func is node:
            if node.attr == "requires_grad_":
                return self.carried(call)
            if node.attr.endswith("_") and not node.attr.startswith("__"):
                return Obligation(Kind.WRITE, f"`{node.attr}` works in place")
            if any(k.arg == "out" for k in call.keywords):
                return Obligation(Kind.WRITE, "`out=` writes to a tensor")
            if node.attr in VIEWS or node.attr in MAY_ALIAS or node.attr == "numpy":
                return self.carried(call)
            if node.attr in HARMLESS_METHODS or node.attr in READING_METHODS:
                return None
            return Obligation(Kind.MUTATION, f"`{node.attr}` may change it")
        if node.attr in ("data", "T", "mT", "H", "mH", "real", "imag"):
            return self.carried(node)
        if node.attr.endswith("_") or node.attr in VIEWS or node.attr in MAY_ALIAS:
            return Obligation(Kind.MUTATION, f"the method `{ast.unparse(node)}` may be called later")
        return None

    def _given_to_builtin(self, call: ast.Call, name: str) -> Obligation | None:
        """What a builtin function does to its arguments: `key` is called with them, `sum` and `max` work by operators."""
        others = [part for part in ast.walk(call) if isinstance(part, ast.expr) and part is not call.func]
        runs = any(k.arg in ("key", None) for k in call.keywords) or (
            name in ("sum", "max", "min") and any(self.facts.inference.value(self.scope, p).may_be(Instance) for p in others)
        )
        if runs:
            return Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(call)}` may run code of the project")
        return self.carried(call) if name in ("max", "min") else None  # they hand out what they are given

    def _argument(self, call: ast.Call, node: ast.expr) -> Obligation | None:
        inference = self.facts.inference
        func = call.func
        if isinstance(func, ast.Name) and func.id in _HARMLESS_CALLS:
            if inference.value(self.scope, func).must(lambda a: a == External(f"builtins.{func.id}")):
                return self._given_to_builtin(call, func.id)
        callee = inference.value(self.scope, func).single
        if isinstance(callee, External) and callee.qualname.startswith("torch."):
            last = callee.qualname.rpartition(".")[2]
            if callee.qualname.startswith("torch.distributed"):
                return Obligation(Kind.WRITE, f"`{ast.unparse(func)}` writes to it")
            if last.endswith("_") or works_in_place(call):
                return Obligation(Kind.WRITE, f"`{ast.unparse(call)}` works in place")
            if last in VIEWS | MAY_ALIAS | ALIASING_FUNCTIONS | LEGACY_TENSOR_CLASSES:
                return self.carried(call)
            if last in COMPUTING_FUNCTIONS:
                return None
            return Obligation(Kind.MUTATION, f"`{ast.unparse(func)}` may change `{ast.unparse(node)}`")
        if isinstance(callee, Object) and callee.qualname.startswith("torch.nn."):
            if callee.qualname.rpartition(".")[2] in _CONTAINERS:
                return Obligation(Kind.MUTATION, f"`{ast.unparse(func)}` may change `{ast.unparse(node)}`")
            made = callee.site[1] if isinstance(callee.site, tuple) else None
            if isinstance(made, ast.Call) and works_in_place(made):
                return Obligation(Kind.WRITE, f"`{ast.unparse(func)}` works in place")
            return self.carried(call) if callee.qualname.rpartition(".")[2] in ALIASING_MODULES else None
        if isinstance(func, ast.Attribute):
            receiver = inference.value(self.scope, func.value).without(_is_none)
            if receiver.must(lambda a: isinstance(a, Object) and func.attr in _HARMLESS_OBJECTS.get(a.qualname, ())):
                return self.carried(call)
            if receiver.must(lambda a: isinstance(a, Text) or (isinstance(a, Literal) and isinstance(a.value, str))):
                return None
            if receiver.must_be(Tensor) and func.attr.rstrip("_") in COMPUTING_FUNCTIONS | VIEWS | MAY_ALIAS:
                return None  # a method that works in place writes to its receiver, and shares memory with it
        return self._project_function(call, node)

    def _project_function(self, call: ast.Call, node: ast.expr) -> Obligation | None:
        unknown = Obligation(Kind.MUTATION, f"`{ast.unparse(call.func)}` may change `{ast.unparse(node)}`")
        targets = self.facts.loops.targets(self.scope, call)
        if not targets or self.depth <= 0 or self.facts.loops.may_run_others(self.scope, call):
            return unknown
        for target in targets:
            try:
                flow = flow_of(target)
            except SyntaxProblem:
                return unknown
            if flow.yields:
                return unknown
            inner = type(self)(self.facts, target, None, self.depth - 1)
            parameters = [d for d in flow.definitions if d.kind == "parameter"]
            receiving = [d for d in parameters if _given(target, call, d.name) is node]
            for parameter in receiving or parameters:
                if parameter.name in flow.inner_names or inner.of(parameter) is not None:
                    return unknown
        return self.carried(call)  # it may return what it was given

    def _bound(self, value: ast.expr, targets: list[ast.expr], node: ast.expr) -> Obligation | None:
        for target in targets:
            if isinstance(target, (ast.Attribute, ast.Subscript)):
                return Obligation(Kind.RETENTION, f"it is stored in `{ast.unparse(target)}`")
        for definition in self.flow.definitions_from(value):
            if definition.kind in ("assign", "walrus"):
                if definition.name in self.flow.inner_names:
                    return Obligation(Kind.NAMES, f"a function inside reads `{definition.name}`")
                reason = self.of(definition)
                if reason is not None:
                    return reason
        return None

    def _contained(self, container: ast.expr, node: ast.expr) -> Obligation | None:
        """A tuple or list that holds the tensor: harmless where it is formatted, returned or unpacked at once."""
        parent = self.flow.parent.get(container)
        match parent:
            case ast.BinOp(op=ast.Mod()) | ast.Return() | ast.Expr():
                return None
            case ast.Call():
                return self._argument(parent, container)
            case ast.Assign(targets=[ast.Tuple(elts=parts) | ast.List(elts=parts)]):
                if not any(isinstance(part, ast.Starred) for part in parts):
                    return self._bound(node, [], node)
        return Obligation(Kind.RETENTION, f"`{ast.unparse(node)}` is kept in a container")


def _given(target: Scope, call: ast.Call, name: str) -> ast.expr | None:
    """The argument that a call of a project function passes for a parameter, if it is written out."""
    node = target.node
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    positional = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    if positional[:1] in (["self"], ["cls"]):
        positional = positional[1:]
    return argument(call, positional.index(name) if name in positional else None, name)


class _HostWrites(_Tampering):
    """Looks for a use that may write to host memory. What is on a device is another memory."""

    def carried(self, node: ast.expr) -> Obligation | None:
        parent = self.flow.parent.get(node)
        match parent:
            case ast.For() | ast.comprehension() if parent.iter is node:
                targets = [d for d in self.flow.definitions_from(node) if d.kind == "for"]
                return next(filter(None, map(self.of, targets)), None)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return None if isinstance(parent, ast.DictComp) and parent.key is node else self.carried(parent)
            case ast.Subscript(ctx=ast.Store(), slice=key) if parent.value is node:
                if self.facts.inference.value(self.scope, key).must(_is_text):
                    return None  # binds an item of a dict
        return super().carried(node)

    def _member(self, node: ast.Attribute) -> Obligation | None:
        call = self.flow.parent.get(node)
        if isinstance(call, ast.Call) and call.func is node and isinstance(node.ctx, ast.Load):
            if node.attr in ("items", "values", "get", "numpy"):
                return self.carried(call)
            if node.attr == "keys":
                return None
            inference = self.facts.inference
            if node.attr in MAY_ALIAS and inference.value(self.scope, call).must(lambda a: place_of(a).may_be_device):
                return None
            if node.attr == "cuda":
                return None
            if node.attr == "to" and device_place(transfer_target(inference, call, inference.frame(self.scope))).may_be_device:
                return None
        return super()._member(node)


def _is_none(alternative: Alternative) -> bool:
    return alternative == Literal(None)  # has no methods, so a call of one raises


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
        if self._value(node).may_be(Loader):
            return None  # each batch is new memory
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
            case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
                return self._first(parts)
        return None

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
            given = _given(self.scope, site.node, name)
            if given is None or _HostMemory(self.facts, site.scope, self.depth - 1).of(given) is not None:
                return unknown
        return None


_PURE_FUNCTIONS = words(
    """
    torch.zeros torch.zeros_like torch.device torch.Size torch.autograd.Variable torch.cuda.is_available torch.is_tensor
    builtins.len builtins.int builtins.float builtins.max builtins.min builtins.abs builtins.type builtins.tuple
    builtins.list builtins.range builtins.isinstance builtins.bool
    """
)
_PURE_METHODS = words(
    """
    new new_zeros zeros_like size dim numel type type_as to cuda cpu float double half bfloat16 detach clone view
    reshape unsqueeze squeeze expand expand_as repeat contiguous transpose permute is_floating_point get_device
    """
)
_PURE_MODULE_METHODS = frozenset(("parameters", "buffers", "named_parameters", "named_buffers"))
_FILLS_ITS_RECEIVER = frozenset(("zero_", "requires_grad_"))
_MAKES_TENSORS = frozenset(("zeros", "zeros_like", "new", "new_zeros", "Variable"))


def without_effect(facts: Facts, scope: Scope, node: ast.expr, depth: int = 2) -> Obligation | None:
    """Whether evaluating an expression does nothing but give its value (D6, D12): a call of what is not known may do more."""
    for part in ast.walk(node):
        if isinstance(part, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            return Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(part)}` does more than give a value")
        if isinstance(part, ast.Call) and not _is_pure(facts, scope, part, depth):
            return Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(part.func)}` may do more than give a value")
        if isinstance(part, ast.expr) and _runs_operator(facts, scope, part):
            return Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(part)}` may run code of the project")
    return None


def _runs_operator(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    """Whether an expression other than a call may run a method of a class of the project: a property or an operator."""
    match node:
        case ast.Attribute(value=receiver, attr=name):
            owners = [a.cls for a in facts.inference.value(scope, receiver).alternatives if isinstance(a, Instance)]
            methods = [find_method(facts.inference, cls, name) for cls in owners]
            return any(method is not None and method.decorators for method in methods)
        case ast.BinOp() | ast.Compare() | ast.UnaryOp() | ast.Subscript():
            operands = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
            return any(facts.inference.value(scope, operand).may_be(Instance) for operand in operands)
    return False


def _is_pure(facts: Facts, scope: Scope, call: ast.Call, depth: int) -> bool:
    if any(k.arg in ("out", "key", None) for k in call.keywords):
        return False
    targets = facts.loops.targets(scope, call)
    if targets and facts.loops.may_run_others(scope, call):
        return False
    if targets:
        return depth > 0 and all(_is_pure_function(facts, target, depth - 1) for target in targets)
    value = facts.inference.value(scope, call.func)
    if value.may_be(External):
        if value.must(lambda a: isinstance(a, External) and a.qualname == "builtins.next"):
            # `next(self.parameters())` begins anew each time; any other iterator moves on
            inner = call.args[0] if call.args else None
            return isinstance(inner, ast.Call) and getattr(inner.func, "attr", "") in _PURE_MODULE_METHODS
        if any(facts.inference.value(scope, given).may_be(Instance) for given in call.args):
            return False  # its methods say what `len` or `max` of it is
        return value.must(lambda a: isinstance(a, External) and a.qualname in _PURE_FUNCTIONS)
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in _PURE_MODULE_METHODS:
        return True
    if facts.inference.value(scope, call.func.value).may(lambda a: is_neural_module(facts.inference, a)):
        return False
    if call.func.attr in _FILLS_ITS_RECEIVER:
        receivers = [n for n in ast.walk(call.func.value) if isinstance(n, ast.Call)]
        return any(decorator_name(n) in _MAKES_TENSORS or getattr(n.func, "attr", "") in _MAKES_TENSORS for n in receivers)
    return call.func.attr in _PURE_METHODS


def _is_pure_function(facts: Facts, scope: Scope, depth: int) -> bool:
    """Whether running a function of the project changes nothing that outlives it."""
    try:
        flow = flow_of(scope)
    except SyntaxProblem:
        return False
    if flow.stores or flow.outer_names or flow.yields or any(decorator_name(d) != "staticmethod" for d in scope.decorators):
        return False
    return all(_is_pure(facts, scope, call, depth) for call in flow.calls)


_OWN_TENSORS = any_layout(
    rb"\bas_subclass\b|__torch_(?:function|dispatch)__|Torch(?:Function|Dispatch)Mode"
    rb"|\bclass [A-Za-z_]\w* \([^()]*\bTensor [,)]"
)


def plain_tensors(facts: Facts, scope: Scope) -> Obligation | None:
    """Whether the tensors of a program are torch's own: a class derived from it says itself what `item` gives."""
    if facts.project.program_may_hold(scope.module.source.path, _OWN_TENSORS):
        return Obligation(Kind.PLAIN_TENSORS, "the program has tensors of a class of its own, or looks at each operation")
    return None


def untimed(calls: Iterable[ast.Call]) -> Obligation | None:
    """Whether none of the calls between two points reads a clock (D15)."""
    for call in calls:
        name = (path_of(call.func) or "").rpartition(".")[2]
        if name in _TIMING:
            return Obligation(Kind.NO_CLOCK, f"`{ast.unparse(call)}` measures time in between")
    return None


def no_copy_in_flight(facts: Facts, scope: Scope, calls: Iterable[ast.Call]) -> Obligation | None:
    """Whether none of the calls between two points starts an asynchronous copy that only a later wait makes safe.

    Such are copies to the host, and copies out of a buffer that the next step may fill again.
    """
    for call in calls:
        if not isinstance(call.func, ast.Attribute) or not _is_asynchronous(call):
            continue
        if call.func.attr == "copy_" or (call.func.attr == "to" and _may_be_host(facts, scope, call)):
            return Obligation(Kind.TRANSFER, "an asynchronous copy to the host may be started in between")
        if call.func.attr in ("to", "cuda") and _outlives_step(flow_of(scope), call.func.value):
            return Obligation(
                Kind.TRANSFER, f"the next step may write to `{ast.unparse(call.func.value)}` while it is still being copied"
            )
    return None


def _is_asynchronous(call: ast.Call) -> bool:
    given = [k.value for k in call.keywords if k.arg in ("non_blocking", "async", None)]
    given += [a for a in call.args if isinstance(a, ast.Constant) and a.value is True]
    return any(not isinstance(value, ast.Constant) or bool(value.value) for value in given)


def _may_be_host(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    target = transfer_target(facts.inference, call, facts.inference.frame(scope))
    return device_place(target) not in (Place.CUDA, Place.CUDA_OR_HOST)


def _outlives_step(flow: Flow, node: ast.expr) -> bool:
    """Whether an expression starts at an attribute of `self`, or at a variable that the loop around it does not bind."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if not isinstance(node, ast.Name) or node.id == "self":
        return isinstance(node, ast.Name)
    loop = flow.loop(node)
    return loop is not None and not any(flow.within(d.node, loop.block) for d in flow.reaching.get(node, ()))


def free_name(scope: Scope, wanted: str) -> str | None:
    """A name like `wanted` that the scope can bind (D11): not used anywhere in the module; None if it inspects itself."""
    if scope.is_module:
        return None  # a new global is visible to whoever imports the module
    text = scope.module.source.body.decode()
    if inspects_itself(flow_of(scope)):
        return None
    candidates = (wanted, *(f"{wanted}_{n}" for n in range(2, 9)))
    return next((name for name in candidates if name not in text), None)


def inspects_itself(flow: Flow) -> bool:
    """Whether the function may look at its variables by name, as `locals()` does."""
    return any(isinstance(call.func, ast.Name) for name in _LOCALS for call in flow.calls_named[name])


def suspends(flow: Flow) -> bool:
    """Whether the function yields or awaits, so that others run in the middle of it."""
    return bool(flow.yields)
