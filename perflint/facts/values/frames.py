"""What the parts of the inference ask each other: calls, classes and callers know its questions, not how it answers them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import Flow
from perflint.facts.values.solver import Solver
from perflint.facts.values.values import Alternative, FunctionRef, Place, Value
from perflint.project.project import Project
from perflint.source.records import dataclass
from perflint.source.syntax import Module, Scope

MAX_DEPTH: Final = 4
"""How many function borders one question may cross."""


@dataclass(eq=False, frozen=True)
class Frame:
    """A scope with some of its parameters bound; the others come from the call sites."""

    scope: Scope
    arguments: tuple[tuple[str, Value], ...]
    depth: int

    def argument(self, name: str) -> Value | None:
        return next((value for known, value in self.arguments if known == name), None)


class Inferring(Protocol):
    """Answers questions about one project."""

    project: Project
    solver: Solver

    @property
    def apart(self) -> Inferring | None:
        """An inference that knows of no heirs of a class, in which they are found; None for that one itself.

        Were they found by whoever asks for them, they would be part of each cycle of questions about what a method's callers
        pass, and be found again for each: 28 times for a class of timm.
        """

    def value(self, scope: Scope, node: ast.expr) -> Value:
        """What `node`, an expression of `scope`, may evaluate to."""

    def frame(self, scope: Scope, arguments: Iterable[tuple[str, Value]] = (), depth: int = MAX_DEPTH) -> Frame:
        """The frame of a scope. The same arguments give the same frame."""

    def solve(self, key: object, compute: Callable[[], Value]) -> Value:
        """`compute()`, remembered under `key`; `NOTHING` when it asks for itself."""

    def infer(self, node: ast.expr, frame: Frame) -> Value:
        """What `node` may evaluate to in `frame`."""

    def known(self, node: ast.expr, frame: Frame) -> Value:
        """Like `infer`, but a cycle counts as not known: for operands of an operation that changes the value."""

    def definition(self, definition: Definition, frame: Frame, flow: Flow) -> Value:
        """The value that a definition binds."""

    def parameter(self, frame: Frame, name: str) -> Value:
        """The value of a parameter: what this frame binds, else what the call sites pass."""

    def module_name(self, module: Module, name: str, depth: int) -> Value:
        """The value of a module's global variable, joined over all its assignments."""

    def reference(self, scope: Scope, receiver: Value | None = None) -> Value:
        """What a function's name gives: the function, or also what its decorators put in its place."""

    def member(self, base: Alternative, name: str, depth: int) -> Value:
        """The attribute `name` of an alternative."""

    def element(self, value: Value, depth: int = MAX_DEPTH) -> Value:
        """What iterating over a value gives."""

    def argument_places(self, node: ast.Call, frame: Frame) -> list[Place]:
        """Where the tensors among a call's arguments are."""

    def call(self, node: ast.Call, frame: Frame) -> Value:
        """What a call returns."""

    def inline(self, function: FunctionRef, node: ast.Call, frame: Frame) -> Value:
        """What a project function returns for the arguments of this call."""

    def bound(self, method: Scope, receiver: Alternative, depth: int) -> Frame | None:
        """The frame of a method with nothing known but its receiver."""

    def returned(self, frame: Frame) -> Value:
        """What a function returns in a frame."""
