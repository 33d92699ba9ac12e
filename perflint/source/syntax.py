"""A file's structure without parsing all of it.

`ast.parse` handles about 70,000 lines per CPU second, and most functions of a file hold nothing that a rule asks for.
So a file is cut into its outermost functions (text only) and a *skeleton*: the module with each of those functions
replaced by `pass`. The skeleton is parsed at once, a function when somebody asks for its tree. Line numbers stay those
of the file. Where the cut does not parse, the whole file is parsed and the result looks the same.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Protocol

from perflint.source.bindings import Binding, bindings
from perflint.source.chunks import Chunk, skeleton_of, split
from perflint.source.identifiers import attributes_in, may_assign, occurrences, stands_in
from perflint.source.nodes import blocks_of, bound_in, first_row
from perflint.source.source import Source
from perflint.source.vocabulary import branches
from perflint.source.words import any_layout, made

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_APART = made(rb"\.(?:[\s\\]|#[^\n]*\n)+(\w+)")
_WORD = made(rb"\w+")
_CALLED_MEMBER = any_layout(rb"\. ([\w\x80-\xff]+) \(")
_STAR = made(rb"import[\s\\]*\*")

SEARCHES_WITHOUT_INDEX = 64
"""How often a file is searched for identifiers before all its words are indexed, which takes as long as about so many
searches: a file of many functions is asked about each of them."""

MAX_LINES_ABOVE = 100
"""For each line of a function. Its tree gets the file's line numbers by that many empty lines in front of its text; where
they are more, adding to the numbers in the tree takes less time."""


class SyntaxProblem(Exception):
    """The file is not valid Python for the interpreter that runs perflint."""

    def __init__(self, message: str, row: int, column: int) -> None:
        super().__init__(message)
        self.message, self.row, self.column = message, row, column


class TooDeep(SyntaxProblem):
    """The file may be valid Python, but is nested more deeply than the parser or the analysis can follow."""

    def __init__(self, where: str, row: int = 1, column: int = 1) -> None:
        message = f"{where} is nested too deeply to be analysed; split the longest expression or chain in it"
        super().__init__(message, row, column)


def parse(text: str) -> ast.Module:
    """`ast.parse` with every way of failing turned into `SyntaxProblem`."""
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise SyntaxProblem(error.msg, error.lineno or 1, error.offset or 1) from None
    except (RecursionError, MemoryError):
        raise TooDeep("the file") from None
    except ValueError as error:
        raise SyntaxProblem(str(error), 1, 1) from None


@dataclass(eq=False)
class Class:
    """A class of the linted project. `node` is its skeleton: method bodies are in `methods`."""

    module: Module
    qualname: str
    node: ast.ClassDef
    methods: dict[str, Scope] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    """The methods whose last definition stands under a condition, in a `try` or in a loop: another one may be kept."""
    _assigning: dict[str, list[Scope]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.node.name

    @cached_property
    def variables(self) -> set[str]:
        """The names that the class's own statements bind otherwise than by `def` and `class`, perhaps by `def`, or delete."""
        return {*bound_in(self.node.body), *self.uncertain}

    def methods_assigning(self, name: str) -> list[Scope]:
        """The methods that may assign an attribute, as far as their text tells."""
        found = self._assigning.get(name)
        if found is None:
            word = name.encode()
            found = [m for m, held in self._attributes.items() if word in m.attributes_apart or may_assign(m.text, word, held)]
            self._assigning[name] = found
        return found

    @cached_property
    def _attributes(self) -> dict[Scope, frozenset[bytes]]:
        """The methods, each with the attributes that stand in it right behind a dot."""
        return {method: attributes_in(method.text) for method in self.methods.values()}

    def __repr__(self) -> str:
        return f"<class {self.module.name}.{self.qualname}>"


class Releasable(Protocol):
    """What a scope keeps for whoever asks about it, and lets go of with itself."""

    def release(self) -> None:
        """Take it apart."""


