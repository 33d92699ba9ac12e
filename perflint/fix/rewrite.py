"""New text for old nodes.

Expressions are rewritten as LibCST nodes: the text of one expression is parsed, changed and turned into text again, so
its own spaces, line breaks and comments survive. Statements are moved and removed as whole lines. Every edit checks that
the bytes it is about to replace are those of the node it was made for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from perflint.rule.finding import Edit
from perflint.source.source import Source, split_lines
from perflint.source.words import made

if TYPE_CHECKING:
    import libcst as cst


class CannotRewrite(Exception):
    """The text does not allow this edit; the finding is reported without a fix."""


def span(source: Source, node: ast.expr | ast.stmt) -> tuple[int, int]:
    """The exact byte range of a node.

    Raises:
        CannotRewrite: the text there is not the node's: positions inside f-strings are wrong before Python 3.12.

    """
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    if node.end_lineno > len(source.starts):
        raise CannotRewrite("the position lies outside of the file")
    start = source.offset(node.lineno, node.col_offset)
    end = source.offset(node.end_lineno, node.end_col_offset)
    if isinstance(node, ast.expr):
        try:
            parsed = ast.parse(f"({source.text(start, end)}\n)", mode="eval").body
        except (SyntaxError, ValueError, UnicodeDecodeError):
            raise CannotRewrite("the text of the expression was not found") from None
        if _dumped(parsed) != _dumped(node):
            raise CannotRewrite("the text of the expression was not found")
    return start, end


def _dumped(node: ast.expr) -> str:
    """A tree as text, the same for a target and for a value."""
    return ast.dump(node).replace("ctx=Store()", "ctx=Load()")


def replace(source: Source, node: ast.expr, content: str) -> Edit:
    """Put other text in the place of an expression."""
    start, end = span(source, node)
    if source.prints(start, end):
        raise CannotRewrite("an f-string prints the expression's own text")
    return Edit(start, end, content)


def written_out_addition(source: Source, statement: ast.AugAssign) -> Edit:
    """`total += x` as `total = total + x`: what the name holds is not written to, and may get another shape.

    Raises:
        CannotRewrite: something else stands between the name and what is added.

    """
    (_, end), (value, _) = span(source, statement.target), span(source, statement.value)
    between = source.text(end, value)
    if between.count("+=") != 1 or between.strip(" (+=") or not isinstance(statement.target, ast.Name):
        raise CannotRewrite("there is more between the total and what is added")
    return Edit(end, value, between.replace("+=", f"= {statement.target.id} +"))


def change_call(source: Source, call: ast.Call, change: Callable[[cst.Call], cst.BaseExpression]) -> Edit:
    """Rewrite a call through its LibCST node."""
    import libcst as cst

    start, end = span(source, call)
    text = source.text(start, end)
    try:
        module = cst.parse_module(f"({text}\n)\n" if "\n" in text or "\r" in text else f"{text}\n")
    except cst.ParserSyntaxError:
        raise CannotRewrite("LibCST does not know the call's syntax") from None
    statement = module.body[0]
    assert isinstance(statement, cst.SimpleStatementLine)
    assert isinstance(statement.body[0], cst.Expr)
    node = statement.body[0].value
    if not isinstance(node, cst.Call):
        raise CannotRewrite("the call was not found")
    bare = node.with_changes(lpar=[], rpar=[])
    changed = change(bare)
    return Edit(start, end, module.code_for_node(changed))


def add_keyword(source: Source, call: ast.Call, name: str, value: str, *more: tuple[str, str]) -> Edit:
    """`f(a)` to `f(a, name=value)`, in the style of the call's other arguments. more: names and values of further ones.

    Raises:
        CannotRewrite: the call has a keyword already, or a bare generator expression as its argument.

    """
    added = {name: value, **dict(more)}
    given = next((k.arg for k in call.keywords if k.arg in added), None)
    if given is not None:
        raise CannotRewrite(f"`{given}` is given already")
    if len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp) and not call.keywords:
        raise CannotRewrite("the call's only argument is a generator expression")
    written = ", ".join(f"{name}={value}" for name, value in added.items())
    return _added_in_line(source, call, written) or _added(source, call, added)


def _added_in_line(source: Source, call: ast.Call, argument: str) -> Edit | None:
    """A further argument of a call that stands on one line, as nearly all do; None where LibCST has to look.

    LibCST would write the same, but to import it takes longer than to check a file.
    """
    start, end = span(source, call)
    text = source.body[start:end]
    if b"\n" in text or b"\r" in text or "\n" in argument:
        return None
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    given = sorted(arguments, key=lambda a: a.col_offset)
    places = [(a.col_offset, a.end_col_offset or a.col_offset) for a in given]
    if not given:
        return Edit(start, end, f"{text[:-1].decode()}{argument})") if text.rstrip(b") ").endswith(b"(") else None
    first = call.col_offset
    rest = _CLOSED.fullmatch(text, places[-1][1] - first)
    if rest is None:
        return None
    comma = b", "
    if len(given) > 1:
        between = _COMMA.fullmatch(text, places[-2][1] - first, places[-1][0] - first)
        if between is None:
            return None
        comma = between[1]
    kept, closing = text[: rest.start(1)], text[rest.start(1) :]
    return Edit(start, end, f"{kept.decode()}{comma.decode()}{argument}{closing.decode()}")


_CLOSED = made(rb"(?: *\))*?( *\))")
"""What follows the last argument of a call: the ends of its parentheses, and that of the call."""
_COMMA = made(rb"(?: *\))*(, *)(?:\( *)*")


def _argument(name: str, value: str) -> cst.Arg:
    import libcst as cst

    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    parsed = cst.parse_expression(f"({value}\n)" if "\n" in value else value)
    bare = parsed.with_changes(lpar=[], rpar=[]) if "\n" in value else parsed
    return cst.Arg(keyword=cst.Name(name), value=bare, equal=tight)


def _added(source: Source, call: ast.Call, added: Mapping[str, str]) -> Edit:
    import libcst as cst

    *above, new = (_argument(name, value) for name, value in added.items())

    def change(node: cst.Call) -> cst.Call:
        if not node.args:
            return node.with_changes(args=[*above, new])
        *before, last = node.args
        trailing = last.comma if isinstance(last.comma, cst.Comma) else None
        between = next((a.comma for a in reversed(before) if isinstance(a.comma, cst.Comma)), None)
        if between is None:
            opening = node.whitespace_before_args
            breaks = isinstance(opening, cst.ParenthesizedWhitespace) and trailing is not None
            between = cst.Comma(whitespace_after=opening if breaks else cst.SimpleWhitespace(" "))
        space = between.whitespace_after
        if _has_comment(space):
            space = _without_comment(space)
        closing = trailing.whitespace_after if trailing is not None else last.whitespace_after_arg
        if _has_comment(closing):  # it is about the argument that was the last one
            assert isinstance(closing, cst.ParenthesizedWhitespace)
            breaks = isinstance(space, cst.ParenthesizedWhitespace)
            space = space.with_changes(first_line=closing.first_line) if breaks else closing
            closing = _without_comment(closing)
        kept = last.with_changes(comma=between.with_changes(whitespace_after=space))
        if trailing is not None:
            final = new.with_changes(comma=trailing.with_changes(whitespace_after=closing))
        else:
            kept = kept.with_changes(whitespace_after_arg=cst.SimpleWhitespace(""))
            final = new.with_changes(whitespace_after_arg=closing)
        plain = between.with_changes(whitespace_after=_without_comment(space) if _has_comment(space) else space)
        return node.with_changes(args=[*before, kept, *(argument.with_changes(comma=plain) for argument in above), final])

    return change_call(source, call, change)


def _has_comment(space: cst.BaseParenthesizableWhitespace) -> bool:
    import libcst as cst

    return isinstance(space, cst.ParenthesizedWhitespace) and space.first_line.comment is not None


def _without_comment(space: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    import libcst as cst

    assert isinstance(space, cst.ParenthesizedWhitespace)
    return space.with_changes(first_line=space.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace("")))


def remove_keyword(source: Source, call: ast.Call, name: str) -> Edit:
    """`f(a, name=value)` to `f(a)`.

    Raises:
        CannotRewrite: a comment would be lost.

    """

    def change(node: cst.Call) -> cst.Call:
        kept = [a for a in node.args if a.keyword is None or a.keyword.value != name]
        if kept and len(kept) < len(node.args) and kept[-1] is not node.args[-1]:
            kept[-1] = kept[-1].with_changes(comma=node.args[-1].comma)
        return node.with_changes(args=kept)

    edit = change_call(source, call, change)
    if source.body[edit.start : edit.end].count(b"#") != edit.content.encode().count(b"#"):
        raise CannotRewrite("a comment would be lost")
    return edit


# -- statements ----------------------------------------------------------------------------------------------------------


def lines_of(source: Source, statement: ast.stmt) -> tuple[int, int]:
    """The byte range of the whole lines that hold a statement and nothing else but a comment.

    Raises:
        CannotRewrite: something else stands on its lines.

    """
    start, end = span(source, statement)
    decorators = getattr(statement, "decorator_list", [])
    first_row = min([statement.lineno, *(d.lineno for d in decorators)])
    line_start = source.starts[first_row - 1]
    if not decorators and source.body[line_start:start].strip():
        raise CannotRewrite("another statement stands on the same line")
    next_row = source.row_at(max(end - 1, start)) + 1
    line_end = source.starts[next_row - 1] if next_row <= len(source.starts) else len(source.body)
    rest = source.body[end:line_end].strip()
    if rest and not rest.startswith(b"#"):
        raise CannotRewrite("another statement stands on the same line")
    return line_start, line_end


def indentation(source: Source, statement: ast.stmt) -> str:
    """The white space that a statement's first line begins with."""
    line_start, _ = lines_of(source, statement)
    found = re.match(rb"[ \t\f]*", source.body[line_start:])
    assert found is not None
    return found.group().decode()


