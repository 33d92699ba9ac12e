"""Stretches of code that only compute: nobody can write to a tensor in them, whoever holds it. No rule by itself."""

import ast
from collections.abc import Container, Iterable

from perflint.api import (
    Alternative,
    Code,
    Elements,
    External,
    HostRead,
    Literal,
    Mapping,
    Number,
    Object,
    Sequence,
    Tensor,
    Text,
    is_known_function,
    operations,
    without_effect,
)

_COMPUTING = (ast.Name, ast.Constant, ast.Tuple, ast.List, ast.keyword, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop)


def only_computes(code: Code, part: ast.AST) -> bool:
    """Whether a part of an expression computes tensors, and changes nothing but perhaps their numbers."""
    match part:
        case ast.Call(func=ast.Attribute(value=receiver, attr=name)) if code.value(receiver).must_be(Tensor):
            row = operations.method(name)
            return row is not None and not row.writes
        case ast.Call(func=func):
            return code.value(func).must(_is_of_torch)
        case ast.BinOp() | ast.UnaryOp() | ast.Compare():
            return code.value(part).must_be(Tensor)
        case ast.Attribute():
            called = code.flow.parent.get(part)
            return (isinstance(called, ast.Call) and called.func is part) or code.value(part).must_be(External)
    return isinstance(part, _COMPUTING)


def _is_of_torch(alternative: Alternative) -> bool:
    return isinstance(alternative, (External, Object)) and is_known_function(alternative.qualname)


def _is_entry(code: Code, target: ast.expr) -> bool:
    """Whether something is put under a constant into a dict of Python's own."""
    if not isinstance(target, ast.Subscript) or not isinstance(target.slice, ast.Constant):
        return False
    made = code.flow.reaching.get(target.value, frozenset())
    if made and all(d.kind == "assign" and not d.index and isinstance(d.value, ast.Dict) for d in made):
        return True
    return code.value(target.value).must(lambda a: isinstance(a, Mapping) or (isinstance(a, Object) and a.qualname in _DICTS))


_DICTS = frozenset(("builtins.dict", "collections.OrderedDict"))


_WRITERS = frozenset(("torch.utils.tensorboard.SummaryWriter", "tensorboardX.SummaryWriter"))


def writes_scalar(code: Code, call: ast.AST | None) -> bool:
    """Whether a call writes a number to a log, by a writer that copies each tensor to the host and does nothing else."""
    match call:
        case ast.Call(func=ast.Attribute(value=writer, attr="add_scalar")):
            return code.value(writer).must(lambda a: isinstance(a, Object) and a.qualname in _WRITERS)
    return False


_NUMBERS = (Number, Literal, Text)
_WRITES_TO_ARGUMENTS = frozenset(("batch_norm", "embedding", "embedding_bag"))


def writes_between(code: Code, first: ast.AST, last: ast.AST, reads: Iterable[HostRead] = ()) -> bool:
    """Whether a tensor may be written to after `first`, which always runs before `last`, and before `last` is evaluated.

    reads: those that are made in any case, whatever else is known of their tensors.
    """
    ranges = list(code.flow.between(first, last))
    reads = [*reads]
    known = {part for read in reads for part in ast.walk(read.node)}
    between = (node for node, order in code.flow.order.items() if any(low <= order <= high for low, high in ranges))
    numbers = {read.node for read in reads}
    return not all(node in known or _takes_number(code, node, numbers) or _is_quiet(code, node) for node in between)


def _takes_number(code: Code, node: ast.AST, numbers: Container[ast.AST]) -> bool:
    """Whether a part of a program makes a number or a text of one that has been read: `float(x.item())`, `{x.item():.4f}`."""
    match node:
        case ast.FormattedValue(value=shown):
            return shown in numbers
        case ast.Call(func=ast.Name(id="float" | "int" | "str" | "round" as name), args=[taken, *digits], keywords=[]):
            return taken in numbers and code.means_builtin(name) and all(isinstance(d, ast.Constant) for d in digits)
    return False


def _is_quiet(code: Code, node: ast.AST) -> bool:
    """Whether a part of a program writes to no tensor: it computes, binds local names, or adds up numbers."""
    match node:
        case ast.Assign(targets=targets):
            return all(isinstance(target, ast.Name) or _is_entry(code, target) for target in targets)
        case ast.Subscript(ctx=ast.Store()):
            return _is_entry(code, node)
        case ast.AugAssign(target=ast.Name() as target):
            return _begins_as_number(code, target)
        case ast.Expr() | ast.Slice() | ast.JoinedStr() | ast.Pass():
            return True
        case ast.FormattedValue(value=shown):
            return code.value(shown).must_be(*_NUMBERS)
        case ast.Subscript(value=held, ctx=ast.Load()):
            return code.value(held).must_be(Tensor)
        case ast.Attribute(ctx=ast.Load()):
            return without_effect(code.facts, code.scope, node) is None
        case ast.Call(func=ast.Attribute(value=held, attr="append"), args=[_], keywords=[]):
            return code.value(held).must_be(Sequence, Elements)
        case ast.Call(func=ast.Attribute() as func, args=[ast.Name() as grown, ast.Name() as added], keywords=[]) if (
            code.is_external(func, "numpy.append")
        ):
            return _is_array(code, grown, "numpy.append", "numpy.array") and _is_array(code, added)
        case ast.Call() if writes_scalar(code, node):
            return True
        case ast.Call(func=ast.Name(id="print"), args=shown, keywords=[]):
            return code.means_builtin("print") and all(code.value(part).must_be(*_NUMBERS) for part in shown)
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() if code.value(node).must_be(*_NUMBERS):
            return True
        case ast.Call(func=func, keywords=keywords):
            name = func.attr if isinstance(func, ast.Attribute) else ""
            if name.endswith("_") or name in _WRITES_TO_ARGUMENTS or any(k.arg in ("out", None) for k in keywords):
                return False
    return not isinstance(node, ast.stmt) and only_computes(code, node)


def _begins_as_number(code: Code, name: ast.Name) -> bool:
    """Whether a name that is added to holds a number: it is one, or began as one."""
    if code.value(name).must_be(*_NUMBERS):
        return True
    begins = [d for d in code.flow.definitions_of(name.id) if d.kind != "augmented"]
    return bool(begins) and all(d.kind == "assign" and not d.index and isinstance(d.value, ast.Constant) for d in begins)


def _is_array(code: Code, name: ast.Name, *makers: str) -> bool:
    """Whether a name stands for an array of numpy alone: what some functions make, or `x.cpu().numpy()`."""
    made = [d.value for d in code.flow.reaching.get(name, ()) if d.kind == "assign" and not d.index]
    calls = [call for call in made if isinstance(call, ast.Call)]
    return len(calls) == len(code.flow.reaching.get(name, ())) > 0 and all(
        code.is_external(call.func, *makers) if makers else getattr(call.func, "attr", "") == "numpy" for call in calls
    )