class Scope:
    """A piece of code that runs as one: a function, a lambda, or a module's own statements.

    `parent` is the enclosing function scope, `owner` the class that it is a method of.
    """

    def __init__(
        self,
        module: Module,
        qualname: str,
        *,
        chunk: Chunk | None = None,
        node: ast.AST | None = None,
        owner: Class | None = None,
        parent: Scope | None = None,
    ) -> None:
        self.module, self.qualname, self.owner, self.parent = module, qualname, owner, parent
        self._chunk, self._node = chunk, node
        self.flow_cache: Releasable | None = None

    def __repr__(self) -> str:
        return f"<scope {self.module.name}:{self.qualname or '<module>'}>"

    @property
    def name(self) -> str:
        return self.qualname.rpartition(".")[2]

    def release(self) -> None:
        """Take the scope apart, so that its memory is free at once; nobody may ask it again."""
        if self.flow_cache is not None:
            self.flow_cache.release()
        vars(self).clear()

    @property
    def chunk(self) -> Chunk | None:
        """Where an outermost function stands; None for other scopes, and in files that cannot be cut."""
        return self._chunk

    @property
    def is_module(self) -> bool:
        return isinstance(self._node, ast.Module)

    @property
    def text(self) -> bytes:
        """The scope's source, for byte needles. A module's own text has `pass` for each function."""
        if isinstance(self._node, ast.Module):
            return self.module.top_text
        body = self.module.source.body
        if self._chunk is not None:
            return body[self._chunk.start : self._chunk.end]
        if isinstance(self._node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            first = self._node.lineno if isinstance(self._node, ast.Lambda) else first_row(self._node)
            starts = self.module.source.starts
            end = self._node.end_lineno or first
            return body[starts[first - 1] : starts[end] if end < len(starts) else len(body)]
        return body

    @cached_property
    def attributes_apart(self) -> frozenset[bytes]:
        """What the scope's text has behind dots and white space: mostly words of comments, now and then attributes."""
        return frozenset(_APART.findall(self.text))

    @cached_property
    def called_members(self) -> frozenset[bytes]:
        """The names of the methods and other attributes that the scope's text calls."""
        return frozenset(_CALLED_MEMBER.findall(self.text))

    @property
    def may_hold_functions(self) -> bool:
        """Whether functions or lambdas may be written inside the scope, as far as its text tells."""
        text = self.text
        return b"def " in text[text.find(b"def ") + 4 :] or b"lambda" in text

    @property
    def row(self) -> int:
        """The 1-based row that the scope begins on."""
        return self._chunk.first_row if self._chunk is not None else getattr(self._node, "lineno", 1)

    @property
    def node(self) -> ast.AST:
        """The tree, parsed on first use.

        Raises:
            SyntaxProblem: the text of the function is no valid Python.

        """
        if self._node is None:
            assert self._chunk is not None
            try:
                self._node = _parse_chunk(self.module.source, self._chunk)
            except SyntaxProblem:
                self._node = self.module.find_in_whole_tree(self._chunk)
        return self._node

    @property
    def function(self) -> FunctionNode | None:
        """The function's tree, or None for a module or a lambda."""
        node = self.node
        return node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None

    @property
    def parameters(self) -> list[ast.arg]:
        """All parameters in order: positional, `*args`, keyword-only, `**kwargs`."""
        node = self.node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return []
        args = node.args
        middle = [args.vararg] if args.vararg else []
        last = [args.kwarg] if args.kwarg else []
        return [*args.posonlyargs, *args.args, *middle, *args.kwonlyargs, *last]

    @property
    def decorators(self) -> list[ast.expr]:
        return self.function.decorator_list if self.function else []

    @cached_property
    def body(self) -> list[ast.stmt]:
        node = self.node
        if isinstance(node, ast.Lambda):
            return [ast.copy_location(ast.Return(node.body), node.body)]
        assert isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef))
        return node.body


def _parse_chunk(source: Source, chunk: Chunk) -> FunctionNode:
    text = source.text(chunk.start, chunk.end)
    if chunk.indent:
        text = "if 1:\n" + text
    above = chunk.first_row - (2 if chunk.indent else 1)
    if above <= MAX_LINES_ABOVE * (chunk.last_row - chunk.first_row + 1):
        tree = parse("\n" * above + text)
    else:
        tree = ast.increment_lineno(parse(text), above)
    statements = tree.body
    if chunk.indent and len(statements) == 1 and isinstance(statements[0], ast.If):
        statements = statements[0].body
    if len(statements) != 1 or not isinstance(statements[0], (ast.FunctionDef, ast.AsyncFunctionDef)):
        raise SyntaxProblem("a function could not be told from its surroundings", chunk.first_row, 1)
    return statements[0]


@dataclass
class _Structure:
    """What the skeleton says about a file."""

    tree: ast.Module
    text: bytes
    classes: dict[str, Class] = field(default_factory=dict)
    all_classes: list[Class] = field(default_factory=list)
    scopes: dict[str, Scope] = field(default_factory=dict)
    placeholders: dict[int, Scope] = field(default_factory=dict)
    twins: Counter[str] = field(default_factory=Counter)


