"""What a loop over batches goes over, and what stays the same in all its rounds."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from perflint.facts.dataflow.definitions import Loop, path_of
from perflint.facts.dataflow.flow import Flow
from perflint.facts.dataflow.statement_names import bound_names, paths_in


class UnknownLoop(Exception):
    """A loop is not of the textbook's shape, or a statement in it of no known kind."""


class Head:
    """A loop's head. loader: what gives the batches. target: what a batch is bound to. index: the names of its number."""

    def __init__(self, statement: ast.For) -> None:
        self.loader, self.target = statement.iter, statement.target
        self.index: list[str] = []
        self.counted: tuple[ast.expr, ast.expr] | None = None
        """The `enumerate` that numbers the batches, and its target."""
        inner = self.loader
        while isinstance(inner, ast.Call) and inner.args:
            name = (path_of(inner.func) or "").rpartition(".")[2]
            if name == "enumerate" and isinstance(self.target, ast.Tuple) and len(self.target.elts) == 2:
                self.counted = (inner, self.target)
                self.index = list(bound_names(self.target.elts[0]))
                self.loader, self.target = inner.args[0], self.target.elts[1]
                break
            if name not in ("tqdm", "track"):
                break
            inner = inner.args[0]
        if isinstance(self.loader, ast.Call):
            if (path_of(self.loader.func) or "").rpartition(".")[2] in ("zip", "range", "trange", "enumerate"):
                raise UnknownLoop

    def counts(self, node: ast.expr) -> bool:
        """Whether an expression is the number of batches so far, from 1."""
        match node:
            case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=ast.Constant(value=1)) if [name] == self.index:
                call = self.counted[0] if self.counted is not None else None
                return isinstance(call, ast.Call) and len(call.args) == 1 and not call.keywords
        return False


def is_bound_in(flow: Flow, loop: Loop, paths: Iterable[str]) -> bool:
    """Whether a loop binds one of some names or paths, or what they begin with."""
    names = {begin for path in paths for begin in (path, path.partition(".")[0])}
    found = (d for name in names for d in flow.definitions_of(name))
    return any(d.value is loop.iterated or any(b is loop.block for b in d.block.ancestry()) for d in found)


def is_fixed_in(flow: Flow, loop: Loop, node: ast.expr) -> bool:
    """Whether an expression does nothing but read names, and the loop binds none of them."""
    runs = any(isinstance(n, (ast.Call, ast.NamedExpr, ast.Await)) for n in ast.walk(node))
    return not runs and not is_bound_in(flow, loop, paths_in(node))
