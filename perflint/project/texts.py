"""The texts of a project's files, as bytes and parsed. Nothing is imported or run.

Files are read and parsed when a question needs them, and forgotten again, oldest first, when too many are held.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perflint.project.trace import LastingMemo, Trace
from perflint.source.cells import SUFFIX
from perflint.source.source import Source, SourceError
from perflint.source.texts import TextFacts
from perflint.source.vocabulary import vocabulary

if TYPE_CHECKING:
    from perflint.source.chunks import Chunk
    from perflint.source.syntax import Module
from perflint.project.files import read_file, text_digest

FILES_BETWEEN_COUNTS = 4
"""How seldom the pieces of memory are counted, which takes as long as checking a short file."""

MAX_BLOCKS_HELD = 1_200_000
"""Pieces of memory (`sys.getallocatedblocks`, some 105 bytes each) that a project takes before it forgets all that it holds.

Lines do not tell how much is held: the facts about one line take 1 to 6 kB. With 800,000 pieces ultralytics takes half as much
time again and no less memory at the peak, which single files bring in; with 1,600,000 the peak over training repositories is
340 MB instead of 289.
"""

MAX_FILES_HELD = 2_000
"""Parsed files that a project keeps, however short they are: whoever looks through all of them takes time."""

MAX_BYTES_HELD = 20 * 1024 * 1024
"""File contents that a project keeps."""

Reader = Callable[[str], "bytes | None"]


def python_bytes(path: str, data: bytes | None) -> bytes | None:
    """What there is of Python in the bytes of a file: all, but in a notebook."""
    if data is None or not path.endswith(SUFFIX):
        return data
    from perflint.source.notebook import python_text

    return python_text(data)


Listing = tuple[Collection[str], Mapping[str, str]]
"""Files by absolute path, and what symbolic links to files lead to."""


@dataclass(eq=False)
class Texts:
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
    _words: dict[str, bytes] = field(default_factory=dict, repr=False)
    _chunks: dict[str, tuple[int, list[Chunk]]] = field(default_factory=dict, repr=False)
    _parsing: dict[str, tuple[int, bool]] = field(default_factory=dict, repr=False)
    _blocks: int = field(default_factory=sys.getallocatedblocks, repr=False)
    """Pieces of memory in use when nothing was held yet."""
    _lasting: dict[str, LastingMemo[Any, Any]] = field(default_factory=dict, repr=False)
    _turns: int = 0
    """How many files have had their turn."""
    found_out: set[str] = field(default_factory=set, repr=False)
    """The files about which something was found out here that was not learned."""
    _digests: dict[str, str] = field(default_factory=dict, repr=False)
    _last_read: dict[str, str] = field(default_factory=dict, repr=False)

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

    def read(self, path: str) -> bytes | None:
        """The bytes of a file, of a notebook its Python text, from memory where they are held."""
        self.trace.note("text", path)
        return self._read(path)

    def _read(self, path: str) -> bytes | None:
        if path not in self._contents:
            data = python_bytes(path, self.reader(path))
            digest = text_digest(data)
            self.is_settled &= self._digests.setdefault(path, digest) == digest
            self._last_read[path] = digest
            self._contents_size += len(data) if data is not None else 0
            if self._contents_size > MAX_BYTES_HELD:
                self._contents.clear()
                self._words.clear()
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

    def _vocabulary(self, path: str) -> bytes:
        """The words of a file, as `vocabulary` gives them."""
        if path not in self._words:
            self._words[path] = vocabulary(self._read(path) or b"")
        return self._words[path]

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

    def parses(self, path: str) -> bool:
        """Whether a file is Python, down to each of its functions; found out once, and without keeping a tree."""
        self.trace.note("text", path)
        data = self._read(path)
        if data is None:
            return False
        text = hash(data)
        known = self._parsing.get(path)
        if known is None or known[0] != text:
            try:
                known = text, self.cut(Source.decode(path, data)).parses
            except SourceError:
                known = text, False
            self._parsing[path] = known
        return known[1]

    def held(self, path: str) -> Module | None:
        """The parsed file, if it is in memory."""
        return self._modules.get(path)

    def hold(self, path: str, module: Module) -> None:
        """Keep a file that was parsed elsewhere for later questions."""
        self._modules[path] = module

    def should_forget(self) -> bool:
        """Whether so much is held that it should be forgotten when the next file's turn comes."""
        self._turns += 1
        is_counted = self._turns % FILES_BETWEEN_COUNTS == 0
        is_large = is_counted and sys.getallocatedblocks() - self._blocks > MAX_BLOCKS_HELD
        return is_large or len(self._modules) > MAX_FILES_HELD

    def forget(self, keep: Module | None = None) -> None:
        """Drop all parsed files but one. Facts that hold parts of them are void, so the generation ends."""
        self._void()
        for module in self._modules.values():
            if module is not None and module is not keep:
                module.release()
        self._modules.clear()
        self._blocks = sys.getallocatedblocks()

    @property
    def holds_texts(self) -> bool:
        """Whether any file is in memory."""
        return bool(self._contents)

    def forget_texts(self) -> None:
        """Drop all files, parsed or not."""
        self.forget()
        self._contents.clear()
        self._words.clear()
        self._contents_size = 0

    def end_generation(self) -> None:
        """Declare all facts void."""
        for memo in self._lasting.values():
            memo.clear()
        self._void()

    def _void(self) -> None:
        self.generation += 1
        self.trace.forget()

    def lasting(self, kind: str) -> LastingMemo[Any, Any]:
        """The memory for answers of one kind that is kept as long as no text changes."""
        known = self._lasting.get(kind)
        if known is None:
            known = self._lasting[kind] = LastingMemo(self.trace)
        return known

    def has_read(self, path: str, data: bytes) -> bool:
        """Whether a file had these bytes when it was last read."""
        return self._contents.get(path) == data or self._last_read.get(path) == text_digest(data)

    def knows(self, path: str) -> bool:
        """Whether anything may rest on the text of a file."""
        return path in self._last_read or path in self._modules

    def dotted_name(self, path: str) -> str:
        """The module's name relative to the root, for messages."""
        relative = os.path.relpath(path, self.root)
        parts = relative.removesuffix(".py").split(os.sep)
        return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)

    def changed(self, path: str) -> None:
        """Forget what was known of one file, because its bytes are others now. All facts are void: they may rest on it."""
        self.end_generation()
        self._modules.pop(path, None)
        self._contents.pop(path, None)
        self._words.pop(path, None)
        self.texts.pop(path, None)
