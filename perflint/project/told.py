"""What a project tells its users about how it is run: READMEs and other texts, shell scripts and job files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence, Set

from perflint.project.configured import small_files
from perflint.project.files import read_file
from perflint.source.words import made

_TOLD = made(r"readme(?:\.\w+)?|makefile|justfile|[\w. -]+\.(?:md|rst|sh|bash|slurm|sbatch|pbs|lsf|bat|cmd|ps1|txt)", re.I)
_FOLDER = made(r"script|shell|bash|doc|exp|run|example|tool|launch|job|slurm|sbatch|train|eval|bench|conf|cmd|command", re.I)
"""Folders that hold such files, whether there is Python code beside them or not."""
_SCRIPT = made(rb"([\w-]+)\.(?:py|ipynb)\b")
_MODULE = made(rb"(?<![\w-])-m[ \t]+(?:[\w-]+[ \t]+-{1,2}[^\r\n]*[ \t]-m[ \t]+)?([\w.]+)")
_QUOTED = made(rb"['\"/ ]([\w-]+)\.py\b")
"""A script that a Python file starts, or names where it says how it is used."""
_CONTINUED = made(rb"\\[ \t]*\r?\n")


def told(root: str, with_code: Set[str]) -> list[bytes]:
    """The texts beside Python code, and in folders called like that; with_code: the folders that hold code."""
    return [read_file(path) or b"" for path in small_files(root, with_code, _TOLD.fullmatch, _FOLDER)]


def command_lines(texts: Iterable[bytes]) -> list[bytes]:
    """The lines by which Python programs are run; one that goes on in the next line is one line."""
    lines = (line for text in texts for line in _CONTINUED.sub(b" ", text).splitlines())
    return [line for line in lines if b".py" in line or b"python" in line]


def named_scripts(texts: Iterable[bytes], files: Sequence[tuple[str, bytes]]) -> Iterator[str]:
    """The Python files that texts name as what is run, and that Python files name as texts; files: paths with their texts."""
    names: set[bytes] = set()
    for text in texts:
        names.update(_SCRIPT.findall(text))
        names.update(module.rpartition(b".")[2] for module in _MODULE.findall(text))
    for _, text in files:
        names.update(_QUOTED.findall(text) if b".py" in text else ())
    for path, _ in files:
        folder, name = os.path.split(path)
        own = os.path.basename(folder) if name == "__main__.py" else os.path.splitext(name)[0]
        if own.encode() in names:
            yield path
