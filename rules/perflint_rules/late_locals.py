"""Local variables that take reads: what they take, how they begin, where they are looked at: no rule by itself."""

import ast
from collections.abc import Iterable, Iterator

from perflint.api import (
    Block,
    CannotRewrite,
    Code,
    Definition,
    Loop,
    functions_see,
    inspects_itself,
    is_guard,
    suspends,
)
from perflint_rules.kept_locals import SeenInEachStep
from perflint_rules.late_copies import named_copies
from perflint_rules.late_looks import gives_number, is_set, only_computes
from perflint_rules.late_meters import is_new_meter
from perflint_rules.late_numbers import is_late_number
from perflint_rules.late_takes import Take, Way, chained_names, is_empty_array, take_of, taken_with


class LateLocals:
    """The locals of a scope that take its reads.

    is_inner: whether the reads are to be made behind the innermost loops, perhaps in each step; else now and then, as a rule.
    """

    def __init__(self, code: Code, is_inner: bool) -> None:
        self.code, self.flow, self._is_inner = code, code.flow, is_inner
        self._reads = {read.node: read for read in code.reads()}
        self._copies = named_copies(code, self._reads)
        self._reads |= {use: self._reads[copy] for use, copy in self._copies.items()}
        self._numbers = dict.fromkeys(taken_with(code, self._reads, node) for node in self._reads)
        """The reads, and what is computed from them where that is taken instead."""
        self._public: list[str] = []
        """Global variables that another program could read, if it imported this file."""

    def _require_own(self, name: str) -> None:
        """That nobody but this code sees a local."""
        flow, scope = self.flow, self.code.scope
        if name in flow.inner_names | flow.outer_names or inspects_itself(flow) or suspends(flow):
            raise CannotRewrite(f"`{name}` may be seen by other code")
        if not scope.is_module:
            return
        source = self.code.source
        mentions = [*flow.mentions[name], *(d.node for d in flow.definitions_of(name))]
        if source.cells is not None or source.body.count(b"__main__") > 1:
            raise CannotRewrite(f"`{name}` is a global variable")
        if functions_see(scope.module, name):
            raise CannotRewrite(f"functions of the module see `{name}`")
        if not all(map(self._runs_alone, mentions)):
            if self.code.facts.project.importers(source.path):
                raise CannotRewrite(f"a file that imports this one may read `{name}`")
            self._public.append(name)

    def _runs_alone(self, node: ast.AST) -> bool:
        """Whether code of a module runs only where the module is the program: nobody can import what it binds."""
        return any(isinstance(a, ast.If) and _asks_for_main(a.test) for a in self.flow.ancestors(node))

    def _takes_of(self, take: Take) -> list[Take]:
        """Everything by which a local takes reads, in the way of `take`."""
        found: dict[ast.expr, Take] = {}
        for node in [*self._numbers, *(use for d in self.flow.definitions if self._is_late(d) for use in self.flow.uses[d])]:
            other = take_of(self.code, node)
            if other is None or other.name != take.name:
                continue
            if other.way != take.way:
                raise CannotRewrite(f"`{take.name}` takes a read in another way, too")
            found[other.taken] = other
        return sorted(self._connected(take, found), key=lambda t: self.flow.order[t.target])

    def _connected(self, take: Take, found: dict[ast.expr, Take]) -> list[Take]:
        """Those takes that some place may look at together with `take`, or with others of these."""
        flow, group, rest = self.flow, [found[take.taken]], [t for t in found.values() if t.taken is not take.taken]
        while True:
            reaching = {d for t in group for d in flow.reaching.get(t.use, frozenset()) if take.way != "item"}
            tracked = reaching | {d for t in group for d in self._own(t)}
            reached = {
                d for tracked_one in tracked for use in flow.uses[tracked_one] for d in flow.reaching.get(use, frozenset())
            }
            more = [
                t
                for t in rest
                if self._own(t) & reached or (take.way != "item" and flow.reaching.get(t.use, frozenset()) & tracked)
            ]
            if not more:
                return group
            group += more
            rest = [t for t in rest if t not in more]

    def _own(self, take: Take) -> set[Definition]:
        return {d for d in self.flow.definitions_of(take.name) if d.node is take.target}

    def _is_late(self, definition: Definition) -> bool:
        """Whether a definition binds a name to nothing but a read."""
        made = definition.value
        if made not in self._numbers or definition.kind != "assign" or definition.index:
            return False
        return made is not None and is_late_number(self.code, self._reads, made)

    def _are_late(self, use: ast.Name) -> bool:
        definitions = self.flow.reaching.get(use, frozenset())
        return bool(definitions) and all(map(self._is_late, definitions))

    def _starts_and_uses(self, way: Way, takes: list[Take]) -> tuple[list[Definition], list[ast.expr]]:
        """What makes the local, and where it is looked at. All that reaches a place is the object, or nothing is."""
        flow, name = self.flow, takes[0].name
        targets = {take.use for take in takes}
        own = {d for take in takes for d in self._own(take)}
        if way == "item":
            starts: set[Definition] = set()
        else:
            starts = {d for take in takes for d in flow.reaching.get(take.use, frozenset())} - own
            if not starts:
                raise CannotRewrite(f"`{name}` has no start")
        for start in starts:
            is_own = flow.binds_alone(start.node) or (way == "sum" and chained_names(flow.statement(start.node)))
            if start.kind != "assign" or start.index or not is_own or not self._is_start(way, start):
                raise CannotRewrite(f"`{name}` has no literal start")
        tracked = starts | own
        uses = sorted({use for d in tracked for use in flow.uses[d]} - targets, key=flow.order.__getitem__)
        for use in (*uses, *targets):
            if not flow.reaching.get(use, frozenset()) <= tracked:
                raise CannotRewrite(f"`{name}` may be something else there")
        return sorted(starts, key=lambda d: d.order), uses

    def _is_start(self, way: Way, start: Definition) -> bool:
        match start.value:
            case ast.Constant(value=number):
                return way == "sum" and type(number) in (int, float)
            case ast.List(elts=[]):
                return way in ("list", "array")
            case ast.Dict():
                return way == "dict"
            case ast.Call(func=ast.Name(id="list"), args=[], keywords=[]):
                return way == "list" and self.code.means_builtin("list")
            case ast.Call() as made:
                return is_empty_array(self.code, made) if way == "array" else way == "meter" and is_new_meter(self.code, made)
        return False

    def _loop_of(self, take: Take) -> Loop | None:
        inner = self.flow.loop(take.statement)
        return inner if self._is_inner else self.code.step_loop(take.statement) or inner

    def _blocks_in(self, loop: Loop | None, node: ast.AST) -> Iterator[Block]:
        """The blocks around a node in a loop, or in the whole function."""
        for block in self.flow.block[node].ancestry():
            if loop is not None and block is loop.block:
                return
            yield block

    def _require_seldom(self, use: ast.expr, takes: Iterable[Take]) -> None:
        """That not every step looks at the local."""
        parent, takes = self.flow.parent.get(use), [*takes]
        if isinstance(parent, ast.Attribute) and parent.attr in ("append", "extend"):
            return
        if takes[0].way == "dict" and is_set(self.flow, use):
            return
        for take in takes:
            loop = self._loop_of(take)
            if loop is not None and self.flow.within(use, loop.block):
                if not any(is_guard(self.flow, block) for block in self._blocks_in(loop, use)):
                    raise SeenInEachStep

    def _require_complete(self, use: ast.expr, starts: list[Definition], takes: list[Take]) -> None:
        """That whoever gets the list itself gets it when nothing is added any more."""
        flow = self.flow
        parent = flow.parent.get(use)
        if isinstance(parent, ast.Attribute) and parent.attr in ("append", "extend"):
            return
        if only_computes(self.code, use) or (takes[0].way == "dict" and gives_number(self.code, use, takes)):
            return
        around = {flow.loop(start.node) for start in starts}
        if len(around) > 1 or not all(flow.dominates(start.node, take.statement) for start in starts[:1] for take in takes):
            raise CannotRewrite("the list may be kept while it still grows")
        (home,) = around
        for take in takes:
            inner = [*flow.block[take.statement].loops()]
            inner = inner[: inner.index(home)] if home in inner else inner
            outermost = inner[-1] if inner else None
            last = flow.extent(outermost)[1] if outermost is not None else flow.order[take.target]
            if flow.order[use] <= last:
                raise CannotRewrite("the list may be kept while it still grows")


def _asks_for_main(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]):
            return True
    return False
