"""The linted project: which files it has, which module an import means, and who calls a function.

Nothing is imported or run. Files are read and parsed when a question needs them, and forgotten again, oldest first,
when too many are held.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING

from perflint.project.trace import Question, Trace
from perflint.source.gate import Gate
from perflint.source.source import Source, SourceError
from perflint.source.texts import BACKWARD, TextFacts
from perflint.source.words import any_layout, call_pattern

if TYPE_CHECKING:
    from perflint.source.chunks import Chunk
    from perflint.source.syntax import Module

MAX_LINES_HELD = 30_000
"""Parsed lines that a project keeps before it forgets all of them: a line takes 2 to 4 kB as tree and facts."""

MAX_FILES_HELD = 2_000
"""Parsed files that a project keeps, however short they are: whoever looks through all of them takes time."""

MAX_BYTES_HELD = 20 * 1024 * 1024
"""File contents that a project keeps."""

_INSTALLABLE = re.compile(rb"^[ \t]*\[(?:project|build-system|tool\.poetry|tool\.flit\.metadata|metadata|options)\]", re.M)

MAX_IMPORTERS = 30
"""What the rest of the project does with the contents of a file that more files import than this is not looked for: the values
in question stay open."""

MAX_NEIGHBOURS = 100
"""How many files around a file are looked at to learn what kind of program it is."""

_ACCELERATOR = any_layout(
    rb"\bcuda\b|\. to \( (?:\w+ \. )*\w*(?:dev|gpu)\w*\b|[aA]ccelerator|\bfabric\b|\bmps\b|\bxla\b|\bnpu\b"
)

_REQUIREMENTS = re.compile(r"pyproject\.toml|setup\.py|(?:requirements|constraints)[\w.-]*\.txt|setup\.cfg|environment\.ya?ml")

_STORED_ATTRIBUTE = any_layout(rb"\.(?<!\bself\.)(?<![\s\\]\.) (\w+) =(?!=)")
_STORED_APART = any_layout(rb"\.(?<=[\s\\]\.) (\w+) =(?!=)")
_SELF = re.compile(rb"\bself[\s\\]+\Z")

Stat = tuple[int, int, int]
"""A file's size in bytes, and its times of modification and of change in nanoseconds."""

Reader = Callable[[str], "bytes | None"]
Listing = tuple[Collection[str], Mapping[str, str]]
"""Files by absolute path, and what symbolic links to files lead to."""


MAX_FILE_BYTES = 8 * 1024 * 1024
"""A larger file is not read: nobody writes one by hand, and one string of 15 MB took 1.9 GB to find its end."""


def read_file(path: str) -> bytes | None:
    """The bytes of a file, or None when it cannot be read: `why_unreadable` says why.

    Pipes, sockets and devices are never read, for they may not end.
    """
    found = read_with_stat(path)
    return found[0] if found is not None else None


