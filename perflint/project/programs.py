"""Which programs of a project are run, as far as its texts tell, and which of its files may be found by names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from perflint.project.configured import MAX_FILES, MAX_MODULES, configuration_files, devices, settings, small_files
from perflint.project.files import read_file, state_digest
from perflint.project.imports import Imports, seen_from
from perflint.project.marks import INSTALLED, LICENSE, left_out_packages, mark_of_project
from perflint.project.told import Text, command_lines, named_scripts, telling_files, told
from perflint.source.uses import words_in_quotes, words_of
from perflint.source.words import made

_TEXTS = made(r"\.(?:ya?ml|json|toml|ini|cfg|conf|gin|jsonnet)$", re.I)
_FOLDER = made(r"conf|cfg|option|setting|param|yaml|yml|json|exp|hydra|script|recipe", re.I)
"""Folders that hold such files, whether there is Python code beside them or not."""
_FOR_FOLDERS = frozenset((b"__init__", b"__main__"))


@dataclass(eq=False)
class Programs(Imports):
    """The files of a project with what its texts, and names in its code, say about them."""

    _training: dict[str, bool] = field(default_factory=dict, repr=False)

    def configured(self, name: str) -> frozenset[str]:
        """The values that configuration files give a setting, as `settings` spells them."""
        self.trace.note("configured", name)
        return self._settings.get(name, frozenset())

    def configured_devices(self) -> frozenset[str]:
        """What configuration files say under `device`, in lower case."""
        self.trace.note("devices")
        return self._devices

    @cached_property
    def _devices(self) -> frozenset[str]:
        return devices(self.root, set(self._places))

    @cached_property
    def _settings(self) -> Mapping[str, frozenset[str]]:
        return settings(self.root, self._own_texts if len(self.files) <= MAX_MODULES else [])

    @cached_property
    def _surroundings(self) -> str:
        """What stands for the texts beside the Python files that answers depend on, as they were when this was asked first."""
        with_code = set(self._places)
        words = small_files(self.root, with_code, _TEXTS.search, _FOLDER)
        return state_digest([*telling_files(self.root, with_code), *configuration_files(self.root, with_code), *words])

    @property
    def _own_texts(self) -> list[Text]:
        """The Python files with what stands in them."""
        return [(path, self._read(path) or b"") for path in sorted(self.files)]

    def commands(self) -> list[bytes]:
        """The lines by which Python programs are run, from what a project says about itself."""
        self.trace.note("commands")
        return self._commands

    @cached_property
    def _commands(self) -> list[bytes]:
        return command_lines(text for _, text in self._told)

    @cached_property
    def _told(self) -> list[Text]:
        """What the project's texts tell those who run it."""
        return told(self.root, {os.path.dirname(path) for path in self.files})

    def is_left_aside(self, path: str) -> bool:
        """Whether a file belongs to no program that the project tells its users to run, beside one that trains."""
        self.trace.note("told", path)
        return self._is_left_aside(path)

    def _is_left_aside(self, path: str) -> bool:
        return path not in self._told_files and any(_are_in(folder, path) for folder in self._told_folders)

    @cached_property
    def _told_folders(self) -> list[str]:
        """The folders of whose programs some text tells how they train: it stands in such a folder, as the script does."""
        found: list[str] = []
        pairs = {(os.path.commonpath((os.path.dirname(source), script)), script) for source, script in self._own_scripts}
        for folder, script in sorted(pairs, key=lambda pair: (len(pair[0]), pair)):
            if not any(folder == known or _are_in(known, folder) for known in found):
                if any(map(self._trains, self._with_imports([script]))):
                    found.append(folder)
        return found

    def _trains(self, path: str) -> bool:
        if path not in self._training:
            self._training[path] = self._said(path).trains
            self.found_out.add(path)
        return self._training[path]

    @cached_property
    def _told_files(self) -> Set[str]:
        """The files of all programs that the project's texts name; none of a large project.

        What the texts of a copied project name is none of this one's.
        """
        found = self._with_imports(script for _, script in self._own_scripts)
        return self._with_imports([*found, *self._installed(found)]) if self._copies else found

    def _installed(self, files: Iterable[str]) -> set[str]:
        """The files of copied projects that some files import by the names which they have when the copies are installed."""
        asked = [imported for file in sorted(files) for imported in self._said(file).imports() if not imported[0]]
        modules = {name for _, dotted, names in asked for name in (dotted, *(f"{dotted}.{name}" for name in names or ()))}
        found = {self._file_of(folder, module) for folder in self._copies for module in modules}
        return {file for file in found if file is not None}

    @property
    def _own_scripts(self) -> list[tuple[str, str]]:
        return [pair for pair in self._named_scripts if not any(_are_in(folder, *pair) for folder in self._copies)]

    @cached_property
    def _named_scripts(self) -> list[tuple[str, str]]:
        """The scripts that texts and files name, behind what names them; none of a large project."""
        return list(named_scripts(self.root, self._told, self._own_texts)) if len(self.files) <= MAX_MODULES else []

    def _with_imports(self, scripts: Iterable[str]) -> Set[str]:
        """Some files and all that they import; what may be imported by a name that is made up, where some text has the name."""
        found = list(dict.fromkeys(scripts))
        seen = set(found)
        for file in found:
            taken = ((target, names) for target, names in self._taken_by(file).items() if target not in seen)
            new = sorted(target for target, names in taken if names or self._is_named(target))
            found += new
            seen.update(new)
        return seen

    def is_of_copy(self, path: str) -> bool:
        """Whether a file lies in a copy of another project, and this one's programs do not get to it."""
        self.trace.note("copied", path)
        return self._is_of_copy(path)

    def _is_of_copy(self, path: str) -> bool:
        return any(_are_in(folder, path) for folder in self._copies) and path not in self._told_files

    @cached_property
    def _copies(self) -> list[str]:
        """The folders that hold copies of other projects, of which this one uses parts; none of a large project."""
        folders: set[str] = set()
        for file in self.files if self._named_scripts else ():
            folder = os.path.dirname(file)
            while folder not in folders and folder.startswith(f"{self.root}{os.sep}"):
                folders.add(folder)
                folder = os.path.dirname(folder)
        return [folder for folder in sorted(folders) if (mark := mark_of_project(folder)) and self._is_copy(folder, mark)]

    def _is_copy(self, folder: str, mark: str) -> bool:
        """Whether a folder that says itself what project it is has nothing to do with what is around it but to be used.

        Its code imports nothing from outside of it. Code outside imports a part of it, or, where it has a license of its own, a
        text outside names a script of it. And texts outside name a program outside that trains.
        """
        inside = [file for file in sorted(self.files) if _are_in(folder, file)]
        if any(self._leaves(folder, file) for file in inside):
            return False
        outside = [script for source, script in self._named_scripts if not _are_in(folder, source)]
        is_imported = any(not _are_in(folder, user) for file in inside for user in self._find_importers(file))
        is_run = mark == LICENSE and any(_are_in(folder, script) for script in outside)
        if not (is_imported or is_run or (mark == INSTALLED and self._is_asked_for(folder))):
            return False
        programs = self._with_imports(script for script in outside if not _are_in(folder, script))
        return any(self._trains(file) for file in programs if not _are_in(folder, file))

    def _is_asked_for(self, folder: str) -> bool:
        """Whether code outside of a folder imports a package of it by the name that it has when it is installed."""
        outside = (file for file in sorted(self.files) if not _are_in(folder, file))
        asked = {name.partition(".")[0] for file in outside for name in self._find_outside(file)}
        return any(os.path.join(folder, name) in self._places for name in asked if name)

    def _leaves(self, folder: str, path: str) -> bool:
        """Whether a file in a folder imports a file outside of it; what the folder has, too, is its own."""
        directory = os.path.dirname(path)
        for level, dotted, names in self._said(path).imports():
            first = os.path.join(folder, dotted.partition(".")[0])
            if not level and (first in self._places or f"{first}.py" in self.files):
                continue
            modules = [dotted, *(f"{dotted}.{name}" if dotted else name for name in names or ())]
            targets = (self._target(seen_from(directory, level), module) for module in modules)
            if any(target is not None and not _are_in(folder, target) for target in targets):
                return True
        return False

    @cached_property
    def _places(self) -> frozenset[str]:
        """The folders of files."""
        return frozenset(map(os.path.dirname, self.files))

    def is_named(self, path: str, definition: str = "") -> bool:
        """Whether a text has the name of a file, or of what it defines, as a word: what makes names up may find it.

        In Python files what stands in quotes counts, but in the file itself. Of a large project it is not known: then one has.
        """
        self.trace.note("named", path, definition)
        return self._is_named(path, definition)

    def _is_named(self, path: str, definition: str = "") -> bool:
        holders = self._holders_of_words
        names = [(definition.lower().encode(),)] if definition else _names_of(path)
        return holders is None or any(all(holders.get(part, path) != path for part in parts) for parts in names)

    @cached_property
    def _holders_of_words(self) -> dict[bytes, str] | None:
        """The words of the project's texts with the Python file that alone has one; nothing where another text has it."""
        files = small_files(self.root, set(self._places), _TEXTS.search, _FOLDER)
        if len(self.files) > MAX_MODULES or len(files) >= MAX_FILES:
            return None
        holders: dict[bytes, str] = {}
        for path, text in self._own_texts:
            for word in words_in_quotes(text):
                holders[word] = path if holders.get(word, path) == path else ""
        texts = [text for _, text in self._told] + [read_file(path) or b"" for path in files]
        holders.update(dict.fromkeys((word for text in texts for word in words_of(text)), ""))
        return holders

    def is_packaged(self, path: str) -> bool:
        """Whether others may have a file as a part of an installed package: setup.py does not leave its package out.

        Nobody installs a package called `src` for what it has: it is one program's own.
        """
        own = os.path.join(self.root, "src", "__init__.py")
        if not self.is_offered(path) or (_are_in(os.path.dirname(own), path) and own in self.beside(own)):
            return False
        self.trace.note("requirements")
        package = os.path.relpath(os.path.dirname(path), self.root).replace(os.sep, ".")
        return not any(fnmatchcase(package, pattern) for pattern in self._left_out_packages)

    @cached_property
    def _left_out_packages(self) -> list[str]:
        return left_out_packages(read_file(os.path.join(self.root, "setup.py")) or b"")

    def changed(self, path: str) -> None:
        """Forget what was known of one file, and what its text has part in."""
        super().changed(path)
        self._training.pop(path, None)
        for found in (
            "_settings",
            "_devices",
            "_told_files",
            "_told_folders",
            "_named_scripts",
            "_copies",
            "_holders_of_words",
        ):
            vars(self).pop(found, None)


def _are_in(folder: str, *paths: str) -> bool:
    return all(path.startswith(f"{folder}{os.sep}") for path in paths)


def _names_of(path: str) -> list[tuple[bytes, ...]]:
    """What texts may call a file: by its name, or in two words, one of which is put before or behind: `f"{name}_model"`."""
    folder, name = os.path.split(path)
    stem = os.path.splitext(name)[0].lower().replace("-", "_").encode("utf-8", "surrogateescape")
    stem = os.path.basename(folder).lower().encode("utf-8", "surrogateescape") if stem in _FOR_FOLDERS else stem
    before, _, last = stem.rpartition(b"_")
    first, _, behind = stem.partition(b"_")
    return [(stem,), *([(before, b"_" + last), (first + b"_", behind)] if before else [])]
