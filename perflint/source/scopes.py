"""Questions about each piece of code of a file, and the pieces that run where functions and classes are defined."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial

from perflint.source.identifiers import stands_in
from perflint.source.syntax import Module, Scope, SyntaxProblem
from perflint.source.vocabulary import branches
from perflint.source.words import any_layout

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_TEXT = rb"'[^'\\\r\n]*'|\"[^\"\\\r\n]*\""
_NOTHING_RUNS = any_layout(
    rb"@ (?:property|(?:abc \. )?abstractmethod|staticmethod|classmethod|torch \. no_grad \( \)"
    rb"|torch \. inference_mode \( \))[\t\x20]*(?=[\r\n])"
    rb"|= -?(?:None|True|False|[\d.]+(?:e-?\d+)?|%b) (?=[,)])" % _TEXT
)
"""Decorators and defaults in a header that run no code of the program and hand nothing on."""
_RUNS = re.compile(rb"[@=]")


class Defining(Scope):
    """Code that runs where a function or a class is defined, and is in no other scope.

    The decorators and defaults of an outermost function, or the statements of a class body. It is a function that nobody calls
    and that its file runs once.
    """

    def __init__(self, module: Module, qualname: str, row: int, text: bytes, run: Callable[[], list[ast.stmt]]) -> None:
        super().__init__(module, qualname)
        self._row, self._own_text, self._run = row, text, run

    @property
    def text(self) -> bytes:
        return self._own_text

    @property
    def row(self) -> int:
        return self._row

    @property
    def node(self) -> ast.AST:
        if self._node is None:
            nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
            made = ast.FunctionDef(name=self.name, args=nothing, body=self._run(), decorator_list=[])
            made.lineno = made.end_lineno = self._row
            made.col_offset = made.end_col_offset = 0
            self._node = made
        return self._node


def defining(module: Module) -> dict[Scope, list[Scope]]:
    """What runs where the functions and classes of a file are defined: for each function, and for the file's own code."""
    if module.defining is None:
        headers = {function: [*_header(module, function)] for function in module.functions()}
        module.defining = {scope: found for scope, found in (*headers.items(), (module.top, [*_bodies(module)])) if found}
    return module.defining


def _header(module: Module, function: Scope) -> Iterator[Scope]:
    """The decorators and defaults of a function."""
    chunk = function.chunk
    text = module.source.body[chunk.start : chunk.header_end] if chunk is not None else function.text
    if _RUNS.search(text) is not None and _RUNS.search(_NOTHING_RUNS.sub(b"", text)) is not None:
        yield Defining(module, f"{function.qualname}.<header>.{function.name}", function.row, text, partial(_of, function))


def _of(function: Scope) -> list[ast.stmt]:
    node = function.function
    assert node is not None
    parts = [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
    return [ast.copy_location(ast.Expr(part), part) for part in parts]


def _bodies(module: Module) -> Iterator[Scope]:
    """The statements of class bodies; classes inside are parts of them."""
    lines: list[bytes] = []
    for cls in module.all_classes:
        body = [s for s in cls.node.body if not isinstance(s, (*_FUNCTIONS, ast.Pass)) and not _is_text(s)]
        if body and "." not in cls.qualname:
            lines = lines or module.top_text.split(b"\n")
            text = b"\n".join(lines[cls.node.body[0].lineno - 1 : cls.node.end_lineno])
            yield Defining(module, f"{cls.qualname}.<body>", cls.node.lineno, text, partial(list, body))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def class_body(scope: Scope, node: ast.ClassDef) -> Scope:
    """The body of a class that is written inside a function: its statements, and its methods as functions inside."""
    source = scope.module.source
    end = node.end_lineno or node.lineno
    text = source.body[source.starts[node.lineno - 1] : source.starts[end] if end < len(source.starts) else len(source.body)]
    found = Defining(scope.module, f"{scope.qualname}.<locals>.{node.name}.<body>", node.lineno, text, partial(list, node.body))
    found.parent = scope
    return found


def every_scope(module: Module) -> Iterator[Scope]:
    """All outermost scopes: a file's own code, its functions, and what runs where they and its classes are defined."""
    yield module.top
    yield from module.functions()
    for found in defining(module).values():
        yield from found


def _with_defining(module: Module, found: list[Scope], stands_in: Callable[[bytes], object]) -> list[Scope]:
    around = defining(module) if found else {}
    return [*found, *(part for scope in found for part in around.get(scope, ()) if stands_in(part.text))]


def scopes_with(module: Module, name: str) -> list[Scope]:
    """The outermost scopes in whose text an identifier stands."""
    return _with_defining(module, module.scopes_with(name), partial(stands_in, name.encode()))


def scopes_where(module: Module, *patterns: re.Pattern[bytes]) -> list[Scope]:
    """The outermost scopes in whose text a pattern matches."""
    parts = [part for pattern in patterns for part in branches(pattern)]
    spans = [match.span() for part in parts for match in part.finditer(module.source.body)]

    def matches(text: bytes) -> bool:
        return any(part.search(text) for part in parts)

    return _with_defining(module, module.scopes_at(spans, matches), matches)


def in_any_scope(module: Module | None, holds: Callable[[Scope], bool]) -> bool:
    """Whether something holds of one of the outermost scopes of a file; of what is no Python it may."""
    if module is None:
        return True
    try:
        return any(holds(scope) for scope in every_scope(module))
    except SyntaxProblem:
        return True
