"""Texts that stand for code and other texts."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache

from perflint.project.files import text_digest


def code_digest(packages: Iterable[str]) -> str:
    """A text that stands for all code that findings depend on: perflint, rule packs by package, LibCST and Python.

    Of LibCST it is the version that counts.
    """
    return digest_of([sys.version, sys.platform, _digest_of_sources(frozenset(packages))])


@cache
def _digest_of_sources(packages: frozenset[str]) -> str:
    """Worked out once: a process runs the code that it found at its start."""
    parts: list[str] = []
    for name in ("perflint", *sorted(packages)):
        for folder in _folders(name):
            for path in _sources(folder):
                with open(path, "rb", buffering=0) as handle:
                    parts += [path[len(folder) :], text_digest(handle.read())]
    for folder in _folders("libcst"):
        with suppress(OSError), open(os.path.join(folder, "_version.py"), "rb") as handle:
            parts.append(text_digest(handle.read()))
    return digest_of(parts)


def _folders(package: str) -> Sequence[str]:
    spec = importlib.util.find_spec(package)
    return (spec.submodule_search_locations or [os.path.dirname(spec.origin or "")]) if spec is not None else ()


def _sources(folder: str) -> Iterator[str]:
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (os.path.join(directory, name) for name in sorted(names) if name.endswith(".py"))


def digest_of(parts: Iterable[str]) -> str:
    """A text that stands for several."""
    return text_digest("\0".join(parts).encode("utf-8", "surrogateescape"))
