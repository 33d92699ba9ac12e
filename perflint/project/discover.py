"""Which files a run is about: from paths to Python files and notebooks, with .gitignore and excludes honoured."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from perflint.project.config import Config
from perflint.project.files import may_read, read_file
from perflint.project.folders import Folders
from perflint.project.ignores import Ignores
from perflint.source.cells import SUFFIX
from perflint.source.words import words

DEFAULT_EXCLUDES = sorted(
    words(
        """
        ._* .bzr .direnv .eggs .git .git-rewrite .hg .ipynb_checkpoints .mypy_cache .nox .pants.d .perflint_cache .pyenv
        .pytest_cache .pytype .ruff_cache .svn .tox .venv .vscode __pypackages__ __pycache__ _build buck-out build dist
        node_modules site-packages venv
        """
    )
)
ROOT_MARKERS = (".git", "pyproject.toml", "perflint.toml", "setup.py", "setup.cfg")


class PathError(Exception):
    """A path on the command line does not exist."""


@dataclass
class Found:
    """Python files by absolute path. `explicit` were named one by one; `links` are symbolic links to files."""

    files: list[str] = field(default_factory=list)
    explicit: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)


class Roots:
    """Project roots by directory; each directory is looked at once."""

    def __init__(self, folders: Folders | None = None) -> None:
        self._known: dict[str, tuple[str | None, str | None]] = {}
        self._folders = folders or Folders()

    def of(self, directory: str) -> tuple[str, bool]:
        """The root of the project that a directory belongs to, and whether a marker says so.

        A git repository is one project; without one, the nearest directory with a project file is.
        """
        repository, nearest = self._above(directory)
        root = repository or nearest
        return (root, True) if root is not None else (directory, False)

    def _above(self, directory: str) -> tuple[str | None, str | None]:
        """The repository that a directory is in, and the nearest directory with a project file."""
        if directory not in self._known:
            parent = os.path.dirname(directory)
            is_top = not may_read(parent)  # reading is confined to this folder: it is the project, whatever is above
            if is_top or self._folders.holds(directory, ".git"):
                found: tuple[str | None, str | None] = directory, directory
            else:
                found = self._above(parent) if parent != directory else (None, None)
                if any(self._folders.holds(directory, marker) for marker in ROOT_MARKERS):
                    found = found[0], directory
            self._known[directory] = found
        return self._known[directory]


def project_root(path: str) -> tuple[str, bool]:
    """The root of the project that a file or directory belongs to, and whether a marker says so."""
    start = os.path.abspath(path)
    return Roots().of(start if os.path.isdir(start) else os.path.dirname(start))


def find_files(paths: Iterable[str], walked: Callable[[str], Iterable[tuple[str, str | None]]]) -> Found:
    """Python files at and below paths, each once, in the order of the paths and then by name.

    walked: gives what `walk` finds below a directory.

    Raises:
        PathError: a path is empty, does not exist, or is a directory that cannot be listed.

    """
    found = Found()
    seen: set[str] = set()
    for path in paths:
        if not path:  # `abspath` takes it for the working directory
            raise PathError("a path is empty")
        absolute = os.path.abspath(path)
        if os.path.isdir(absolute):
            _require_listable(path)
            for file, link in walked(absolute):
                if link is not None:
                    found.links[file] = link
                elif file not in seen:
                    seen.add(file)
                    found.files.append(file)
        elif os.path.lexists(absolute):
            found.explicit.add(absolute)
            if absolute not in seen:
                seen.add(absolute)
                found.files.append(absolute)
        else:
            raise PathError(f"{path}: {_why_missing(absolute)}")
    return found


def _require_listable(path: str) -> None:
    try:
        os.scandir(path).close()
    except OSError as error:
        raise PathError(f"{path}: the folder cannot be listed: {error.strerror}") from None


def _why_missing(path: str) -> str:
    try:
        os.lstat(path)
    except PermissionError as error:
        return f"it cannot be looked at: {error.strerror}"
    except OSError:
        pass
    return "no such file or directory"


def drop_excluded(found: Found, config_of: Callable[[str], Config]) -> None:
    """Leave out the files that were named themselves and are excluded by their configuration, or in a folder that is."""
    found.files = [path for path in found.files if path not in found.explicit or not _is_configured_out(path, config_of)]


def _is_configured_out(path: str, config_of: Callable[[str], Config]) -> bool:
    folder = os.path.dirname(path)
    base = config_of(folder).directory or os.getcwd()
    steps = [path]
    while folder != base and folder.startswith(base.rstrip(os.sep) + os.sep):
        steps.append(folder)
        folder = os.path.dirname(folder)
    return any(
        _is_excluded(step, step != path, _exclude_spec(config_of(os.path.dirname(step))), base, []) for step in reversed(steps)
    )


def walk(root: str, config_of: Callable[[str], Config], folders: Folders) -> Iterator[tuple[str, str | None]]:
    """The Python files below a directory; for a symbolic link also the file that it leads to.

    Linked directories are not entered, so loops end and nothing outside of the tree is visited. A pattern that matches
    `root` itself does not count, because somebody asked for it. What directories hold is noted in `folders`.
    """
    patterns = _Patterns(root, config_of, folders)
    pending: list[tuple[str, Specs]] = [(root, patterns.outer)]
    while pending:
        directory, specs = pending.pop()
        try:
            with os.scandir(directory) as listing:
                entries = sorted(listing, key=attrgetter("name"))
        except OSError as error:
            folders.closed[directory] = error.strerror or str(error)
            continue
        folders.listed(directory, [entry.name for entry in entries])
        level = patterns.level(directory, specs)
        inner: list[tuple[str, Specs]] = []
        for entry in entries:
            is_directory = entry.is_dir(follow_symlinks=False)
            if not is_directory and not entry.name.endswith((".py", ".pyw", SUFFIX)):
                continue
            if _is_excluded(entry.path, is_directory, *level):
                continue
            if is_directory:
                inner.append((entry.path, level.specs))
            elif entry.is_symlink():
                target = os.path.realpath(entry.path)
                if os.path.isfile(target):
                    yield entry.path, target
            elif entry.is_file():
                yield entry.path, None
        pending += reversed(inner)


def is_left_out(path: str, root: str, config_of: Callable[[str], Config], folders: Folders) -> bool:
    """Whether `walk` of a directory leaves out the file at a path below it, or would if the file were there."""
    patterns = _Patterns(root, config_of, folders)
    directory, specs = root, patterns.outer
    *inner, name = os.path.relpath(path, root).split(os.sep)
    for folder in inner:
        level = patterns.level(directory, specs)
        directory, specs = os.path.join(directory, folder), level.specs
        if _is_excluded(directory, True, *level):
            return True
    return _is_excluded(os.path.join(directory, name), False, *patterns.level(directory, specs))


Specs = list[tuple[str, Ignores]]
"""What .gitignore files say, each with its directory, from the outside in."""


class _Level(NamedTuple):
    """What leaves out entries of one directory: patterns, the directory that they are relative to, .gitignore files."""

    excludes: Ignores
    base: str
    specs: Specs


class _Patterns:
    """What leaves out files below `root`. A pattern that matches `root` itself does not count."""

    def __init__(self, root: str, config_of: Callable[[str], Config], folders: Folders) -> None:
        self._root, self._config_of, self._folders = root, config_of, folders
        config = config_of(root)
        outer = list(_ignore_specs_above(root)) if config.respect_gitignore else []
        self._asked_for = _is_excluded(root, True, _exclude_spec(config), config.directory or root, outer)
        self.outer: Specs = [] if self._asked_for else outer

    def level(self, directory: str, specs: Specs) -> _Level:
        """What counts in a directory; `specs`: what counts above it."""
        config = self._config_of(directory)
        if config.respect_gitignore and self._folders.holds(directory, ".gitignore"):
            spec = _read_spec(os.path.join(directory, ".gitignore"))
            specs = [*specs, (directory, spec)] if spec is not None else specs
        return _Level(_exclude_spec(config), self._root if self._asked_for else config.directory or self._root, specs)


def _is_excluded(path: str, is_directory: bool, excludes: Ignores, base: str, specs: Specs) -> bool:
    mark = "/" if is_directory else ""
    if excludes.verdict(_relative(path, base) + mark):
        return True
    for directory, spec in reversed(specs):
        verdict = spec.verdict(_relative(path, directory) + mark)
        if verdict is not None:
            return verdict
    return False


def _relative(path: str, base: str) -> str:
    prefix = base.rstrip(os.sep) + os.sep
    relative = path.removeprefix(prefix) if path.startswith(prefix) else os.path.relpath(path, base)
    return relative.replace(os.sep, "/")


def _exclude_spec(config: Config) -> Ignores:
    patterns = (*(config.exclude or DEFAULT_EXCLUDES), *config.extend_exclude)
    found = _SPECS.get(patterns)
    if found is None:
        found = _SPECS[patterns] = Ignores(patterns)
    return found


_SPECS: dict[tuple[str, ...], Ignores] = {}


def _ignore_specs_above(directory: str) -> Iterator[tuple[str, Ignores]]:
    """The .gitignore files between the repository's top and a directory, from the outside in."""
    found: list[tuple[str, Ignores]] = []
    current = directory
    while not os.path.exists(os.path.join(current, ".git")):
        parent = os.path.dirname(current)
        if parent == current:
            return
        current = parent
        spec = _read_spec(os.path.join(current, ".gitignore"))
        if spec is not None:
            found.append((current, spec))
    exclude = _read_spec(os.path.join(current, ".git", "info", "exclude"))
    if exclude is not None:
        found.append((current, exclude))
    yield from reversed(found)


def _read_spec(path: str) -> Ignores | None:
    data = read_file(path)
    return Ignores(data.decode("utf-8", "replace").splitlines(), strict=False) if data is not None else None
