"""Python's `max` and `min` of a tensor and a number: no rule by itself."""

import ast


def bounds_a_number(node: ast.AST) -> bool:
    """`max(count, 1)`, of which the CPU learns the larger one."""
    match node:
        case ast.Call(func=ast.Name(id="max" | "min"), args=[_, ast.Constant()] | [ast.Constant(), _], keywords=[]):
            return True
    return False
