"""Files that cannot be imported: they take from another file of the project what that file does not have."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from itertools import dropwhile
from typing import NamedTuple

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.source.cells import SUFFIX
from perflint.source.identifiers import stands_in
from perflint.source.syntax import Module
from perflint.source.words import any_layout, made

_IMPORT = made(rb"^from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(?:\(([^)#]{0,9000})\)|([^\\\r\n#(]+)(?:#|\r?$))", re.M)
"""At the beginning of a line: what stands in a branch or behind `try:` may be left out."""
_TRIED = made(rb"^[ \t]+from[ \t]+(\w[\w.]*)[ \t]+import\b", re.M)
_MODULES = made(rb"^[ \t]*(?:from|import)[ \t]+(\w[\w.]*)", re.M)
_RELATIVE = made(rb"^from[ \t]+\.", re.M)
_WHOLE = made(rb"^import[ \t]+([\w.]+)", re.M)
_MOVES = any_layout(rb"sys \. path\b|\bsite \. addsitedir\b")
"""What has modules of other folders, maybe those of another project."""
_BUILT = made(r"_(?:pb2|pb2_grpc|cuda|cpu|gpu|ext|cpp|C)$|^_|^(?:version|about|build|data(?:sets?)?)$|cython|lib$", re.I)
"""Names of modules that are compiled or written when a project is built, and of folders that git is told to leave out."""
_HANDS_ON = any_layout(rb"\bimport \*|\b__getattr__\b|\bglobals \(|\bexec \(|\bsetattr \(|sys \. modules")
_TRAINS = made(rb"\.(?:backward|fit)\(|\btrain\w*(?<!_split)\(")
MAX_FILES = 40
"""How many files are looked at that one imports, and these import."""


def cannot_start(facts: Facts, path: str) -> bool:
    """Whether Python refuses a file, or it, or one that it imports first of all, ends with an ImportError.

    `from utils import what_is_not_there`, `from __future__ import division` behind `import torch`.

    A notebook ends where a cell does: what it trains before that may have been what it is for.
    """
    return facts.unstartable.get(path, lambda: _find(facts, path))


def _is_refused(facts: Facts, path: str) -> bool:
    """Whether Python compiles no such file, by where it switches on what is to come: `import torch` stands before that."""
    if path.endswith(SUFFIX) or b"__future__" not in (facts.project.read(path) or b""):
        return False
    module = facts.project.module(path)
    if module is None:
        return False
    behind = module.tree.body[0 if ast.get_docstring(module.tree, clean=False) is None else 1 :]
    return any(map(_is_switch, dropwhile(_is_switch, behind)))


def _is_switch(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__" and not statement.level


def _find(facts: Facts, path: str) -> bool:
    if _is_refused(facts, path):
        return True
    files = {path: 0}
    for file in (looked := [path]):
        for taken in _imports(facts, file):
            at = taken.at if file == path else files[file]
            if not taken.is_there and not (path.endswith(SUFFIX) and _TRAINS.search(facts.project.read(path) or b"", 0, at)):
                return True
            if taken.is_there and taken.file not in files and len(files) < MAX_FILES:
                files[taken.file] = at
                looked.append(taken.file)
    return False


class _Taken(NamedTuple):
    """A file that another one takes names from at a place in its text, and whether it has them."""

    file: str
    is_there: bool
    at: int


def _is_gone(facts: Facts, path: str, module: str, level: int) -> bool:
    """Whether a package of the project is asked for a module that it does not have, and that no build makes."""
    parts = module.split(".") if module else []
    if level:
        folder = os.path.dirname(path)
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        return _lacks(facts, folder, parts)
    if len(parts) < 2:
        return False
    text = facts.project.read(path) or b""
    for base in dict.fromkeys((os.path.dirname(path), facts.project.root)):
        folder = os.path.join(base, parts[0])
        inside = facts.project.beside(os.path.join(folder, "_.py"))
        if _MOVES.search(text):
            meant = os.path.join(folder, "__init__.py") in inside and _takes_from(facts, path, text, parts[0], folder)
        else:
            meant = base == os.path.dirname(path) or any(map(facts.project.importers, inside))
        if inside and meant:
            return _lacks(facts, folder, parts[1:])
    return False


def _takes_from(facts: Facts, path: str, text: bytes, package: str, folder: str) -> bool:
    """Whether a file imports a module of a package that a folder has: then the package of this name is that of the folder."""
    modules = {dotted.decode("utf-8", "replace") for dotted in _MODULES.findall(text)}
    targets = (facts.project.resolve(module, path) for module in sorted(modules) if module.startswith(f"{package}."))
    return any(target is not None and target.startswith(f"{folder}{os.sep}") for target in targets)


def _lacks(facts: Facts, folder: str, parts: list[str]) -> bool:
    """Whether a folder has no module of a dotted name: neither among the project's files nor where git does not look."""
    if any(map(_BUILT.search, parts)):
        return False
    for part in parts:
        inner = os.path.join(folder, part)
        if not facts.project.beside(os.path.join(inner, "_.py")):
            return not _is_left_out(folder, part) and f"{inner}.py" not in facts.project.beside(f"{inner}.py")
        folder = inner
    return False


