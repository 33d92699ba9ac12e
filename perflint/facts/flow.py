"""One pass over a scope: evaluation order, blocks, loops, and which definitions reach each use.

Nodes are numbered in the order in which Python evaluates them. A block is a stretch of code that runs together; block
`a` around block `b` means that whoever is in `b` has come through `a`. From these two come dominance and "between".
Reaching definitions are a structured abstract interpretation: branches join, a loop's head joins the way in with the
way back. Besides names, paths such as `self.loss` or `batch["img"]` are followed while nothing can have changed them.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from perflint.facts.operations import Road
from perflint.facts.solver import TooExpensive
from perflint.source.ordered import OrderedFrozenSet
from perflint.source.syntax import Class, FunctionNode, Scope
from perflint.source.words import words

BlockKind = Literal[
    "scope", "then", "else", "loop", "loop-else", "try", "handler", "finally", "with", "case", "operand", "message"
]


TRY_STAR: Final[Any] = getattr(ast, "TryStar", ast.Try)
"""`try` with `except*`, which Python 3.10 does not know."""


@dataclass(eq=False, slots=True)
class Loop:
    """A `for`, a `while` or a comprehension. `block` is its body."""

    node: ast.For | ast.AsyncFor | ast.While | ast.comprehension
    parent: Loop | None
    block: Block

    @property
    def iterated(self) -> ast.expr | None:
        """What a `for` or a comprehension iterates over."""
        return None if isinstance(self.node, ast.While) else self.node.iter

    @property
    def statement(self) -> ast.For | ast.AsyncFor | ast.While | None:
        """The loop statement, or None for a comprehension."""
        return None if isinstance(self.node, ast.comprehension) else self.node

    def ancestry(self) -> Iterator[Loop]:
        """The loop and those around it, from the inside out."""
        loop: Loop | None = self
        while loop is not None:
            yield loop
            loop = loop.parent


@dataclass(eq=False, slots=True)
class Block:
    """A stretch of code that runs together. `node` is the statement or expression that opens it."""

    kind: BlockKind
    node: ast.AST
    parent: Block | None
    loop: Loop | None = None

    def ancestry(self) -> Iterator[Block]:
        """The block and those around it, from the inside out."""
        block: Block | None = self
        while block is not None:
            yield block
            block = block.parent


DefinitionKind = Literal[
    "assign", "augmented", "for", "with", "import", "parameter", "function", "class", "except", "walrus", "other"
]


@dataclass(eq=False, slots=True)
class Definition:
    """One place that binds a name or a path.

    value: the expression bound (for "for" the iterable, for "with" the context manager). index: for unpacking, the way
    from the value to the bound part, with None for a starred or unknown position.
    """

    name: str
    kind: DefinitionKind
    node: ast.AST
    value: ast.expr | None
    block: Block
    order: int
    index: tuple[int | None, ...] = ()


class Environment:
    """Which definitions reach a point: of names, and of paths while nothing can have changed them."""

    __slots__ = ("names", "paths")

    def __init__(self, names: dict[str, frozenset[Definition]], paths: dict[str, frozenset[Definition]]) -> None:
        self.names, self.paths = names, paths

    def copy(self) -> Environment:
        return Environment(dict(self.names), dict(self.paths))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Environment) and self.names == other.names and self.paths == other.paths

    __hash__ = None  # type: ignore[assignment]

    def get(self, path: str) -> frozenset[Definition] | None:
        return self.names.get(path) or self.paths.get(path)


def path_of(node: ast.AST) -> str | None:
    """The name of a variable, attribute or constant subscript: `x`, `self.loss`, `batch['img']`; None for the rest."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=base, attr=attr):
            inner = path_of(base)
            return None if inner is None else f"{inner}.{attr}"
        case ast.Subscript(value=base, slice=ast.Constant(value=str() | int() as key)):
            inner = path_of(base)
            return None if inner is None else f"{inner}[{key!r}]"
    return None


