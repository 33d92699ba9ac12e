"""Fixes in a notebook that hold in whatever order its cells run, and however often.

A notebook is analysed as the script that its cells make up from top to bottom. In use its cells run in any order, again, with
others in between that are no longer there. So each cell in which something can be fixed is looked at once more by itself: of
the other cells it gets the imports, and behind it stands code of which nothing is known, which is handed all that the cell
binds and binds it again. A fix that is made there, too, rests on no other cell. All others assume the order of the cells.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from perflint.rule.finding import Applicability, Edit, Finding, Fix
from perflint.rule.obligations import Kind, Obligation
from perflint.source.cells import HIDDEN, Head
from perflint.source.records import dataclass
from perflint.source.source import Source
from perflint.source.words import made

CheckText = Callable[[str, bytes], "list[Finding]"]
"""Find what there is in a text that belongs to no project; the path tells it from others."""

_OTHER_CELLS = "__other_cells__"
_ORDER = Obligation(Kind.CELL_ORDER, "the cells of the notebook may run in another order, or twice")
_SHOWN = Obligation(Kind.RETENTION, "the notebook shows and keeps the value of a cell's last line")
_NO_PYTHON = Obligation(Kind.REWRITE, "the fix would change a line that is no Python, or the border of a cell")
_LINES = made(r"`[^`]*`|\bline (\d+(?:, \d+)*)(?: of (\S+\.\w+))?")
"""What findings say of lines, perhaps of another file; words of the program stand in quotes."""

_WORD = made(r"[^\W\d]\w*")
_NOT_SHOWN = made(r";[ \t]*(?:#[^\n]*)?\s*\Z")


def in_any_order(source: Source, findings: Sequence[Finding], check: CheckText) -> Iterator[Finding]:
    """The findings of a notebook: no fixes that cannot be written, and those that rest on other cells assume their order.

    What findings say of lines counts within cells.
    """
    notebook = _Notebook(source, check)
    for finding in findings:
        yield notebook.in_words(notebook.judged(finding, finding.fix) if finding.fix is not None else finding)


@dataclass(frozen=True)
class _Shown:
    """The expressions that a cell shows, and the bytes of its last statement."""

    text: str
    start: int
    end: int

    def stays_the_same(self, edit: Edit) -> bool:
        """Whether an edit, by its place alone, leaves the cell's last statement the last, and what of it is shown."""
        return edit.end < self.start or (not self.text and self.start < edit.start and edit.end < self.end)

    @cached_property
    def words(self) -> frozenset[str]:
        """The names in the expressions."""
        return frozenset(_WORD.findall(self.text))


