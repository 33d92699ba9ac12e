"""What a pass over a scope notes: blocks, loops, definitions, and which of them reach each use."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

from perflint.source.syntax import FunctionNode, Scope

Key = TypeVar("Key")
Item = TypeVar("Item")
BlockKind = Literal[
    "scope", "then", "else", "loop", "loop-else", "try", "handler", "finally", "with", "case", "operand", "message"
]


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

    def loops(self) -> Iterator[Loop]:
        """The loops around the block, from the inside out."""
        return self.loop.ancestry() if self.loop is not None else iter(())


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


class Groups(dict[Key, list[Item]]):
    """Lists by key. To look for one that is not there leaves no trace: whether a key is in is asked, too."""

    def __missing__(self, key: Key) -> list[Item]:
        return []

    def add(self, key: Key, item: Item) -> None:
        """Append to the list of a key, which may be a new one."""
        if key in self:
            self[key].append(item)
        else:
            self[key] = [item]


class Notes:
    """What the pass over a scope has found, node by node."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.order: dict[ast.AST, int] = {}
        self.block: dict[ast.AST, Block] = {}
        self.parent: dict[ast.AST, ast.AST] = {}
        self.reaching: dict[ast.AST, frozenset[Definition]] = {}
        self.definitions: list[Definition] = []
        self.defined: Groups[str, Definition] = Groups()
        self.mentions: Groups[str, ast.expr] = Groups()
        """Loads of names and attributes, by last name."""
        self.uses: Groups[Definition, ast.expr] = Groups()
        self.calls: list[ast.Call] = []
        self.calls_named: Groups[str, ast.Call] = Groups()
        self.loops: list[Loop] = []
        self.returns: list[ast.Return] = []
        self.yields: list[ast.AST] = []
        """Where others may run in the middle of the scope: `yield`, `await` and what awaits by itself."""
        self.inner: list[FunctionNode | ast.Lambda] = []
        self.inner_classes: list[ast.ClassDef] = []
        """The classes that are written in a function, or in the body of a class."""
        self.inner_names: set[str] = set()
        """Names that functions, lambdas and classes inside this scope read or write."""
        self.class_names: set[str] = set()
        """Names that the bodies of the scope's own classes read, their methods included."""
        self.class_members: set[str] = set()
        """Names of attributes there, in a function: the methods of its classes are no scopes."""
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
        self.root = Block("scope", scope.node, None)
