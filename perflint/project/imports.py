"""How the files of a project import each other."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from perflint.project.files import read_file, requirement_files, text_digest
from perflint.project.texts import Texts
from perflint.source.cells import SUFFIX
from perflint.source.vocabulary import words_in

_INSTALLABLE = re.compile(rb"^[ \t]*\[(?:project|build-system|tool\.poetry|tool\.flit\.metadata|metadata|options)\]", re.M)

MAX_NEIGHBOURS = 100
"""How many files around a file are looked at to learn what kind of program it is."""


_ALL = frozenset("*")
"""All names of a module."""
_WHOLE = "."
"""Stands beside the name under which a file has a whole module."""


def _common(names: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    return others if names >= _ALL else names if others >= _ALL else names & others


def seen_from(directory: str, level: int) -> str:
    """Where an import in a file of a directory starts from; a dot before it says that the import is relative to it."""
    for _ in range(level - 1):
        directory = os.path.dirname(directory)
    return f"{'.' if level else ''}{directory}"


@dataclass(eq=False)
class Imports(Texts):
    """The files of a project with their imports."""

    _resolved: dict[tuple[str, str], str | None] = field(default_factory=dict, repr=False)
    _direct_importers: dict[str, list[tuple[str, frozenset[str]]]] | None = field(default=None, repr=False)
    """The files that import a file, each with the names that it takes from there, or the name that it gives the module."""
    _importers: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)
    _imports: dict[str, Mapping[str, frozenset[str]]] = field(default_factory=dict, repr=False)
    _changing: dict[str, bool] = field(default_factory=dict, repr=False)
    _name_sets: dict[frozenset[str], frozenset[str]] = field(default_factory=dict, repr=False)
    """Each once: many files of a package take the same names."""

    @cached_property
    def _components(self) -> set[str]:
        return {part for path in (*self.files, *self.links) for part in path[:-3].split(os.sep)}

    def resolve(self, dotted: str, importer: str, level: int = 0) -> str | None:
        """The file that `import dotted` in the file `importer` means, or None for a module outside the project."""
        directory = seen_from(os.path.dirname(importer), level)
        self.trace.note("module", directory, dotted)
        return self._resolve(directory, dotted)

    def _resolve(self, directory: str, dotted: str) -> str | None:
        """`resolve`, seen from a directory, as `seen_from` gives it."""
        key = (directory, dotted)
        if key not in self._resolved:
            bases = [directory[1:]] if directory.startswith(".") else self._search_path(directory)
            found = (self._file_of(base, dotted) for base in bases)
            path = next((path for path in found if path is not None), None)
            if path is None and not directory.startswith("."):
                path = self._on_changed_path(directory, dotted)
            elif path is not None and not directory.startswith(".") and self._may_be_another(directory, dotted):
                path = None
            self._resolved[key] = path
        return self._resolved[key]

    def _on_changed_path(self, directory: str, dotted: str) -> str | None:
        """The file that an import means where a program puts further folders on `sys.path`.

        A folder above the file that imports; any folder, if a file beside it changes the path and only one has such a module.
        """
        first, _, _rest = dotted.partition(".")
        if first in sys.stdlib_module_names or first not in self._components:
            return None
        above = directory
        while above.startswith(f"{self.root}{os.sep}"):
            above = os.path.dirname(above)
            if first == "torch" and f"{above}{os.sep}__init__.py" in self.files:
                continue  # a program that found `agents/torch` by this name would have no torch
            if (path := self._file_of(above, dotted)) is not None:
                return path
        stems = self._stems_of(dotted)
        return self._by_stem[stems[0]] if len(stems) == 1 and self._changes_path(directory) else None

    def _stems_of(self, dotted: str) -> list[str]:
        """The paths in any folder that an import may spell."""
        ending = os.sep + dotted.replace(".", os.sep)
        return [stem for stem in self._stems_ending.get(dotted.rpartition(".")[2], ()) if stem.endswith(ending)]

    def _may_be_another(self, directory: str, dotted: str) -> bool:
        """Whether a folder that a program puts first on `sys.path` may have a module, too, which is imported then."""
        return len(self._stems_of(dotted)) > 1 and self._changes_path(directory)

    @cached_property
    def _stems_ending(self) -> dict[str, list[str]]:
        """The paths of `_by_stem` by what stands last in them."""
        ending: dict[str, list[str]] = {}
        for stem in self._by_stem:
            ending.setdefault(os.path.basename(stem), []).append(stem)
        return ending

    def _changes_path(self, directory: str) -> bool:
        """Whether a file of a folder changes where modules are looked for."""
        if directory not in self._changing:
            self._changing[directory] = any(self._said(file).elsewhere for file in self._by_folder.get(directory, ()))
        return self._changing[directory]

    @cached_property
    def _by_folder(self) -> dict[str, list[str]]:
        """The files by the folder that they are in."""
        folders: dict[str, list[str]] = {}
        for file in sorted(self.files):
            folders.setdefault(os.path.dirname(file), []).append(file)
        return folders

    def beside(self, path: str) -> list[str]:
        """The files in the folder of a file, it too."""
        self.trace.note("beside", path)
        return self._find_beside(path)

    def _find_beside(self, path: str) -> list[str]:
        return self._by_folder.get(os.path.dirname(path), [])

    def _search_path(self, directory: str) -> Iterator[str]:
        yield directory  # a script's own directory is the first entry of sys.path
        top = directory
        while f"{top}{os.sep}__init__.py" in self.files:  # the root, too, may be a package
            top = os.path.dirname(top)
        yield top
        yield self.root
        yield os.path.join(self.root, "src")

    def _file_of(self, base: str, dotted: str) -> str | None:
        return self._by_stem.get(os.path.join(base, dotted.replace(".", os.sep)) if dotted else base)

    @cached_property
    def _by_stem(self) -> dict[str, str]:
        """The files by the paths that imports spell: `a/b` is `a/b/__init__.py`, else `a/b.py`, as Python has it."""
        named = {**self.links, **{path: path for path in self.files}}
        package = f"{os.sep}__init__.py"
        packages = {name.removesuffix(package): path for name, path in named.items() if name.endswith(package)}
        return {name.removesuffix(".py"): path for name, path in named.items() if name.endswith(".py")} | packages

    def importers(self, path: str) -> frozenset[str]:
        """Files that import the file at `path`, directly, through the `__init__.py` of a package, or what another one hands on.

        Where they are more than `MAX_NEIGHBOURS`, one more than that.
        """
        self.trace.note("importers", path)
        return self._find_importers(path)

    def _find_importers(self, path: str) -> frozenset[str]:
        if self._direct_importers is None:
            self._direct_importers = {}
            for file in sorted(self.files):
                for target, names in sorted(self._taken_by(file).items()):
                    self._direct_importers.setdefault(target, []).append((file, names))
        if path not in self._importers:
            self._importers[path] = frozenset(islice(self._importers_of(path), MAX_NEIGHBOURS + 1))
        return self._importers[path]

    def _importers_of(self, path: str) -> Iterator[str]:
        assert self._direct_importers is not None
        seen = {path}
        pending = {(path, _ALL): None}
        while pending:
            target, names = next(iter(pending))
            del pending[target, names]
            for file, taken in self._direct_importers.get(target, ()):
                handed_on = taken - {_WHOLE} if _WHOLE in taken else _common(names, taken)
                if file in seen or not (handed_on or names == _ALL):
                    continue
                seen.add(file)
                yield file
                if file in self._direct_importers:
                    pending[file, _ALL if file.endswith(f"{os.sep}__init__.py") else handed_on] = None

    def holders(self, path: str) -> frozenset[str]:
        """Files that have the file at `path`, or a package around it, as a module: they may set what is in it."""
        self.trace.note("holders", path)
        return self._find_holders(path)

    def _find_holders(self, path: str) -> frozenset[str]:
        self._find_importers(path)
        assert self._direct_importers is not None
        found = {path: None}
        folder = os.path.dirname(path)
        while (package := f"{folder}{os.sep}__init__.py") in self.files:
            found[package] = None
            folder = os.path.dirname(folder)
        taken = [pair for target in found for pair in self._direct_importers.get(target, ())]
        return frozenset(file for file, names in taken if file != path and (_WHOLE in names or not names))

    def imports(self, path: str) -> Set[str]:
        """Files of the project that the file at `path` imports, or may import by names that it mentions."""
        self.trace.note("imports", path)
        return self._find_imports(path)

    def _find_imports(self, path: str) -> Set[str]:
        return self._taken_by(path).keys()

    def _taken_by(self, path: str) -> Mapping[str, frozenset[str]]:
        """The files that a file imports, with what it has of each: names, or the module under its own name."""
        if path not in self._imports:
            found: dict[str, frozenset[str]] = {}
            for target, names in (*self._imports_of(path), *self._imports_by_name_of(path)):
                if target != path:
                    found[target] = found.get(target, frozenset()) | names
            self._imports[path] = {target: self._name_sets.setdefault(names, names) for target, names in found.items()}
            self.found_out.add(path)
        return self._imports[path]

    def _imports_of(self, path: str) -> Iterator[tuple[str, frozenset[str]]]:
        directory = os.path.dirname(path)
        for level, dotted, names in self._said(path).imports():
            start = seen_from(directory, level)
            target = self._target(start, dotted)
            if target is not None and target != path:
                yield target, frozenset((_WHOLE, dotted.partition(".")[0]) if names is None else names or _ALL)
                if not target.endswith(f"{os.sep}__init__.py"):
                    continue
            for name in names or ():
                target = self._target(start, f"{dotted}.{name}" if dotted else name)
                if target is not None:
                    yield target, frozenset((_WHOLE, name))

    def _imports_by_name_of(self, path: str) -> Iterator[tuple[str, frozenset[str]]]:
        """The files that a file may import otherwise than by import statements: `importlib`, `runpy`, a changed `sys.path`.

        It names them, or their folders.
        """
        said = self._said(path)
        directory = os.path.dirname(path)
        near = (directory, self.root, os.path.join(self.root, "src"))
        for word in said.mentioned & self._named.keys():
            anywhere = word.endswith(".") or bool(said.elsewhere)
            files = (file for file in self._named[word] if anywhere or os.path.dirname(file) in near)
            yield from ((file, frozenset[str]()) for file in files)
        words: dict[str, frozenset[str]] = {}
        for dotted, names in said.elsewhere:
            if self._target(directory, dotted) is None:
                first, _, rest = dotted.partition(".")
                taken = names or frozenset((_WHOLE, first))
                within = {rest.rpartition(".")[2], *names} if f"{first}." in self._named else set()
                for word in ({first} if not rest else set()) | within:
                    words[word] = words.get(word, frozenset()) | taken
        for word in words.keys() & self._named.keys():
            yield from ((file, words[word]) for file in self._named[word])

    def outside(self, path: str) -> frozenset[str]:
        """What a file imports from outside the project, missing files of its own, too.

        Dotted, with each name that it takes: `numpy.random.choice`, `numpy.` of `import numpy`, `numpy.*` of all its names.
        """
        self.trace.note("outside", path)
        return self._find_outside(path)

    def _find_outside(self, path: str) -> frozenset[str]:
        said, directory = self._said(path), os.path.dirname(path)
        named = self._named if said.elsewhere else {}
        found = set[str]()
        for level, dotted, names in said.imports():
            start, first = seen_from(directory, level), dotted.partition(".")[0]
            if self._target(start, dotted) is not None or (not level and (first in named or f"{first}." in named)):
                continue
            for name in ("",) if names is None else names or ("*",):
                if not name.isidentifier() or self._target(start, f"{dotted}.{name}" if dotted else name) is None:
                    found.add(f"{'.' * level}{dotted}{'.' if dotted else ''}{name}")
        return frozenset(found)

    @cached_property
    def _named(self) -> dict[str, list[str]]:
        """The files by their names and by those of their folders."""
        named: dict[str, list[str]] = {}
        for path in sorted(self.files):
            folder, name = os.path.split(path)
            own = os.path.basename(folder) if name == "__init__.py" else name.removesuffix(".py")
            if own not in ("__main__", "setup", "conftest"):
                named.setdefault(own, []).append(path)
            if folder != self.root:
                named.setdefault(f"{os.path.basename(folder)}.", []).append(path)
        return named

    def _target(self, start: str, dotted: str) -> str | None:
        """What an import means: the answer is part of that to a question about imports, so it is no question itself."""
        if start.startswith(".") or dotted.partition(".")[0] in self._components:
            return self._resolve(start, dotted)
        return None

    def is_named_in_notebook(self, name: str) -> bool:
        """Whether a notebook beside the project's files holds a name."""
        self.trace.note("requirements")
        return name.encode() in self._words_of_notebooks

    @cached_property
    def _words_of_notebooks(self) -> frozenset[bytes]:
        return frozenset[bytes]().union(*(words_in(read_file(path) or b"") for path, _ in self._notebooks))

    @cached_property
    def _notebooks(self) -> list[tuple[str, str]]:
        """The notebooks in the folders of the project's Python files, with digests: their times differ in each checkout."""
        found: list[tuple[str, str]] = []
        for folder in sorted({self.root, *(os.path.dirname(file) for file in self.files if not file.endswith(SUFFIX))}):
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                found += [(entry.path, text_digest(read_file(entry.path))) for entry in entries if entry.name.endswith(SUFFIX)]
        return sorted(found)

    def is_offered(self, path: str) -> bool:
        """Whether programs elsewhere may import a file: it belongs to a package, and the project can be installed."""
        self.trace.note("requirements")
        return self._is_installable and self.resolve("", path, 1) is not None

    @cached_property
    def _is_installable(self) -> bool:
        said = {os.path.basename(path): read_file(path) or b"" for path in requirement_files(self.root)}
        return "setup.py" in said or any(_INSTALLABLE.search(text) for text in said.values())

    def changed(self, path: str) -> None:
        """Forget what was known of one file, its imports, too."""
        super().changed(path)
        if self._changing.pop(os.path.dirname(path), None) is not None:
            self._resolved.clear()
        imported = self._imports.pop(path, None)
        if imported is not None and imported != self._taken_by(path):
            self._forget_importers()

    def _forget_importers(self) -> None:
        self._direct_importers = None
        self._importers.clear()
