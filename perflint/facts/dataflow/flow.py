"""One pass over a scope: evaluation order, blocks, loops, and which definitions reach each use.

Nodes are numbered in the order in which Python evaluates them. A block is a stretch of code that runs together; block
`a` around block `b` means that whoever is in `b` has come through `a`. From these two come dominance and "between".
Reaching definitions are a structured abstract interpretation: branches join, a loop's head joins the way in with the
way back. Besides names, paths such as `self.loss` or `batch["img"]` are followed while nothing can have changed them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from perflint.facts.dataflow.definitions import Block, Definition, Loop, Notes, path_of
from perflint.facts.dataflow.statement_pass import StatementPass, may_swallow
from perflint.facts.operations.operations import Road
from perflint.source.nodes import walk
from perflint.source.scopes import class_body
from perflint.source.syntax import FunctionNode, Scope


class Flow(Notes):
    """What one pass over a scope found, and what follows from it. Built by `flow_of`."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.guards: dict[Block, bool] = {}
        """Which blocks run only now and then; filled by `guards.is_guard`."""
        self.skips: dict[ast.stmt, ast.If | None] = {}
        """For the first statement of a list: the guard that skips the rest of it; filled by `guards.skipped_by_guard`."""
        self.waiting: list[tuple[ast.expr, frozenset[Road]]] | None = None
        """Where the host may wait for the device, and by which roads; filled by `waiting_places.places`."""
        self.returned_parameters: frozenset[str] | None = None
        """The parameters on which the result may depend; filled by `bound_arguments.returned_parameters`."""
        self._siblings: dict[ast.stmt, list[ast.stmt]] = {}
        self._definitions_at: dict[ast.AST, list[Definition]] | None = None
        self._definitions_from: dict[ast.expr, list[Definition]] | None = None
        self._inner_scopes: dict[ast.AST, Scope] = {}
        StatementPass(self).run()

    def release(self) -> None:
        """Take the pass's objects apart, so that their memory is free at once; nobody may ask it again."""
        for inner in self._inner_scopes.values():
            inner.release()
        for loop in self.loops:
            loop.block.loop = loop.parent = None
        vars(self).clear()

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node belongs to."""
        while not isinstance(node, ast.stmt):
            node = self.parent[node]
        return node

    def siblings(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements of the block that a statement stands in, itself included."""
        if statement not in self._siblings:
            for body in statement_lists(self.parent[statement]):
                self._siblings.update(dict.fromkeys(body, body))
        return self._siblings.get(statement, [])

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, from the inside out, without the scope itself."""
        parents = self.parent
        while (parent := parents.get(node)) is not None:
            yield parent
            node = parent

    def loop(self, node: ast.AST) -> Loop | None:
        """The innermost loop around a node."""
        return self.block[node].loop

    def within(self, node: ast.AST, block: Block) -> bool:
        """Whether a node runs inside a block."""
        around: Block | None = self.block[node]
        while around is not None and around is not block:
            around = around.parent
        return around is not None

    def dominates(self, first: ast.AST, second: ast.AST) -> bool:
        """Whether `first` has always been evaluated when `second` is, in the same iteration."""
        return self.order[first] < self.order[second] and self.within(second, self.always(self.block[first]))

    @staticmethod
    def always(block: Block) -> Block:
        """The outermost block that runs `block` whenever it runs: a `with` adds nothing, unless it swallows exceptions."""
        while block.kind == "with" and block.parent is not None and not may_swallow(block.node):
            block = block.parent
        return block

    @staticmethod
    def home(block: Block) -> Block:
        """The block around `block` that an exception leaves when it leaves `block`, for code that may go on."""
        while block.parent is not None and block.kind not in ("try", "handler", "finally"):
            if block.kind == "with" and may_swallow(block.node):
                break
            block = block.parent
        return block

    def top(self, node: ast.AST, block: Block) -> ast.stmt | None:
        """The statement of `block` that holds `node`."""
        statement = self.statement(node)
        while self.block.get(statement) is not block:
            parent = self.parent.get(statement)
            if parent is None:
                return None
            statement = self.statement(parent)
        return statement

    def between(self, first: ast.AST, last: ast.AST) -> Iterator[tuple[int, int]]:
        """Ranges of order numbers that may run after `first` and before `last`, when `first` dominates `last`.

        A loop around `last` only runs again and again between them, so all of it counts.
        """
        yield self.order[first] + 1, self.order[last] - 1
        around_first = {id(loop) for loop in self.block[first].loops()}
        for loop in self.block[last].loops():
            if id(loop) not in around_first:
                yield self.extent(loop)

    def extent(self, loop: Loop) -> tuple[int, int]:
        """The first and last order number of a loop's body."""
        numbers = [self.order[n] for n, b in self.block.items() if n in self.order and b.loop and loop in b.loop.ancestry()]
        return (min(numbers), max(numbers)) if numbers else (0, -1)

    def calls_between(self, first: ast.AST, last: ast.AST) -> Iterator[ast.Call]:
        """Calls that may run after `first` and before `last`."""
        ranges = list(self.between(first, last))
        for call in self.calls:
            if any(low <= self.order[call] <= high for low, high in ranges):
                yield call

    def definitions_of(self, name: str) -> list[Definition]:
        """All definitions of a name or path in this scope."""
        return self.defined.get(name, [])

    @cached_property
    def deleted(self) -> frozenset[str]:
        """The names and paths that `del` takes away somewhere in the scope."""
        targets = (target for node in self.order if isinstance(node, ast.Delete) for target in node.targets)
        return frozenset(filter(None, map(path_of, targets)))

    def definitions_at(self, target: ast.AST) -> list[Definition]:
        """What a target, an alias or a statement binds."""
        if self._definitions_at is None:
            self._definitions_at = {}
            for definition in self.definitions:
                self._definitions_at.setdefault(definition.node, []).append(definition)
        return self._definitions_at.get(target, [])

    def definitions_from(self, value: ast.expr) -> list[Definition]:
        """The definitions that bind an expression or a part of what it gives."""
        if self._definitions_from is None:
            self._definitions_from = {}
            for definition in self.definitions:
                if definition.value is not None:
                    self._definitions_from.setdefault(definition.value, []).append(definition)
        return self._definitions_from.get(value, [])

    def binds_alone(self, name: ast.AST) -> bool:
        """Whether an assignment binds a name alone, or names one by one: no `self.history = losses = []`."""
        parent = self.parent.get(name)
        if isinstance(parent, (ast.Tuple, ast.List)):
            name, parent = parent, self.parent.get(parent)
        match parent:
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
                return target is name
        return False

    def inner_scope(self, node: FunctionNode | ast.Lambda) -> Scope:
        """The scope of a function or lambda that is written inside this one."""
        if node not in self._inner_scopes:
            name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
            qualname = f"{self.scope.qualname}.<locals>.{name}" if self.scope.qualname else name
            self._inner_scopes[node] = Scope(self.scope.module, qualname, node=node, parent=self.scope)
        return self._inner_scopes[node]

    def parts(self) -> Iterator[Scope]:
        """The scopes that are written inside this one: functions, lambdas, and the bodies of a function's classes."""
        yield from map(self.inner_scope, self.inner)
        for node in self.inner_classes:
            if node not in self._inner_scopes:
                self._inner_scopes[node] = class_body(self.scope, node)
            yield self._inner_scopes[node]


class Region:
    """Some statements of a scope with all that they hold. What it lists is in evaluation order.

    nodes: without those of inner functions. calls, definitions, stores, returns: as in `Flow`.
    """

    def __init__(self, flow: Flow, body: Iterable[ast.stmt]) -> None:
        held = [node for statement in body for node in walk(statement)]
        self._held = frozenset(held)
        order = flow.order
        self.nodes = sorted((node for node in held if node in order), key=order.__getitem__)
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.definitions = sorted((d for node in held for d in flow.definitions_at(node)), key=lambda d: d.order)
        self.stores = [
            node
            for node in self.nodes
            if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del))
        ]
        self.returns = [node for node in self.nodes if isinstance(node, ast.Return)]

    def __contains__(self, node: ast.AST) -> bool:
        return node in self._held


def flow_of(scope: Scope) -> Flow:
    """The flow of a scope, computed once.

    Raises:
        SyntaxProblem: the scope's text does not parse.

    """
    held = scope.flow_cache
    if held is None:
        held = scope.flow_cache = Flow(scope)
    assert isinstance(held, Flow)
    return held


def statement_lists(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of statements directly under a node."""
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield body
