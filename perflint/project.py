"""The linted project: which files it has, which module an import means, and who calls a function.

Nothing is imported or run. Files are read and parsed when a question needs them, and forgotten again, oldest first,
when too many are held.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from perflint.source import Source, SourceError
from perflint.syntax import Chunk, Module, SyntaxProblem

MAX_LINES_HELD = 20_000
"""Parsed lines that a project keeps before it forgets all of them: a line takes 5 to 8 kB as tree and facts."""

MAX_BYTES_HELD = 20 * 1024 * 1024
"""File contents that a project keeps."""

MAX_IMPORTERS = 30
"""What the rest of the project does with the contents of a file that more files import than this is not looked for: the values
in question stay open."""

MAX_NEIGHBOURS = 100
"""How many files around a file are looked at to learn what kind of program it is."""

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\r\n#]+)|import[ \t]+([\w., \t]+))", re.M
)
_ACCELERATOR = re.compile(rb"\bcuda\b|\.to\(\s*(?:\w+\.)*\w*(?:dev|gpu)\w*\b|[aA]ccelerator|\bfabric\b|\bmps\b|\bxla\b|\bnpu\b")

_TRAINING = (b"backward(", b"zero_grad", b"oader ", b"oader(", b"oader)", b"oader:", b"oader,", b"oader.", b"oader\n")

_STORED_ATTRIBUTE = re.compile(rb"(?<!\bself)\.(\w+)[ \t]*=(?!=)")

Reader = Callable[[str], "bytes | None"]


MAX_FILE_BYTES = 8 * 1024 * 1024
"""A larger file is not read: nobody writes one by hand, and one string of 15 MB took 1.9 GB to find its end."""


def read_file(path: str) -> bytes | None:
    """The bytes of a file, or None when it cannot be read: `why_unreadable` says why.

    Pipes, sockets and devices are never read, for they may not end.
    """
    try:
        with open(path, "rb", buffering=0, opener=_without_waiting) as handle:
            about = os.fstat(handle.fileno())
            return handle.read() if stat.S_ISREG(about.st_mode) and about.st_size <= MAX_FILE_BYTES else None
    except (OSError, ValueError):
        return None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def why_unreadable(path: str) -> str:
    """What a user can do about a file that `read_file` does not read."""
    try:
        about = os.stat(path)
    except OSError:
        about = None
    if about is not None and not stat.S_ISREG(about.st_mode):
        return "this is no regular file; `-` reads from standard input"
    if about is not None and about.st_size > MAX_FILE_BYTES:
        return f"the file is larger than {MAX_FILE_BYTES >> 20} MiB; leave it out with `exclude`"
    return "the file cannot be read; check that it exists and that you may read it"


def stored_attributes(text: bytes) -> frozenset[bytes]:
    """The attributes that a text assigns on anything but `self`."""
    return frozenset(_STORED_ATTRIBUTE.findall(text))


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
    _modules: dict[str, Module | None] = field(default_factory=dict, repr=False)
    _contents: dict[str, bytes | None] = field(default_factory=dict, repr=False)
    _contents_size: int = 0
    _resolved: dict[tuple[str, str], str | None] = field(default_factory=dict, repr=False)
    _components: set[str] = field(default_factory=set, repr=False)
    _direct_importers: dict[str, set[str]] | None = field(default=None, repr=False)
    _importers: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)
    _imports: dict[str, set[str]] = field(default_factory=dict, repr=False)
    _program_matches: dict[tuple[str, re.Pattern[bytes]], bool] = field(default_factory=dict, repr=False)
    _file_matches: dict[tuple[str, re.Pattern[bytes]], bool] = field(default_factory=dict, repr=False)
    _training: dict[str, bool] = field(default_factory=dict, repr=False)
    _chunks: dict[str, tuple[int, list[Chunk]]] = field(default_factory=dict, repr=False)
    _stored: dict[str, frozenset[bytes]] = field(default_factory=dict, repr=False)
    _near_training: dict[str, bool] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.files = frozenset(self.files)
        for path in (*self.files, *self.links):
            self._components.update(path[:-3].split(os.sep))

    # -- modules -----------------------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes | None:
        """The bytes of a file, from memory where they are held."""
        if path not in self._contents:
            data = self.reader(path)
            self._contents_size += len(data) if data is not None else 0
            if self._contents_size > MAX_BYTES_HELD:
                self._contents.clear()
                self._contents_size = len(data) if data is not None else 0
            self._contents[path] = data
        return self._contents[path]

    def mentions(self, path: str, name: str) -> bool:
        """Whether the text of a file holds a name."""
        data = self.read(path)
        return data is not None and name.encode() in data

    def module(self, path: str) -> Module | None:
        """The parsed file, or None when it cannot be read or parsed."""
        if path not in self._modules:
            data = self.read(path)
            self._modules[path] = None
            if data is not None:
                with contextlib.suppress(SourceError, SyntaxProblem):
                    module = self.cut(Source.decode(path, data))
                    _ = module.tree  # so that it is here that a file turns out to be no Python
                    self._modules[path] = module
        return self._modules[path]

    def cut(self, source: Source) -> Module:
        """A module for a text of the file `source.path`; where its functions stand is worked out once."""
        text = hash(source.body)
        known = self._chunks.get(source.path)
        module = Module(source, self.dotted_name(source.path), known[1] if known is not None and known[0] == text else None)
        self._chunks[source.path] = (text, module.chunks)
        return module

    def held(self, path: str) -> Module | None:
        """The parsed file, if it is in memory."""
        return self._modules.get(path)

    def hold(self, path: str, module: Module) -> None:
        """Keep a file that was parsed elsewhere for later questions."""
        self._modules[path] = module

    @property
    def is_full(self) -> bool:
        """Whether so much is held that it should be forgotten when the next file's turn comes."""
        return sum(m.parsed_lines for m in self._modules.values() if m is not None) > MAX_LINES_HELD

    def forget(self, keep: Module | None = None) -> None:
        """Drop all parsed files but one. Whoever holds facts about them must drop these too."""
        for module in self._modules.values():
            if module is not None and module is not keep:
                module.release()
        self._modules.clear()

    def changed(self, path: str) -> None:
        """Forget what was known of one file, because its bytes are others now."""
        self._modules.pop(path, None)
        self._contents.pop(path, None)
        self._stored.pop(path, None)

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

    def importers(self, path: str) -> frozenset[str]:
        """Files that import the file at `path`, directly or through the `__init__.py` of a package."""
        if self._direct_importers is None:
            self._direct_importers = {}
            for file in sorted(self.files):
                for target in self.imports(file):
                    self._direct_importers.setdefault(target, set()).add(file)
        if path not in self._importers:
            found: set[str] = set()
            pending = [path]
            while pending:
                for file in self._direct_importers.get(pending.pop(), ()):
                    if file not in found:
                        found.add(file)
                        if file.endswith(f"{os.sep}__init__.py"):
                            pending.append(file)
            self._importers[path] = frozenset(found - {path})
        return self._importers[path]

    def imports(self, path: str) -> set[str]:
        """Files of the project that the file at `path` imports."""
        if path not in self._imports:
            self._imports[path] = set(self._imports_of(path))
        return self._imports[path]

    def _imports_of(self, path: str) -> Iterator[str]:
        data = self.read(path)
        if data is None:
            return
        for dots, dotted, names, plain in _IMPORT.findall(data):
            if plain:
                for part in plain.split(b","):
                    if part.split():
                        yield from self._target(part.split()[0].decode("utf-8", "replace"), path, 0)
                continue
            base = dotted.decode("utf-8", "replace")
            targets = list(self._target(base, path, len(dots)))
            yield from targets
            if targets and not targets[0].endswith(f"{os.sep}__init__.py"):
                continue
            for name in re.findall(rb"\w+", re.sub(rb"\bas\s+\w+", b"", names)):
                yield from self._target(f"{base}.{name.decode()}" if base else name.decode(), path, len(dots))

    def _target(self, dotted: str, path: str, level: int) -> Iterator[str]:
        if level or dotted.partition(".")[0] in self._components:
            target = self.resolve(dotted, path, level)
            if target is not None and target != path:
                yield target

    # -- what kind of program ----------------------------------------------------------------------------------------

    def uses_accelerator(self, path: str) -> bool:
        """Whether the program that a file belongs to ever names a device."""
        return self.program_holds(path, _ACCELERATOR)

    def attributes_stored(self, path: str) -> frozenset[bytes]:
        """The attributes that a file assigns on anything but `self`."""
        if path not in self._stored:
            self._stored[path] = stored_attributes(self.read(path) or b"")
        return self._stored[path]

    def program_holds(self, path: str, pattern: re.Pattern[bytes]) -> bool:
        """Whether the text of a file, of what it imports or of who imports it matches a pattern."""
        key = (path, pattern)
        if key not in self._program_matches:
            self._program_matches[key] = any(self.holds(file, pattern) for file in self._program(path))
        return self._program_matches[key]

    def _program(self, path: str) -> Iterator[str]:
        """The files that run together with a file, nearest first."""
        yield path
        seen = {path}
        level = [path]
        for neighbours in (self.imports, self.importers, self.importers, self.imports, self.imports):
            following = sorted({other for file in level for other in neighbours(file)} - seen)[:MAX_NEIGHBOURS]
            seen.update(following)
            yield from following
            level += following

    def near_training(self, path: str) -> bool:
        """Whether a file, or one that imports it directly or through one more, has the words of a training loop.

        Where it has not, no function of the file is called from a step loop, as far as anybody can tell.
        """
        if path not in self._near_training:
            level = {path}
            for _ in range(2):
                users = {user for file in level for user in self.importers(file)}
                if len(users) > MAX_NEIGHBOURS:
                    users = set()
                level |= users
            self._near_training[path] = any(self._trains(file) for file in sorted(level))
        return self._near_training[path]

    def _trains(self, path: str) -> bool:
        if path not in self._training:
            data = self.read(path)
            self._training[path] = data is not None and any(word in data for word in _TRAINING)
        return self._training[path]

    def holds(self, path: str, pattern: re.Pattern[bytes]) -> bool:
        key = (path, pattern)
        if key not in self._file_matches:
            data = self.read(path)
            self._file_matches[key] = data is not None and pattern.search(data) is not None
        return self._file_matches[key]
