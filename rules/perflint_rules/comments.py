"""Comments that stand beside code and may say why it is so: no rule by itself."""

import ast

from perflint.api import Code


def comment_above(code: Code, node: ast.AST) -> str:
    """The comment right above the statement of a node, in one line."""
    row, lines = code.flow.statement(node).lineno - 1, list[str]()
    while row > 0 and (line := code.source.line(row).strip()).startswith("#"):
        lines.insert(0, line.lstrip("# "))
        row -= 1
    return " ".join(lines)
