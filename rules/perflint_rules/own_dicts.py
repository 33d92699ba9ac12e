"""Dicts that a function makes and nobody else gets hold of: an entry is the same object at each access. No rule by itself."""

import ast

from perflint.api import Code, Loop, single_definition


def own_dict(code: Code, entry: ast.expr) -> ast.Name | None:
    """The dict of `batch["labels"]`, if it is a local that is made here and nobody else gets hold of."""
    match entry:
        case ast.Subscript(value=ast.Name() as held, slice=ast.Constant()):
            made = single_definition(code.flow, held)
            if made is None or made.kind != "assign" or made.index or not code.flow.binds_alone(made.node):
                return None
            is_local = held.id not in code.flow.inner_names | code.flow.outer_names and not code.scope.is_module
            is_own = is_local and isinstance(made.value, (ast.Dict, ast.DictComp))
            return held if is_own and all(_is_looked_up(code, use) for use in code.flow.uses[made]) else None
    return None


def _is_looked_up(code: Code, use: ast.expr) -> bool:
    """Whether an entry of a dict is read, or a call gets its entries: `f(**batch)`."""
    match code.flow.parent.get(use):
        case ast.Subscript(value=value, ctx=ast.Load()):
            return value is use
        case ast.keyword(arg=None):
            return True
    return False


def is_bound(code: Code, loop: Loop, tensor: ast.expr) -> bool:
    """Whether a name is bound where a loop begins, which may not look at it once."""
    before, found = loop.statement, code.flow.reaching.get(tensor, ())
    return before is not None and any(d.kind == "parameter" or code.flow.dominates(d.node, before) for d in found)
