"""Configuration: `[tool.perflint]` in pyproject.toml, or perflint.toml, nearest to the linted file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from perflint.project.files import may_read, require_readable
from perflint.project.folders import Folders
from perflint.project.settings import EXPECTED, SETTINGS, Kind
from perflint.source.records import dataclass

if TYPE_CHECKING:
    from packaging.version import Version

FILE_NAMES = ("perflint.toml", "pyproject.toml")


class ConfigError(Exception):
    """The configuration cannot be used. The message says where, what, and what to do."""


@dataclass(frozen=True)
class Config:
    """Settings for a run. `path` is the file that they come from."""

    path: str | None = None
    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    extend_exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    runtime: bool | None = None
    unsafe_fixes: bool = False
    assume: tuple[str, ...] = ()
    respect_gitignore: bool = True
    output_format: str | None = None
    cache_dir: str | None = None
    compiled: tuple[str, ...] = ()
    baseline: str | None = None
    docs_url: str | None = None
    target_versions: Mapping[str, Version] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def directory(self) -> str | None:
        """The directory that paths in the configuration are relative to."""
        return os.path.dirname(self.path) if self.path is not None else None

    @property
    def offered_runtime(self) -> bool | None:
        """`runtime`, and False where unsafe fixes are taken: then those that need no other package are the better ones."""
        return False if self.unsafe_fixes and self.runtime is None else self.runtime

    def resolved(self, path: str) -> str:
        """A configured path, made absolute."""
        return os.path.abspath(os.path.join(self.directory or os.getcwd(), os.path.expanduser(path)))


@dataclass(frozen=True)
class Options:
    """What a user's configuration lets rules do."""

    runtime: bool | None = None
    """Whether fixes may import `perflint_runtime`; None: they are offered, and rest on that."""
    assumed: frozenset[str] = frozenset()
    """The names of the assumptions that are declared, by `assume` and by `runtime`."""
    compiled: tuple[str, ...] = ()
    """Qualified names of functions and classes that programs elsewhere compile; with `*` of classes only."""
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of single rules, by rule and name; what is not here has its default."""


_ADDRESS = re.compile(r"(?:https?|file)://[!-~]+")


def load(path: str) -> Config:
    """Read a configuration file.

    Raises:
        ConfigError: the file cannot be read, is no TOML, has an unknown key or a value of the wrong type.

    """
    path = os.path.abspath(path)
    try:
        require_readable(path)
        with open(path, "rb") as handle:
            content = toml(handle.read())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: no valid TOML: {error}") from None
    if os.path.basename(path) == "pyproject.toml":
        tool = content.get("tool", {})
        content = tool.get("perflint", {}) if isinstance(tool, dict) else {}
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: `tool.perflint` must be a table")
    return parse(content, path)


def toml(text: bytes) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        ValueError: it is none.

    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text.decode("utf-8-sig"))  # with the mark that some editors of Windows write


def parse(content: Mapping[str, Any], path: str) -> Config:
    """Check and convert the settings of a table."""
    values: dict[str, Any] = {}
    for key, value in content.items():
        setting = SETTINGS.get(key)
        if setting is None:
            near = nearest(key.replace("_", "-"), SETTINGS)
            hint = f"; did you mean `{near}`?" if near else f"; valid keys are {', '.join(sorted(SETTINGS))}"
            raise ConfigError(f"{path}: unknown key `{key}`{hint}")
        values[key.replace("-", "_")] = _converted(key, value, setting.kind, path)
    if "assume" in values:
        from perflint.rule.assumptions import require_known

        try:
            require_known(values["assume"], path)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    return Config(path=path, **values)


def _converted(key: str, value: Any, kind: Kind, path: str) -> Any:
    match kind:
        case "names" if isinstance(value, list) and all(isinstance(v, str) for v in value):
            return tuple(value)
        case "flag" if isinstance(value, bool):
            return value
        case "text" if isinstance(value, str):
            return value
        case "address" if isinstance(value, str) and _ADDRESS.fullmatch(value):
            return value
        case "table" if isinstance(value, dict):
            return {pattern: _converted(key, names, "names", path) for pattern, names in value.items()}
        case "options" if isinstance(value, dict) and all(isinstance(table, dict) for table in value.values()):
            return value
        case "versions" if isinstance(value, dict) and all(isinstance(version, str) for version in value.values()):
            from packaging.version import InvalidVersion, Version

            try:
                return {package: Version(version) for package, version in value.items()}
            except InvalidVersion as error:
                raise ConfigError(f"{path}: `{key}`: {error}") from None
    raise ConfigError(f"{path}: `{key}` must be {EXPECTED[kind]}")


def configuration_in(directory: str, folders: Folders) -> str | None:
    """The configuration file in a directory; a pyproject.toml counts if it has `[tool.perflint]`.

    Raises:
        ConfigError: there are two.

    """
    own, shared = (os.path.join(directory, name) for name in FILE_NAMES)
    has_own, has_shared = (
        folders.holds(directory, name) and os.path.isfile(os.path.join(directory, name)) for name in FILE_NAMES
    )
    has_shared = has_shared and _has_table(shared)
    if has_own and has_shared:
        raise ConfigError(f"{own} and `[tool.perflint]` in {shared} both configure this folder; keep one of them")
    return own if has_own else shared if has_shared else None


def _has_table(path: str) -> bool:
    """Whether a pyproject.toml configures perflint. One that is broken where it may do so counts: `load` says what is wrong."""
    try:
        require_readable(path)
        with open(path, "rb") as handle:
            text = handle.read()
        if b"perflint" not in text:
            return False
        tool = toml(text).get("tool", {})
    except (OSError, ValueError, RecursionError):
        return True
    return not isinstance(tool, dict) or "perflint" in tool


_ADDED = ("extend_select", "ignore", "extend_exclude", "assume")


class Configurations:
    """Configurations by directory. `fixed` replaces all of them; `overrides` come from the command line.

    As in ruff, `--ignore` and `--extend-select` add to what is configured, and `--select` starts anew.
    """

    def __init__(self, fixed: Config | None, overrides: Mapping[str, Any], folders: Folders | None = None) -> None:
        self._fixed, self._overrides = fixed, overrides
        self._folders = folders or Folders()
        self._known: dict[str, Config] = {}
        self._loaded: dict[str | None, Config] = {}
        self._files: dict[str, str | None] = {}

    def of(self, directory: str) -> Config:
        """The configuration for the files of a directory.

        Raises:
            ConfigError: the nearest configuration file is unusable.

        """
        found = self._known.get(directory)
        if found is None:
            path = self._nearest(os.path.abspath(directory)) if self._fixed is None else None
            if path not in self._loaded:
                self._loaded[path] = self._completed(self._fixed or (load(path) if path is not None else Config()))
            found = self._known[directory] = self._loaded[path]
        return found

    def _completed(self, base: Config) -> Config:
        """A configuration with what the command line says."""
        if "select" in self._overrides:
            base = replace(base, extend_select=(), ignore=())
        added = {key: (*getattr(base, key), *self._overrides.get(key, ())) for key in _ADDED}
        return replace(base, **{**self._overrides, **added})

    def _nearest(self, directory: str) -> str | None:
        """The nearest configuration file at or above a directory."""
        if directory not in self._files:
            found, parent = configuration_in(directory, self._folders), os.path.dirname(directory)
            self._files[directory] = (
                self._nearest(parent) if found is None and parent != directory and may_read(parent) else found
            )
        return self._files[directory]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one was probably meant to be."""
    import difflib

    return next(iter(difflib.get_close_matches(name, known, 1)), None)