def read_with_stat(path: str) -> tuple[bytes, Stat] | None:
    """The bytes of a file and what it was like just before they were read, or None when it cannot be read."""
    try:
        with open(path, "rb", buffering=0, opener=_without_waiting) as handle:
            about = os.fstat(handle.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_FILE_BYTES:
                return None
            return handle.read(), (about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    except (OSError, ValueError):
        return None


def requirement_files(root: str) -> list[str]:
    """The files in a directory that may say which versions of packages a project admits."""
    try:
        names = os.listdir(root)
    except OSError:
        return []
    return [os.path.join(root, name) for name in sorted(names) if _REQUIREMENTS.fullmatch(name)]


def _as_listed(listing: Listing) -> Listing:
    return listing


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _seen_from(directory: str, level: int) -> str:
    """Where an import in a file of a directory starts from; a dot before it says that the import is relative to it."""
    for _ in range(level - 1):
        directory = os.path.dirname(directory)
    return f"{'.' if level else ''}{directory}"


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
    apart = (
        found for found in _STORED_APART.finditer(text) if not _SELF.search(text, max(found.start() - 99, 0), found.start())
    )
    return frozenset((*_STORED_ATTRIBUTE.findall(text), *(found[1] for found in apart)))


@dataclass(eq=False)
class Project:
    """All Python files under `root`, by absolute path.

    listing: the files that exist for imports and callers, or a function that gives them and the symbolic links to files,
    which imports follow; it is called when a question first goes beyond one file.
    reader: how a file's bytes are had; tests and editors put unsaved text in their place.
    texts: what the files' texts say by themselves, shared by projects with the same reader.
    """

    root: str
    listing: Collection[str] | Callable[[], Listing]
    reader: Reader = read_file
    texts: dict[str, TextFacts] = field(default_factory=dict, repr=False)
    trace: Trace = field(default_factory=Trace, repr=False)
    """What is asked here. `answer` says what the questions are."""
    generation: int = 0
    """Counts how often parsed files were forgotten: facts about an earlier generation are void."""
    is_settled: bool = True
    """Whether no file is known to have changed since it was first read."""
    _modules: dict[str, Module | None] = field(default_factory=dict, repr=False)
    _contents: dict[str, bytes | None] = field(default_factory=dict, repr=False)
    _contents_size: int = 0
    _resolved: dict[tuple[str, str], str | None] = field(default_factory=dict, repr=False)
    _direct_importers: dict[str, list[str]] | None = field(default=None, repr=False)
    _importers: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)
    _imports: dict[str, set[str]] = field(default_factory=dict, repr=False)
    _program_matches: dict[tuple[str, re.Pattern[bytes]], str] = field(default_factory=dict, repr=False)
    _file_matches: dict[str, dict[re.Pattern[bytes] | Gate, bool]] = field(default_factory=dict, repr=False)
    _is_large: dict[str, bool] = field(default_factory=dict, repr=False)
    _training: dict[str, bool] = field(default_factory=dict, repr=False)
    _chunks: dict[str, tuple[int, list[Chunk]]] = field(default_factory=dict, repr=False)
    _stored: dict[str, frozenset[bytes]] = field(default_factory=dict, repr=False)
    _near_training: dict[str, str] = field(default_factory=dict, repr=False)
    _helpers: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)
    _all_helpers: frozenset[str] | None = None
    found_out: set[str] = field(default_factory=set, repr=False)
    """The files about which something was found out here that was not learned."""
    _digests: dict[str, str] = field(default_factory=dict, repr=False)
    _last_read: dict[str, str] = field(default_factory=dict, repr=False)
    _answers: dict[Question, str] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        """What another process makes the same project of; it says itself how files are read there."""
        return Project, (self.root, partial(_as_listed, (self.files, dict(self.links))))

    # -- files -------------------------------------------------------------------------------------------------------

    @property
    def files(self) -> frozenset[str]:
        """The files that exist for imports and callers."""
        return self._listed[0]

    @property
    def links(self) -> Mapping[str, str]:
        """Symbolic links to files, and what they lead to."""
        return self._listed[1]

    @cached_property
    def _listed(self) -> tuple[frozenset[str], Mapping[str, str]]:
        files, links = self.listing() if callable(self.listing) else (self.listing, {})
        return frozenset(files), links

    @cached_property
    def _components(self) -> set[str]:
        return {part for path in (*self.files, *self.links) for part in path[:-3].split(os.sep)}

    # -- modules -----------------------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes | None:
        """The bytes of a file, from memory where they are held."""
        self.trace.note("text", path)
        return self._read(path)

    def _read(self, path: str) -> bytes | None:
        if path not in self._contents:
            data = self.reader(path)
            digest = text_digest(data)
            self.is_settled &= self._digests.setdefault(path, digest) == digest
            self._last_read[path] = digest
            self._contents_size += len(data) if data is not None else 0
            if self._contents_size > MAX_BYTES_HELD:
                self._contents.clear()
                self._contents_size = len(data) if data is not None else 0
            self._contents[path] = data
        return self._contents[path]

    def _said(self, path: str) -> TextFacts:
        """What the text of a file says by itself."""
        said = self.texts.get(path)
        if said is None or self._last_read.get(path, said.digest) != said.digest:
            data = self._read(path)
            said = self.texts[path] = TextFacts.of(data, self._last_read[path])
        elif path not in self._last_read:
            self.is_settled &= self._digests.setdefault(path, said.digest) == said.digest
            self._last_read[path] = said.digest
        return said

    def mentions(self, path: str, name: str) -> bool:
        """Whether the text of a file holds a name."""
        data = self.read(path)
        return data is not None and name.encode() in data

    def module(self, path: str) -> Module | None:
        """The parsed file, or None when it cannot be read or parsed."""
        self.trace.note("text", path)
        return self._module(path)

    def _module(self, path: str) -> Module | None:
        if path not in self._modules:
            from perflint.source.syntax import SyntaxProblem

            data = self._read(path)
            self._modules[path] = None
            if data is not None:
                with contextlib.suppress(SourceError, SyntaxProblem):
                    module = self.cut(Source.decode(path, data))
                    _ = module.tree  # so that it is here that a file turns out to be no Python
                    self._modules[path] = module
        return self._modules[path]

    def cut(self, source: Source) -> Module:
        """A module for a text of the file `source.path`; where its functions stand is worked out once."""
        from perflint.source.syntax import Module

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
        if len(self._modules) > MAX_FILES_HELD:
            return True
        return sum(m.parsed_lines for m in self._modules.values() if m is not None) > MAX_LINES_HELD

    def forget(self, keep: Module | None = None) -> None:
        """Drop all parsed files but one. Facts about them are void, so the generation ends."""
        self.end_generation()
        for module in self._modules.values():
            if module is not None and module is not keep:
                module.release()
        self._modules.clear()

    @property
    def holds_texts(self) -> bool:
        """Whether any file is in memory."""
        return bool(self._contents)

    def forget_texts(self) -> None:
        """Drop all files, parsed or not."""
        self.forget()
        self._contents.clear()
        self._contents_size = 0

    def end_generation(self) -> None:
        """Declare all facts void."""
        self.generation += 1
        self.trace.forget()

    def has_read(self, path: str, data: bytes) -> bool:
        """Whether a file had these bytes when it was last read."""
        return self._contents.get(path) == data or self._last_read.get(path) == text_digest(data)

    def knows(self, path: str) -> bool:
        """Whether anything may rest on the text of a file."""
        return path in self._last_read or path in self._modules

    def changed(self, path: str) -> None:
        """Forget what was known of one file, because its bytes are others now. All facts are void: they may rest on it."""
        self.end_generation()
        for known in (self._modules, self._contents, self._stored, self._training, self._file_matches, self._helpers):
            known.pop(path, None)
        self.texts.pop(path, None)
        self._program_matches.clear()
        self._near_training.clear()
        self._all_helpers = None
        self._answers.clear()
        imported = self._imports.pop(path, None)
        if imported is not None and imported != self._find_imports(path):
            self._direct_importers = None
            self._importers.clear()
            self._is_large.clear()

    def dotted_name(self, path: str) -> str:
        """The module's name relative to the root, for messages."""
        relative = os.path.relpath(path, self.root)
        parts = relative.removesuffix(".py").split(os.sep)
        return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)

    # -- imports -----------------------------------------------------------------------------------------------------

    def resolve(self, dotted: str, importer: str, level: int = 0) -> str | None:
        """The file that `import dotted` in the file `importer` means, or None for a module outside the project."""
        directory = _seen_from(os.path.dirname(importer), level)
        self.trace.note("module", directory, dotted)
        return self._resolve(directory, dotted)

    def _resolve(self, directory: str, dotted: str) -> str | None:
        """`resolve`, seen from a directory, as `_seen_from` gives it."""
        key = (directory, dotted)
        if key not in self._resolved:
            bases = [directory[1:]] if directory.startswith(".") else self._search_path(directory)
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
        return self._by_stem.get(os.path.join(base, dotted.replace(".", os.sep)) if dotted else base)

    @cached_property
    def _by_stem(self) -> dict[str, str]:
        """The files by the paths that imports spell: `a/b` is `a/b.py`, else `a/b/__init__.py`."""
        named = {**self.links, **{path: path for path in self.files}}
        package = f"{os.sep}__init__.py"
        packages = {name.removesuffix(package): path for name, path in named.items() if name.endswith(package)}
        return packages | {name.removesuffix(".py"): path for name, path in named.items() if name.endswith(".py")}

    def importers(self, path: str) -> frozenset[str]:
        """Files that import the file at `path`, directly or through the `__init__.py` of a package.

        Where they are more than `MAX_NEIGHBOURS`, one more than that.
        """
        self.trace.note("importers", path)
        return self._find_importers(path)

    def _find_importers(self, path: str) -> frozenset[str]:
        if self._direct_importers is None:
            self._direct_importers = {}
            for file in sorted(self.files):
                for target in sorted(self._find_imports(file)):
                    self._direct_importers.setdefault(target, []).append(file)
        if path not in self._importers:
            self._importers[path] = frozenset(islice(self._importers_of(path), MAX_NEIGHBOURS + 1))
        return self._importers[path]

    def _importers_of(self, path: str) -> Iterator[str]:
        assert self._direct_importers is not None
        seen = {path}
        pending = [path]
        for package in pending:
            for file in self._direct_importers.get(package, ()):
                if file not in seen:
                    seen.add(file)
                    yield file
                    if file.endswith(f"{os.sep}__init__.py"):
                        pending.append(file)

    def imports(self, path: str) -> set[str]:
        """Files of the project that the file at `path` imports, or may import by names that it mentions."""
        self.trace.note("imports", path)
        return self._find_imports(path)

    def _find_imports(self, path: str) -> set[str]:
        if path not in self._imports:
            self._imports[path] = {*self._imports_of(path), *self._imports_by_name_of(path)} - {path}
            self.found_out.add(path)
        return self._imports[path]

    def _imports_of(self, path: str) -> Iterator[str]:
        directory = os.path.dirname(path)
        for level, dotted, names in self._said(path).imports():
            start = _seen_from(directory, level)
            target = self._target(start, dotted)
            if target is not None and target != path:
                yield target
                if not target.endswith(f"{os.sep}__init__.py"):
                    continue
            for name in names or ():
                target = self._target(start, f"{dotted}.{name}" if dotted else name)
                if target is not None:
                    yield target

    def _imports_by_name_of(self, path: str) -> Iterator[str]:
        """The files that a file may import otherwise than by import statements: `importlib`, `runpy`, a changed `sys.path`.

        It names them, or their folders.
        """
        said = self._said(path)
        directory = os.path.dirname(path)
        near = (directory, self.root, os.path.join(self.root, "src"))
        for word in said.mentioned & self._named.keys():
            anywhere = word.endswith(".") or bool(said.elsewhere)
            yield from (file for file in self._named[word] if anywhere or os.path.dirname(file) in near)
        words: set[str] = set()
        for dotted, names in said.elsewhere:
            if self._target(directory, dotted) is None:
                first, _, rest = dotted.partition(".")
                if not rest:
                    words.add(first)
                if f"{first}." in self._named:
                    words |= {rest.rpartition(".")[2], *names}
        for word in words & self._named.keys():
            yield from self._named[word]

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

    def is_offered(self, path: str) -> bool:
        """Whether programs elsewhere may import a file: it belongs to a package, and the project can be installed."""
        self.trace.note("requirements")
        return self._is_installable and self.resolve("", path, 1) is not None

    @cached_property
    def _is_installable(self) -> bool:
        said = {os.path.basename(path): read_file(path) or b"" for path in requirement_files(self.root)}
        return "setup.py" in said or any(_INSTALLABLE.search(text) for text in said.values())

    # -- what kind of program ----------------------------------------------------------------------------------------

    def uses_accelerator(self, path: str) -> bool:
        """Whether the program that a file belongs to ever names a device."""
        return self.program_holds(path, _ACCELERATOR)

    def attributes_stored(self, path: str) -> frozenset[bytes]:
        """The attributes that a file assigns on anything but `self`."""
        self.trace.note("text", path)
        if path not in self._stored:
            self._stored[path] = stored_attributes(self._read(path) or b"")
        return self._stored[path]

    def is_near(self, path: str, gate: Gate) -> bool:
        """Whether a file, one that it imports or one that imports it passes a gate."""
        if not gate.words:
            return True
        self.trace.note("near", path, *gate.words)
        return bool(self._holder_near(path, gate))

    def _holder_near(self, path: str, gate: Gate) -> str:
        """The nearest file to a file that passes a gate, or nothing."""
        if self._passes(path, gate):
            return path
        importers = self._find_importers(path)
        around = {*self._find_imports(path), *(importers if len(importers) <= MAX_IMPORTERS else ())}
        return next((file for file in sorted(around) if self._passes(file, gate)), "")

    def _passes(self, path: str, gate: Gate) -> bool:
        known = self._file_matches.setdefault(path, {})
        if gate not in known:
            known[gate] = gate.passes(self._read(path) or b"")
        return known[gate]

    def program_holds(self, path: str, pattern: re.Pattern[bytes]) -> bool:
        """Whether the text of a file, of what it imports or of who imports it matches a pattern."""
        self.trace.note("program", path, pattern.pattern.decode(), str(pattern.flags))
        return bool(self._holder_in_program(path, pattern))

    def program_may_hold(self, path: str, pattern: re.Pattern[bytes]) -> bool:
        """`program_holds`, or there are more files than are looked through: the question of whoever fears a match."""
        if self.program_holds(path, pattern):
            return True
        self.trace.note("large", path)
        return self._has_large_program(path)

    def members(self, path: str) -> list[str] | None:
        """The files that run together with a file, nearest first; None where there are more than are looked at."""
        self.trace.note("members", path)
        found = list(self._program(path))
        return [file for file in found if file is not None] if None not in found else None

    def _has_large_program(self, path: str) -> bool:
        if path not in self._is_large:
            self._is_large[path] = None in self._program(path)
        return self._is_large[path]

    def _holder_in_program(self, path: str, pattern: re.Pattern[bytes]) -> str:
        """The nearest file of a program that matches a pattern, or nothing."""
        key = (path, pattern)
        if key not in self._program_matches:
            self._program_matches[key] = next((f for f in self._program(path) if f is not None and self._holds(f, pattern)), "")
        return self._program_matches[key]

    def _program(self, path: str) -> Iterator[str | None]:
        """The files that run together with a file, nearest first; None where there are more than are looked at."""
        yield path
        seen = {path}
        level = [path]
        for neighbours in (
            self._find_imports,
            self._find_importers,
            self._find_importers,
            self._find_imports,
            self._find_imports,
        ):
            found = [neighbours(file) for file in level]
            following = sorted(set().union(*found) - seen)
            if max(len(following), *map(len, found)) > MAX_NEIGHBOURS:
                del following[MAX_NEIGHBOURS:]
                yield None
            seen.update(following)
            yield from following
            level += following

    def near_training(self, path: str) -> bool:
        """Whether a file, or one that imports it directly or through one more, has the words of a training loop.

        Where it has not, no function of the file is called from a step loop, as far as anybody can tell.
        """
        self.trace.note("training", path)
        return bool(self._training_near(path))

    def _training_near(self, path: str) -> str:
        """A file near another one that has the words of a training loop, or nothing."""
        if path not in self._near_training:
            self._near_training[path] = next((file for file in self._users(path) if self._trains(file)), "")
        return self._near_training[path]

    def _users(self, path: str) -> Iterator[str]:
        """A file, those that import it and those that import these; none of a level that has too many."""
        yield path
        level = [path]
        for _ in range(2):
            users: set[str] = set()
            for file in level:
                users |= self._find_importers(file)
                if len(users) > MAX_NEIGHBOURS:
                    return
            level = sorted(users)
            yield from level

    def _trains(self, path: str) -> bool:
        if path not in self._training:
            self._training[path] = self._said(path).trains
            self.found_out.add(path)
        return self._training[path]

    def holds(self, path: str, pattern: re.Pattern[bytes]) -> bool:
        """Whether the text of a file matches a pattern."""
        self.trace.note("text", path)
        return self._holds(path, pattern)

    def _holds(self, path: str, pattern: re.Pattern[bytes]) -> bool:
        known = self._file_matches.setdefault(path, {})
        if pattern not in known:
            data = self._read(path)
            known[pattern] = data is not None and pattern.search(data) is not None
        return known[pattern]

    def backward_helpers(self, names: Iterable[str]) -> frozenset[str]:
        """Those of some names by which the project calls functions that run a backward pass.

        A function runs one itself, or calls one of its file that does.
        """
        asked = frozenset(names)
        self.trace.note("helpers", *sorted(asked))
        return self._find_helpers() & asked

    def _find_helpers(self) -> frozenset[str]:
        if self._all_helpers is None:
            self._all_helpers = frozenset(name for file in sorted(self.files) for name in self._helpers_of(file))
        return self._all_helpers

    def _helpers_of(self, path: str) -> frozenset[str]:
        if path not in self._helpers:
            said = self._said(path)
            if said.helpers is None:
                texts = self._function_texts(path)
                own = sorted({name for name, text in texts if BACKWARD.search(text)})
                users = [name for name, text in texts if own and call_pattern(*own).search(text)]
                said.helpers = frozenset((*own, *users))
            self._helpers[path] = said.helpers
            self.found_out.add(path)
        return self._helpers[path]

    def _function_texts(self, path: str) -> list[tuple[str, bytes]]:
        """The names and texts of a file's outermost functions."""
        try:
            source = Source.decode(path, self._read(path) or b"")
        except SourceError:
            return []
        return [(chunk.name, source.body[chunk.start : chunk.end]) for chunk in self.cut(source).chunks]

    # -- what was asked ----------------------------------------------------------------------------------------------

    def answer(self, question: Question) -> str:
        """The answer of a question that `trace` noted, as a text that is the same as long as the answer is.

        Of a search for a file that has something ("training", "program", "near"), it is the file that was found, or empty.
        """
        known = self._answers.get(question)
        if known is None:
            known = self._answers[question] = self._answer(*question)
        return known

    def _answer(self, kind: str, *about: str) -> str:
        match kind:
            case "text":
                if about[0] not in self._digests:
                    self._read(about[0])
                return self._digests[about[0]]
            case "module":
                return self._resolve(about[0], about[1]) or ""
            case "imports":
                return _digest_of(self._find_imports(about[0]))
            case "importers":
                return _digest_of(self._find_importers(about[0]))
            case "training":
                return self._training_near(about[0])
            case "large":
                return "yes" if self._has_large_program(about[0]) else ""
            case "members":
                return _digest_of(file or "" for file in self._program(about[0]))
            case "program":
                return self._holder_in_program(about[0], re.compile(about[1].encode(), int(about[2])))
            case "near":
                return self._holder_near(about[0], Gate(about[1:]))
            case "helpers":
                return " ".join(sorted(self._find_helpers().intersection(about)))
            case "requirements":
                return requirements_digest(self.root)
        raise ValueError(f"there is no question about {kind!r}")

    def is_witness(self, question: Question, path: str) -> bool:
        """Whether a file has what a search for a file looks for."""
        kind, *about = question
        match kind:
            case "training":
                return self._trains(path)
            case "near":
                return self._passes(path, Gate(tuple(about[1:])))
        return self._holds(path, re.compile(about[1].encode(), int(about[2])))

    # -- what was known before ---------------------------------------------------------------------------------------

    def digest(self, path: str) -> str | None:
        """The digest of a file's text, if it was read or learned."""
        return self._digests.get(path)

    def learn(
        self,
        path: str,
        digest: str,
        imports: Iterable[str] | None = None,
        trains: bool | None = None,
        helpers: Iterable[str] | None = None,
    ) -> None:
        """Take over what was found out about a text before, so that the file need not be read for it."""
        self._digests.setdefault(path, digest)
        if imports is not None:
            self._imports.setdefault(path, set(imports))
        if trains is not None:
            self._training.setdefault(path, trains)
        if helpers is not None:
            self._helpers.setdefault(path, frozenset(helpers))

    def helpers_of(self, path: str) -> frozenset[str]:
        """The names of a file's functions that run a backward pass, as `backward_helpers` counts them."""
        return self._helpers_of(path)

    def learned(self, path: str) -> tuple[list[str] | None, bool | None, list[str] | None]:
        """What was found out about a text so far, as `learn` takes it."""
        imports, helpers = self._imports.get(path), self._helpers.get(path)
        return (
            sorted(imports) if imports is not None else None,
            self._training.get(path),
            sorted(helpers) if helpers is not None else None,
        )


def text_digest(data: bytes | None) -> str:
    """A text that stands for a file's bytes; that of a file that cannot be read is empty."""
    return hashlib.blake2b(data, digest_size=16).hexdigest() if data is not None else ""


def requirements_digest(root: str) -> str:
    """A text that stands for what a project says about the versions of packages."""
    return text_digest(repr([(path, read_file(path)) for path in requirement_files(root)]).encode("utf-8", "surrogateescape"))


def _digest_of(paths: Iterable[str]) -> str:
    return text_digest("\0".join(sorted(paths)).encode("utf-8", "surrogateescape"))
