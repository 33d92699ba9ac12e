"""Local variables that take reads in each step, as objects of the runtime that read when somebody looks: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Code,
    Edit,
    HostRead,
    Import,
    Kind,
    Obligation,
    ReadKind,
    path_of,
    replace,
    replace_statement,
)
from perflint_rules.late_copies import copied, named_copies, open_about_names, renamed
from perflint_rules.late_locals import LateLocals
from perflint_rules.late_looks import is_set, require_own_lists
from perflint_rules.late_numbers import as_arguments, is_late_number
from perflint_rules.late_proofs import open_about_takes
from perflint_rules.late_takes import LOOKS, OBJECTS, Take, Way, take_of, taken_with, unchained
from perflint_rules.meter_holders import looks_at_meter

_OPERATORS = {ast.Div: "/", ast.Mult: "*", ast.Sub: "-", ast.Add: "+", ast.Pow: "**"}


class Late(LateLocals):
    """A read that a local takes, and that can be read when somebody looks at the local."""

    cure: str | None = None

    def __init__(self, code: Code, take: Take, is_inner: bool) -> None:
        super().__init__(code, is_inner)
        self._edits: dict[Edit, None] = {}
        self._imports: dict[Import, None] = {}
        self._chained: dict[ast.stmt, dict[str, str]] = {}
        self._takes: dict[str, list[Take]] = {}
        self._refused: CannotRewrite | None = None
        try:
            self._rewrite(take)
        except CannotRewrite as reason:
            self._refused = reason

    @classmethod
    def find(cls, code: Code, read: HostRead, is_inner: bool) -> "Late | None":
        """What takes a read in a loop; None if that is no total, list or name."""
        reads = {read.node: read for read in code.reads()}
        taken = taken_with(code, reads, read.node)
        use = next((use for use, copy in named_copies(code, reads).items() if copy is read.node), taken)
        take, is_number = take_of(code, use), is_late_number(code, reads, taken)
        return cls(code, take, is_inner) if take is not None and (is_number or take.way in ("list", "array")) else None

    def missing(self) -> Iterator[Obligation | None]:
        """The proofs that a safe fix needs and that do not hold."""
        takes = [take for takes in self._takes.values() for take in takes]
        loops = {take: self.code.around(take.statement) for take in takes}
        blocks = [block for take, loop in loops.items() for block in self._blocks_in(loop, take.statement)]
        yield from open_about_takes(self.code, loops, blocks, self._reads)
        for use in (take.taken for take in takes if take.taken in self._copies):
            yield from open_about_names(self.code, self._reads, use, self._copies[use])
        for name in self._public:
            yield Obligation(Kind.APPLICATION, f"a program that imports this file may read `{name}`")

    def parts(self) -> Iterator[Edit | Import]:
        """The edits.

        Raises:
            CannotRewrite: each step looks at what a local holds, or the local may be something else.

        """
        if self._refused is not None:
            raise self._refused
        yield from self._imports
        yield from self._edits
        yield from (unchained(self.code, statement, starts) for statement, starts in self._chained.items())

    def _rewrite(self, take: Take) -> None:
        """Make an object of the runtime of the local that takes something, with all that it takes."""
        if take.name in self._takes:
            if all(take.statement is not known.statement for known in self._takes[take.name]):
                raise CannotRewrite(f"`{take.name}` takes reads that have nothing to do with each other")
            return
        self._takes[take.name] = [take]
        self._require_own(take.name)
        takes = self._takes[take.name] = self._takes_of(take)
        starts, uses = self._starts_and_uses(take.way, takes)
        self._imports[Import("perflint_runtime", OBJECTS[take.way])] = None
        for start in starts:
            assert start.value is not None
            made = f"{OBJECTS[take.way]}({self.code.text(start.value) if take.way != 'list' else ''})"
            if self.flow.binds_alone(start.node):
                self._replace(start.value, made)
            else:
                self._chained.setdefault(self.flow.statement(start.node), {})[start.name] = made
        for other in takes:
            if other.way != "meter" or other.taken in self._numbers:
                self._edits[self._taking(other)] = None
            if isinstance(other.taken, ast.Name) and other.taken not in self._numbers:
                self._rewrite_named(other.taken)
        require_own_lists(self.code, takes, starts, uses)
        looked_at = [use for use in uses if not self._is_taken(use)]
        if take.way == "meter":
            for look in (look for use in looked_at for look in looks_at_meter(self.code, use)):
                self._require_seldom(look, takes)
            return
        for use in looked_at:
            self._require_seldom(use, takes)
            if take.way in ("list", "dict"):
                self._require_complete(use, starts, takes)
            self._look(take.way, use)

    def _rewrite_named(self, name: ast.Name) -> None:
        """Keep the reads late that a name stands for."""
        for definition in self.flow.reaching[name]:
            take = take_of(self.code, definition.value) if definition.value is not None else None
            if take is None or take.way != "item" or not self._is_late(definition):
                raise CannotRewrite(f"`{name.id}` is no name for a read alone")
            self._rewrite(take)

    def _is_taken(self, use: ast.expr) -> bool:
        """Whether another local takes a name that stands for a read."""
        if not isinstance(use, ast.Name) or not self._are_late(use):
            return False
        take = take_of(self.code, use)
        if take is None or take.way == "item":
            return False
        self._rewrite(take)
        return True

    def _taking(self, take: Take) -> Edit:
        """The statement that hands over a tensor instead of what the host reads from it."""
        method, given = self._given(take)
        source = self.code.source
        if take.way in ("item", "meter"):
            return replace(source, take.taken, given)
        if take.key is not None:
            return replace_statement(
                source, take.statement, f"{take.name}.{take.method}({given}, at={self.code.text(take.key)})"
            )
        divisor = "" if take.weight else "divisor="
        factors = (("", take.weight), (divisor, take.divisor), ("power=", take.power), ("times=", take.times))
        parts = [given, *(f"{name}{self.code.text(part)}" for name, part in factors if part is not None)]
        return replace_statement(source, take.statement, f"{take.name}.{method}({', '.join(parts)})")

    def _given(self, take: Take) -> tuple[str, str]:
        """The method that takes a number, and the text of what it takes."""
        taken, way = take.taken, take.way
        method, is_spread = "add" if way == "sum" else "add_item", take.method == "extend"
        read = self._reads.get(taken)
        if way in ("list", "array") and read is not None and read.kind is ReadKind.COPY:
            kind, given, tensor = copied(
                self.code, self._copies.get(taken, taken), self.code.text(taken) * (taken in self._copies)
            )
            if taken in self._copies:
                self._edits[renamed(self.code, self._copies[taken], tensor)] = None
            if (is_spread and kind == "copy") or (way == "array" and kind != "array"):
                raise CannotRewrite("its rows are tensors")
            return f"{'extend' if is_spread else 'add'}_{kind}", given
        if is_spread or way == "array":
            raise CannotRewrite("it is no copy of a tensor")
        if taken not in self._numbers:  # a name that stands for one
            return method, self.code.text(taken)
        given = as_arguments(self.code, self._reads, taken)
        if way in ("item", "meter") or ", of=" in given:
            self._imports[Import("perflint_runtime", "LateItem")] = None
            given = f"LateItem({given})"
        return method, given

    def _look(self, way: Way, use: ast.expr) -> None:
        """Read where somebody looks."""
        flow, source = self.flow, self.code.source
        parent = flow.parent.get(use)
        if isinstance(parent, ast.Delete) or (way == "dict" and is_set(flow, use)):
            return
        if way == "list" and isinstance(parent, ast.Attribute) and parent.attr in ("append", "extend"):
            call = flow.parent.get(parent)
            if isinstance(call, ast.Call) and call.func is parent and isinstance(flow.parent.get(call), ast.Expr):
                return
        looks = f"{path_of(use)}.{LOOKS[way]}()"
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