def statement_lists(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of statements directly under a node."""
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield body


class Flow:
    """What one pass over a scope found. Built by `flow_of`."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.order: dict[ast.AST, int] = {}
        self.block: dict[ast.AST, Block] = {}
        self.parent: dict[ast.AST, ast.AST] = {}
        self.reaching: dict[ast.AST, frozenset[Definition]] = {}
        self.definitions: list[Definition] = []
        self.defined: defaultdict[str, list[Definition]] = defaultdict(list)
        self.mentions: defaultdict[str, list[ast.expr]] = defaultdict(list)
        """Loads of names and attributes, by last name."""
        self.uses: defaultdict[Definition, list[ast.expr]] = defaultdict(list)
        self.calls: list[ast.Call] = []
        self.calls_named: defaultdict[str, list[ast.Call]] = defaultdict(list)
        self.loops: list[Loop] = []
        self.returns: list[ast.Return] = []
        self.yields: list[ast.AST] = []
        """Where others may run in the middle of the scope: `yield`, `await` and what awaits by itself."""
        self.inner: list[FunctionNode | ast.Lambda] = []
        self.inner_names: set[str] = set()
        """Names that functions, lambdas and classes inside this scope read or write."""
        self.class_names: set[str] = set()
        """Names that the bodies of a module's own classes read."""
        self.rebound_inside: set[str] = set()
        """Names that functions inside this scope declare `nonlocal`, and so may bind anew."""
        self.outer_names: set[str] = set()
        """Names declared `global` or `nonlocal` here."""
        self.stores: list[ast.expr] = []
        """Attribute and subscript targets of assignments and `del`, in evaluation order."""
        self.falls_through = True
        """Whether the scope's end can be reached, so that a function returns `None`."""
        self.leaves: dict[Loop, bool] = {}
        """For a loop: whether its body can leave an iteration early (`continue`, `break`, `return`)."""
        self.guards: dict[Block, bool] = {}
        """Which blocks run only now and then; filled by `loops.is_guard`."""
        self.skips: dict[ast.stmt, ast.If | None] = {}
        """For the first statement of a list: the guard that skips the rest of it; filled by `loops.skipped_by_guard`."""
        self.waiting: list[tuple[ast.expr, frozenset[Road]]] | None = None
        """Where the host may wait for the device, and by which roads; filled by `waits.places`."""
        self._siblings: dict[ast.stmt, list[ast.stmt]] = {}
        self._definitions_at: dict[ast.AST, list[Definition]] | None = None
        self._definitions_from: dict[ast.expr, list[Definition]] | None = None
        self._root = Block("scope", scope.node, None)
        self._inner_scopes: dict[ast.AST, Scope] = {}
        _Pass(self).run()

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
        return any(b is block for b in self.block[node].ancestry())

    def dominates(self, first: ast.AST, second: ast.AST) -> bool:
        """Whether `first` has always been evaluated when `second` is, in the same iteration."""
        return self.order[first] < self.order[second] and self.within(second, self.always(self.block[first]))

    @staticmethod
    def always(block: Block) -> Block:
        """The outermost block that runs `block` whenever it runs: a `with` adds nothing, unless it swallows exceptions."""
        while block.kind == "with" and block.parent is not None and not _may_swallow(block.node):
            block = block.parent
        return block

    @staticmethod
    def home(block: Block) -> Block:
        """The block around `block` that an exception leaves when it leaves `block`, for code that may go on."""
        while block.parent is not None and block.kind not in ("try", "handler", "finally"):
            if block.kind == "with" and _may_swallow(block.node):
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
        around_first = {id(loop) for loop in _loops(self.block[first].loop)}
        for loop in _loops(self.block[last].loop):
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

    def inner_scope(self, node: FunctionNode | ast.Lambda) -> Scope:
        """The scope of a function or lambda that is written inside this one."""
        if node not in self._inner_scopes:
            name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
            qualname = f"{self.scope.qualname}.<locals>.{name}" if self.scope.qualname else name
            self._inner_scopes[node] = Scope(self.scope.module, qualname, node=node, parent=self.scope)
        return self._inner_scopes[node]


class Region:
    """Some statements of a scope with all that they hold. What it lists is in evaluation order.

    nodes: without those of inner functions. calls, definitions, stores, returns: as in `Flow`.
    """

    def __init__(self, flow: Flow, body: Iterable[ast.stmt]) -> None:
        held = [node for statement in body for node in ast.walk(statement)]
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


def _may_swallow(node: ast.AST) -> bool:
    """Whether a `with` statement may go on after an exception in its body."""
    assert isinstance(node, (ast.With, ast.AsyncWith))
    return any(_SWALLOWS.search(ast.unparse(item.context_expr)) for item in node.items)


_SWALLOWS = re.compile(r"suppress|raises|catch|ignore|swallow|ExitStack|safe", re.I)


def _loops(loop: Loop | None) -> Iterator[Loop]:
    return loop.ancestry() if loop is not None else iter(())


_CHILD_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.BinOp: ("left", "right"),
    ast.UnaryOp: ("operand",),
    ast.Starred: ("value",),
    ast.keyword: ("value",),
    ast.Tuple: ("elts",),
    ast.List: ("elts",),
    ast.Set: ("elts",),
    ast.Dict: ("keys", "values"),
    ast.Slice: ("lower", "upper", "step"),
    ast.JoinedStr: ("values",),
    ast.FormattedValue: ("value", "format_spec"),
    ast.Constant: (),
}

