"""Numbers that stand for what is not there: no rule by itself."""

import ast

from perflint.api import Code


def is_way_out(code: Code, call: ast.Call) -> bool:
    """Whether the number is what a function returns when there is nothing to compute; other ways return what it computes."""
    flow = code.flow
    statement = flow.statement(call)
    if not isinstance(statement, ast.Return) or statement.value is None:
        return False
    given = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
    others = (n for n in flow.order if isinstance(n, ast.Return) and n is not statement)
    return call in given and any(isinstance(n.value, ast.expr) and not isinstance(n.value, ast.Constant) for n in others)
