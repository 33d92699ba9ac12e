"""Batches of which the host still has what was copied to the device: no rule by itself."""

import ast

from perflint.api import Code, comes_from_host, words

_LAYOUT = words("squeeze unsqueeze view reshape flatten long float int detach")


def upload_behind(code: Code, tensor: ast.expr) -> ast.Call | None:
    """The copy to the device that a tensor is the result of, if nothing changes its numbers meanwhile."""
    definitions = code.flow.reaching.get(tensor, frozenset())
    if not isinstance(tensor, ast.Name) or len(definitions) != 1:
        return None
    (definition,) = definitions
    made = _part(definition.value, definition.index)
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in _LAYOUT:
        made = made.func.value
    match made:
        case ast.Call(func=ast.Attribute(value=source, attr="to" | "cuda")):
            batch = comes_from_host(code.facts.inference, code.facts.loops, code.scope, source)
            return made if batch and not any(_writes(code, use) for use in code.flow.uses[definition]) else None
    return None


def _part(value: ast.expr | None, index: tuple[int | None, ...]) -> ast.expr | None:
    """What a name is bound to by `x, y = a, b`."""
    for at in index:
        if not isinstance(value, ast.Tuple) or at is None or not 0 <= at < len(value.elts):
            return None
        value = value.elts[at]
    return value


def _writes(code: Code, use: ast.expr) -> bool:
    """Whether a use of a tensor may write to it: a method that works in place, or an item that is assigned."""
    parent = code.flow.parent.get(use)
    match parent:
        case ast.Attribute(attr=name):
            return name.endswith("_") and not name.endswith("__")
        case ast.Subscript(ctx=ast.Store()) | ast.AugAssign():
            return True
    return False
