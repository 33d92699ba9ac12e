"""Configuration: `[tool.perflint]` in pyproject.toml, or perflint.toml, nearest to the linted file."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from packaging.version import InvalidVersion, Version

from perflint.rule import Category, Rule, Severity

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
    runtime: bool = False
    unsafe_fixes: bool = False
    respect_gitignore: bool = True
    output_format: str | None = None
    target_versions: Mapping[str, Version] = field(default_factory=dict)

    @property
    def directory(self) -> str | None:
        """The directory that paths in the configuration are relative to."""
        return os.path.dirname(self.path) if self.path is not None else None


_KEYS = {
    "select": "names",
    "extend-select": "names",
    "ignore": "names",
    "exclude": "names",
    "extend-exclude": "names",
    "per-file-ignores": "table",
    "runtime": "flag",
    "unsafe-fixes": "flag",
    "respect-gitignore": "flag",
    "output-format": "text",
    "target-versions": "versions",
}


def load(path: str) -> Config:
    """Read a configuration file.

    Raises:
        ConfigError: the file cannot be read, is no TOML, has an unknown key or a value of the wrong type.

    """
    try:
        with open(path, "rb") as handle:
            content = tomllib.load(handle)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: no valid TOML: {error}") from None
    if os.path.basename(path) == "pyproject.toml":
        tool = content.get("tool", {})
        content = tool.get("perflint", {}) if isinstance(tool, dict) else {}
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: `tool.perflint` must be a table")
    return parse(content, path)


def parse(content: Mapping[str, Any], path: str) -> Config:
    """Check and convert the settings of a table."""
    values: dict[str, Any] = {}
    for key, value in content.items():
        kind = _KEYS.get(key)
        if kind is None:
            near = difflib.get_close_matches(key.replace("_", "-"), _KEYS, 1)
            hint = f"; did you mean `{near[0]}`?" if near else f"; valid keys are {', '.join(sorted(_KEYS))}"
            raise ConfigError(f"{path}: unknown key `{key}`{hint}")
        values[key.replace("-", "_")] = _converted(key, value, kind, path)
    return Config(path=path, **values)


def _converted(key: str, value: Any, kind: str, path: str) -> Any:
    match kind:
        case "names" if isinstance(value, list) and all(isinstance(v, str) for v in value):
            return tuple(value)
        case "flag" if isinstance(value, bool):
            return value
        case "text" if isinstance(value, str):
            return value
        case "table" if isinstance(value, dict):
            return {pattern: _converted(key, names, "names", path) for pattern, names in value.items()}
        case "versions" if isinstance(value, dict):
            try:
                return {package: Version(str(version)) for package, version in value.items()}
            except InvalidVersion as error:
                raise ConfigError(f"{path}: `{key}`: {error}") from None
    expected = {
        "names": "a list of strings",
        "flag": "true or false",
        "text": "a string",
        "table": "a table of lists",
        "versions": "a table of versions",
    }[kind]
    raise ConfigError(f"{path}: `{key}` must be {expected}")


def find(directory: str) -> str | None:
    """The nearest configuration file at or above a directory; a pyproject.toml counts if it has `[tool.perflint]`."""
    current = os.path.abspath(directory)
    while True:
        for name in FILE_NAMES:
            path = os.path.join(current, name)
            if os.path.isfile(path) and (name == "perflint.toml" or _has_table(path)):
                return path
        parent = os.path.dirname(current)
        if parent == current:
            return None
        current = parent


def _has_table(path: str) -> bool:
    try:
        with open(path, "rb") as handle:
            text = handle.read()
    except OSError:
        return True  # let `load` say what is wrong
    try:
        tomllib.loads(text.decode("utf-8", "replace"))
    except tomllib.TOMLDecodeError:
        return True  # a broken pyproject.toml is an error, not a reason to look further up
    return re.search(rb"^\s*\[\s*tool\s*\.\s*[\"']?perflint\b", text, re.M) is not None


class Configurations:
    """Configurations by directory. `fixed` replaces all of them; `overrides` come from the command line."""

    def __init__(self, fixed: Config | None, overrides: Mapping[str, Any]) -> None:
        self._fixed, self._overrides = fixed, overrides
        self._known: dict[str, Config] = {}
        self._loaded: dict[str, Config] = {}

    def of(self, directory: str) -> Config:
        """The configuration for the files of a directory.

        Raises:
            ConfigError: the nearest configuration file is unusable.

        """
        found = self._known.get(directory)
        if found is None:
            found = self._known[directory] = replace(self._base(directory), **self._overrides)
        return found

    def _base(self, directory: str) -> Config:
        if self._fixed is not None:
            return self._fixed
        path = find(directory)
        if path is None:
            return Config()
        if path not in self._loaded:
            self._loaded[path] = load(path)
        return self._loaded[path]


def selected(rules: Sequence[Rule], config: Config) -> list[Rule]:
    """The rules that a configuration selects.

    Names, categories and `all` may be given. By default errors and warnings run, advice does not.

    Raises:
        ConfigError: a name that is neither a rule nor a group.

    """
    groups = {category.value for category in Category} | {"all"}
    names = {rule.name for rule in rules} | groups
    given = (*config.select, *config.extend_select, *config.ignore, *(n for v in config.per_file_ignores.values() for n in v))
    for name in given:
        require_known(name, names)
    chosen = (
        [r for r in rules if _in(r, config.select)] if config.select else [r for r in rules if r.severity is not Severity.INFO]
    )
    chosen += [r for r in rules if _in(r, config.extend_select) and r not in chosen]
    return sorted((r for r in chosen if not _in(r, config.ignore)), key=lambda rule: rule.name)


def require_known(name: str, names: Iterable[str]) -> None:
    """Raise `ConfigError` with the nearest name if `name` is unknown."""
    known = set(names) | ENGINE_FINDINGS
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean `{near[0]}`?" if near else "; `perflint rules` lists them"
        raise ConfigError(f"no rule or group is named `{name}`{hint}")


ENGINE_FINDINGS = {"invalid-syntax", "unreadable-file", "unused-suppression"}


def _in(rule: Rule, names: Iterable[str]) -> bool:
    return any(name in (rule.name, rule.category.value, "all") for name in names)
