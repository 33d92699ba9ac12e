"""Programs in memory, and questions about them: source text in, fact out.

A line that ends with `#?` is asked about: the expression that stands on it as a statement, or one named by its text.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.values.values import (
    Alternative,
    Batch,
    ClassRef,
    Device,
    Elements,
    External,
    FunctionRef,
    Instance,
    Literal,
    Mapping,
    ModuleRef,
    Number,
    Object,
    Output,
    Sequence,
    Tensor,
    Text,
    Value,
)
from perflint.project.project import Project
from perflint.source.syntax import Class, Module, Scope

ROOT = "/project"


class Program:
    """Files that exist in memory only, and the facts about them. `main.py` is the one that questions are about."""

    def __init__(self, main: str, files: dict[str, str] | None = None) -> None:
        texts = {"main.py": main, **(files or {})}
        self.data = {f"{ROOT}/{name}": textwrap.dedent(text).encode() for name, text in texts.items()}
        self.project = Project(ROOT, self.data, reader=self.data.get)
        self.facts = Facts(self.project)

    def module(self, name: str = "main.py") -> Module:
        """A file."""
        module = self.project.module(f"{ROOT}/{name}")
        assert module is not None, f"{name} does not parse"
        return module

    def scopes(self) -> Iterator[Scope]:
        """All scopes of all files, inner functions included."""
        for path in sorted(self.data):
            module = self.project.module(path)
            pending = [module.top, *module.functions()] if module is not None else []
            while pending:
                scope = pending.pop(0)
                yield scope
                flow = flow_of(scope)
                pending += [flow.inner_scope(node) for node in flow.inner]

    def scope(self, qualname: str, file: str = "main.py") -> Scope:
        """A function by its qualified name; "" is the module's own code."""
        return next(s for s in self.scopes() if s.qualname == qualname and s.module is self.module(file))

    def cls(self, name: str, file: str = "main.py") -> Class:
        """A class by its qualified name."""
        return self.module(file).classes[name]

    def flow(self, qualname: str = "") -> Flow:
        """The flow of a scope."""
        return flow_of(self.scope(qualname))

    def at(self, text: str = "", mark: int = 1) -> tuple[Scope, ast.expr]:
        """The expression on the mark-th line that ends with `#?`: the first one with this text, or all of the line."""
        path, row = self._marked()[mark - 1]
        for scope in self.scopes():
            if scope.module.source.path != path:
                continue
            for node, parent in flow_of(scope).parent.items():
                if isinstance(node, ast.expr) and node.lineno == row:
                    if ast.unparse(node) == text or (not text and isinstance(parent, ast.Expr)):
                        return scope, node
        raise AssertionError(f"`{text}` does not stand on row {row} of {path}")

    def _marked(self) -> list[tuple[str, int]]:
        return [
            (path, row)
            for path, data in self.data.items()
            for row, line in enumerate(data.decode().split("\n"), 1)
            if line.rstrip().endswith("#?")
        ]

    def value(self, text: str = "", mark: int = 1) -> Value:
        """What a marked expression may evaluate to."""
        return self.facts.inference.value(*self.at(text, mark))

    def said(self, text: str = "", mark: int = 1) -> str:
        """The value of a marked expression in words."""
        return said(self.value(text, mark))


def said(value: Value) -> str:
    """A value in words: its alternatives, and `?` if there may be others."""
    return " | ".join([*sorted(map(_word, value.alternatives)), *(["?"] if value.open else [])]) or "nothing"


def _word(alternative: Alternative) -> str:
    match alternative:
        case Literal(value):
            return repr(value)
        case Text(prefix):
            return f"text {prefix}".strip()
        case Number(kind):
            return kind or "number"
        case Tensor(place) | Batch(place=place) | Output(place) | Device(place):
            return f"{type(alternative).__name__.lower()} on {place.value}"
        case Object(qualname):
            return f"object {qualname}"
        case Instance(cls) | ClassRef(cls):
            return f"{type(alternative).__name__.lower()} {cls.name}"
        case FunctionRef(scope):
            return f"def {scope.qualname}"
        case ModuleRef(module):
            return f"module {module.name}"
        case External(qualname):
            return qualname
        case Sequence(items):
            return f"({', '.join(map(said, items))})"
        case Elements(element):
            return f"[{said(element)}]"
        case Mapping(items, rest):
            shown = [f"{key}: {said(item)}" for key, item in items] + ([f"...: {said(rest)}"] if rest != Value() else [])
            return f"{{{', '.join(shown)}}}"
    return type(alternative).__name__.lower()
