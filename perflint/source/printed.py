"""Which expressions of a text are printed as they are written: `f"{loss.item() = }"`, and all that a t-string holds."""

from __future__ import annotations

import ast
import sys

from perflint.source.words import made

_T_STRING = rb"|(?<!\w)[tT][rR]?['\"]|(?<!\w)[rR][tT]['\"]"
_MAY_PRINT = made(rb"=[\s)]*[!:}]" + (_T_STRING if sys.version_info >= (3, 14) else b""))
_FOLLOWS = made(rb"[\s)]*=")
_HOLDS = getattr(ast, "Interpolation", ())
"""What a t-string, which Python 3.14 has, gives with its text to whoever takes it."""


def printed(body: bytes, starts: list[int]) -> list[tuple[int, int]]:
    """The byte ranges of these expressions; before Python 3.12 those of their strings. All of it where it cannot be parsed."""
    if not _MAY_PRINT.search(body):
        return []
    try:
        tree = ast.parse(body)
    except (SyntaxError, ValueError, RecursionError):
        return [(0, len(body))]

    def span(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    found: list[tuple[int, int]] = []
    for string in ast.walk(tree):
        if sys.version_info < (3, 12):
            if isinstance(string, ast.JoinedStr) and _MAY_PRINT.search(body, *span(string)):
                found.append(span(string))
        elif isinstance(string, (ast.FormattedValue, _HOLDS)):
            start, end = span(string.value)
            if not isinstance(string, ast.FormattedValue) or _FOLLOWS.match(body, end):
                found.append((start, end))
    return found
