"""The proof obligations that rewrites share, as functions over the facts.

Each returns None when the proof holds, and else one line that says what stands against it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.facts.api_tables import HARMLESS_METHODS, MAY_ALIAS, READING_METHODS, VIEWS
from perflint.facts.facts import Facts
from perflint.facts.flow import Definition, Flow, flow_of, path_of
from perflint.facts.inference import decorator_name
from perflint.facts.loops import is_neural_module
from perflint.facts.values import External, Object, Tensor
from perflint.syntax import Scope, SyntaxProblem
from perflint.words import words

_HARMLESS_CALLS = words(
    """
    print float int bool len str repr format isinstance abs round min max sum type id hasattr callable
    """
)
_HARMLESS_METHODS_WITH_ARGUMENT = frozenset(("scale", "backward", "manual_backward", "format", "add_scalar", "write"))
_TIMING = words(
    """
    time perf_counter monotonic process_time perf_counter_ns time_ns synchronize elapsed_time record default_timer tic
    toc
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


def untouched(facts: Facts, scope: Scope, definition: Definition, last: ast.AST) -> str | None:
    """Whether what a definition binds keeps its numbers until `last` (D2, D5, D6): every use of it is harmless."""
    flow = flow_of(scope)
    name = definition.name
    if name in flow.outer_names:
        return f"`{name}` is not a local variable"
    if name in flow.inner_names:
        return f"a function inside reads `{name}`"
    return _Tampering(facts, scope, last).of(definition)


class _Tampering:
    """Looks for a use that may write to a tensor, follows views and aliases."""

    def __init__(self, facts: Facts, scope: Scope, last: ast.AST | None, depth: int = 2) -> None:
        self.facts, self.scope, self.flow, self.last, self.depth = facts, scope, flow_of(scope), last, depth
        self.seen: set[Definition] = set()

    def of(self, definition: Definition) -> str | None:
        if definition in self.seen:
            return None
        self.seen.add(definition)
        for use in self.flow.uses[definition]:
            if self._counts(definition, use):
                reason = self.carried(use)
                if reason is not None:
                    return reason
        return None

    def _counts(self, definition: Definition, use: ast.expr) -> bool:
        """Whether a use may run before `last`."""
        if self.last is None:
            return True
        if self.flow.order[use] < self.flow.order[self.last]:
            return True
        around = {id(loop) for loop in _loops_around(self.flow, definition.block)}
        last_loop = self.flow.loop(self.last)
        return last_loop is not None and any(
            id(loop) not in around and self.flow.within(use, loop.block) for loop in last_loop.ancestry()
        )

    def carried(self, node: ast.expr) -> str | None:
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
                    return f"`out=` writes to `{ast.unparse(node)}`"
                return self._argument(call, node) if isinstance(call, ast.Call) else None
            case ast.Subscript(ctx=ast.Load()) if parent.value is node:
                return self.carried(parent)
            case ast.Subscript(ctx=ast.Store()) if parent.value is node:
                return f"an item of `{ast.unparse(node)}` is assigned"
            case ast.AugAssign(target=target) if target is node:
                return f"`{ast.unparse(node)}` is changed in place"
            case ast.Assign(targets=targets):
                return self._bound(parent.value, targets, node)
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
                return self._bound(node, [target], node)
            case ast.IfExp() if parent.test is not node:
                return self.carried(parent)
            case ast.BoolOp() | ast.Starred():
                return self.carried(parent)
            case ast.Tuple() | ast.List() | ast.Set() | ast.Dict():
                return self._contained(parent, node)
            case ast.Yield() | ast.YieldFrom() | ast.Await():
                return "the function is suspended in between"
            case ast.For() | ast.comprehension():
                return f"`{ast.unparse(node)}` is iterated over"
        return None

    def _member(self, node: ast.Attribute) -> str | None:
        if isinstance(node.ctx, ast.Store):
            return f"`{ast.unparse(node)}` is assigned"
        call = self.flow.parent.get(node)
        if isinstance(call, ast.Call) and call.func is node:
            if node.attr in ("requires_grad_", "retain_grad"):
                return None
            if node.attr.endswith("_") and not node.attr.startswith("__"):
                return f"`{node.attr}` works in place"
            if any(k.arg == "out" for k in call.keywords):
                return "`out=` writes to a tensor"
            if node.attr in VIEWS or node.attr in MAY_ALIAS:
                return self.carried(call)
            if node.attr in HARMLESS_METHODS or node.attr in READING_METHODS:
                return None
            return f"`{node.attr}` may change it"
        if node.attr in ("data", "T", "mT", "H", "real", "imag"):
            return self.carried(node)
        return None

    def _argument(self, call: ast.Call, node: ast.expr) -> str | None:
        inference = self.facts.inference
        func = call.func
        if isinstance(func, ast.Name) and func.id in _HARMLESS_CALLS:
            if inference.value(self.scope, func).must(lambda a: a == External(f"builtins.{func.id}")):
                return None
        callee = inference.value(self.scope, func).single
        if isinstance(callee, External) and callee.qualname.startswith("torch."):
            last = callee.qualname.rpartition(".")[2]
            if callee.qualname.startswith("torch.distributed"):
                return f"`{ast.unparse(func)}` writes to it"
            if last.endswith("_"):
                return f"`{last}` works in place"
            if last in VIEWS or last in MAY_ALIAS or last in ("as_tensor", "asarray", "Variable"):
                return self.carried(call)
            return None
        if isinstance(func, ast.Attribute) and func.attr in _HARMLESS_METHODS_WITH_ARGUMENT:
            return None
        if isinstance(callee, Object) and callee.qualname.startswith("torch.nn."):
            return None if not dict(callee.keywords).get("inplace") else f"`{ast.unparse(func)}` works in place"
        if isinstance(func, ast.Attribute) and inference.value(self.scope, func.value).must_be(Tensor):
            if func.attr.endswith("_"):
                return None  # writes to its receiver, not to its argument
            return None
        return self._project_function(call, node)

    def _project_function(self, call: ast.Call, node: ast.expr) -> str | None:
        unknown = f"`{ast.unparse(call.func)}` may change `{ast.unparse(node)}`"
        targets = self.facts.loops.targets(self.scope, call)
        if not targets or self.depth <= 0:
            return unknown
        for target in targets:
            try:
                flow = flow_of(target)
            except SyntaxProblem:
                return unknown
            if flow.yields:
                return unknown
            inner = _Tampering(self.facts, target, None, self.depth - 1)
            for parameter in (d for d in flow.definitions if d.kind == "parameter" and d.name not in ("self", "cls")):
                if parameter.name in flow.inner_names or inner.of(parameter) is not None:
                    return unknown
        return None

    def _bound(self, value: ast.expr, targets: list[ast.expr], node: ast.expr) -> str | None:
        for target in targets:
            if isinstance(target, (ast.Attribute, ast.Subscript)):
                return f"it is stored in `{ast.unparse(target)}`"
        for definition in self.flow.definitions:
            if definition.value is value and definition.kind in ("assign", "walrus"):
                if definition.name in self.flow.inner_names:
                    return f"a function inside reads `{definition.name}`"
                reason = self.of(definition)
                if reason is not None:
                    return reason
        return None

    def _contained(self, container: ast.expr, node: ast.expr) -> str | None:
        """A tuple or list that holds the tensor: harmless where it is formatted, returned or unpacked at once."""
        parent = self.flow.parent.get(container)
        match parent:
            case ast.BinOp(op=ast.Mod()) | ast.Return() | ast.Expr():
                return None
            case ast.Call():
                return self._argument(parent, container)
            case ast.Assign(targets=[ast.Tuple() | ast.List()]):
                return self._bound(node, [], node)
        return f"`{ast.unparse(node)}` is kept in a container"