def insert_before(source: Source, statement: ast.stmt, *lines: str) -> Edit:
    """New statements in front of one, with its indentation."""
    line_start, _ = lines_of(source, statement)
    indent = indentation(source, statement)
    return Edit(line_start, line_start, "".join(f"{indent}{line}{source.newline}" for line in lines))


def insert_after(source: Source, statement: ast.stmt, *lines: str) -> Edit:
    """New statements behind one, with its indentation."""
    _, line_end = lines_of(source, statement)
    indent = indentation(source, statement)
    text = "".join(f"{indent}{line}{source.newline}" for line in lines)
    if line_end == len(source.body) and not source.body.endswith((b"\n", b"\r")):
        text = source.newline + text.removesuffix(source.newline)
    return Edit(line_end, line_end, text)


def insert_after_block(source: Source, statement: ast.stmt, *lines: str) -> Edit:
    """New statements behind a compound statement, with the indentation of its head.

    Raises:
        CannotRewrite: its body's last line holds something else.

    """
    last: ast.stmt = statement
    while True:
        bodies = [getattr(last, name, None) for name in ("finalbody", "orelse", "body")]
        handlers = getattr(last, "handlers", None)
        if handlers and not bodies[0] and not bodies[1]:
            bodies = [handlers[-1].body]
        body = next((b for b in bodies if isinstance(b, list) and b and isinstance(b[-1], ast.stmt)), None)
        if body is None:
            break
        last = body[-1]
    edit = insert_after(source, last)
    indent = indentation(source, statement)
    text = "".join(f"{indent}{line}{source.newline}" for line in lines)
    if edit.start == len(source.body) and not source.body.endswith((b"\n", b"\r")):
        text = source.newline + text.removesuffix(source.newline)
    return Edit(edit.start, edit.start, text)


