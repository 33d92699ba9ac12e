"""Whether somebody keeps the number that a read gives, and could tell its object from an equal one: no rule by itself."""

import ast
from collections.abc import Sequence

from perflint.api import OWN_LOGGERS, Code, Kind, Loop, Obligation

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_BY_IDENTITY = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
_SHOWING = frozenset(("print", "str", "repr", "format", "int", "round", "abs"))
"""Builtins that take what a number is, and do not keep its object."""
_COMPUTING = frozenset(
    f"{module}.{name}" for module in ("math", "numpy") for name in ("isnan", "isinf", "isfinite", "exp", "sqrt")
)
_LOGGING = frozenset(
    ("add_scalar", "add_scalars", "set_postfix", "set_postfix_str", "debug", "info", "warning", "error", "write")
)
"""Methods of loggers and progress bars, which write numbers down, where the program has none of these names."""


def one_object(code: Code, reads: Sequence[ast.expr], loop: Loop | None = None) -> Obligation | None:
    """What stands against giving several reads of one element the same object; a read in a loop within `loop` is several."""
    kept = [read for read in reads if not _is_value_alone(code, read)]
    words = "several of the reads give their numbers to keep, and a list finds a nan only where it holds the same object"
    several = len(kept) > 1 or (loop is not None and any(code.flow.loop(read) is not loop for read in kept))
    return Obligation(Kind.PLAIN_OBJECTS, words) if several else None


def _is_value_alone(code: Code, node: ast.AST) -> bool:
    """Whether what uses a number takes its value and keeps no object, so that nobody can tell it from an equal one.

    With a nan one can: `x in [x]` and `[x] == [x]` hold, and do not where each is an object of its own.
    """
    match parent := code.flow.parent.get(node):
        case ast.FormattedValue() | ast.UnaryOp(op=ast.USub() | ast.Not()) | ast.If() | ast.While() | ast.Expr():
            return True
        case ast.BinOp(op=op) | ast.AugAssign(op=op):
            return isinstance(op, _ARITHMETIC)
        case ast.Compare(ops=ops):
            return not any(isinstance(op, _BY_IDENTITY) for op in ops)
        case ast.IfExp(test=test):
            return test is node or _is_value_alone(code, parent)
        case ast.Call(func=ast.Name(id=name)):
            shows = name in _SHOWING or (name == "float" and _is_value_alone(code, parent))
            return shows and code.means_builtin(name)
        case ast.Call(func=ast.Attribute(attr=name) as function):
            if name in _LOGGING or name == "format":
                return not any(code.feared(OWN_LOGGERS))
            return code.is_external(function, *_COMPUTING)
        case ast.keyword() | ast.Starred():
            return _is_value_alone(code, parent)
        case ast.Dict() | ast.Tuple():  # what is shown: `"%s %s" % (a, b)`, `set_postfix({"loss": a})`
            return isinstance(code.flow.parent.get(parent), (ast.BinOp, ast.Call)) and _is_value_alone(code, parent)
    return False
