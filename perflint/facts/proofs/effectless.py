"""Whether code does nothing but give values: an expression, or a loop that keeps them in local names and containers."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from perflint.facts.dataflow.displays import is_display
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.operations import operations
from perflint.facts.proofs.unknown_objects import runs_unknown_objects
from perflint.facts.training.training_objects import is_foreign, is_neural_module
from perflint.facts.values.arguments import works_in_place
from perflint.facts.values.classes import find_method
from perflint.facts.values.decorators import decorator_name
from perflint.facts.values.values import (
    Elements,
    External,
    Instance,
    Literal,
    Mapping,
    Number,
    Sequence,
    Tensor,
    Text,
    Value,
)
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import words

_PURE_FUNCTIONS = words(
    """
    torch.zeros torch.zeros_like torch.device torch.Size torch.autograd.Variable torch.cuda.is_available torch.is_tensor
    builtins.len builtins.int builtins.float builtins.max builtins.min builtins.abs builtins.type builtins.tuple
    builtins.list builtins.set builtins.range builtins.isinstance builtins.bool builtins.round builtins.str
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


_EVALUATED = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Starred, ast.Call),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr, ast.FormattedValue),
)
"""The expressions that do nothing but give a value, if no method of the project says what their operators do."""
_EXECUTED = (ast.Assign, ast.AnnAssign, ast.If, ast.Return, ast.Pass, ast.Expr)
"""The statements of which this holds, too, with local names as targets."""


_REACHES_INTO_CONTAINERS = (ast.Compare, ast.BinOp, ast.FormattedValue)
"""The expressions that compare or show what a container holds."""
_FINDS_ATTRIBUTES = ("__getattr__", "__getattribute__")


