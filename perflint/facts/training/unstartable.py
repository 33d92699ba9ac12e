"""Files that cannot be imported: they take from another file of the project what that file does not have."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from perflint.facts.facts import Facts
from perflint.source.identifiers import stands_in
from perflint.source.words import any_layout, made

_IMPORT = made(rb"^from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(?:\(([^)#]{0,9000})\)|([^\\\r\n#(]+)(?:#|\r?$))", re.M)
"""At the beginning of a line: what stands in a branch or behind `try:` may be left out."""
_WHOLE = made(rb"^import[ \t]+([\w.]+)", re.M)
_MOVES = any_layout(rb"sys \. path\b|\bsite \. addsitedir\b")
"""What has modules of other folders, maybe those of another project."""
_BUILT = made(r"_(?:pb2|pb2_grpc|cuda|cpu|gpu|ext|cpp|C)$|^_|^(?:version|about|build)$|cython|lib$", re.I)
"""Names of modules that are compiled or written when a project is built."""
_HANDS_ON = any_layout(rb"\bimport \*|\b__getattr__\b|\bglobals \(|\bexec \(|\bsetattr \(|sys \. modules")
MAX_FILES = 40
"""How many files are looked at that one imports, and these import."""


def cannot_start(facts: Facts, path: str) -> bool:
    """Whether a file, or one that it imports first of all, ends with an ImportError: `from utils import what_is_not_there`."""
    return facts.unstartable.get(path, lambda: _find(facts, path))


def _find(facts: Facts, path: str) -> bool:
    files = [path]
    for file in files:
        for target, is_there in _imports(facts, file):
            if not is_there:
                return True
            if target not in files and len(files) < MAX_FILES:
                files.append(target)
    return False


def _is_gone(facts: Facts, path: str, module: str, level: int) -> bool:
    """Whether a package of the project is asked for a module that it does not have, and that no build makes."""
    parts = module.split(".") if module else []
    if level:
        folder = os.path.dirname(path)
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        return _lacks(facts, folder, parts)
    if len(parts) < 2 or _MOVES.search(facts.project.read(path) or b""):
        return False
    first = parts[0]
    for base in dict.fromkeys((os.path.dirname(path), facts.project.root)):
        folder = os.path.join(base, first)
        inside = facts.project.beside(os.path.join(folder, "_.py"))
        if inside and (base == os.path.dirname(path) or any(map(facts.project.importers, inside))):
            return _lacks(facts, folder, parts[1:])
    return False


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


def _imports(facts: Facts, path: str) -> Iterator[tuple[str, bool]]:
    """The files that a file takes names from whenever it is imported, and whether they have what it takes."""
    project = facts.project
    text = project.read(path) or b""
    for dotted in _WHOLE.findall(text):
        module = dotted.decode("utf-8", "replace")
        target = project.resolve(module, path)
        if target is None and _is_gone(facts, path, module, 0):
            yield path, False
        elif target is not None and "." in module:
            yield target, True
    for dots, dotted, *names in _IMPORT.findall(text):
        module, level = dotted.decode("utf-8", "replace"), len(dots)
        target = project.resolve(module, path, level)
        if target is None and _is_gone(facts, path, module, level):
            yield path, False
        if target is None or target == path:
            continue
        if os.path.basename(target) == "__init__.py":
            if level or "." in module or os.path.dirname(os.path.dirname(target)) == os.path.dirname(path):
                yield target, True  # what a package has may be no Python file
            continue
        beside = project.beside(path)
        if not (
            level or "." in module or (target in beside and os.path.join(os.path.dirname(path), "__init__.py") not in beside)
        ):
            continue  # it may be an installed package, or a module that this project has in another folder, too
        text = project.read(target) or b""
        taken = [part.split()[0] for part in b"".join(names).split(b",") if part.split()]
        yield target, bool(_HANDS_ON.search(text)) or all(name == b"*" or stands_in(name, text) for name in taken)