def _is_left_out(folder: str, name: str) -> bool:
    """Whether a folder has a module that is no file of the project: one that git ignores, or that a build has made."""
    try:
        return any(entry.partition(".")[0] == name for entry in os.listdir(folder))
    except OSError:
        return False


def _imports(facts: Facts, path: str) -> Iterator[_Taken]:
    """What a file takes whenever it is imported."""
    project = facts.project
    text = project.read(path) or b""
    for match in _WHOLE.finditer(text):
        module = match[1].decode("utf-8", "replace")
        target = project.resolve(module, path)
        if target is None and _is_gone(facts, path, module, 0):
            yield _Taken(path, False, match.start())
        elif target is not None and "." in module:
            yield _Taken(target, True, match.start())
    for match in _IMPORT.finditer(text):
        dots, dotted, *names = match.groups(b"")
        module, level = dotted.decode("utf-8", "replace"), len(dots)
        target = project.resolve(module, path, level)
        if target is None and _is_gone(facts, path, module, level):
            yield _Taken(path, False, match.start())
        if target is None or target == path:
            continue
        if os.path.basename(target) == "__init__.py":
            if level or "." in module or os.path.dirname(os.path.dirname(target)) == os.path.dirname(path):
                yield _Taken(target, True, match.start())  # what a package has may be no Python file
            continue
        found = project.read(target) or b""
        if not (level or "." in module):
            if target not in project.beside(path):
                continue  # it may be an installed package, or a module that this project has in another folder, too
            if os.path.join(os.path.dirname(path), "__init__.py") in project.beside(path):
                if _RELATIVE.search(found) and _is_script_alone(facts, path, text) and _lacks(facts, project.root, [module]):
                    yield _Taken(target, False, match.start())  # it is found beside the script, but then in no package
                continue
        taken = [part.split()[0] for part in b"".join(names).split(b",") if part.split()]
        is_there = bool(_HANDS_ON.search(found)) or all(name == b"*" or stands_in(name, found) for name in taken)
        yield _Taken(target, is_there, match.start())
    if any(_is_gone(facts, path, dotted.decode("utf-8", "replace"), 0) for dotted in set(_TRIED.findall(text))):
        yield from _tried(facts, path)


def _is_script_alone(facts: Facts, path: str, text: bytes) -> bool:
    """Whether the modules that a file imports are looked for beside it."""
    return not _MOVES.search(text) and not facts.project.importers(path) - {path}


def _tried(facts: Facts, path: str) -> Iterator[_Taken]:
    """Where a file names, whatever happens, what it only tries to import from where it is not: no handler has a substitute."""
    module = facts.project.module(path)
    if module is None:
        return
    for statement in module.tree.body:
        failed = False
        for tried in statement.body if isinstance(statement, ast.Try) else ():
            if isinstance(tried, ast.ImportFrom) and not tried.level:
                failed = failed or _is_gone(facts, path, tried.module or "", 0)
                for alias in tried.names if failed else ():
                    yield from _uses_without(module, alias.asname or alias.name, statement)


def _uses_without(module: Module, name: str, statement: ast.stmt) -> Iterator[_Taken]:
    flow = flow_of(module.top)
    for definition in flow.definitions_of(name):
        if not any(block.node is statement and block.kind == "try" for block in definition.block.ancestry()):
            return
    for node in flow.reaching:
        if isinstance(node, ast.Name) and node.id == name and flow.block[node].parent is None:
            yield _Taken(module.source.path, False, module.source.offset(node.lineno, node.col_offset))
