"""The linted project: what kind of program its files belong to, and what was asked about it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cache, cached_property, partial

from perflint.project.files import requirements_digest, text_digest
from perflint.project.imports import MAX_NEIGHBOURS
from perflint.project.programs import Programs
from perflint.project.texts import Listing
from perflint.project.trace import Question
from perflint.source.gate import Gate
from perflint.source.source import Source, SourceError
from perflint.source.stored import stored_attributes
from perflint.source.texts import BACKWARD
from perflint.source.vocabulary import holds
from perflint.source.words import any_layout, call_pattern, made, whole

MAX_IMPORTERS = 30
"""What the rest of the project does with the contents of a file that more files import than this is not looked for: the values
in question stay open."""

MODEL_LEVELS = 5
"""Through how many files a model may be imported by the one that trains it: a network is made of parts of parts."""

ACCELERATOR = any_layout(
    rb"\. to \( (?:\w+ \. )*\w*(?:dev|gpu)|accelerator|Accelerator|" + whole("cuda", "fabric", "mps", "xla", "npu")
)

_OPTIMIZER = any_layout(rb"class[\s\\]+\w+ \( (?:\w+ \. )*Optimizer \)")
RUNS_ITSELF = any_layout(rb"\bif __name__ ==")
_VENDORED = made(r"[\w.]-(?:main|master)/")
"""A folder as it is unpacked from an archive of a branch."""


@dataclass
class _Reached:
    """The files that a relation leads to from some files, each of which is asked once."""

    neighbours: Callable[[str], Set[str]]
    files: set[str] = field(default_factory=set)
    widest: int = 0
    """The most that one file led to."""
    _asked: int = 0

    def extend(self, level: list[str]) -> None:
        """Ask the files of a level that has grown since."""
        found = [self.neighbours(file) for file in level[self._asked :]]
        self._asked = len(level)
        self.files.update(*found)
        self.widest = max(self.widest, *map(len, found), 0)


@dataclass(eq=False)
class Project(Programs):
    """The files of a project, their imports, and what is asked about the programs that they make up."""

    _program_matches: dict[tuple[str, re.Pattern[bytes]], str] = field(default_factory=dict, repr=False)
    _anywhere: dict[re.Pattern[bytes], str] = field(default_factory=dict, repr=False)
    _passing: dict[Gate, dict[str, bool]] = field(default_factory=dict, repr=False)
    _matching: dict[re.Pattern[bytes], dict[str, bool]] = field(default_factory=dict, repr=False)
    """Which files pass a gate or match a pattern, as far as they were asked."""
    _programs: dict[str, tuple[list[str | None], Iterator[str | None] | None]] = field(default_factory=dict, repr=False)
    """What `_program` has found so far, and what is left to find."""
    _stored: dict[str, frozenset[bytes]] = field(default_factory=dict, repr=False)
    _near_training: dict[str, str] = field(default_factory=dict, repr=False)
    _helpers: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)
    _all_helpers: frozenset[str] | None = None
    _answers: dict[Question, str] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        """What another process makes the same project of; it says itself how files are read there."""
        return Project, (self.root, partial(_as_listed, (self.files, dict(self.links))))

    def changed(self, path: str) -> None:
        """Forget what was known of one file, and what searches have found."""
        super().changed(path)
        for known in (self._stored, self._helpers):
            known.pop(path, None)
        for holders in (*self._passing.values(), *self._matching.values()):
            holders.pop(path, None)
        self._program_matches.clear()
        self._anywhere.clear()
        self._near_training.clear()
        for found in ("_training_anywhere", "_script"):
            vars(self).pop(found, None)
        self._all_helpers = None
        self._answers.clear()

    def _forget_importers(self) -> None:
        super()._forget_importers()
        self._programs.clear()

    # -- what kind of program ----------------------------------------------------------------------------------------

    def uses_accelerator(self, path: str) -> bool:
        """Whether the program that a file belongs to ever names a device.

        An optimizer in a file that nobody imports is one to choose from: it may be of any program of the project.
        """
        if self.program_holds(path, ACCELERATOR):
            return True
        if self.importers(path) or not self.holds(path, _OPTIMIZER) or self.holds(path, BACKWARD):
            return False
        return any(self.holds(file, ACCELERATOR) for file in sorted(self.files))

    def attributes_stored(self, path: str) -> frozenset[bytes]:
        """The attributes that a file assigns on anything but `self`."""
        self.trace.note("text", path)
        if path not in self._stored:
            self._stored[path] = stored_attributes(self._read(path) or b"")
        return self._stored[path]

    def is_near(self, path: str, gate: Gate) -> bool:
        """Whether a file, one that it imports or one that imports it passes a gate; a package stands for what it imports."""
        if not gate.words:
            return True
        self.trace.note("near", path, *gate.words)
        return bool(self._holder_near(path, gate))

    def _holder_near(self, path: str, gate: Gate) -> str:
        """The nearest file to a file that passes a gate, or nothing."""
        if self._passes(path, gate):
            return path
        importers = self._find_importers(path)
        imported = self._find_imports(path)
        around = {*imported, *(importers if len(importers) <= MAX_IMPORTERS else ())}
        around.update(inner for file in imported if file.endswith("__init__.py") for inner in self._find_imports(file))
        return next((file for file in sorted(around) if self._passes(file, gate)), "")

    def _passes(self, path: str, gate: Gate) -> bool:
        known = self._passing.setdefault(gate, {})
        if path not in known:
            known[path] = gate.passes(self._read(path) or b"")
        return known[path]

    def program_holds(self, path: str, pattern: re.Pattern[bytes], before: re.Pattern[bytes] | None = None) -> bool:
        """Whether the text of a file, of what it imports or of who imports it matches a pattern.

        before: a pattern that matches each such text, too, and is faster to search.
        """
        self.trace.note("program", path, *_written(pattern))
        return bool(self._holder_in_program(path, pattern, before))

    def program_may_hold(self, path: str, pattern: re.Pattern[bytes], before: re.Pattern[bytes] | None = None) -> bool:
        """`program_holds`, or there are more files than are looked through: the question of whoever fears a match."""
        if self.program_holds(path, pattern, before):
            return True
        self.trace.note("large", path)
        return self._has_large_program(path)

    def anywhere(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether the text of any file of the project matches a pattern, whoever imports it."""
        self.trace.note("anywhere", "", *_written(pattern))
        return bool(self._holder_anywhere(pattern))

    def _holder_anywhere(self, pattern: re.Pattern[bytes]) -> str:
        """The first file of the project that matches a pattern, or nothing."""
        found = self._anywhere.get(pattern)
        if found is None:
            found = self._anywhere[pattern] = next((file for file in sorted(self.files) if self._holds(file, pattern)), "")
        return found

    def has_scripts(self) -> bool:
        """Whether a file of the project runs itself, with what it imports from other files of the project."""
        self.trace.note("scripts", "")
        return bool(self._script)

    @cached_property
    def _script(self) -> str:
        files = sorted(self.files, key=lambda file: (self._is_in_archive(file), file))
        return next((file for file in files if self._is_script(file)), "")

    def _is_script(self, path: str) -> bool:
        return self._holds(path, RUNS_ITSELF) and bool(self._find_imports(path))

    def is_vendored(self, path: str) -> bool:
        """Whether a file lies in the unpacked archive of another project, beside scripts of this one."""
        return self._is_in_archive(path) and self.has_scripts() and not self._is_in_archive(self._script)

    def _is_in_archive(self, path: str) -> bool:
        return _VENDORED.search(os.path.relpath(path, self.root).replace(os.sep, "/")) is not None

    def members(self, path: str) -> list[str] | None:
        """The files that run together with a file, nearest first; None where there are more than are looked at."""
        self.trace.note("members", path)
        found = list(self._program(path))
        return [file for file in found if file is not None] if None not in found else None

    def _has_large_program(self, path: str) -> bool:
        return None in self._program(path)

    def _holder_in_program(self, path: str, pattern: re.Pattern[bytes], before: re.Pattern[bytes] | None = None) -> str:
        """The nearest file of a program that matches a pattern, or nothing."""
        key = (path, pattern)
        found = self._program_matches.get(key)
        if found is None:
            known = self._matching.setdefault(pattern, {})
            found = ""
            for file in self._program(path):
                if file is None:
                    continue
                matches = known.get(file)
                if matches is None:
                    matches = known[file] = (before is None or self._holds(file, before)) and self._holds(file, pattern)
                if matches:
                    found = file
                    break
            self._program_matches[key] = found
        return found

    def _program(self, path: str) -> Iterable[str | None]:
        """The files that run together with a file, nearest first; None where there are more than are looked at.

        They are looked for as far as somebody asks, and each once, for many patterns are searched for in all of them.
        """
        known = self._programs.get(path)
        if known is None:
            known = self._programs[path] = ([], self._run_with(path))
        found, others = known
        return found if others is None else self._found_further(path, found, others)

    def _found_further(self, path: str, found: list[str | None], others: Iterator[str | None]) -> Iterator[str | None]:
        yield from found
        at = len(found)
        while True:
            if at == len(found):
                try:
                    found.append(next(others))
                except StopIteration:
                    self._programs[path] = (found, None)
                    return
            yield found[at]
            at += 1

    def _run_with(self, path: str) -> Iterator[str | None]:
        yield path
        seen = {path}
        level = [path]
        imported, importing = _Reached(self._find_imports), _Reached(self._find_importers)
        for reached in (imported, importing, importing, imported, imported):
            reached.extend(level)
            following = sorted(reached.files - seen)
            if max(len(following), reached.widest) > MAX_NEIGHBOURS:
                del following[MAX_NEIGHBOURS:]
                yield None
            seen.update(following)
            yield from following
            level += following

    def near_training(self, path: str) -> bool:
        """Whether a file, or one that runs together with it, has the words of a training loop.

        Where it has not, no function of the file is called from a step loop, as far as anybody can tell.
        """
        self.trace.note("training", path)
        return bool(self._training_near(path))

    def _training_near(self, path: str) -> str:
        """A file near another one that has the words of a training loop, or nothing.

        A model in a file that nobody imports may be loaded by its name: then all files of the project are near.
        """
        if path not in self._near_training:
            found = next((file for file in self._run_together(path) if self._trains(file)), "")
            if not found and self._said(path).holds_model:
                users = list(self._users(path, MODEL_LEVELS))
                found = next((file for level in users for file in level if self._trains(file)), "")
                found = found if users and users[0] else self._training_anywhere
            self._near_training[path] = found
        return self._near_training[path]

    @cached_property
    def _training_anywhere(self) -> str:
        """A file of the project that has the words of a training loop, or nothing."""
        return next((file for file in sorted(self.files) if self._trains(file)), "")

    def _run_together(self, path: str) -> Iterator[str]:
        """A file, those that import it and those that import these, and what scripts among it and the first of them import.

        None of a level that has too many.
        """
        yield path
        users = list(self._users(path))
        for level in users:
            yield from level
        direct = users[0] if users else []
        scripts = [file for file in (path, *direct) if not self._find_importers(file)]
        imported: set[str] = set().union(*map(self._find_imports, scripts))
        if len(imported) <= MAX_NEIGHBOURS:
            yield from sorted(imported)

    def _users(self, path: str, levels: int = 2) -> Iterator[list[str]]:
        """Those that import a file, those that import these, and so on; none of a level that has too many."""
        level = [path]
        for _ in range(levels):
            users: set[str] = set()
            for file in level:
                users |= self._find_importers(file)
                if len(users) > MAX_NEIGHBOURS:
                    return
            level = sorted(users)
            yield level

    def holds(self, path: str, pattern: re.Pattern[bytes]) -> bool:
        """Whether the text of a file matches a pattern."""
        self.trace.note("text", path)
        return self._holds(path, pattern)

    def _holds(self, path: str, pattern: re.Pattern[bytes]) -> bool:
        known = self._matching.setdefault(pattern, {})
        if path not in known:
            data = self._read(path)
            known[path] = data is not None and holds(data, self._vocabulary(path), pattern)
        return known[path]

    def find_out(self) -> None:
        """Ask of each file what only its text and the files' names decide: its imports, whether it trains, what runs backward.

        Processes that are forked behind it share the answers, and the cache remembers them.
        """
        for path in self.files:
            self._taken_by(path)
            self._trains(path)
        self._find_helpers()

    def backward_helpers(self, names: Iterable[str]) -> frozenset[str]:
        """Those of some names by which the project calls functions that run a backward pass.

        A function runs one itself, or calls one that does, of its file or by a name that its file imports.
        """
        asked = frozenset(names)
        self.trace.note("helpers", *sorted(asked))
        return self._find_helpers() & asked

    def _find_helpers(self) -> frozenset[str]:
        if self._all_helpers is None:
            files = sorted(self.files)
            own = frozenset(name for file in files for name in self._helpers_of(file))
            self._all_helpers = own.union(*(self._users_of_helpers(file, own) for file in files if own))
        return self._all_helpers

    def _users_of_helpers(self, path: str, helpers: Set[str]) -> Iterator[str]:
        """The functions of a file that call some functions by names that the file imports."""
        taken = frozenset[str]().union(*self._taken_by(path).values()) & helpers
        texts = self._function_texts(path) if taken else ()
        yield from (name for name, text in texts if call_pattern(*sorted(taken)).search(text))

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
            case "outside":
                return " ".join(sorted(self._find_outside(about[0])))
            case "beside":
                return _digest_of(self._find_beside(about[0]))
            case "importers":
                return _digest_of(self._find_importers(about[0]))
            case "holders":
                return _digest_of(self._find_holders(about[0]))
            case "training":
                return self._training_near(about[0])
            case "large":
                return "yes" if self._has_large_program(about[0]) else ""
            case "members":
                return _digest_of(file or "" for file in self._program(about[0]))
            case "program":
                return self._holder_in_program(about[0], made(about[1].encode(), int(about[2])))
            case "scripts":
                return self._script
            case "commands":
                return _digest_of(line.decode("utf-8", "surrogateescape") for line in self._commands)
            case "told":
                return "aside" if self._is_left_aside(about[0]) else ""
            case "copied":
                return "copy" if self._is_of_copy(about[0]) else ""
            case "named":
                return "named" if self._is_named(*about) else ""
            case "configured":
                return " ".join(sorted(self._settings.get(about[0], ())))
            case "surroundings":
                return self._surroundings
            case "devices":
                return " ".join(sorted(self._devices))
            case "anywhere":
                return self._holder_anywhere(made(about[1].encode(), int(about[2])))
            case "near":
                return self._holder_near(about[0], Gate(about[1:]))
            case "helpers":
                return " ".join(sorted(self._find_helpers().intersection(about)))
            case "requirements":
                return text_digest(repr((requirements_digest(self.root), self._notebooks)).encode("utf-8", "surrogateescape"))
        raise ValueError(f"there is no question about {kind!r}")

    def is_witness(self, question: Question, path: str) -> bool:
        """Whether a file has what a search for a file looks for."""
        kind, *about = question
        match kind:
            case "training":
                return self._trains(path)
            case "scripts":
                return self._is_script(path)
            case "near":
                return self._passes(path, Gate(tuple(about[1:])))
        return self._holds(path, made(about[1].encode(), int(about[2])))

    def digest(self, path: str) -> str | None:
        """The digest of a file's text, if it was read or learned."""
        return self._digests.get(path)

    def learn(
        self,
        path: str,
        digest: str,
        imports: Mapping[str, frozenset[str]] | None = None,
        trains: bool | None = None,
        helpers: Iterable[str] | None = None,
    ) -> None:
        """Take over what was found out about a text before, so that the file need not be read for it."""
        self._digests.setdefault(path, digest)
        if imports is not None:
            self._imports.setdefault(path, imports)
        if trains is not None:
            self._training.setdefault(path, trains)
        if helpers is not None:
            self._helpers.setdefault(path, frozenset(helpers))

    def helpers_of(self, path: str) -> frozenset[str]:
        """The names of a file's functions that run a backward pass, as `backward_helpers` counts them."""
        return self._helpers_of(path)

    def learned(self, path: str) -> tuple[Mapping[str, frozenset[str]] | None, bool | None, list[str] | None]:
        """What was found out about a text so far, as `learn` takes it."""
        helpers = self._helpers.get(path)
        return self._imports.get(path), self._training.get(path), sorted(helpers) if helpers is not None else None


@cache
def _written(pattern: re.Pattern[bytes]) -> tuple[str, str]:
    """A pattern as questions have it."""
    return pattern.pattern.decode(), str(pattern.flags)


def _as_listed(listing: Listing) -> Listing:
    return listing


def _digest_of(paths: Iterable[str]) -> str:
    return text_digest("\0".join(sorted(paths)).encode("utf-8", "surrogateescape"))