class Module:
    """One file of the project: its pieces of text at once, its trees on demand."""

    def __init__(self, source: Source, name: str, chunks: list[Chunk] | None = None) -> None:
        self.source, self.name = source, name
        self.chunks = chunks if chunks is not None else split(source)
        self._held: dict[re.Pattern[bytes], bool] = {}
        self._searches = 0
        self.defining: dict[Scope, list[Scope]] | None = None  # see `scopes.defining`

    @cached_property
    def skeleton(self) -> bytes:
        """The file with each outermost function replaced by `pass`."""
        return skeleton_of(self.source, self.chunks)

    @cached_property
    def _structure(self) -> _Structure:
        try:
            return self._structured()
        except RecursionError:
            raise TooDeep("the file") from None

    def _structured(self) -> _Structure:
        try:
            structure = _Structure(parse(self.skeleton.decode()), self.skeleton)
            left = {chunk.first_row: chunk for chunk in self.chunks}
            self._collect(structure, structure.tree.body, "", None, left)
            if not left:
                return structure
        except SyntaxProblem:
            pass
        structure = _Structure(parse(self.source.body.decode()), self.source.body)
        self._collect(structure, structure.tree.body, "", None, {})
        return structure

    @property
    def tree(self) -> ast.Module:
        """The skeleton's tree; the whole file's where the functions cannot be cut out.

        Raises:
            SyntaxProblem: the file is no valid Python.

        """
        return self._structure.tree

    @property
    def classes(self) -> dict[str, Class]:
        """The classes by qualified name, those inside functions left out."""
        return self._structure.classes

    @property
    def all_classes(self) -> list[Class]:
        """All class statements outside of functions, those included whose name another one takes further down."""
        return self._structure.all_classes

    @property
    def scopes(self) -> dict[str, Scope]:
        """The outermost functions and methods by qualified name."""
        return self._structure.scopes

    @property
    def placeholders(self) -> dict[int, Scope]:
        """The functions that a `pass` of the skeleton stands for, by row."""
        return self._structure.placeholders

    @cached_property
    def top(self) -> Scope:
        """The scope of the file's own statements."""
        return Scope(self, "", node=self.tree)

    @property
    def top_text(self) -> bytes:
        """The text of the file's own statements."""
        return self._structure.text

    @property
    def parses(self) -> bool:
        """Whether the whole text is Python, and all its outermost functions stand where they are thought to be."""
        try:
            tree = parse(self.source.body.decode())
        except SyntaxProblem:
            return False
        found: set[tuple[str, int]] = set()
        pending: list[ast.stmt] = list(tree.body)
        for statement in pending:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.add((statement.name, first_row(statement)))
            else:
                pending += (inner for block in blocks_of(statement) for inner in block)
        return found.issuperset((chunk.name, chunk.first_row) for chunk in self.chunks)

    def find_in_whole_tree(self, chunk: Chunk) -> FunctionNode:
        """The tree of a function whose text does not parse alone, from a parse of the whole file.

        Raises:
            SyntaxProblem: the file is no valid Python, or the function is not where it was thought to be.

        """
        for node in ast.walk(parse(self.source.body.decode())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if (node.name, first_row(node)) == (chunk.name, chunk.first_row):
                    return node
        raise SyntaxProblem("a function could not be told from its surroundings", chunk.first_row, 1)

    def _collect(
        self, into: _Structure, body: list[ast.stmt], prefix: str, owner: Class | None, chunks: dict[int, Chunk]
    ) -> None:
        for statement in body:
            match statement:
                case ast.Pass() if statement.lineno in chunks:
                    chunk = chunks.pop(statement.lineno)
                    scope = Scope(self, prefix + chunk.name, chunk=chunk, owner=owner)
                    into.placeholders[statement.lineno] = scope
                    _add(into, scope)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    _add(into, Scope(self, prefix + statement.name, node=statement, owner=owner))
                case ast.ClassDef():
                    found = Class(self, prefix + statement.name, statement)
                    into.classes[found.qualname] = found
                    into.all_classes.append(found)
                    self._collect(into, statement.body, found.qualname + ".", found, chunks)
                case _:
                    before = dict(owner.methods) if owner is not None else {}
                    for inner in blocks_of(statement):
                        self._collect(into, inner, prefix, owner, chunks)
                    if owner is not None:
                        owner.uncertain.update(n for n, method in owner.methods.items() if before.get(n) is not method)

    @cached_property
    def bindings(self) -> dict[str, Binding | None]:
        """The names that the file's own statements may bind, as `bindings` finds them."""
        return bindings(self.tree, self.source, {row: scope.name for row, scope in self.placeholders.items()})

    @cached_property
    def global_writers(self) -> list[Scope]:
        """The outermost functions that declare global variables."""
        return [s for s in self.functions() if b"global " in s.text] if b"global " in self.source.body else []

    @cached_property
    def star_imports(self) -> list[tuple[str, int, int]]:
        """What the file imports with `*`, as (dotted name, level, row)."""
        if _STAR.search(self.top_text) is None:
            return []
        return [
            (node.module or "", node.level, node.lineno)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
        ]

    def release(self) -> None:
        """Take the module apart, so that its memory is free at once; nobody may ask it again."""
        if "_structure" in vars(self):
            around = [part for parts in (self.defining or {}).values() for part in parts]
            for scope in [*self.scopes.values(), *([self.top] if "top" in vars(self) else []), *around]:
                scope.release()
            for cls in self.all_classes:
                vars(cls).clear()
        vars(self).clear()

    def scopes_with(self, word: str) -> list[Scope]:
        """The file's own code and its outermost functions, as far as their text holds an identifier."""
        name = word.encode()
        return self.scopes_at([(at, at) for at in self.occurrences(word)], partial(stands_in, name))

    def scopes_at(self, spans: list[tuple[int, int]], stands_in: Callable[[bytes], object]) -> list[Scope]:
        """The file's own code and the functions that have part in one of some spans; `stands_in` says it of uncut texts."""
        if not spans:
            return []
        functions, by_start, uncut = self._function_places
        cut = {by_start.get(start, -1) for span in spans for start in self._chunks_in(*span)} - {-1}
        holding = cut.union(place for place in uncut if stands_in(functions[place].text))
        return [*([self.top] if stands_in(self.top.text) else []), *(functions[place] for place in sorted(holding))]

    def _chunks_in(self, start: int, end: int) -> list[int]:
        """Where the functions begin that are cut out of a part of the text, if only with an end of theirs."""
        first = max(bisect_right(self._chunk_starts, start) - 1, 0)
        return [chunk.start for chunk in self.chunks[first : bisect_right(self._chunk_starts, end)] if chunk.end > start]

    def occurrences(self, word: str) -> list[int]:
        """Where an identifier stands in the file's text, strings and comments included."""
        self._searches += 1
        if self._searches <= SEARCHES_WITHOUT_INDEX or not word.isascii():
            return list(occurrences(word.encode(), self.source.body))
        return self._words.get(word.encode(), [])

    @cached_property
    def _words(self) -> dict[bytes, list[int]]:
        places: dict[bytes, list[int]] = {}
        for match in _WORD.finditer(self.source.body):
            places.setdefault(match[0], []).append(match.start())
        return places

    @cached_property
    def _function_places(self) -> tuple[list[Scope], dict[int, int], list[int]]:
        """The outermost functions, their places in that list by where their text begins, and those that are not cut out."""
        functions = [*self.scopes.values()]
        by_start = {scope.chunk.start: place for place, scope in enumerate(functions) if scope.chunk is not None}
        return functions, by_start, [place for place, scope in enumerate(functions) if scope.chunk is None]

    @cached_property
    def _chunk_starts(self) -> list[int]:
        return [chunk.start for chunk in self.chunks]

    def holds(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether the file's text matches a pattern; it is searched once."""
        if pattern not in self._held:
            self._held[pattern] = any(part.search(self.source.body) for part in branches(pattern))
        return self._held[pattern]

    def functions(self) -> Iterator[Scope]:
        """The outermost functions and methods in the order of the file."""
        yield from self.scopes.values()


_COMPLETES = any_layout(rb"@ [\w.]+ \. (?:setter|deleter|getter|register|overload)\b|@ overload\b")
"""The decorator of a definition that adds to an earlier one of its name, or announces another one."""


def _add(into: _Structure, scope: Scope) -> None:
    twins = into.twins[scope.qualname]  # a property's setter, an overload, the same name in the other branch of an `if`
    into.twins[scope.qualname] += 1
    into.scopes[f"{scope.qualname}'{twins}" if twins else scope.qualname] = scope
    if scope.owner is not None and not (twins and _COMPLETES.search(scope.text.partition(b"def ")[0])):
        scope.owner.uncertain.discard(scope.name)
        scope.owner.methods[scope.name] = scope  # the last definition is the one that Python keeps