class _Notebook:
    """The cells of one notebook, each parsed, and looked at by itself, when it is asked about."""

    def __init__(self, source: Source, check: CheckText) -> None:
        assert source.cells is not None
        self.source, self.cells = source, source.cells
        self._check = check
        self._found: dict[Head, dict[tuple[object, ...], list[frozenset[Kind]]]] = {}
        self._shown: dict[Head, _Shown] = {}

    def in_words(self, finding: Finding) -> Finding:
        """A finding that names lines as they count within their cells."""

        def named(found: re.Match[str]) -> str:
            rows, file = found.groups()
            if rows is None or (file is not None and not self.source.path.endswith(file)):
                return found[0]
            places = [self.source.position(self.source.starts[int(row) - 1]) for row in rows.split(", ")]
            here = self.source.position(finding.start).cell
            return "line " + ", ".join(f"{at.row}{f' of cell {at.cell}' if at.cell != here else ''}" for at in places)

        obligations = tuple(replace(o, words=_LINES.sub(named, o.words)) for o in finding.obligations)
        return replace(finding, message=_LINES.sub(named, finding.message), obligations=obligations)

    def judged(self, finding: Finding, fix: Fix) -> Finding:
        """A finding with what becomes of its fix."""
        heads = [self.cells.at(edit.start) for edit in fix.edits]
        touched = [head for head in heads if head is not None]
        if len(touched) < len(heads) or not all(map(self._can_be_written, touched, fix.edits)):
            return replace(finding, fix=None, obligations=(*finding.obligations, _NO_PYTHON))
        if any(self._changes_display(head, fix) for head in dict.fromkeys(touched)):
            unsafe = replace(fix, applicability=Applicability.UNSAFE, assumptions=())
            return replace(finding, fix=unsafe, obligations=(*finding.obligations, _SHOWN))
        if fix.applicability is Applicability.UNSAFE or (touched and self._is_found_apart(touched[0], finding, fix)):
            return finding
        assuming = replace(fix, applicability=Applicability.ASSUMING, assumptions=(*fix.assumptions, Kind.CELL_ORDER))
        return replace(finding, fix=assuming, obligations=(*finding.obligations, _ORDER))

    def _can_be_written(self, head: Head, edit: Edit) -> bool:
        """Whether an edit leaves the borders of its cell and all lines that are no Python as they are."""
        starts = self.source.starts
        first, last = self.source.row_at(edit.start), self.source.row_at(max(edit.end - 1, edit.start))
        lines = self.source.text(starts[first - 1], starts[last] if last < len(starts) else len(self.source.body))
        ends_line = edit.content.endswith("\n") or (not edit.content and edit.start > head.start)
        return HIDDEN not in lines and (edit.end < head.end or (edit.end == head.end and ends_line))

    # -- what a cell shows -------------------------------------------------------------------------------------------

    def _changes_display(self, head: Head, fix: Fix) -> bool:
        """Whether a fix changes a cell's last line, whose value a notebook shows, or a line with names of that one."""
        edits = [edit for edit in fix.edits if self.cells.at(edit.start) == head]
        if head not in self._shown:
            self._shown[head] = self._shown_by(head)
        shown = self._shown[head]
        if not all(map(shown.stays_the_same, edits)):
            after = self.source.body[head.start : head.end]
            for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
                after = after[: edit.start - head.start] + edit.content.encode() + after[edit.end - head.start :]
            if shown.text != self._displayed(after.decode()):
                return True
        rows = {self.source.row_at(at) for edit in edits for at in (edit.start, max(edit.end - 1, edit.start))}
        return any(not shown.words.isdisjoint(_WORD.findall(self.source.line(row))) for row in rows) if shown.words else False

    def _shown_by(self, head: Head) -> _Shown:
        text = self._displayed(self.source.text(head.start, head.end))
        if self._shows_all or not self._trees[head].body:
            return _Shown(text, head.start, head.start)
        last = self._trees[head].body[-1]
        end = self.source.offset(head.row + (last.end_lineno or last.lineno), last.end_col_offset or 0)
        return _Shown(text, self.source.offset(head.row + last.lineno, last.col_offset), end)

    @cached_property
    def _shows_all(self) -> bool:
        return b"ast_node_interactivity" in self.source.body

    def _displayed(self, text: str) -> str:
        """The expressions whose values a cell shows: its last statement if that is one, or all; empty if there are none."""
        body = _parsed(text).body
        if not self._shows_all:
            body = [] if _NOT_SHOWN.search(text) else body[-1:]
        return "\n".join(ast.unparse(statement) for statement in body if isinstance(statement, ast.Expr))

    # -- a cell by itself --------------------------------------------------------------------------------------------

    def _is_found_apart(self, head: Head, finding: Finding, fix: Fix) -> bool:
        """Whether the same fix is made, with no more assumptions, where nothing is known of the other cells."""
        if head not in self._found:
            text, moved = self._alone(head)
            found = self._found[head] = {}
            for other in self._check(f"{self.source.path}/{head.number}.py", text):
                if other.fix is not None and other.fix.applicability is not Applicability.UNSAFE:
                    found.setdefault(_made(other, other.fix, moved), []).append(frozenset(other.fix.assumptions))
        return any(assumed.issubset(fix.assumptions) for assumed in self._found[head].get(_made(finding, fix), ()))

    def _alone(self, head: Head) -> tuple[bytes, int]:
        """A cell with the imports of the others above it and unknown code behind it; how many bytes it has moved back."""
        above = b"".join(line for other, line in self._imports if other != head)
        own = self._bound[head]
        elsewhere = {name for name in own.definitions | self._imported if self._times[name] > own.binds(name)}
        again = " = ".join(sorted(own.values | elsewhere))
        handed = ", ".join(sorted(own.values | own.definitions))
        tail = f"{_OTHER_CELLS}({handed})\n" + (f"{again} = {_OTHER_CELLS}()\n" if again else "")
        return above + self.source.body[head.start : head.end] + tail.encode(), head.start - len(above)

    @cached_property
    def _imports(self) -> list[tuple[Head, bytes]]:
        """The import statements at the top level of the cells, a line or more each."""
        return [
            (head, f"{self._text(head, statement)}\n".encode())
            for head, tree in self._trees.items()
            for statement in tree.body
            if isinstance(statement, (ast.Import, ast.ImportFrom))
        ]

    def _text(self, head: Head, statement: ast.stmt) -> str:
        start = self.source.offset(head.row + statement.lineno, statement.col_offset)
        end = self.source.offset(head.row + (statement.end_lineno or statement.lineno), statement.end_col_offset or 0)
        return self.source.text(start, end)

    @cached_property
    def _times(self) -> Counter[str]:
        """In how many cells each name is bound otherwise than by an import."""
        return Counter(name for names in self._bound.values() for name in names.values | names.definitions)

    @cached_property
    def _imported(self) -> frozenset[str]:
        return frozenset(name for names in self._bound.values() for name in names.imports)

    @cached_property
    def _trees(self) -> dict[Head, ast.Module]:
        """The cells' trees; one that cannot be parsed, so that the whole text cannot be, either, has an empty one."""
        return {head: _parsed(self.source.text(head.start, head.end)) for head in self.cells.heads}

    @cached_property
    def _bound(self) -> dict[Head, _Names]:
        return {head: _Names(tree) for head, tree in self._trees.items()}


class _Names:
    """The names that a cell binds in the notebook: as values, as functions and classes, as modules and what comes from them."""

    def __init__(self, tree: ast.Module) -> None:
        self.values: set[str] = set()
        self.definitions: set[str] = set()
        self.imports: set[str] = set()
        pending: list[ast.AST] = [tree]
        while pending:
            node = pending.pop()
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    self.definitions.add(name)
                    self.values |= {name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names}
                    continue
                case ast.alias(name=name, asname=asname):
                    self.imports.add(asname or name.partition(".")[0])
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                    self.values.add(name)
                case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                    self.values.add(name)
                case ast.MatchMapping(rest=str(name)):
                    self.values.add(name)
            pending += ast.iter_child_nodes(node)
        self.imports.discard("*")

    def binds(self, name: str) -> bool:
        """Whether the cell binds a name otherwise than by an import."""
        return name in self.values or name in self.definitions


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _made(finding: Finding, fix: Fix, moved: int = 0) -> tuple[object, ...]:
    """What a finding would have done where, if it stood so many bytes further down."""
    edits = tuple((edit.start + moved, edit.end + moved, edit.content) for edit in fix.edits)
    return finding.rule, finding.start + moved, finding.end + moved, edits, fix.imports