def _loops_around(flow: Flow, block: object) -> Iterator[object]:
    from perflint.facts.flow import Block

    assert isinstance(block, Block)
    return block.loop.ancestry() if block.loop is not None else iter(())


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


def without_effect(facts: Facts, scope: Scope, node: ast.expr, depth: int = 2) -> str | None:
    """Whether evaluating an expression does nothing but give its value (D6, D12): a call of what is not known may do more."""
    for part in ast.walk(node):
        if isinstance(part, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            return f"`{ast.unparse(part)}` does more than give a value"
        if isinstance(part, ast.Call) and not _is_pure(facts, scope, part, depth):
            return f"`{ast.unparse(part.func)}` may do more than give a value"
    return None


def _is_pure(facts: Facts, scope: Scope, call: ast.Call, depth: int) -> bool:
    if any(k.arg in ("out", None) for k in call.keywords):
        return False
    targets = facts.loops.targets(scope, call)
    if targets:
        return depth > 0 and all(_is_pure_function(facts, target, depth - 1) for target in targets)
    value = facts.inference.value(scope, call.func)
    if value.may_be(External):
        if value.must(lambda a: isinstance(a, External) and a.qualname == "builtins.next"):
            # `next(self.parameters())` begins anew each time; any other iterator moves on
            inner = call.args[0] if call.args else None
            return isinstance(inner, ast.Call) and getattr(inner.func, "attr", "") in _PURE_MODULE_METHODS
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


def inspects_itself(flow: Flow) -> bool:
    """Whether a function asks for its own variables by name (`locals`, `eval`)."""
    return any(flow.calls_named[name] for name in _LOCALS)


def untimed(flow: Flow, first: ast.AST, last: ast.AST) -> str | None:
    """Whether no clock is read between two points (D15)."""
    for call in flow.calls_between(first, last):
        name = (path_of(call.func) or "").rpartition(".")[2]
        if name in _TIMING:
            return f"`{ast.unparse(call)}` measures time in between"
    return None


def no_copy_in_flight(flow: Flow, first: ast.AST, last: ast.AST) -> str | None:
    """Whether no asynchronous copy to the host is started between two points; a later wait may be what completes it."""
    for call in flow.calls_between(first, last):
        if any(k.arg == "non_blocking" and _is_true(k.value) for k in call.keywords):
            target = call.args[0] if call.args else None
            to_host = isinstance(target, ast.Constant) and target.value == "cpu"
            if to_host or (isinstance(call.func, ast.Attribute) and call.func.attr in ("copy_", "cpu")):
                return "an asynchronous copy to the host is started in between"
    return None


def _is_true(node: ast.expr) -> bool:
    return not isinstance(node, ast.Constant) or bool(node.value)


def free_name(scope: Scope, wanted: str) -> str | None:
    """A name like `wanted` that the scope can bind (D11): not used anywhere in the module; None if it inspects itself."""
    if scope.is_module:
        return None  # a new global is visible to whoever imports the module
    text = scope.module.source.body.decode()
    flow = flow_of(scope)
    if inspects_itself(flow):
        return None
    candidates = (wanted, *(f"{wanted}_{n}" for n in range(2, 9)))
    return next((name for name in candidates if name not in text), None)


def suspends(flow: Flow) -> bool:
    """Whether the function yields or awaits, so that others run in the middle of it."""
    return bool(flow.yields)
