"""Local variables that take reads in each step, as objects of the runtime that read when somebody looks: no rule by itself."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from perflint.api import (
    BUILT_FROM_TEXT,
    OWN_TENSORS,
    Block,
    CannotRewrite,
    Code,
    Definition,
    Edit,
    External,
    HostRead,
    Import,
    Kind,
    Loop,
    Obligation,
    ReadKind,
    Tensor,
    inspects_itself,
    is_guard,
    no_copy_in_flight,
    path_of,
    replace,
    replace_statement,
    suspends,
    untimed,
    without_effect,
)
from perflint_rules.kept_locals import means_item
from perflint_rules.kept_totals import is_product

_OPERATORS = {ast.Div: "/", ast.Mult: "*", ast.Sub: "-", ast.Add: "+"}
_Way = Literal["sum", "list", "item"]
_OBJECTS: dict[_Way, str] = {"sum": "ItemSum", "list": "HostList", "item": "LateItem"}
_LOOKS: dict[_Way, str] = {"sum": "value", "list": "values", "item": "item"}


@dataclass(frozen=True, eq=False)
class _Take:
    """A statement by which a local takes a read.

    taken: the expression that it takes: the read, or a name that the read is bound to. weight, divisor: what it is multiplied
    and divided by on its way into a total.
    """

    way: _Way
    statement: ast.stmt
    target: ast.Name
    taken: ast.expr
    weight: ast.expr | None = None
    divisor: ast.expr | None = None

    @property
    def name(self) -> str:
        return self.target.id


class Late:
    """A read that a local takes, and that can be read when somebody looks at the local."""

    cure: str | None = None

    def __init__(self, code: Code, loop: Loop, take: _Take) -> None:
        self.code, self.flow, self.loop, self.take = code, code.flow, loop, take
        self._reads = {read.node: read for read in code.reads()}
        self._edits: dict[Edit, None] = {}
        self._imports: dict[Import, None] = {}
        self._takes: dict[str, list[_Take]] = {}
        self._refused: CannotRewrite | None = None
        try:
            self._rewrite(take)
        except CannotRewrite as reason:
            self._refused = reason

    @classmethod
    def find(cls, code: Code, read: HostRead, loop: Loop) -> "Late | None":
        """What takes a read in a step loop; None if that is no total, list or name."""
        take = _take(code, read.node)
        if take is None or (take.way != "list" and not means_item(code, read)):
            return None
        return cls(code, loop, take)

    def missing(self) -> Iterator[Obligation | None]:
        """The proofs that a safe fix needs and that do not hold."""
        code, flow = self.code, self.flow
        takes = [take for takes in self._takes.values() for take in takes]
        loops = dict.fromkeys([self.loop, *filter(None, map(self._loop_of, takes))])
        blocks = [b for take in takes if (loop := self._loop_of(take)) for b in self._blocks_in(loop, take.statement)]
        if any(block.kind == "try" and getattr(block.node, "handlers", None) for block in blocks):
            yield Obligation(Kind.ERRORS_ARE_BUGS, "an error of the device would no longer be handled where it is now")
        if code.scope.is_module:
            yield from code.feared(BUILT_FROM_TEXT)
        yield from code.feared(OWN_TENSORS)
        calls = [call for call in flow.calls if any(flow.within(call, loop.block) for loop in loops)]
        yield untimed(calls)
        yield no_copy_in_flight(code.facts, code.scope, calls)
        for take in takes:
            for factor in filter(None, (take.weight, take.divisor)):
                yield without_effect(code.facts, code.scope, factor)
            read = self._reads.get(take.taken)
            if read is not None and read.kind is ReadKind.CONVERSION:
                if not code.value(read.tensor).must(lambda a: isinstance(a, Tensor) and a.grad is False):
                    yield Obligation(Kind.GRADIENT, "`float` warns once of a tensor that belongs to a graph")

    def parts(self) -> Iterator[Edit | Import]:
        """The edits.

        Raises:
            CannotRewrite: each step looks at what a local holds, or the local may be something else.

        """
        if self._refused is not None:
            raise self._refused
        yield from self._imports
        yield from self._edits

    def _rewrite(self, take: _Take) -> None:
        """Make an object of the runtime of the local that takes something, with all that it takes."""
        if take.name in self._takes:
            return
        self._takes[take.name] = [take]
        self._require_own(take.name)
        takes = self._takes[take.name] = self._takes_of(take)
        starts, uses = self._starts_and_uses(take.way, takes)
        self._imports[Import("perflint_runtime", _OBJECTS[take.way])] = None
        for start in starts:
            assert start.value is not None
            given = self.code.text(start.value) if take.way == "sum" else ""
            self._replace(start.value, f"{_OBJECTS[take.way]}({given})")
        for other in takes:
            self._edits[self._taking(other)] = None
        looked_at = [use for use in uses if not self._is_taken(use)]
        for use in looked_at:
            self._require_seldom(use, takes)
            if take.way == "list":
                self._require_complete(use, starts, takes)
            self._look(take.way, use)

    def _require_own(self, name: str) -> None:
        """That nobody but this code sees a local."""
        flow, scope = self.flow, self.code.scope
        if name in flow.inner_names | flow.outer_names or inspects_itself(flow) or suspends(flow):
            raise CannotRewrite(f"`{name}` may be seen by other code")
        mentions = [*flow.mentions[name], *(d.node for d in flow.definitions_of(name))]
        if scope.is_module and (self.code.source.cells is not None or not all(map(self._runs_alone, mentions))):
            raise CannotRewrite(f"`{name}` is a global variable")

    def _runs_alone(self, node: ast.AST) -> bool:
        """Whether code of a module runs only where the module is the program: nobody can import what it binds."""
        return any(isinstance(a, ast.If) and _asks_for_main(a.test) for a in self.flow.ancestors(node))

    def _takes_of(self, take: _Take) -> list[_Take]:
        """Everything by which a local takes reads, in the way of `take`."""
        found = {}
        for node in [*self._reads, *(use for d in self.flow.definitions if self._is_late(d) for use in self.flow.uses[d])]:
            other = _take(self.code, node)
            if other is None or other.name != take.name:
                continue
            if other.way != take.way:
                raise CannotRewrite(f"`{take.name}` takes a read in another way, too")
            found[other.statement] = other
        return sorted(self._connected(take, found), key=lambda t: self.flow.order[t.target])

    def _connected(self, take: _Take, found: dict[ast.stmt, _Take]) -> list[_Take]:
        """Those takes that some place may look at together with `take`, or with others of these."""
        flow, group, rest = self.flow, [found[take.statement]], [t for t in found.values() if t.statement is not take.statement]
        while True:
            reaching = {d for t in group for d in flow.reaching.get(t.target, frozenset()) if take.way != "item"}
            tracked = reaching | {d for t in group for d in self._own(t)}
            reached = {
                d for tracked_one in tracked for use in flow.uses[tracked_one] for d in flow.reaching.get(use, frozenset())
            }
            more = [
                t
                for t in rest
                if self._own(t) & reached or (take.way != "item" and flow.reaching.get(t.target, frozenset()) & tracked)
            ]
            if not more:
                return group
            group += more
            rest = [t for t in rest if t not in more]

    def _own(self, take: _Take) -> set[Definition]:
        return {d for d in self.flow.definitions_of(take.name) if d.node is take.target}

    def _is_late(self, definition: Definition) -> bool:
        """Whether a definition binds a name to nothing but a read."""
        read = self._reads.get(definition.value) if definition.value is not None else None
        return read is not None and definition.kind == "assign" and not definition.index and means_item(self.code, read)

    def _is_taken(self, use: ast.expr) -> bool:
        """Whether another local takes a name that stands for a read."""
        if not isinstance(use, ast.Name) or not self._are_late(use):
            return False
        take = _take(self.code, use)
        if take is None or take.way == "item":
            return False
        self._rewrite(take)
        return True

    def _are_late(self, use: ast.Name) -> bool:
        definitions = self.flow.reaching.get(use, frozenset())
        return bool(definitions) and all(map(self._is_late, definitions))

    def _starts_and_uses(self, way: _Way, takes: list[_Take]) -> tuple[list[Definition], list[ast.expr]]:
        """What makes the local, and where it is looked at. All that reaches a place is the object, or nothing is."""
        flow, name = self.flow, takes[0].name
        targets = {take.target for take in takes}
        own = {d for take in takes for d in self._own(take)}
        if way == "item":
            starts: set[Definition] = set()
        else:
            starts = {d for take in takes for d in flow.reaching.get(take.target, frozenset())} - own
            if not starts:
                raise CannotRewrite(f"`{name}` has no start")
        for start in starts:
            if start.kind != "assign" or start.index or not flow.binds_alone(start.node) or not self._is_start(way, start):
                raise CannotRewrite(f"`{name}` has no literal start")
        tracked = starts | own
        uses = list(dict.fromkeys(use for d in tracked for use in flow.uses[d] if use not in targets))
        for use in (*uses, *targets):
            if not flow.reaching.get(use, frozenset()) <= tracked:
                raise CannotRewrite(f"`{name}` may be something else there")
        if way != "item":
            loops = {loop for take in takes for loop in flow.block[take.statement].loops()}
            inner = {loop for loop in loops if not all(flow.within(start.node, loop.block) for start in starts)}
            for other in {*flow.definitions_of(name)} - tracked:
                if any(flow.within(other.node, loop.block) for loop in inner):
                    raise CannotRewrite(f"the loop may leave something else in `{name}`")
        return sorted(starts, key=lambda d: d.order), uses

    def _is_start(self, way: _Way, start: Definition) -> bool:
        match start.value:
            case ast.Constant(value=number):
                return way == "sum" and type(number) in (int, float)
            case ast.List(elts=[]):
                return way == "list"
            case ast.Call(func=ast.Name(id="list"), args=[], keywords=[]):
                return way == "list" and self.code.means_builtin("list")
        return False

    def _taking(self, take: _Take) -> Edit:
        """The statement that hands over a tensor instead of what the host reads from it."""
        method, given = self._given(take.taken, take.way)
        source = self.code.source
        if take.way == "item":
            return replace(source, take.taken, f"LateItem({given})")
        factors = [given]
        if take.divisor is not None:
            factors += [self.code.text(take.weight) if take.weight is not None else "1", self.code.text(take.divisor)]
        elif take.weight is not None:
            factors.append(self.code.text(take.weight))
        return replace_statement(source, take.statement, f"{take.name}.{method}({', '.join(factors)})")

    def _given(self, taken: ast.expr, way: _Way) -> tuple[str, str]:
        """The method that takes a read, and the text of what it takes."""
        method = "add" if way == "sum" else "add_item"
        read = self._reads.get(taken)
        if read is None:  # a name that stands for one
            return method, self.code.text(taken)
        if means_item(self.code, read):
            return method, self.code.text(read.tensor)
        if way == "list" and read.kind is ReadKind.COPY:
            return _copied(self.code, taken)
        raise CannotRewrite("it is another read than of a single number")

    def _look(self, way: _Way, use: ast.expr) -> None:
        """Read where somebody looks."""
        flow, source = self.flow, self.code.source
        parent = flow.parent.get(use)
        if isinstance(parent, ast.Delete):
            return
        if way == "list" and isinstance(parent, ast.Attribute) and parent.attr == "append":
            call = flow.parent.get(parent)
            if isinstance(call, ast.Call) and call.func is parent and isinstance(flow.parent.get(call), ast.Expr):
                return
        looks = f"{path_of(use)}.{_LOOKS[way]}()"
        statement = flow.statement(use)
        if isinstance(statement, ast.AugAssign) and statement.target is use:
            operator = _OPERATORS.get(type(statement.op))
            if operator is None or way == "list":
                raise CannotRewrite("the operator has no other spelling")
            value = self.code.text(statement.value)
            self._edits[replace_statement(source, statement, f"{path_of(use)} = {looks} {operator} ({value})")] = None
        else:
            self._replace(use, looks)

    def _replace(self, node: ast.expr, content: str) -> None:
        if any(isinstance(a, ast.JoinedStr) for a in self.flow.ancestors(node)) and self.code.text(node) != ast.unparse(node):
            raise CannotRewrite("it stands in an f-string")
        self._edits[replace(self.code.source, node, content)] = None

    def _require_seldom(self, use: ast.expr, takes: Iterable[_Take]) -> None:
        """That not every step looks at the local."""
        parent = self.flow.parent.get(use)
        if isinstance(parent, ast.Attribute) and parent.attr == "append":
            return
        for take in takes:
            loop = self._loop_of(take)
            if loop is not None and self.flow.within(use, loop.block):
                if not any(is_guard(self.flow, block) for block in self._blocks_in(loop, use)):
                    raise CannotRewrite("each step looks at it")

    def _require_complete(self, use: ast.expr, starts: list[Definition], takes: list[_Take]) -> None:
        """That whoever gets the list itself gets it when nothing is added any more."""
        flow = self.flow
        parent = flow.parent.get(use)
        if isinstance(parent, ast.Attribute) and parent.attr == "append":
            return
        if self._only_computes(use):
            return
        around = {flow.loop(start.node) for start in starts}
        if len(around) > 1 or not all(flow.dominates(start.node, take.statement) for start in starts[:1] for take in takes):
            raise CannotRewrite("the list may be kept while it still grows")
        (home,) = around
        for take in takes:
            inner = [loop for loop in flow.block[take.statement].loops() if home is None or loop is not home]
            outermost = inner[inner.index(home) - 1] if home in inner else inner[-1] if inner else None
            last = flow.extent(outermost)[1] if outermost is not None else flow.order[take.target]
            if flow.order[use] <= last:
                raise CannotRewrite("the list may be kept while it still grows")

    def _only_computes(self, use: ast.expr) -> bool:
        """Whether a list, or a part of it, goes into a function that keeps nothing of it."""
        node: ast.AST = use
        while isinstance(parent := self.flow.parent.get(node), ast.Subscript) and parent.value is node:
            node = parent
        call = self.flow.parent.get(node)
        if not isinstance(call, ast.Call) or node not in call.args:
            return False
        name = path_of(call.func) or ""
        if name in _LOOKING:
            return self.code.means_builtin(name)
        value = self.code.value(call.func)
        return value.must(lambda a: isinstance(a, External) and a.qualname in _COMPUTING)

    def _loop_of(self, take: _Take) -> Loop | None:
        return self.code.step_loop(take.statement) or self.flow.loop(take.statement)

    def _blocks_in(self, loop: Loop, node: ast.AST) -> Iterator[Block]:
        for block in self.flow.block[node].ancestry():
            if block is loop.block:
                return
            yield block


_LOOKING = frozenset(("len", "sum", "min", "max", "any", "all"))
_COMPUTING = frozenset(
    f"{module}.{name}"
    for module in ("numpy", "statistics", "math")
    for name in ("mean", "average", "sum", "std", "var", "median", "min", "max", "fsum", "nanmean", "concatenate")
)


def _asks_for_main(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]):
            return True
    return False


def _take(code: Code, taken: ast.expr) -> _Take | None:
    """What takes an expression: a total, a list or a name."""
    statement = code.flow.statement(taken)
    match statement:
        case ast.AugAssign(target=ast.Name() as target, op=ast.Add(), value=ast.List(elts=[element])) if element is taken:
            return _Take("list", statement, target, taken)
        case ast.AugAssign(target=ast.Name() as target, op=ast.Add(), value=value):
            factors = _factors(code, value, taken)
            return None if factors is None else _Take("sum", statement, target, taken, *factors)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name() as target, attr="append"), args=[given], keywords=[])):
            return _Take("list", statement, target, taken) if given is taken else None
        case ast.Assign(targets=[ast.Name() as target], value=value) if value is taken:
            return _Take("item", statement, target, taken)
    return None


def _factors(code: Code, value: ast.expr, taken: ast.expr) -> tuple[ast.expr | None, ast.expr | None] | None:
    """What a number is multiplied and divided by before it is added; None if something else is done to it."""
    match value:
        case _ if value is taken:
            return None, None
        case ast.BinOp(left=left, op=ast.Div(), right=divisor):
            inner = _factors(code, left, taken)
            return (inner[0], divisor) if inner is not None and inner[1] is None else None
        case ast.BinOp(left=left, op=ast.Mult(), right=weight) if left is taken:
            return weight, None
        case ast.BinOp(left=weight, op=ast.Mult()) if is_product(code, value, taken):
            return weight, None
    return None


def _copied(code: Code, read: ast.expr) -> tuple[str, str]:
    """The method of a list that takes what `x.cpu()` or `x.cpu().numpy()` gives, and the text of `x`.

    Raises:
        CannotRewrite: the copy is made in another way.

    """
    node, behind = read, []
    while True:
        match node:
            case ast.Call(func=ast.Attribute(value=inner, attr="cpu"), args=[], keywords=[]):
                break
            case ast.Call(func=ast.Attribute(value=inner, attr="to"), args=[ast.Constant(value="cpu")], keywords=[]):
                break
            case ast.Call(func=ast.Attribute(value=inner, attr="numpy" | "detach" as name), args=[], keywords=[]):
                behind.append(f"{name}()")
            case ast.Attribute(value=inner, attr="data"):
                behind.append("data")
            case _:
                raise CannotRewrite("the copy is made in another way")
        node = inner
    method = "add_copy"
    if behind[:1] == ["numpy()"]:
        method = "add_array"
        del behind[0]
    if "numpy()" in behind or (behind and not code.value(inner).must(lambda a: isinstance(a, Tensor))):
        raise CannotRewrite("the copy is made in another way")
    text = code.text(inner)
    if behind and not isinstance(inner, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        text = f"({text})"
    return method, ".".join((text, *reversed(behind)))