def delete_statement(source: Source, statement: ast.stmt, siblings: list[ast.stmt]) -> Edit:
    """Remove a statement with its lines. A comment on its line stays; a block that would be empty gets `pass`.

    Raises:
        CannotRewrite: something else stands on its lines, or a comment stands inside of it.

    """
    line_start, line_end = lines_of(source, statement)
    start, end = span(source, statement)
    if b"#" in source.body[start:end] and "\n" in source.text(start, end):
        raise CannotRewrite("a comment stands inside the statement")
    comment = source.body[end:line_end].strip(b"\r\n").lstrip().decode()
    indent = indentation(source, statement)
    if len(siblings) == 1:
        content = f"{indent}pass{'  ' + comment if comment else ''}{source.newline}"
    else:
        content = f"{indent}{comment}{source.newline}" if comment else ""
    return Edit(line_start, line_end, content)


def replace_statement(source: Source, statement: ast.stmt, content: str) -> Edit:
    """Put another simple statement into the place of one.

    Raises:
        CannotRewrite: a comment stands inside of it.

    """
    start, end = span(source, statement)
    if b"#" in source.body[start:end] and "\n" in source.text(start, end):
        raise CannotRewrite("a comment stands inside the statement")
    return Edit(start, end, content)


def move_before(
    source: Source, statement: ast.stmt, target: ast.stmt, siblings: list[ast.stmt], about: re.Pattern[str]
) -> Iterator[Edit]:
    """Move a statement, its lines unchanged, in front of another one of the same block and of the comments above that.

    The comment behind the statement goes with it; the comment lines above it do if they are about it, as a pattern says.
    A blank line that would follow another one goes away.
    """
    line_start, line_end = lines_of(source, statement)
    if len(siblings) < 2:
        raise CannotRewrite("the statement is alone in its block")
    target_row = source.row_at(lines_of(source, target)[0])
    row = source.row_at(line_start)
    first = _comments_above(source, row)
    if about.search(source.text(source.starts[first - 1], line_start)) is None:
        first = row
    start = source.starts[first - 1]
    text = source.text(start, line_end)
    if not text.endswith(("\n", "\r")):
        raise CannotRewrite("the file's last line has no line end")
    following = source.row_at(line_end)
    if first > 1 and not source.line(first - 1).strip() and line_end < len(source.body) and not source.line(following).strip():
        line_end = source.starts[following] if following < len(source.starts) else line_end
    at = source.starts[_comments_above(source, target_row) - 1]
    yield Edit(at, at, text)
    yield Edit(start, line_end, "")


