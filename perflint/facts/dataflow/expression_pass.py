"""The pass over a scope, its expressions: in the order of evaluation, with what each may bind and forget."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final

from perflint.facts.dataflow.definitions import Block, BlockKind, Definition, DefinitionKind, Environment, Loop, Notes, path_of
from perflint.facts.values.solver import TooExpensive
from perflint.source.nodes import walk
from perflint.source.ordered import OrderedFrozenSet
from perflint.source.syntax import FunctionNode
from perflint.source.words import words

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

_NOTHING: Final[frozenset[Definition]] = frozenset()
_by_order = attrgetter("order")

MAX_REACHING = 1_000_000
"""Definitions that may reach points of one scope, all points together: they grow with the square of a scope's length."""


class ExpressionPass:
    """Carries the environment through expressions and targets. `recording` is off while a loop's way back is worked out."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.env: Environment | None = Environment({}, {})
        self.block = notes.root
        self.recording = True
        self.number = 0
        self.made: dict[tuple[ast.AST, str], Definition] = {}
        self.heads: dict[ast.AST, tuple[Environment | None, Environment | None]] = {}
        """What entered each loop last, and what holds at its head then."""
        self.breaks: list[list[Environment]] = []
        self.continues: list[list[Environment]] = []
        self.raises: list[list[tuple[str, frozenset[Definition]]]] = []
        self.walrus = b":=" in notes.scope.text
        self.spent = 0

    # -- environments --------------------------------------------------------------------------------------------------

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
            self.notes.definitions.append(found)
            self.notes.defined.add(name, found)
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

    # -- places --------------------------------------------------------------------------------------------------------

    def note(self, node: ast.AST, parent: ast.AST) -> None:
        if self.recording:
            self.notes.parent[node] = parent
            self.notes.block[node] = self.block
            self.number += 1
            self.notes.order[node] = self.number

    def inside(self, kind: BlockKind, node: ast.AST, loop: Loop | None = None) -> Block:
        return Block(kind, node, self.block, loop if loop is not None else self.block.loop)

    def suspend(self, node: ast.AST) -> None:
        """Note that `async for` and the like let others run in the middle of the function."""
        awaits = isinstance(node, (ast.AsyncFor, ast.AsyncWith)) or (isinstance(node, ast.comprehension) and node.is_async)
        if self.recording and awaits:
            self.notes.yields.append(node)

    def note_inner(self, node: FunctionNode | ast.Lambda) -> None:
        if self.recording:
            self.notes.inner.append(node)
            self.note_inner_names(node)

    def note_inner_names(self, node: ast.AST) -> None:
        """Note the names that a function or class inside may mean of this scope: not those that a function binds itself."""
        own = _own_names(node) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else frozenset()
        for inner in walk(node):
            if isinstance(inner, ast.Name) and inner.id not in own:
                self.notes.inner_names.add(inner.id)
            elif isinstance(inner, ast.Nonlocal):
                self.notes.rebound_inside.update(inner.names)

    # -- targets -------------------------------------------------------------------------------------------------------

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
            self.notes.stores.append(target)
        match target:
            case ast.Attribute(attr=attr):
                self.forget(lambda path: path.endswith("." + attr) or f".{attr}." in path or f".{attr}[" in path)
            case ast.Subscript(slice=ast.Constant(value=key)):
                self.forget(lambda path: f"[{key!r}]" in path)
            case ast.Subscript():
                self.forget(lambda path: "[" in path)

    # -- expressions ---------------------------------------------------------------------------------------------------

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
        """The hottest function of all: it asks for types by `is`, the frequent ones first, and calls what it must."""
        recording = self.recording
        if not recording and not self.walrus and not self.follows_paths:
            return
        if type(node) is ast.Name:
            if recording:
                self.notes.mentions.add(node.id, node)
                if self.env is not None:
                    self.reach(node, node.id)
        elif type(node) is ast.Attribute:
            self.expression(node.value, node)
            if recording:
                self.notes.mentions.add(node.attr, node)
                self.reach_path(node)
        elif type(node) is ast.Call:
            self.call(node)
        elif type(node) is not ast.Constant:
            self.rare_expression(node)
        if recording:  # `note`, without a call for each expression of a program
            notes = self.notes
            notes.parent[node] = parent
            notes.block[node] = self.block
            self.number += 1
            notes.order[node] = self.number

    def rare_expression(self, node: ast.expr) -> None:
        """The other kinds of expressions."""
        match node:
            case ast.Subscript(value=base, slice=key):
                self.expression(base, node)
                self.expression(key, node)
                self.reach_path(node)
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
                    self.notes.yields.append(node)
            case _:
                self.children(node, node)

    def reach(self, node: ast.expr, name: str) -> None:
        assert self.env is not None
        found = self.env.names.get(name) or self.env.paths.get(name) or _NOTHING
        if len(found) > 1:
            self.spend(len(found))
            found = OrderedFrozenSet(sorted(found, key=_by_order))
        self.notes.reaching[node] = found
        for definition in found:
            self.notes.uses.add(definition, node)

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
            self.notes.calls.append(node)
            match node.func:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    self.notes.calls_named.add(name, node)
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
                self.notes.loops.append(block.loop)
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


def _own_names(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    """The names that mean a variable of a function wherever they stand in it: it binds them, nothing around it sees them."""
    given = function.args
    parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    bound = {parameter.arg for parameter in parameters}
    body = function.body if isinstance(function.body, list) else [function.body]
    meant_outside: set[str] = set()
    pending: list[ast.AST] = [*body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue  # what a comprehension binds, it binds for itself
        pending += ast.iter_child_nodes(node)
    for node in walk(function):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            meant_outside.update(node.names)
    decorators = [] if isinstance(function, ast.Lambda) else function.decorator_list
    for outer in (*decorators, *given.defaults, *filter(None, given.kw_defaults)):
        meant_outside |= {node.id for node in walk(outer) if isinstance(node, ast.Name)}
    for node in body:  # an inner class sees past the function's variables where it binds them itself
        for inner in walk(node):
            if isinstance(inner, ast.ClassDef):
                meant_outside |= {name.id for name in walk(inner) if isinstance(name, ast.Name)}
    return frozenset(bound - meant_outside)