# Methods that never change what their receiver's paths hold.
_READING_METHODS = words(
    """
    items keys values get size dim numel item tolist detach float double half cpu cuda to view mean sum format join
    eval train numpy parameters backward
    """
)
_READING_FUNCTIONS = words(
    """
    print len isinstance enumerate range zip list tuple dict str
    """
)


MAX_REACHING = 1_000_000
"""Definitions that may reach points of one scope, all points together: they grow with the square of a scope's length."""


class _Pass:
    """The abstract interpretation. `recording` is off while a loop's way back is being worked out."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.env: Environment | None = Environment({}, {})
        self.block = flow._root
        self.recording = True
        self.number = 0
        self.made: dict[tuple[ast.AST, str], Definition] = {}
        self.heads: dict[ast.AST, tuple[Environment | None, Environment | None]] = {}
        """What entered each loop last, and what holds at its head then."""
        self.breaks: list[list[Environment]] = []
        self.continues: list[list[Environment]] = []
        self.raises: list[list[tuple[str, frozenset[Definition]]]] = []
        self.walrus = b":=" in flow.scope.text
        self.spent = 0

    def run(self) -> None:
        scope = self.flow.scope
        for parameter in scope.parameters:
            self.bind(parameter.arg, parameter, "parameter", None)
        self.statements(scope.body, scope.node)
        self.flow.falls_through = self.env is not None

    # -- environments ------------------------------------------------------------------------------------------------

    def joined(self, environments: Iterable[Environment | None]) -> Environment | None:
        """What holds where branches meet. A path that one branch has forgotten is not known afterwards."""
        present = [e for e in environments if e is not None]
        if not present:
            return None
        names, paths = dict(present[0].names), dict(present[0].paths)
        for other in present[1:]:
            for name, found in other.names.items():
                known = names.get(name)
                if known is None:
                    names[name] = found
                elif known is not found:
                    names[name] = merged = known | found
                    self.spend(len(merged))
            paths = {path: found | other.paths[path] for path, found in paths.items() if path in other.paths}
        return Environment(names, paths)

    def spend(self, definitions: int) -> None:
        """Count definitions that were handled as reaching a point.

        Raises:
            TooExpensive: the scope has more of them than any that people write.

        """
        self.spent += definitions
        if self.spent > MAX_REACHING:
            raise TooExpensive

    def copied(self, environment: Environment | None) -> Environment | None:
        return environment.copy() if environment is not None else None

    def bind(
        self,
        name: str,
        node: ast.AST,
        kind: DefinitionKind,
        value: ast.expr | None,
        index: tuple[int | None, ...] = (),
    ) -> None:
        key = (node, name)
        found = self.made.get(key)
        if found is None:
            found = Definition(name, kind, node, value, self.block, self.number, index)
            self.made[key] = found
            self.flow.definitions.append(found)
            self.flow.defined[name].append(found)
        found.order, found.block = self.number, self.block
        if self.env is None:
            return
        if self.env.paths:
            self.forget(lambda path: path.startswith((name + ".", name + "[")))
        single = frozenset((found,))
        if name.isidentifier():
            self.env.names[name] = single
            for saved in self.raises:
                saved.append((name, single))
        else:
            self.env.paths[name] = single

    def forget(self, leaves: Callable[[str], bool]) -> None:
        """Drop the paths for which `leaves` holds."""
        if self.env is not None and self.env.paths:
            self.env.paths = {path: found for path, found in self.env.paths.items() if not leaves(path)}

    @property
    def follows_paths(self) -> bool:
        return self.env is not None and bool(self.env.paths)

    # -- statements --------------------------------------------------------------------------------------------------

    def statements(self, body: list[ast.stmt], parent: ast.AST) -> None:
        for statement in body:
            if self.recording:
                self.flow.parent[statement] = parent
                self.flow.block[statement] = self.block
                self.number += 1
                self.flow.order[statement] = self.number
            self.statement(statement)

    def inside(self, kind: BlockKind, node: ast.AST, loop: Loop | None = None) -> Block:
        return Block(kind, node, self.block, loop if loop is not None else self.block.loop)

    def run_block(self, block: Block, body: list[ast.stmt], parent: ast.AST) -> None:
        outer, self.block = self.block, block
        self.statements(body, parent)
        self.block = outer

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=value):
                self.expression(value, node)
            case ast.Assign(targets=targets, value=value):
                self.expression(value, node)
                for target in targets:
                    self.assign(target, node, "assign", value)
            case ast.AugAssign(target=target, value=value):
                self.expression(target, node)
                self.expression(value, node)
                self.assign(target, node, "augmented", value)
            case ast.AnnAssign(target=target, value=annotated):
                if annotated is not None:
                    self.expression(annotated, node)
                    self.assign(target, node, "assign", annotated)
                if self.flow.scope.is_module:  # a function does not evaluate those of its variables
                    self.expression(node.annotation, node)
            case ast.If(test=test, body=body, orelse=orelse):
                self.expression(test, node)
                before = self.env
                self.env = self.copied(before)
                self.run_block(self.inside("then", node), body, node)
                after_body, self.env = self.env, before
                self.run_block(self.inside("else", node), orelse, node)
                self.env = self.joined((after_body, self.env))
            case ast.For() | ast.AsyncFor():
                self.expression(node.iter, node)
                self.suspend(node)
                self.loop(node, node.body, node.orelse)
            case ast.While():
                self.loop(node, node.body, node.orelse)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                outer = self.block
                self.block = self.inside("with", node)
                self.suspend(node)
                for item in items:
                    self.note(item, node)
                    self.expression(item.context_expr, item)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, item, "with", item.context_expr)
                if _may_swallow(node):
                    entered = self.copied(self.env)
                    self.raises.append([])
                    self.statements(body, node)
                    self.env = self.joined((self.env, self.with_partial(entered, self.raises.pop())))
                else:
                    self.statements(body, node)
                self.block = outer
            case ast.Return(value=returned):
                if returned is not None:
                    self.expression(returned, node)
                if self.recording:
                    self.flow.returns.append(node)
                self.leave_loops()
                self.env = None
            case ast.Raise():
                self.children(node, node)
                self.env = None
            case ast.Break():
                self.leave_loops(1)
                if self.env is not None and self.breaks:
                    self.breaks[-1].append(self.env)
                self.env = None
            case ast.Continue():
                self.leave_loops(1)
                if self.env is not None and self.continues:
                    self.continues[-1].append(self.env)
                self.env = None
            case ast.Try():
                self.try_statement(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.function(node)
            case ast.ClassDef(name=name):
                for child in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
                    self.expression(child, node)
                if self.flow.scope.is_module:
                    self.flow.class_names.update(n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name))
                else:
                    self.note_inner_names(node)
                self.bind(name, node, "class", None)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    if alias.name != "*":
                        self.bind(alias.asname or alias.name.partition(".")[0], alias, "import", None)
                        self.note(alias, node)
            case ast.Delete(targets=targets):
                for target in targets:
                    self.delete(target, node)
            case ast.Global(names=outer_names) | ast.Nonlocal(names=outer_names):
                self.flow.outer_names.update(outer_names)
            case ast.Assert(test=test, msg=message):
                self.expression(test, node)
                if message is not None:
                    self.operand("message", message, node)
            case ast.Match():
                self.match_statement(node)
            case ast.Try():
                self.try_statement(node)
            case ast.Pass():
                placeholder = self.flow.scope.module.placeholders.get(node.lineno)
                if isinstance(placeholder, Scope) and self.flow.scope.is_module:
                    self.bind(placeholder.name, node, "function", None)
            case _:
                if isinstance(node, TRY_STAR):
                    self.try_statement(node)
                else:
                    self.children(node, node)

    def function(self, node: FunctionNode) -> None:
        defaults = [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
        for child in (*node.decorator_list, *defaults):
            self.expression(child, node)
        if not self.flow.scope.is_module:  # a module's functions are scopes of their own
            self.note_inner(node)
        self.bind(node.name, node, "function", None)

    def note_inner(self, node: FunctionNode | ast.Lambda) -> None:
        if self.recording:
            self.flow.inner.append(node)
            self.note_inner_names(node)

    def note_inner_names(self, node: ast.AST) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name):
                self.flow.inner_names.add(inner.id)
            elif isinstance(inner, ast.Nonlocal):
                self.flow.rebound_inside.update(inner.names)

    def leave_loops(self, count: int | None = None) -> None:
        for loop in list(_loops(self.block.loop))[:count]:
            self.flow.leaves[loop] = True

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        block = Block("loop", node, self.block)
        block.loop = Loop(node, self.block.loop, block)
        head = self.head(node, body, block)
        if self.recording:
            self.flow.loops.append(block.loop)
        self.breaks.append([])
        _, end = self.iteration(node, body, block, head, keep_breaks=True)
        left = self.breaks.pop()
        never_ends = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)
        self.env = None if never_ends else end
        self.run_block(self.inside("loop-else", node), orelse, node)
        self.env = self.joined((self.env, *left))

    def head(self, node: ast.For | ast.AsyncFor | ast.While, body: list[ast.stmt], block: Block) -> Environment | None:
        """What holds at a loop's head in any iteration.

        The passes over an outer loop only widen what enters an inner one, so each goes on from what the last one found:
        otherwise the cost would double with each loop around.
        """
        entry = self.env
        known_entry, head = self.heads.get(node, (None, None))
        if known_entry == entry and head is not None:
            return head
        recording, self.recording = self.recording, False
        head = self.joined((entry, head))
        for _ in range(3):
            back, _ = self.iteration(node, body, block, head)
            widened = self.joined((head, back))
            if widened == head:
                break
            head = widened
        self.recording = recording
        self.heads[node] = (entry, head)
        return head

    def iteration(
        self,
        node: ast.For | ast.AsyncFor | ast.While,
        body: list[ast.stmt],
        block: Block,
        head: Environment | None,
        keep_breaks: bool = False,
    ) -> tuple[Environment | None, Environment | None]:
        """What holds on the way back to the loop's head, and where the loop ends because nothing is left to do."""
        self.env = self.copied(head)
        if not keep_breaks:
            self.breaks.append([])
        self.continues.append([])
        outer, self.block = self.block, block
        if isinstance(node, ast.While):
            self.expression(node.test, node)
            end = self.copied(self.env)
        else:
            end = self.copied(head)
            self.assign(node.target, node, "for", node.iter)
        self.statements(body, node)
        self.block = outer
        if not keep_breaks:
            self.breaks.pop()
        return self.joined((self.env, *self.continues.pop())), end

    def try_statement(self, node: ast.Try) -> None:
        body, orelse, final = node.body, node.orelse, node.finalbody
        before = self.env
        self.raises.append([])
        self.env = self.copied(before)
        self.run_block(self.inside("try", node), body, node)
        self.run_block(self.inside("try", node), orelse, node)
        after_body = self.env
        seen = self.raises.pop()
        interrupted = self.with_partial(before, seen)
        self.raises.append(seen)
        ends = [after_body]
        for handler in node.handlers:
            self.env = self.copied(interrupted)
            self.note(handler, node)
            outer, self.block = self.block, self.inside("handler", node)
            if handler.type is not None:
                self.expression(handler.type, handler)
            if handler.name:
                self.bind(handler.name, handler, "except", None)
            self.statements(handler.body, handler)
            self.block = outer
            ends.append(self.env)
        self.env = self.joined(ends)
        self.raises.pop()
        if final:
            reachable = self.env
            self.env = self.joined((reachable, self.with_partial(before, seen)))
            self.run_block(self.inside("finally", node), final, node)
            if reachable is None:
                self.env = None

    @staticmethod
    def with_partial(before: Environment | None, seen: list[tuple[str, frozenset[Definition]]]) -> Environment | None:
        """The environment of a handler: any prefix of the `try` body may have run."""
        if before is None:
            return None
        names = dict(before.names)
        for name, found in seen:
            names[name] = names.get(name, frozenset()) | found
        return Environment(names, {})

    def match_statement(self, node: ast.Match) -> None:
        self.expression(node.subject, node)
        before = self.env
        ends = [before]
        for case in node.cases:
            self.env = self.copied(before)
            self.note(case, node)
            outer, self.block = self.block, self.inside("case", node)
            self.pattern(case.pattern, case)
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self.bind(name, part, "other", node.subject)
            if case.guard is not None:
                self.expression(case.guard, case)
            self.statements(case.body, case)
            self.block = outer
            ends.append(self.env)
        self.env = self.joined(ends)

    def pattern(self, node: ast.pattern, parent: ast.AST) -> None:
        """Evaluate the expressions in a pattern: constants, keys and classes."""
        if self.recording:
            self.flow.parent[node] = parent
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.pattern):
                self.pattern(child, node)
            elif isinstance(child, ast.expr):
                self.expression(child, node)

    def suspend(self, node: ast.AST) -> None:
        """Note that `async for` and the like let others run in the middle of the function."""
        awaits = isinstance(node, (ast.AsyncFor, ast.AsyncWith)) or (isinstance(node, ast.comprehension) and node.is_async)
        if self.recording and awaits:
            self.flow.yields.append(node)

    def delete(self, target: ast.expr, parent: ast.AST) -> None:
        if isinstance(target, ast.Name):
            self.expression(target, parent)
            if self.env is not None:
                self.env.names.pop(target.id, None)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self.delete(part, parent)
        else:
            self.children(target, target)
            self.store(target, parent)

    # -- targets -----------------------------------------------------------------------------------------------------

    def assign(
        self,
        target: ast.expr,
        parent: ast.AST,
        kind: DefinitionKind,
        value: ast.expr | None,
        index: tuple[int | None, ...] = (),
    ) -> None:
        self.note(target, parent)
        match target:
            case ast.Name(id=name):
                self.bind(name, target, kind, value, index)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                starred = next((i for i, p in enumerate(parts) if isinstance(p, ast.Starred)), None)
                direct = kind == "assign" and not index and _unpacks_exactly(value, parts)
                for i, part in enumerate(parts):
                    if starred is not None and i >= starred:
                        position = None if i == starred else i - len(parts)
                    else:
                        position = i
                    inner = part.value if isinstance(part, ast.Starred) else part
                    if direct and position is not None:
                        assert isinstance(value, (ast.Tuple, ast.List))
                        self.assign(inner, target, kind, value.elts[position])
                    else:
                        self.assign(inner, target, kind, value, (*index, position))
            case ast.Starred(value=inner):
                self.assign(inner, target, kind, value, (*index, None))
            case ast.Attribute() | ast.Subscript():
                if kind != "augmented":
                    self.children(target, target)
                self.store(target, parent)
                path = path_of(target)
                if path is not None and self.env is not None:
                    self.bind(path, target, kind, value, index)

    def store(self, target: ast.expr, parent: ast.AST) -> None:
        """An attribute or item was replaced: forget every path that may be the same place."""
        self.note(target, parent)
        if self.recording:
            self.flow.stores.append(target)
        match target:
            case ast.Attribute(attr=attr):
                self.forget(lambda path: path.endswith("." + attr) or f".{attr}." in path or f".{attr}[" in path)
            case ast.Subscript(slice=ast.Constant(value=key)):
                self.forget(lambda path: f"[{key!r}]" in path)
            case ast.Subscript():
                self.forget(lambda path: "[" in path)

    # -- expressions -------------------------------------------------------------------------------------------------

    def note(self, node: ast.AST, parent: ast.AST) -> None:
        if self.recording:
            self.flow.parent[node] = parent
            self.flow.block[node] = self.block
            self.number += 1
            self.flow.order[node] = self.number

    def children(self, node: ast.AST, parent: ast.AST) -> None:
        for name in _CHILD_FIELDS.get(type(node), node._fields):
            child = getattr(node, name, None)
            if isinstance(child, ast.expr):
                self.expression(child, parent)
            elif isinstance(child, list):
                for item in child:
                    if isinstance(item, ast.expr):
                        self.expression(item, parent)
                    elif isinstance(item, ast.keyword):
                        self.expression(item.value, item)
                        self.note(item, parent)

    def operand(self, kind: BlockKind, node: ast.expr, parent: ast.AST) -> None:
        outer, self.block = self.block, self.inside(kind, parent)
        self.possibly(node, parent)
        self.block = outer

    def possibly(self, node: ast.expr, parent: ast.AST) -> None:
        """An expression that may not be evaluated: what it binds may not be bound."""
        before = self.copied(self.env) if self.walrus else None
        self.expression(node, parent)
        if before is not None:
            self.env = self.joined((before, self.env))

    def expression(self, node: ast.expr, parent: ast.AST) -> None:
        if not self.recording and not self.walrus and not self.follows_paths:
            return
        match node:
            case ast.Constant():
                pass
            case ast.Name(id=name):
                if self.recording:
                    self.flow.mentions[name].append(node)
                    if self.env is not None:
                        self.reach(node, name)
            case ast.Attribute(value=base, attr=name):
                self.expression(base, node)
                if self.recording:
                    self.flow.mentions[name].append(node)
                    self.reach_path(node)
            case ast.Subscript(value=base, slice=key):
                self.expression(base, node)
                self.expression(key, node)
                self.reach_path(node)
            case ast.Call():
                self.call(node)
            case ast.BoolOp(values=values):
                self.expression(values[0], node)
                outer = self.block
                for value in values[1:]:
                    self.block = self.inside("operand", node)
                    self.possibly(value, node)
                self.block = outer
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.expression(test, node)
                self.operand("operand", body, node)
                self.operand("operand", orelse, node)
            case ast.Compare(left=left, comparators=comparators):
                self.expression(left, node)
                self.expression(comparators[0], node)
                for comparator in comparators[1:]:
                    self.operand("operand", comparator, node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self.comprehension(node)
            case ast.Lambda(args=args):
                for default in (*args.defaults, *(d for d in args.kw_defaults if d is not None)):
                    self.expression(default, node)
                self.note_inner(node)
            case ast.NamedExpr(target=target, value=value):
                self.expression(value, node)
                self.assign(target, node, "walrus", value)
            case ast.Yield() | ast.YieldFrom() | ast.Await():
                self.children(node, node)
                self.forget(lambda path: True)
                if self.recording:
                    self.flow.yields.append(node)
            case _:
                self.children(node, node)
        self.note(node, parent)

    def reach(self, node: ast.expr, name: str) -> None:
        assert self.env is not None
        found = self.env.get(name) or frozenset()
        if len(found) > 1:
            self.spend(len(found))
            found = OrderedFrozenSet(sorted(found, key=lambda definition: definition.order))
        self.flow.reaching[node] = found
        for definition in found:
            self.flow.uses[definition].append(node)

    def reach_path(self, node: ast.expr) -> None:
        if not self.recording or self.env is None:
            return
        if self.env.paths:
            path = path_of(node)
            if path is not None and path in self.env.paths:
                self.reach(node, path)

    def call(self, node: ast.Call) -> None:
        self.expression(node.func, node)
        for argument in node.args:
            self.expression(argument, node)
        for keyword in node.keywords:
            self.expression(keyword.value, keyword)
            self.note(keyword, node)
        if self.recording:
            self.flow.calls.append(node)
            match node.func:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    self.flow.calls_named[name].append(node)
        if self.follows_paths:
            self.forget_after(node)

    def forget_after(self, node: ast.Call) -> None:
        """A call may change the parts of whatever it is given."""
        touched: set[str] = set()
        match node.func:
            case ast.Attribute(value=receiver, attr=method) if method not in _READING_METHODS:
                base = path_of(receiver)
                touched.add((base or "").partition(".")[0].partition("[")[0])
                if base is not None and base.startswith("self."):
                    touched.discard("self")
                    touched.add(base)
            case ast.Name(id=name) if name in _READING_FUNCTIONS:
                return
        for argument in (*node.args, *(k.value for k in node.keywords)):
            inner = argument.value if isinstance(argument, ast.Starred) else argument
            if isinstance(inner, ast.Name):
                touched.add(inner.id)
        touched.discard("")
        if touched:
            prefixes = tuple(t + mark for t in touched for mark in ".[")
            self.forget(lambda path: path.startswith(prefixes))

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        saved = self.copied(self.env)
        outer = self.block
        for generator in node.generators:
            self.expression(generator.iter, generator)
            block = Block("loop", generator, self.block)
            block.loop = Loop(generator, self.block.loop, block)
            self.block = block
            if self.recording:
                self.flow.loops.append(block.loop)
            self.note(generator, node)
            self.suspend(generator)
            self.assign(generator.target, generator, "for", generator.iter)
            for condition in generator.ifs:
                self.expression(condition, generator)
                self.block = self.inside("then", generator)
        if isinstance(node, ast.DictComp):
            self.expression(node.key, node)
            self.expression(node.value, node)
        else:
            self.expression(node.elt, node)
        self.block = outer
        if self.walrus and saved is not None and self.env is not None:
            for name, found in self.env.names.items():
                if any(d.kind == "walrus" for d in found):
                    saved.names[name] = saved.names.get(name, frozenset()) | found
        self.env = saved


def _unpacks_exactly(value: ast.expr | None, parts: list[ast.expr]) -> bool:
    return (
        isinstance(value, (ast.Tuple, ast.List))
        and len(value.elts) == len(parts)
        and not any(isinstance(e, ast.Starred) for e in (*value.elts, *parts))
    )


def nested_class(flow: Flow, name: str) -> ast.ClassDef | None:
    """A class that a function defines inside itself."""
    for definition in flow.definitions_of(name):
        if isinstance(definition.node, ast.ClassDef):
            return definition.node
    return None


__all__ = ["Block", "Class", "Definition", "Environment", "Flow", "Loop", "Region", "flow_of", "nested_class", "path_of"]
