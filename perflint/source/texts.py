"""What a file's text says by itself. It is found out once for all projects of a run, which may list the same files."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perflint.source.cells import HIDDEN
from perflint.source.identifiers import stands_in
from perflint.source.words import any_layout, made, whole

IMPORT = made(
    rb"\n[ \t\f]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\r\n#\\]*(?:\\\r?\n[^\r\n#\\]*)*)"
    rb"|import[ \t]+([\w., \t]+))"
)
"""Begins with a line end, so that a search jumps from line to line."""

BACKWARD = any_layout(rb"backward \(")
_LOADER = made(rb"oader[\s\\():,.]")
_OPTIMIZERS = any_layout(rb"torch(?<!\wtorch) \. optim\b")
_BY_NAME = any_layout(rb"\b(?:import_module|__import__|run_path|run_module|spec_from_file_location|SourceFileLoader) \(")
_IMPORTERS = frozenset(("import_module", "__import__", "run_path", "run_module", "spec_from_file_location", "SourceFileLoader"))
_IMPORTER_WORDS = tuple(name.encode() for name in sorted(_IMPORTERS))
_CHANGED_PATH = any_layout(rb"sys \. path\b|from sys import path\b|" + whole("addsitedir"))
_PLACE = made(r"[\w./\\-]+")
_RUN = made(rb"(?:(?m:^)|%b)[ \t]*%%run[ \t]+(?:-\w[ \t]+)*['\"]?([\w./\\-]+)" % HIDDEN.encode())
"""A magic at the beginning of a line, or behind what runs in the place of the line."""
_EXECUTES = any_layout(rb"\b(?:exec|execfile) \(")


@dataclass(slots=True)
class TextFacts:
    """What is known of a text. Small, for a run keeps one for each file.

    digest: of the text. trains: whether it has the words of a training loop. holds_model: whether it defines a forward pass.
    helpers: the functions that run a backward pass, as `Project.backward_helpers` counts them; None until somebody looks at the
    functions. mentioned: what it may import by other means than its statements, modules and folders by their names. elsewhere:
    what it imports, with the names, if it changes where modules are looked for.
    """

    digest: str
    trains: bool
    holds_model: bool
    helpers: frozenset[str] | None
    mentioned: frozenset[str]
    elsewhere: frozenset[tuple[str, frozenset[str]]]
    _statements: bytes
    """The text's import statements: they are few, and found again faster in here than kept apart."""

    @classmethod
    def of(cls, text: bytes | None, digest: str) -> TextFacts:
        """What is found out in one reading; a file that cannot be read says nothing."""
        text = text or b""
        statements = b"".join(found.group() for found in IMPORT.finditer(b"\n" + text))
        backward = BACKWARD.search(text) is not None
        named = any(word in text for word in (b"zero_grad", b"Replay", b"perflint_runtime"))
        trains = backward or named or _LOADER.search(text) is not None or _OPTIMIZERS.search(text) is not None
        holds_model = b"def forward" in text
        return cls(
            digest, trains, holds_model, None if backward else frozenset(), _named_in(text), _imported_in(text), statements
        )

    def imports(self) -> Iterator[tuple[int, str, list[str] | None]]:
        """What the text imports: the level, the module, and the names that are taken from it, None for `import module`."""
        for dots, dotted, names, plain in IMPORT.findall(self._statements):
            if plain:
                for part in plain.split(b","):
                    if part.split():
                        yield 0, part.split()[0].decode("utf-8", "replace"), None
            else:
                taken = re.findall(rb"\w+", re.sub(rb"\bas\s+\w+", b"", names))
                yield len(dots), dotted.decode("utf-8", "replace"), [sys.intern(name.decode()) for name in taken]


def _named_in(text: bytes) -> frozenset[str]:
    """The modules that a text may import by other means than import statements that are followed.

    Those that it names in a call such as `import_module("engine")`; all that it has in quotes where a call gets a variable.
    A name with a dot behind it is that of a folder.
    """
    found = {place for path in _run_in(text) for place in _places_in(path)}
    if not any(name in text for name in _IMPORTER_WORDS) or _BY_NAME.search(text) is None:
        return frozenset(found)
    nodes = _nodes_of(text)
    for call in (n for n in nodes if isinstance(n, ast.Call) and last_name(n.func) in _IMPORTERS):
        named = {n.id for n in ast.walk(call) if isinstance(n, ast.Name)}
        lists = [n.iter for n in nodes if isinstance(n, ast.For) and isinstance(n.target, ast.Name) and n.target.id in named]
        given = _texts_in(part for node in (call, *lists) for part in ast.walk(node))
        by_path = last_name(call.func) not in ("import_module", "__import__", "run_module")
        for quoted in given or _texts_in(nodes):
            if not by_path or "/" in quoted or quoted.endswith(".py"):
                found |= set(_places_in(quoted))
    return frozenset(found)


def _run_in(text: bytes) -> list[str]:
    """The files that a text may run among its own names: `%run train.py`, and all in quotes where there is an `exec(...)`."""
    if b".py" not in text:
        return []
    executed = _texts_in(_nodes_of(text)) if _EXECUTES.search(text) is not None else ()
    run = _RUN.finditer(text) if b"%run" in text else ()
    return [match[1].decode() for match in run] + [quoted for quoted in executed if quoted.endswith(".py")]


def _imported_in(text: bytes) -> frozenset[tuple[str, frozenset[str]]]:
    """What a text that changes `sys.path` imports: modules, with the names that are taken from them."""
    if not any(word in text for word in (b"sys", b"addsitedir")) or _CHANGED_PATH.search(text) is None:
        return frozenset()
    found: set[tuple[str, frozenset[str]]] = set()
    for node in _statements_of(text):
        if isinstance(node, ast.Import):
            found |= {(alias.name, frozenset()) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "", frozenset(alias.name for alias in node.names)))
    return frozenset(found)


def _statements_of(text: bytes) -> list[ast.stmt]:
    """The statements of a text, without a look at their expressions."""
    try:
        found = list(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for statement in found:
        for field in ("body", "handlers", "cases", "orelse", "finalbody"):
            for inner in getattr(statement, field, ()):
                found += [inner] if isinstance(inner, ast.stmt) else inner.body
    return found


def _nodes_of(text: bytes) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def is_imported_whole(stem: str, text: bytes) -> bool:
    """Whether a text imports a module as an object, `from nets import unet`, or all of it, `from nets.unet import *`."""
    word = stem.encode()
    for _, module, names, plain in IMPORT.findall(b"\n" + text):
        if stands_in(word, names) or stands_in(word, plain) or (b"*" in names and stands_in(word, module)):
            return True
    return False


def brief(node: ast.AST, limit: int = 60) -> str:
    """An expression as a message shows it: a call that is long without its arguments, others cut at `limit` characters."""
    text = ast.unparse(node)
    if len(text) <= limit:
        return text
    if isinstance(node, ast.Call):
        return f"{brief(node.func, limit)}(...)"
    return f"{text[: limit - 3].rstrip()}..."


def last_name(node: ast.expr) -> str:
    """What stands last in a name or an attribute, empty for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _texts_in(nodes: Iterable[ast.AST]) -> list[str]:
    """The strings among some nodes that may be names of modules or paths."""
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str) and _PLACE.fullmatch(n.value)]


def _places_in(text: str) -> Iterator[str]:
    """The module and the folders that a dotted name or a path consists of."""
    *folders, last = re.split(r"[./\\]", text.removesuffix(".py"))
    yield last
    yield from (f"{folder}." for folder in folders)
