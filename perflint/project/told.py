"""What a project tells its users about how it is run: READMEs and other texts, shell scripts and job files."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from perflint.project.configured import small_files
from perflint.project.files import read_file
from perflint.source.words import made

_TOLD = made(r"readme(?:\.\w+)?|makefile|justfile|[\w. -]+\.(?:md|rst|sh|bash|slurm|sbatch|pbs|lsf|bat|cmd|ps1|txt)", re.I)
_FOLDER = made(r"script|shell|bash|doc|exp|run|example|tool|launch|job|slurm|sbatch|train|eval|bench|conf|cmd|command", re.I)
"""Folders that hold such files, whether there is Python code beside them or not."""
_SCRIPT = made(rb"(?<![\w./\\-])[\w./\\-]{1,200}\.(?:py|ipynb)\b")
_MODULE = made(rb"(?<![\w-])-m[ \t]+(?:[\w-]+[ \t]+-{1,2}[^\r\n]*[ \t]-m[ \t]+)?([\w.]*\w)")
_ENTERED = made(rb"(?:^|[\s;&|`(])cd[ \t]+['\"]?([\w./-]+)")
_LAUNCHES = made(rb"python|torchrun|accelerate|deepspeed|srun|bash|%run|usage", re.I)
"""What stands beside a file's own name where it says how it is run; a heading may have the name, too."""
_MIN_STEM = 5
"""A shorter name is no beginning of another."""
_CONTINUED = made(rb"\\[ \t]*\r?\n")
_ASSIGNED = made(rb"^[ \t]*(?:(?:export|set)[ \t]+)?(\w+)[ \t]{0,9}[:?]?=[ \t]{0,9}([^\r\n#]{0,300})(?:#[^\r\n]*)?\r?$", re.M)
_VARIABLE = made(rb"\$(?:(\w+)|\{(\w+)\}|\((\w+)\))")

Text = tuple[str, bytes]
"""A file and what stands in it."""


def telling_files(root: str, with_code: Set[str]) -> list[str]:
    """The texts beside Python code, and in folders called like that; with_code: the folders that hold code."""
    return small_files(root, with_code, _TOLD.fullmatch, _FOLDER)


def told(root: str, with_code: Set[str]) -> list[Text]:
    """What stands in such texts."""
    return [(path, read_file(path) or b"") for path in telling_files(root, with_code)]


def command_lines(texts: Iterable[bytes]) -> list[bytes]:
    """The lines by which Python programs are run, with what their variables hold; one that goes on in the next is one line."""
    lines = (line for text in texts for line in _filled_in(_CONTINUED.sub(b" ", text)).splitlines())
    return [line for line in lines if b".py" in line or b"python" in line]


def _filled_in(text: bytes) -> bytes:
    """A script or a Makefile with what its variables hold in their place, as far as each is assigned once."""
    if b"$" not in text:
        return text
    held: dict[bytes, bytes | None] = {}
    for name, value in _ASSIGNED.findall(text):
        held[name] = None if name in held else value.strip().strip(b"'\"")
    return _VARIABLE.sub(lambda used: held.get(used[1] or used[2] or used[3]) or used[0], text)


def named_scripts(root: str, texts: Iterable[Text], files: Sequence[Text]) -> Iterator[tuple[str, str]]:
    """The Python files that texts name as what is run, and that Python files name as texts, behind what names them."""
    places = _Places(root, [path for path, _ in files])
    for path, text in texts:
        named = [(script, False) for script in _SCRIPT.findall(text)] + [(module, True) for module in _MODULE.findall(text)]
        if named:
            bases = places.bases(path, _ENTERED.findall(text))
            yield from ((path, script) for name, dotted in dict.fromkeys(named) for script in places.meant(name, dotted, bases))
    for path, text in files:
        if b".py" not in text:
            continue
        bases = places.bases(path, ())
        for name in _SCRIPT.finditer(text):
            found = places.meant(name[0], False, bases)
            if path not in found or _LAUNCHES.search(text, text.rfind(b"\n", 0, name.start()) + 1, name.start()):
                yield from ((path, script) for script in found)


class _Places:
    """The Python files of a project by what commands call them."""

    def __init__(self, root: str, files: Sequence[str]) -> None:
        self._root, self._files = root, frozenset(files)
        self._folders: set[str] = {root}
        self._called: Mapping[str, list[str]] = defaultdict(list)
        for path in files:
            folder, name = os.path.split(path)
            self._called[os.path.basename(folder) if name == "__main__.py" else os.path.splitext(name)[0]].append(path)
            while folder not in self._folders and folder.startswith(root):
                self._folders.add(folder)
                folder = os.path.dirname(folder)

    def bases(self, path: str, entered: Iterable[bytes]) -> tuple[list[str], list[str]]:
        """Where the paths in a text may start: in its folder and those above, nearest first, or where it changes to."""
        folder = os.path.dirname(path)
        above = [folder]
        while above[-1] != self._root and above[-1].startswith(self._root):
            above.append(os.path.dirname(above[-1]))
        inside: dict[str, None] = {}
        for name in dict.fromkeys(entered):
            places = [os.path.normpath(os.path.join(base, name.decode())) for base in (*above, *inside)]
            inside.update(dict.fromkeys(place for place in places if place in self._folders))
        return above, list(inside)

    def meant(self, name: bytes, dotted: bool, bases: tuple[list[str], list[str]]) -> list[str]:
        """The files that a name means: those of this path, as seen from where it starts, or else of its longest end."""
        text = name.decode("utf-8", "replace").replace("\\", "/")
        parts = [
            part for part in (text.split(".") if dotted else os.path.splitext(text)[0].split("/")) if part not in ("", ".")
        ]
        called = self._called.get(parts[-1]) or self._renamed(parts[-1]) if parts else ()
        if not called:
            return []
        endings = (".py", ".ipynb", f"{os.sep}__main__.py")
        paths = [[os.path.normpath(os.path.join(base, *parts)) + end for end in endings] for base in (*bases[1], *bases[0])]
        fitting = [[path for path in some if path in self._files] for some in paths]
        entered = [path for some in fitting[: len(bases[1])] for path in some]
        nearest = next((some for some in fitting[len(bases[1]) :] if some), [])
        if entered or nearest:
            return [*entered, *nearest]
        first = f"{os.sep}{parts[0]}{os.sep}"
        if dotted and len(parts) > 1 and not any(first in path[len(self._root) :] for path in called):
            return []  # of an installed package
        ends = {path: _common_end(parts, path) for path in called}
        longest = [path for path in called if ends[path] == max(ends.values())]
        if max(ends.values()) == 0:
            around = ([path for path in longest if path.startswith(f"{base}{os.sep}")] for base in bases[0])
            return next((near for near in around if near), longest)
        outermost = min(path.count(os.sep) for path in longest)
        return [path for path in longest if path.count(os.sep) == outermost]

    def _renamed(self, stem: str) -> list[str]:
        """What a name that no file has may mean, if one file begins with it: `main_fer.py` is `main_fer2013.py` today."""
        longer = [path for name in self._called if name.startswith(stem) for path in self._called[name]]
        return longer if len(longer) == 1 and len(stem) >= _MIN_STEM else []


def _common_end(parts: list[str], path: str) -> int:
    """How many folders a path ends with, before its last name, that are those of a command."""
    folders = os.path.dirname(path).split(os.sep)
    if os.path.basename(path) == "__main__.py":
        folders.pop()
    pairs = zip(reversed(parts[:-1]), reversed(folders), strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), len(parts) - 1)
