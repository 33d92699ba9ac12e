"""What becomes of one element of a tensor: no rule by itself."""

import ast

from perflint.api import Code, path_of, words

_ON_HOST = words("item tolist numpy cpu size dim numel shape ndim dtype device")


def is_computed_with(code: Code, node: ast.AST, named: bool = True) -> bool:
    """Whether a kernel takes an element, maybe by a name of its own, or writes one."""
    parent = code.flow.parent.get(node)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return True
    match parent:
        case ast.Call(func=func) if func is not node:
            name = (path_of(func) or "").rpartition(".")[2]
            return name not in ("len", "print", "append", "extend", "range", "enumerate", "zip", "int", "float", "list")
        case ast.BinOp() | ast.AugAssign() | ast.Compare():
            return True
        case ast.Assign(value=ast.expr() as row) if named and row is node:
            uses = (use for definition in code.flow.definitions_from(row) for use in code.flow.uses[definition])
            return any(is_computed_with(code, use, named=False) for use in uses)
        case ast.Attribute(value=value, attr=name) if value is node:
            call = code.flow.parent.get(parent)
            return name not in _ON_HOST and isinstance(call, ast.Call) and call.func is parent
        case ast.Subscript(value=value):
            return value is not node or is_computed_with(code, parent, named)
    return False
