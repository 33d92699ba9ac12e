"""What a random program is written with: choices, names, lines and blocks."""

from __future__ import annotations

import ast
import contextlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from fuzz.training_helpers import BREAKS
from perflint.rule.obligations import Kind

T = TypeVar("T")

_MARK = re.compile("\0([a-z-]+)\0")

_LIBRARY = (Path(__file__).parent.parent / "training_helpers.py").read_text(encoding="utf-8")
HELPERS = {
    node.name: f"{ast.get_source_segment(_LIBRARY, node)}\n"
    for node in ast.parse(_LIBRARY).body
    if isinstance(node, (ast.FunctionDef, ast.ClassDef))
}
"""Functions and classes that programs import from their second module, or define themselves."""


class Program(NamedTuple):
    """A program: its files by name, and the assumptions that are false in it."""

    files: dict[str, str]
    breaks: frozenset[Kind]


def breaking(kind: Kind, text: str) -> str:
    """Code in which an assumption is false: the program that gets it says so."""
    return f"\0{kind.value}\0{text}"


@dataclass
class Env:
    """What is bound where the next statement goes."""

    scalars: list[str] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    totals: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    optimizers: list[str] = field(default_factory=list)
    step: str | None = None
    size: str | None = None
    is_loop: bool = False
    is_function: bool = False
    owner: str | None = None

    def inner(self) -> Env:
        """The same for a block whose own names end with it."""
        lists = {name: list(value) for name, value in vars(self).items() if isinstance(value, list)}
        return replace(self, **lists)  # type: ignore[arg-type]  # the values are the lists of the fields


class Words:
    """Writes one program, choice by choice."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.depth = 0
        self.counter = 0
        self.breaks: set[Kind] = set()
        self.has_module = self.rng.random() < 0.6
        self.mayhem = self.rng.choice([0.0, 0.1, 0.1, 0.25, 0.5])
        """How often a disturbance stands between two statements."""

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.rng.random() * len(options))]

    def name(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def helper(self, name: str) -> str:
        """The name of a helper, which the program gets if its text speaks of it."""
        assert name in HELPERS
        return breaking(Kind(BREAKS[name]), name) if name in BREAKS else name

    def line(self, text: str) -> None:
        self.breaks.update(map(Kind, _MARK.findall(text)))
        text = _MARK.sub("", text)
        self.lines.append("    " * self.depth + text if text else "")

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self.depth += 1
        at = len(self.lines)
        yield
        if len(self.lines) == at:
            self.line("pass")
        self.depth -= 1