def without_effect(facts: Facts, scope: Scope, node: ast.expr, depth: int = 2) -> Obligation | None:
    """Whether evaluating an expression does nothing but give its value (D6, D12): what is not known may do more."""
    unknown = None
    for part in ast.walk(node):
        if not isinstance(part, ast.expr):
            continue
        if not isinstance(part, _EVALUATED):
            return Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(part)}` may do more than give a value")
        if isinstance(part, ast.Call) and not _is_pure(facts, scope, part, depth):
            return Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(part.func)}` may do more than give a value")
        if _runs_operator(facts, scope, part):
            return Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(part)}` may run code of the project")
        unknown = unknown or runs_unknown_objects(facts, scope, part)
    return unknown


_COMPUTING_PACKAGES = frozenset(("builtins", "math", "torch", "torch.linalg", "torch.special"))
"""Whose functions in the table write to no argument, unless by `out=` or their names; numpy's take `out` by position, too, and
`batch_norm` and `embedding` of `torch.nn.functional` may write to theirs."""
_DRAWS = words(
    """
    random.random random.randint random.randrange random.uniform random.gauss random.choice random.sample
    numpy.random.rand numpy.random.randn numpy.random.randint numpy.random.random numpy.random.uniform numpy.random.normal
    numpy.random.choice numpy.random.permutation
    """
)
"""What draws random numbers and gives new objects, or one of those that it was given."""
_READS_TOGETHER = words(
    """
    perflint_runtime.TensorItems perflint_runtime.TensorRows perflint_runtime.item_list perflint_runtime.items_together
    perflint_runtime.copies_together
    """
)
"""What fixes put in the place of reads, and which does what these do."""
_LOOPED = (*_EXECUTED, ast.AugAssign, ast.For, ast.Continue, ast.Break)
"""What a loop may be made of that writes to no memory but its own names, lists and dicts."""


def loop_without_effect(facts: Facts, scope: Scope, loop: ast.For, reads: Iterable[ast.Call] = ()) -> Obligation | None:
    """Whether a loop writes to no tensor and no array, whoever holds it: all that runs in it is known (D5, D6).

    reads: calls `t[i].item()`, in the loop and in functions that it calls, whose tensor somebody else vouches for.
    """
    vouched = {part for read in reads for part in (read, read.func, *ast.iter_child_nodes(read.func))}
    return _writes(facts, scope, loop, vouched, depth=2)


def _writes(facts: Facts, scope: Scope, code: ast.stmt, vouched: set[ast.AST], depth: int) -> Obligation | None:
    """What may write to a tensor or an array where a statement runs, and the functions of the project that it calls."""
    unknown = None
    for part in ast.walk(code):
        if part in vouched:
            continue
        match part:
            case ast.stmt() if not isinstance(part, _LOOPED):
                return Obligation(Kind.MUTATION, f"`{ast.unparse(part).splitlines()[0]}` may write to a tensor")
            case ast.AugAssign(target=target) if not _is_number(facts, scope, target):
                return Obligation(Kind.MUTATION, f"`{ast.unparse(part)}` may work in place")
            case (ast.Attribute() | ast.Subscript()) as store if isinstance(store.ctx, ast.Store):
                if isinstance(store, ast.Attribute) or not _is_container(facts, scope, store.value):
                    return Obligation(Kind.MUTATION, f"`{ast.unparse(store)}` is written to")
            case ast.expr() if not isinstance(part, _EVALUATED):
                return Obligation(Kind.MUTATION, f"`{ast.unparse(part)}` may do more than give a value")
            case ast.Call() if not _keeps_or_computes(facts, scope, part):
                written = _writes_within(facts, scope, part, vouched, depth)
                if written is not None and not written.kind.is_declarable:
                    return written
                unknown = unknown or written
        asked = _asked(part)
        if asked is not None and _holds_objects(facts.inference.value(scope, asked), depth=0):
            return Obligation(Kind.MUTATION, f"`{ast.unparse(asked)}` may run code of the project")
        if isinstance(part, ast.expr) and _runs_operator(facts, scope, part):
            return Obligation(Kind.MUTATION, f"`{ast.unparse(part)}` may run code of the project")
        unknown = unknown or runs_unknown_objects(facts, scope, part, vouched)
    return unknown


def _writes_within(facts: Facts, scope: Scope, call: ast.Call, vouched: set[ast.AST], depth: int) -> Obligation | None:
    """What may write to a tensor or an array where a call reads a number, or in the functions of the project that it runs."""
    hard = Obligation(Kind.MUTATION, f"`{ast.unparse(call.func)}` may write to a tensor")
    targets = facts.loops.targets(scope, call)
    match call:
        case ast.Call(func=ast.Attribute(value=read, attr="item"), args=[], keywords=[]) if not targets:
            if not _holds_objects(facts.inference.value(scope, read)):
                return Obligation(Kind.PLAIN_OBJECTS, f"`{ast.unparse(read)}` may be no tensor, and `item` may do more")
    if not targets or not depth or facts.loops.may_run_others(scope, call):
        return hard
    unknown = None
    for target in targets:
        try:
            flow = flow_of(target)
        except SyntaxProblem:
            return hard
        if not isinstance(target.node, ast.FunctionDef) or target.decorators or flow.outer_names or flow.yields:
            return hard
        for statement in target.node.body:
            written = _writes(facts, target, statement, vouched, depth - 1)
            if written is not None and not written.kind.is_declarable:
                return hard
            unknown = unknown or written
    return unknown


def _asked(part: ast.AST) -> ast.expr | None:
    """What a part of a loop asks whether it is true, for its parts, for its hash, or to be added."""
    match part:
        case ast.If(test=asked) | ast.For(iter=asked) | ast.Assign(targets=[ast.Tuple() | ast.List()], value=asked):
            return asked
        case ast.Subscript(slice=asked) | ast.AugAssign(value=asked):
            return asked
    return None


def _keeps_or_computes(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether a call shows numbers, puts them at the end of a list, or computes."""
    if _is_pure(facts, scope, call, depth=2):
        return True
    if any(k.arg in ("out", "key", "file", None) for k in call.keywords) or works_in_place(call):
        return False
    if facts.loops.targets(scope, call):
        return False
    if any(_holds_objects(facts.inference.value(scope, given)) for given in (*call.args, *(k.value for k in call.keywords))):
        return False
    function = facts.inference.value(scope, call.func).single
    if isinstance(function, External):
        if function.qualname in _DRAWS | _READS_TOGETHER:
            return True
        package, _, last = function.qualname.rpartition(".")
        row = operations.function(function.qualname) if package in _COMPUTING_PACKAGES else None
        return row is not None and not row.writes and not last.endswith("_")
    if not isinstance(call.func, ast.Attribute):
        return False
    name, receiver = call.func.attr, call.func.value
    if name == "append":
        return _is_container(facts, scope, receiver)
    row = operations.method(name)
    if row is None or row.writes or name.endswith("_"):
        return False
    return facts.inference.value(scope, receiver).must_be(Tensor)


def _is_container(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    """Whether an expression is a list, a tuple or a dict of Python."""
    if facts.inference.value(scope, node).must(lambda a: isinstance(a, (Sequence, Elements, Mapping))):
        return True
    return is_display(flow_of(scope), node)


def _is_number(facts: Facts, scope: Scope, target: ast.expr) -> bool:
    """Whether `target += x` writes to no memory that anybody else holds: it is a number or text, or began as one."""
    if facts.inference.value(scope, target).must(lambda a: isinstance(a, (Number, Literal, Text))):
        return True
    definitions = flow_of(scope).definitions_of(target.id) if isinstance(target, ast.Name) else []
    starts = [d for d in definitions if d.kind != "augmented"]
    return bool(starts) and all(d.kind == "assign" and not d.index and isinstance(d.value, ast.Constant) for d in starts)


def _runs_operator(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    """Whether an expression other than a call may run a method of a class of the project: a property or an operator."""
    match node:
        case ast.Name() | ast.Constant() | ast.Tuple() | ast.List() | ast.Call():
            return False
        case ast.Attribute(value=receiver, attr=name):
            owners = [a.cls for a in facts.inference.value(scope, receiver).alternatives if isinstance(a, Instance)]
            methods = [find_method(facts.inference, cls, name) for cls in owners]
            others = [find_method(facts.inference, cls, special) for cls in owners for special in _FINDS_ATTRIBUTES]
            return any(others) or any(method is not None and method.decorators for method in methods)
    operands = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    depth = 3 if isinstance(node, _REACHES_INTO_CONTAINERS) else 0
    return any(_holds_objects(facts.inference.value(scope, operand), depth) for operand in operands)


def _holds_objects(value: Value, depth: int = 3) -> bool:
    """Whether a value may be an object of the project, or a container that compares, orders or shows some."""
    for alternative in value.alternatives:
        match alternative:
            case Instance():
                return True
            case Sequence(items=items) if depth and any(_holds_objects(item, depth - 1) for item in items):
                return True
            case Elements(element=element) if depth and _holds_objects(element, depth - 1):
                return True
            case Mapping(items=pairs, rest=rest) if depth:
                if _holds_objects(rest, depth - 1) or any(_holds_objects(item, depth - 1) for _, item in pairs):
                    return True
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
        if any(
            _holds_objects(facts.inference.value(scope, given)) for given in (*call.args, *(k.value for k in call.keywords))
        ):
            return False  # its methods say what `len` or `max` of it is
        return value.must(lambda a: isinstance(a, External) and a.qualname in _PURE_FUNCTIONS)
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in _PURE_MODULE_METHODS:
        return True
    if facts.inference.value(scope, call.func.value).may(lambda a: is_neural_module(facts.inference, a) or is_foreign(a)):
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
    if any(isinstance(node, ast.stmt) and not isinstance(node, _EXECUTED) for node in flow.order):
        return False
    expressions = [node for node in flow.order if isinstance(node, ast.expr)]
    if any(not isinstance(node, _EVALUATED) or _runs_operator(facts, scope, node) for node in expressions):
        return False
    if any(runs_unknown_objects(facts, scope, node) is not None for node in flow.order):
        return False
    return all(_is_pure(facts, scope, call, depth) for call in flow.calls)
