"""Factories whose tensors get another layout or type on their way: `torch.arange(n).unsqueeze(0).cuda()`. No rule by itself."""

import ast

from perflint.api import Code, External, operations, words
from perflint_rules.host_factories import LAYOUT, is_factory

_TYPES = words("long int short half float double bool")
_IN_EACH_TYPE = words("zeros ones eye")


def laid_out(code: Code, moved: ast.Call) -> list[ast.Call]:
    """The factory of `torch.arange(n).unsqueeze(0).repeat(b, 1).to(device)`, of which layouts are made and nothing else.

    It may stand in a `Variable`, and zeros and ones may get another type, which has them, too: `torch.zeros(n).long().cuda()`.
    None where the copy would be memory of its own and what is made on the device a view that somebody may write to.
    """
    assert isinstance(moved.func, ast.Attribute)
    node, last, steps = moved.func.value, "", [moved]
    while isinstance(node, ast.Call):
        steps.append(node)
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Call() as inner, attr=name)) if name in LAYOUT - {"expand"}:
                last = last or name
                node = inner
            case ast.Call(func=ast.Attribute(value=ast.Call() as inner, attr=name), args=[], keywords=[]) if name in _TYPES:
                node = inner
            case ast.Call(args=[ast.Call() as inner]) if _is_plain_variable(code, node):
                node = inner
            case _:
                break
    if not isinstance(node, ast.Call) or not is_factory(code, node) or len(steps) < 3:
        return []
    if any(getattr(step.func, "attr", "") in _TYPES for step in steps) and not is_factory(code, node, _IN_EACH_TYPE):
        return []
    return [node] if last in ("", "repeat") or _is_only_read(code, moved) else []


def _is_plain_variable(code: Code, call: ast.Call) -> bool:
    """`Variable(x)`, perhaps with `requires_grad=False`: a tensor with the memory of `x`, and no view of it."""
    plain = all(k.arg == "requires_grad" and isinstance(k.value, ast.Constant) and not k.value.value for k in call.keywords)
    return plain and code.is_external(call.func, "torch.autograd.Variable")


def _is_only_read(code: Code, node: ast.expr) -> bool:
    """Whether what looks at a value computes something from it, and does not keep it."""
    match code.flow.parent.get(node):
        case ast.BinOp() | ast.Compare():
            return True
        case ast.Call(func=func, args=args, keywords=[]) if node in args:
            function = code.value(func).single
            row = operations.function(function.qualname) if isinstance(function, External) else None
            return row is not None and not row.writes and not row.shares_memory
    return False