def _comments_above(source: Source, row: int) -> int:
    """The first of the comment lines directly above a row, or the row itself."""
    while row > 1 and source.line(row - 1).strip().startswith("#"):
        row -= 1
    return row


def decorate(source: Source, function: ast.FunctionDef | ast.AsyncFunctionDef, decorator: str) -> Edit:
    """Put a decorator right above a function, below those that it has."""
    start = source.starts[function.lineno - 1]
    return Edit(start, start, f"{indentation(source, function)}@{decorator}{source.newline}")


def wrap_statement(source: Source, statement: ast.stmt, head: str) -> Edit:
    """Put a simple statement into a block of its own: `head` and the statement, one level deeper.

    Raises:
        CannotRewrite: the statement is compound, or a string in it goes over several lines.

    """
    if hasattr(statement, "body"):
        raise CannotRewrite("the statement is compound")
    line_start, line_end = lines_of(source, statement)
    indent = indentation(source, statement)
    for node in ast.walk(statement):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and node.lineno != node.end_lineno:
            raise CannotRewrite("a string goes over several lines")
    step = "\t" if indent.endswith("\t") else "    "
    lines = split_lines(source.text(line_start, line_end))
    text = f"{indent}{head}{source.newline}" + "".join(step + line if line.strip() else line for line in lines)
    return Edit(line_start, line_end, text)
