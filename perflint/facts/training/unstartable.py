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
    package, _, name = module.rpartition(".")
    folder = os.path.join(os.path.dirname(path), *package.split("."))
    if not package or level or _BUILT.search(name) or _is_left_out(folder, name):
        return False
    return bool(facts.project.beside(os.path.join(folder, "_.py")))


def _is_left_out(folder: str, name: str) -> bool:
    """Whether a folder has a module that is no file of the project: one that git ignores, or that a build has made."""
    try:
        return any(entry.partition(".")[0] == name for entry in os.listdir(folder))
    except OSError:
        return False


def _imports(facts: Facts, path: str) -> Iterator[tuple[str, bool]]:
    """The files that a file takes names from whenever it is imported, and whether they have what it takes."""
    project = facts.project
    for dots, dotted, *names in _IMPORT.findall(project.read(path) or b""):
        module, level = dotted.decode("utf-8", "replace"), len(dots)
        target = project.resolve(module, path, level)
        if target is None and _is_gone(facts, path, module, level):
            yield path, False
        if target is None or target == path or os.path.basename(target) == "__init__.py":
            continue  # what a package has may be no Python file
        if not (level or "." in module or os.path.dirname(target) == os.path.dirname(path)):
            continue  # it may be an installed package with a name that this project has in another folder, too
        text = project.read(target) or b""
        taken = [part.split()[0] for part in b"".join(names).split(b",") if part.split()]
        yield target, bool(_HANDS_ON.search(text)) or all(name == b"*" or stands_in(name, text) for name in taken)
