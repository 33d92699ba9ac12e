"""What shows that a folder is a project of its own, and what its setup.py installs."""

from __future__ import annotations

import ast
import os
import re

from perflint.project.files import read_file
from perflint.source.words import made

LICENSE, INSTALLED, README = "license", "setup", "readme"
_LICENSE = made(r"(?:licen[sc]e|copying)(?:\.\w+)?", re.I)
_INSTALLS = frozenset(("setup.py", "pyproject.toml"))
_README = made(r"readme(?:\.\w+)?", re.I)
_PUBLISHED = made(rb"git clone|@(?:in)?(?:proceedings|article|misc|software|unpublished)\b", re.I)
"""How the README of a project tells where to get it, or how to cite it: that of a folder of code need not."""


def mark_of_project(folder: str) -> str:
    """What shows that a folder is a project of its own: a license, what installs it, or its README; nothing if nothing does."""
    try:
        names = os.listdir(folder)
    except OSError:
        return ""
    if any(map(_LICENSE.fullmatch, names)):
        return LICENSE
    if not _INSTALLS.isdisjoint(names):
        return INSTALLED
    readmes = (read_file(os.path.join(folder, name)) or b"" for name in names if _README.fullmatch(name))
    return README if any(map(_PUBLISHED.search, readmes)) else ""


def left_out_packages(setup: bytes) -> list[str]:
    """The patterns of packages that a setup.py leaves out: `find_packages(exclude=["trainers"])`."""
    if b"exclude" not in setup:
        return []
    try:
        tree = ast.parse(setup)
    except (SyntaxError, ValueError, RecursionError):
        return []
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    given = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "exclude"]
    strings = (part.value for value in given for part in ast.walk(value) if isinstance(part, ast.Constant))
    return [value for value in strings if isinstance(value, str)]
