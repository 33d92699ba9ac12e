"""What the configuration files of a project say, by the names of their settings: found line by line, nothing is parsed."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import islice

from perflint.project.files import read_file
from perflint.source.words import made

_SUFFIXES = (".yaml", ".yml", ".json")
_PYTHON = made(r"(?:^|[/_])(?:configs?|cfgs?|conf|defaults?|options?|settings|hparams)(?:[/_.]|\.py$)", re.I)
_LINE = made(
    rb"^[ \t]*(?:-[ \t]+)?[\"']?([A-Za-z_]\w*)[\"']?[ \t]*:[ \t]*([^\s#,{}\[\]]+)[ \t]*,?[ \t]*(?:#[^\r\n]*)?\r?$", re.M
)
_COMMAND = made(
    rb"(?<!-)--(\w[\w-]{0,80})"
    rb"(?:[ \t]+|=|[\"'][ \t]*,\s*[\"']|[\"']?[ \t]*,?[ \t]*\r?\n[ \t]*-[ \t]+)[\"']?((?!-)[^\s#,\"'{}\[\]]+)"
)
"""An option and its value in a command: in one line, or in a list of its words."""
_DEVICE = made(rb"^[ \t]*(?:-[ \t]+)?[\"']?device[\"']?[ \t]*[:=][ \t]*[\"']?([\w:]+)", re.M)
_ASSIGNED = made(rb"(?:\.(\w+)[ \t]*=|[\"'](\w+)[\"'][ \t]*(?::|\][ \t]*=))[ \t]*([\w.+-]+|[\"'\[({])")
_OPTION = made(rb"add_argument\(\s*(?:[\"']-\w+[\"']\s*,\s*)?[\"']--([\w-]+)[\"']((?:[^()]|\([^()]{0,300}\)){0,900})\)")
_DEFAULT = made(rb"\bdefault\s*=\s*([\w.+-]+|[\"'\[({])")
_SWITCH = made(rb"\baction\s*=\s*[\"']store_(true|false)[\"']")
_SET = made(rb"\bset_defaults\(([^()]{0,900})\)")
_GIVEN = made(rb"(\w+)\s*=\s*([\w.+-]+|[\"'\[({])")
_FOLDER = made(r"conf|cfg|option|setting|param|yaml|yml|json|exp", re.I)
"""Folders that hold configuration files, whether there is Python code beside them or not."""
_LEFT_OUT = frozenset(("node_modules", "outputs", "wandb", "logs", "runs", "results", "checkpoints"))
MAX_FILES = 300
"""How many configuration files are looked at."""
MAX_ENTRIES = 10_000
"""How many entries of folders are looked at: some hold the images of a dataset."""
MAX_MODULES = 500
"""In a project with more Python files, these are not looked at."""
_MAX_BYTES = 200_000
_WORDS: dict[bytes, bool | None] = {
    **dict.fromkeys((b"true", b"yes", b"on"), True),
    **dict.fromkeys((b"false", b"no", b"off"), False),
    **dict.fromkeys((b"null", b"none", b"~"), None),
}


def settings(root: str, modules: Sequence[tuple[str, bytes]]) -> Mapping[str, frozenset[str]]:
    """The values that the files give each setting, as Python writes them, `?` for one that is no number, truth or None.

    modules: Python files with their texts: the defaults of options count, too, and what files of such names assign
    (`cfg.LOSS.AUX = False`).
    """
    found: dict[str, set[str]] = {}
    instead: dict[str, set[str]] = {}
    folders = {os.path.dirname(path) for path, _ in modules}
    for path in small_files(root, folders, lambda name: name.endswith(_SUFFIXES), _FOLDER):
        text = read_file(path) or b""
        for name, value in _LINE.findall(text):
            found.setdefault(name.decode(), set()).add(_spelt(value))
        for option, value in _COMMAND.findall(text) if b"--" in text else ():
            found.setdefault(option.decode().replace("-", "_"), set()).add(_spelt(value))
    for path, text in modules:
        for option, rest in _OPTION.findall(text) if b"add_argument" in text else ():
            found.setdefault(option.decode().replace("-", "_"), set()).add(_default(rest))
        if _PYTHON.search(os.path.relpath(path, root).replace(os.sep, "/")):
            for attribute, key, value in _ASSIGNED.findall(text):
                found.setdefault((attribute or key).decode(), set()).add(_spelt(value))
        for given in _SET.findall(text) if b"set_defaults" in text else ():
            for name, value in _GIVEN.findall(given):
                instead.setdefault(name.decode(), set()).add(_spelt(value))
    return {name: frozenset(values) for name, values in {**found, **instead}.items()}


def configuration_files(root: str, with_code: Set[str]) -> list[str]:
    """The configuration files beside Python code, and in folders called like that; with_code: the folders that hold code."""
    return small_files(root, with_code, lambda name: name.endswith((*_SUFFIXES, ".toml")), _FOLDER)


def devices(root: str, folders: Set[str]) -> frozenset[str]:
    """What configuration files say under `device`, in lower case."""
    files = configuration_files(root, folders)
    return frozenset(found.decode().lower() for path in files for found in _DEVICE.findall(read_file(path) or b""))


def _default(option: bytes) -> str:
    """What an option is if nobody gives it."""
    default, switch = _DEFAULT.search(option), _SWITCH.search(option)
    if default is not None:
        return _spelt(default[1])
    return repr(switch[1] == b"false") if switch is not None else "?"


def _spelt(value: bytes) -> str:
    word = value.strip(b"\"'").lower()
    if word in _WORDS:
        return repr(_WORDS[word])
    try:
        number = float(word)
    except ValueError:
        return "?"
    return repr(number) if math.isfinite(number) else "?"


def small_files(root: str, with_code: Set[str], is_wanted: Callable[[str], object], folder_names: re.Pattern[str]) -> list[str]:
    """The files beside Python code, in folders called like that, and in what these hold; is_wanted: a look at a file's name."""
    found: list[str] = []
    folders, left = [root, *sorted(with_code - {root})], MAX_ENTRIES
    for folder in folders:
        entries = _entries(folder, left)
        left -= len(entries)
        inside = folder_names.search(os.path.relpath(folder, root)) is not None
        for entry in entries:
            if _is_folder(entry):
                wanted = (inside or folder_names.search(entry.name)) and entry.path not in folders
                if wanted and not entry.name.startswith((".", "_")) and entry.name.lower() not in _LEFT_OUT:
                    folders.append(entry.path)
            elif is_wanted(entry.name) and _is_small(entry.path):
                found.append(entry.path)
    return found[:MAX_FILES]


def _entries(folder: str, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, max(most, 0)), key=lambda entry: entry.name)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_small(path: str) -> bool:
    try:
        return os.path.getsize(path) <= _MAX_BYTES
    except OSError:
        return False
