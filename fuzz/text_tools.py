"""What changes to the text of a Python file are made with."""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import random
import tokenize
from collections.abc import Callable
from functools import lru_cache

Change = Callable[[str, random.Random], str]
"""A text and a generator to the changed text; the same text where the change has no place."""


def registering(changes: dict[str, Change]) -> Callable[[Change], Change]:
    """A decorator that puts a change among others, under its function's name."""

    def change(function: Change) -> Change:
        changes[function.__name__] = function
        return function

    return change


def parses(text: str) -> bool:
    """Whether a text is Python."""
    return tree_of(text) is not None


@lru_cache(64)
def tree_of(text: str) -> ast.Module | None:
    """The tree of a text, or None where it is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(64)
def tokens_of(text: str) -> list[tokenize.TokenInfo]:
    """The tokens of a text, up to where it is no Python."""
    found: list[tokenize.TokenInfo] = []
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        found.extend(tokenize.generate_tokens(io.StringIO(text).readline))
    return found


def inserted(text: str, row: int, column: int, what: str) -> str:
    """A text with something put at a place: 1-based row, column in characters."""
    lines = text.split("\n")
    lines[row - 1] = lines[row - 1][:column] + what + lines[row - 1][column:]
    return "\n".join(lines)


def replaced(text: str, token: tokenize.TokenInfo, what: str) -> str:
    """A text with a token of one line replaced."""
    (row, start), (last, end) = token.start, token.end
    lines = text.split("\n")
    if row == last and row <= len(lines):
        lines[row - 1] = lines[row - 1][:start] + what + lines[row - 1][end:]
    return "\n".join(lines)


def simple_lines(text: str) -> list[int]:
    """The 1-based rows that hold one simple statement each and nothing else."""
    tree = tree_of(text)
    statements = [n for n in ast.walk(tree) if isinstance(n, ast.stmt)] if tree is not None else []
    simple = [s for s in statements if not hasattr(s, "body")]
    rows = [s.lineno for s in statements] + [s.end_lineno for s in simple if s.end_lineno != s.lineno]
    return sorted(s.lineno for s in simple if s.lineno == s.end_lineno and rows.count(s.lineno) == 1)


def indent_of(line: str) -> str:
    """The white space that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def bracketed(text: str) -> list[tokenize.TokenInfo]:
    """The tokens inside of brackets that people and formatters break a line behind."""
    depth, found, inside_string = 0, [], 0
    tokens = tokens_of(text)
    for token, following in itertools.pairwise(tokens):
        name = tokenize.tok_name[token.type]
        inside_string += name in ("FSTRING_START", "TSTRING_START")
        inside_string -= name in ("FSTRING_END", "TSTRING_END")
        if token.type == tokenize.OP and not inside_string:
            depth += token.string in "([{"
            depth -= token.string in ")]}"
        if depth <= 0 or inside_string or token.string == "." or token.string + following.string == "()":
            continue
        if token.type == tokenize.OP or (token.type in (tokenize.NAME, tokenize.NUMBER) and following.string not in "("):
            found.append(token)
    return found
