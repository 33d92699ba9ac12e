"""Whole statements as text, with the comments above and behind them, to be put elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from perflint.fix.rewrite import CannotRewrite, lines_of, replace
from perflint.rule.finding import Edit
from perflint.source.source import Source
from perflint.source.words import made


class Body:
    """The statements of a block, each with the lines that belong to it: those after the statement before it.

    head_row: the last row of what opens the block.
    """

    def __init__(self, source: Source, statements: Sequence[ast.stmt], head_row: int) -> None:
        self.source, self.statements = source, statements
        self._first_rows: dict[ast.stmt, int] = {}
        first_row = head_row + 1
        for statement in statements:
            self._first_rows[statement] = first_row
            first_row = _last_row(statement) + 1
        self.indent = _indent(source.line(statements[0].lineno))

    def lines(self, statement: ast.stmt, indent: str, without: Collection[ast.stmt] = ()) -> list[str]:
        """A statement's lines with another indentation, without some of the statements inside of it.

        Raises:
            CannotRewrite: another statement or a part of one stands on its lines, or a string goes over several of them.

        """
        dropped: dict[int, str | None] = {}
        for inner in without:
            comment = self._comment(inner)
            for row in range(inner.lineno, _last_row(inner) + 1):
                dropped[row] = None
            dropped[inner.lineno] = f"{_indent(self.source.line(inner.lineno))}{comment}" if comment else None
        self._see_to_strings(statement, indent)
        self._comment(statement)
        found: list[str] = []
        for row in range(self._first_rows[statement], _last_row(statement) + 1):
            line = dropped[row] if row in dropped else self.source.line(row)
            if line is not None:
                found.append(self._indented(line, indent))
        return found

    def indent_of(self, statement: ast.stmt) -> str:
        """The white space that a statement begins with."""
        return _indent(self.source.line(statement.lineno))

    def comments(self, statement: ast.stmt, indent: str) -> list[str]:
        """The comments above a statement, in it and behind it."""
        rows = range(self._first_rows[statement], _last_row(statement))
        found = (_COMMENT.search(self.source.line(row)) for row in rows)
        return [f"{indent}{c}" for c in (*(match[0] for match in found if match is not None), self._comment(statement)) if c]

    def _indented(self, line: str, indent: str) -> str:
        line = line.rstrip("\r\n")
        return indent + line.removeprefix(self.indent) if line.startswith(self.indent) and line.strip() else line

    def _comment(self, statement: ast.stmt) -> str:
        source = self.source
        before = source.line(statement.lineno).encode()[: statement.col_offset]
        last = _last_row(statement)
        behind = source.line(last).encode()[statement.end_col_offset or 0 :].decode().strip()
        if before.strip() or (behind and not behind.startswith("#")):
            raise CannotRewrite("another statement stands on the same line")
        return behind

    def _see_to_strings(self, statement: ast.stmt, indent: str) -> None:
        texts = (n for n in ast.walk(statement) if isinstance(n, (ast.Constant, ast.JoinedStr)))
        if indent != self.indent and any(n.lineno != n.end_lineno for n in texts):
            raise CannotRewrite("a string goes over several lines")


_COMMENT = made(r"(?:(?<=\s)|^)#[^'\"]*$")


def replaced_lines(
    source: Source,
    anchor: ast.stmt,
    loop: ast.For,
    above: Sequence[str],
    changed: Mapping[ast.expr, str],
    body: Sequence[str],
) -> Iterator[Edit]:
    """A loop with another body and a changed head, and new lines above a statement: the loop, or one around it.

    Raises:
        CannotRewrite: the head's text was not found, or something else stands on its lines or on those of the last statement.

    """
    edits = sorted((replace(source, node, text) for node, text in changed.items()), key=lambda edit: edit.start)
    head_row = loop.iter.end_lineno or loop.lineno
    opening = source.line(head_row)
    if not re.fullmatch(r"[\s)]*:\s*(#.*)?", opening.encode()[loop.iter.end_col_offset or 0 :].decode()):
        raise CannotRewrite("the loop's body begins on the line of its head")
    first, _ = lines_of(source, anchor)
    row = source.row_at(first)
    while row > 1 and source.line(row - 1).strip().startswith("#"):
        row -= 1
    at = source.starts[row - 1]
    if (
        above
        and not above[0]
        and (row == 1 or source.line(row - 1).rstrip().endswith((":", '"""')) or not source.line(row - 1).strip())
    ):
        above = above[1:]
    yield Edit(at, at, "".join(f"{line}{source.newline}" for line in above))
    yield from edits
    start = source.starts[head_row]
    _, end = lines_of(source, loop)
    ends = source.body[start:end].endswith((b"\n", b"\r"))
    text = source.newline.join(body)
    yield Edit(start, end, text + source.newline if ends else text)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _last_row(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno
