"""The linted project: which files it has, which module an import means, and who calls a function.

Nothing is imported or run. Files are read and parsed when a question needs them, and forgotten again, oldest first,
when too many are held.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from perflint.source import Source, SourceError
from perflint.syntax import Module, SyntaxProblem

MAX_LINES_HELD = 60_000
"""Parsed lines kept at a time: an `ast` takes 1 to 2 kB per line."""

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\r\n#]+)|import[ \t]+([\w., \t]+))", re.M
)
_ACCELERATOR = re.compile(rb"\bcuda\b|\.to\(\s*(?:\w+\.)*\w*(?:dev|gpu)\w*\b|[aA]ccelerator|\bfabric\b|\bmps\b|\bxla\b|\bnpu\b")

Reader = Callable[[str], "bytes | None"]


def read_file(path: str) -> bytes | None:
    """The bytes of a file, or None when it cannot be read."""
    try:
        with open(path, "rb") as handle:
            return handle.read()
    except OSError:
        return None


@dataclass(eq=False)
class Project:
    """All Python files under `root`, by absolute path.

    files: the files that exist for imports and callers. links: symbolic links to files, which imports follow. reader: how
    a file's bytes are had; tests and editors put unsaved text in their place.
    """

    root: str
    files: Collection[str]
    links: Mapping[str, str] = field(default_factory=dict)
    reader: Reader = read_file
    _modules: OrderedDict[str, Module | None] = field(default_factory=OrderedDict, repr=False)
    _held: int = 0
    _resolved: dict[tuple[str, str], str | None] = field(default_factory=dict, repr=False)
    _importers: dict[str, set[str]] | None = field(default=None, repr=False)
    _imports: dict[str, set[str]] = field(default_factory=dict, repr=False)
    _accelerated: dict[str, bool] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.files = frozenset(self.files)

    # -- modules -----------------------------------------------------------------------------------------------------

    def module(self, path: str) -> Module | None:
        """The parsed file, or None when it cannot be read or parsed."""
        if path in self._modules:
            self._modules.move_to_end(path)
            return self._modules[path]
        module = None
        data = self.reader(path)
        if data is not None:
            try:
                module = Module(Source.decode(path, data), self.dotted_name(path))
            except (SourceError, SyntaxProblem):
                module = None
        self.hold(path, module)
        return module

    def hold(self, path: str, module: Module | None) -> None:
        """Keep a parsed file for later questions."""
        self._modules[path] = module
        self._held += _lines(module)
        while self._held > MAX_LINES_HELD and len(self._modules) > 1:
            _, dropped = self._modules.popitem(last=False)
            self._held -= _lines(dropped)

    def dotted_name(self, path: str) -> str:
        """The module's name relative to the root, for messages."""
        relative = os.path.relpath(path, self.root)
        parts = relative.removesuffix(".py").split(os.sep)
        return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)

    # -- imports -----------------------------------------------------------------------------------------------------

    def resolve(self, dotted: str, importer: str, level: int = 0) -> str | None:
        """The file that `import dotted` in the file `importer` means, or None for a module outside the project."""
        directory = os.path.dirname(importer)
        for _ in range(level - 1):
            directory = os.path.dirname(directory)
        key = (f"{'.' if level else ''}{directory}", dotted)
        if key not in self._resolved:
            bases = [directory] if level else self._search_path(directory)
            found = (self._file_of(base, dotted) for base in bases)
            self._resolved[key] = next((path for path in found if path is not None), None)
        return self._resolved[key]

    def _search_path(self, directory: str) -> Iterator[str]:
        yield directory  # a script's own directory is the first entry of sys.path
        top = directory
        while f"{top}{os.sep}__init__.py" in self.files and top != self.root:
            top = os.path.dirname(top)
        yield top
        yield self.root
        yield os.path.join(self.root, "src")

    def _file_of(self, base: str, dotted: str) -> str | None:
        stem = os.path.join(base, *dotted.split(".")) if dotted else base
        for path in (f"{stem}.py", os.path.join(stem, "__init__.py")):
            if path in self.files:
                return path
            if path in self.links:
                return self.links[path]
        return None

    def importers(self, path: str) -> set[str]:
        """Files that import the file at `path`, directly or through the `__init__.py` of a package."""
        if self._importers is None:
            self._importers = {}
            for file in sorted(self.files):
                for target in self.imports(file):
                    self._importers.setdefault(target, set()).add(file)
        found: set[str] = set()
        pending = [path]
        while pending:
            for file in self._importers.get(pending.pop(), ()):
                if file not in found:
                    found.add(file)
                    if os.path.basename(file) == "__init__.py":
                        pending.append(file)
        found.discard(path)
        return found

    def imports(self, path: str) -> set[str]:
        """Files of the project that the file at `path` imports."""
        if path not in self._imports:
            self._imports[path] = set(self._imports_of(path))
        return self._imports[path]

    def _imports_of(self, path: str) -> Iterator[str]:
        data = self.reader(path)
        if data is None:
            return
        for dots, dotted, names, plain in _IMPORT.findall(data):
            if plain:
                wanted = [(part.split()[0].decode("utf-8", "replace"), 0) for part in plain.split(b",") if part.split()]
            else:
                base = dotted.decode("utf-8", "replace")
                wanted = [(base, len(dots))]
                for name in re.findall(rb"\w+", re.sub(rb"\bas\s+\w+", b"", names)):
                    wanted.append((f"{base}.{name.decode()}" if base else name.decode(), len(dots)))
            for name, level in wanted:
                target = self.resolve(name, path, level)
                if target is not None and target != path:
                    yield target

    # -- what kind of program ----------------------------------------------------------------------------------------

    def uses_accelerator(self, path: str) -> bool:
        """Whether the program that a file belongs to ever names a device: the file, what it imports, who imports it."""
        if path not in self._accelerated:
            users = self.importers(path)
            users |= {further for user in list(users) for further in self.importers(user)}
            around = {path, *users}
            for _ in range(2):
                around.update(imported for file in list(around) for imported in self.imports(file))
            self._accelerated[path] = any(self._names_accelerator(file) for file in sorted(around))
        return self._accelerated[path]

    def _names_accelerator(self, path: str) -> bool:
        data = self.reader(path)
        return data is not None and _ACCELERATOR.search(data) is not None


def _lines(module: Module | None) -> int:
    return len(module.source.starts) if module is not None else 0
