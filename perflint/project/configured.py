"""What the configuration files of a project say, by the names of their settings: found line by line, nothing is parsed."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping

from perflint.project.files import read_file
from perflint.source.words import made

_SUFFIXES = (".yaml", ".yml", ".json")
_PYTHON = made(r"(?:^|[/_])(?:configs?|cfgs?|conf|defaults?|options?|settings|hparams)(?:[/_.]|\.py$)", re.I)
_LINE = made(
    rb"^[ \t]*(?:-[ \t]+)?[\"']?([A-Za-z_]\w*)[\"']?[ \t]*:[ \t]*([^\s#,{}\[\]]+)[ \t]*,?[ \t]*(?:#[^\r\n]*)?\r?$", re.M
)
_ASSIGNED = made(rb"(?:\.(\w+)[ \t]*=|[\"'](\w+)[\"'][ \t]*(?::|\][ \t]*=))[ \t]*([\w.+-]+|[\"'\[({])")
_OPTION = made(rb"add_argument\(\s*(?:[\"']-\w+[\"']\s*,\s*)?[\"']--([\w-]+)[\"']((?:[^()]|\([^()]{0,300}\)){0,900})\)")
_DEFAULT = made(rb"\bdefault\s*=\s*([\w.+-]+|[\"'\[({])")
_SWITCH = made(rb"\baction\s*=\s*[\"']store_(true|false)[\"']")
_SET = made(rb"\bset_defaults\(([^()]{0,900})\)")
_GIVEN = made(rb"(\w+)\s*=\s*([\w.+-]+|[\"'\[({])")
_LEFT_OUT = frozenset(("node_modules", "outputs", "wandb", "logs", "runs", "results", "checkpoints", "data", "datasets"))
MAX_FILES = 300
"""How many configuration files are looked at."""
MAX_MODULES = 500
"""In a project with more Python files, these are not looked at."""
_MAX_BYTES = 200_000
_WORDS: dict[bytes, bool | None] = {
    **dict.fromkeys((b"true", b"yes", b"on"), True),
    **dict.fromkeys((b"false", b"no", b"off"), False),
    **dict.fromkeys((b"null", b"none", b"~"), None),
}


def settings(root: str, modules: Iterator[tuple[str, bytes]]) -> Mapping[str, frozenset[str]]:
    """The values that the files give each setting, as Python writes them, `?` for one that is no number, truth or None.

    modules: Python files with their texts: the defaults of options count, too, and what files of such names assign
    (`cfg.LOSS.AUX = False`).
    """
    found: dict[str, set[str]] = {}
    instead: dict[str, set[str]] = {}
    for path in _files(root):
        for name, value in _LINE.findall(read_file(path) or b""):
            found.setdefault(name.decode(), set()).add(_spelt(value))
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


def _files(root: str) -> Iterator[str]:
    count = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")) and name.lower() not in _LEFT_OUT)
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name.endswith(_SUFFIXES) and _is_small(path):
                count += 1
                if count > MAX_FILES:
                    return
                yield path


def _is_small(path: str) -> bool:
    try:
        return os.path.getsize(path) <= _MAX_BYTES
    except OSError:
        return False
