"""The textual cut into functions and a skeleton gives the trees that `ast.parse` gives for the whole file."""

from __future__ import annotations

import ast
import itertools
import textwrap

import pytest
from conftest import FIXTURES
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perflint.facts.dataflow.flow import flow_of
from perflint.source import syntax
from perflint.source.chunks import split
from perflint.source.identifiers import calls_of, is_called, stands_in_code
from perflint.source.nodes import walk
from perflint.source.source import Source
from perflint.source.syntax import SEARCHES_WITHOUT_INDEX, Module, SyntaxProblem, TooDeep, parse
from perflint.source.words import call_pattern

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPOUND = (ast.ClassDef, ast.If, ast.For, ast.While, ast.With, ast.Try, ast.ExceptHandler, ast.Match)


@pytest.mark.parametrize("remark", ["# )", "')'"])
def test_a_bracket_in_a_comment_or_a_string_ends_no_function(remark: str) -> None:
    remark = remark if remark.startswith("#") else f"{remark},"
    text = f"def f():\n    g(  {remark}\n1, 2)\n    h()\n\n\ndef k():\n    pass\n\nz = 1\n"
    chunks = split(Source("a.py", text.encode()))
    assert [(chunk.name, chunk.first_row, chunk.last_row) for chunk in chunks] == [("f", 1, 6), ("k", 7, 9)]


class Cut(ast.NodeTransformer):
    """Puts `pass` in the place of the outermost functions, and collects these."""

    def __init__(self) -> None:
        self.functions: dict[int, ast.stmt] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
        self.functions[node.lineno] = node
        return ast.Pass(lineno=0, col_offset=0)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]


def dump(node: ast.AST) -> str:
    """A tree with all positions, except the ends of what a function may stand in."""
    for inner in ast.walk(node):
        if isinstance(inner, COMPOUND):
            inner.end_lineno = inner.end_col_offset = 0
        elif isinstance(inner, ast.Pass):
            inner.lineno = inner.col_offset = inner.end_lineno = inner.end_col_offset = 0
    return ast.dump(node, include_attributes=True)


def module_of(text: str | bytes) -> Module:
    """A file with this text."""
    data = text if isinstance(text, bytes) else textwrap.dedent(text).lstrip("\n").encode()
    return Module(Source.decode("file.py", data), "file")


def check(module: Module) -> None:
    """The pieces of a file are those of the whole."""
    whole = ast.parse(module.source.body.decode())
    cut = Cut()
    cut.visit(whole)
    found = {scope.function.lineno: scope.function for scope in module.functions() if scope.function}
    assert list(found) == list(cut.functions)
    for row, node in found.items():
        assert dump(node) == dump(cut.functions[row])
    skeleton = module.tree
    if not module.placeholders:
        skeleton = Cut().visit(ast.parse(module.source.body.decode()))
    assert dump(skeleton) == dump(whole)


TRICKY = {
    "decorators": '''
        @decorate
        @decorate(
            1, """
        def no(): pass
        """)

        # a comment
        @decorate [1]
        def f():
            pass
        class A:
            @property

            def g(self): return 1
            @g.setter
            def g(self, value): ...
        x = 1
        ''',
    "one-liners": """
        def f(): pass
        def g(): return 1; x = 2
        class A: x = 1
        class B:
            def f(self): pass
            def g(self): pass
        if x: y = 1
        else: y = 2
        """,
    "strings that hold code": r'''
        """
        def no():
            pass
        """
        x = "def f():"; y = 'def g():\
        def h():'
        def f():
            """Doc.

        def no(): pass
            """
            return 'it\'s', "\"", """a"b""", f"{x['def g():']}" # " '
        z = """a""" """b
        def no(): ...
        """
        ''',
    "line continuations": r"""
        def f(a, \
        b): \
            return a + \
        b
        x = 1 + \
            2
        if x and \
        y:
            def g(): pass
        """,
    "brackets": """
        def f(
        a=(1,
        2), b={":": lambda: 1},
        *, c: dict[str, int] = {},
        ) -> dict[
        str, int
        ]:
            return [
        1,
        ]
        x = [
            1,
        ]
        def g(): return (
        1)
        """,
    "comments in column 0": """
        class A:
            def f(self):
                x = 1
        # def no():
                return x
            # here
        # there

            def g(self):
                pass
        # end
        def h():
        # first
            pass
            # last
        """,
    "async": """
        async def f():
            async with a as b:
                await c
        class A:
            async   def g(self):
                async for x in y: yield x
        async  def h(): return [x async for x in y]
        """,
    "overloads and conditions": """
        from typing import overload
        @overload
        def f(a: int) -> int: ...
        @overload
        def f(a: str) -> str: ...
        def f(a): return a
        if x:
            def g(): return 1
        elif y:
            def g(): return 2
        else:
            def g(): return 3
        try:
            import a
        except ImportError:
            def a(): pass
        finally:
            def b(): pass
        for i in x:
            def c(): pass
        else:
            def d(): pass
        while x:
            with y:
                def e(): pass
        """,
    "classes and functions in each other": """
        def outer(a=lambda: {1: 2}, b=lambda x, y=[3]: x):
            class Inner:
                def method(self):
                    def deep(): pass
                    return deep
            async def inner(): pass
            return Inner
        class A(B):
            class C:
                def f(self): pass
            def g(self): pass
        """,
    "match and types": """
        match x:
            case 1:
                def f(): pass
            case _:
                def f(): pass
        def g(x: "def h(): pass" = 1): pass
        defer = 1
        default: int = 2
        def default_of(x): pass
        """,
    "operators at the start of a line": """
        x = (
            1
        +2)
        @(
            decorate
        )
        def f(): pass
        y = [a
        @a]
        """,
    "no end of line": "def f():\n    pass\n\n\nx = 1\ndef g():\n    return 1",
    "no body of its own": "x = 1",
    "empty": "",
    "only a comment": "# def f(): pass",
    "form feeds": "x = 1\n\f\ndef f():\n    pass\n\fdef g(): pass\n\f\n"
    "class A:\n    def h(self):\n        x = 1\n\f    def i(self): pass\n    y = 2\n",
    "tabs": "class A:\n\tdef f(self):\n\t\treturn 1\n\n\tdef g(self):\n\t\tif x:\n\t\t\treturn 2\n\tx = 1\ndef\th(): pass\n",
    "unicode": "naïve = 'ü'; x = 1\ndef größe(é): return '日本', é\nclass É:\n    def ñ(self): return 'ä' + größe(1)\n",
    "semicolons": "x = 1; y = 2\ndef f(): x = 1; return x\nz = 3;\n",
    "two statements on the line of a class": "class A: pass\nclass B: x = 1; y = 2\ndef f(): pass\n",
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", TRICKY)
def test_pieces_are_those_of_the_whole(name: str, end: str) -> None:
    module = module_of(TRICKY[name])
    check(module_of(module.source.body.replace(b"\n", end.encode())))


PLAIN = ("decorators", "one-liners", "comments in column 0", "async", "classes and functions in each other", "tabs", "unicode")


@pytest.mark.parametrize("name", PLAIN)
def test_plain_files_are_not_parsed_as_a_whole(name: str) -> None:
    module = module_of(TRICKY[name])
    assert module.placeholders
    assert all(scope.chunk is not None for scope in module.functions())


@pytest.mark.parametrize(
    "text", ["def f(:\n    pass\n", "def f():\npass\n", "x = (\n", "class A:\n    def f(self)\n        pass\n"]
)
def test_what_is_no_python_raises(text: str) -> None:
    module = module_of(text)
    with pytest.raises(SyntaxProblem):
        _ = [module.tree, *(scope.node for scope in module.functions())]


def test_nested_too_deeply() -> None:
    with pytest.raises(TooDeep):
        parse("x = " + "-" * 100_000 + "1")


def test_functions_by_name_and_their_text() -> None:
    module = module_of(TRICKY["overloads and conditions"])
    assert list(module.scopes)[:5] == ["f", "f'1", "f'2", "g", "g'1"]
    assert module.scopes["f"].text.startswith(b"@overload\ndef f(a: int)")
    assert b"def " not in module.top_text
    nested = module_of(TRICKY["classes and functions in each other"])
    assert list(nested.classes) == ["A", "A.C"]
    assert {s.qualname: s.owner and s.owner.qualname for s in nested.functions()} == {"outer": None, "A.C.f": "A.C", "A.g": "A"}


def test_a_property_is_its_getter() -> None:
    module = module_of(TRICKY["decorators"])
    assert module.classes["A"].methods["g"] is module.scopes["A.g"]


def test_attributes_that_methods_may_assign() -> None:
    module = module_of(
        """
        class A:
            def f(self):
                self.a = self.b = 1
                self.c, (x[0], self.d) = 1, 2
                self.e: int = 1
                for self.f in x: pass
                self.g += 1
                self.register_buffer("h", x)
                if x: self.i = 1; x = self.j = 2
                (self.k,
                 self.l) = x
                self.m, \\
                    self.n = x
                with x as self.o, y as (self.p, self.q): pass
                for i, self.r in x: pass
                self.s <<= 1
                for [self.t, i] in x: pass
                if self.u == 1 or self.v <= 2 or self.w != 3: print(self.x)
        """
    )
    found = {name for name in "abcdefghijklmnopqrstuvwx" if module.classes["A"].methods_assigning(name)}
    assert found == set("abcdefghijklmnopqrst")


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("f(name)", True), ("a.name", True), ("x = 1  # name", False), ('"name"', False), ("'a\\'name'", False),
        ("names", False), ('"""a\nname\n"""', False), ('"""a""" + name', True), ("f'{name}'", True), ("Rf'''\n{name}'''", True),
        ("b'name'", False),
        ("'name' + name", True), ("'#' + name", True), ("# '\nname", True), ("f''  # name", False), ("'name", False),
    ],
)  # fmt: skip
def test_where_an_identifier_stands_in_code(text: str, stands: bool) -> None:
    assert stands_in_code("name", text.encode()) is stands


def test_which_scopes_may_hold_functions() -> None:
    module = module_of(
        """
        class A:
            def plain(self): pass
            def nested(self):
                def inner(): pass
            def short(self): return lambda: 1
        """
    )
    assert [scope.name for scope in module.functions() if scope.may_hold_functions] == ["nested", "short"]


def test_only_what_is_asked_for_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[int] = []

    def counting(text: str) -> ast.Module:
        bodies.append(text.count("pass\n    pass"))
        return parse(text)

    monkeypatch.setattr(syntax, "parse", counting)
    module = module_of("x = 1\n" + "def f():\n    pass\n    pass\n" * 50)
    _ = module.tree
    _ = next(module.functions()).node
    assert bodies == [0, 1]


NAMES = st.sampled_from(["f", "g", "define", "x"])
EXPRESSIONS = st.sampled_from(
    [
        "1", "x", "f(x)", '"def f():"', "'#'", '"""a\ndef g():\n    pass\n"""', "[\n1,\n2]", "(lambda a=1: a)", "{1: 2}",
        "x[1:2]", "f'{x:>3}'", "'a' \\\n  'b'", "'\\''", '"\\\\"', "(\n# def f():\n1)", "r'\\'", "b'''\n'''", "x if y else z",
    ]
)  # fmt: skip
COMMENTS = st.sampled_from(["", "", "  # def f():", "  # '", '  # """'])


KINDS = ["simple", "simple", "simple", "def", "async def", "class", "if", "decorated", "line"]


@st.composite
def statements(draw: st.DrawFn, depth: int = 3, in_function: bool = False) -> str:
    """A block of code, not indented. Column 0 comments and strings of several rows stay where they are."""
    rows: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(
            st.sampled_from(["simple"] * 3 + (["def", "async def", "class", "if", "decorated", "line"] if depth else []))
        )
        if kind == "simple":
            rows.append(f"x = {draw(EXPRESSIONS)}{draw(COMMENTS)}")
        elif kind == "line":
            head = draw(st.sampled_from(["def f(a, b=1):", "class A:", "if x:", "def g() -> int:"]))
            rows.append(f"{head} x = {draw(st.sampled_from(['1', 'x; y = 2']))}{draw(COMMENTS)}")
        else:
            rows += draw(st.lists(st.sampled_from(["", "# comment", "    # def f():", "\f"]), max_size=2))
            if kind == "decorated":
                rows += draw(st.lists(st.sampled_from(["@d", "@d(\n1)", "@d  # def", "# @d"]), min_size=1, max_size=2))
                rows += draw(st.sampled_from([[], [""], ["# between"]]))
                kind = draw(st.sampled_from(["def", "class"]))
                rows.append(f"@{draw(NAMES)}")
            head = {"class": f"class {draw(NAMES)}:", "if": f"if {draw(EXPRESSIONS)}:"}.get(
                kind, f"{kind} {draw(NAMES)}(a, b={draw(EXPRESSIONS)}, *c):"
            )
            body = draw(statements(depth - 1, in_function or "def" in kind))
            indent = draw(st.sampled_from(["    ", "\t", " "]))
            rows += [head + draw(COMMENTS), *(indent + row for row in body.split("\n"))]
    return "\n".join(rows)


@settings(max_examples=150)
@given(text=statements(), end=st.sampled_from(["\n", "\r\n"]), final=st.booleans())
@example(text="x = '''\\\n'''\ndef f(a, b=1, *c):\n    x = 1", end="\n", final=False)
def test_random_files(text: str, end: str, final: bool) -> None:
    text = text.replace("\n", end) + (end if final else "")
    try:
        ast.parse(text)
    except SyntaxError:
        return
    check(module_of(text.encode()))


@given(text=st.text(st.sampled_from("def f(x):@\n '\"#\\,\t\f\r=1[]"), max_size=60))
@settings(max_examples=300)
def test_any_text_is_cut_without_losing_a_byte(text: str) -> None:
    source = Source.decode("file.py", text.encode())
    chunks = split(source)
    assert all(chunk.start < chunk.end for chunk in chunks)
    assert all(a.end <= b.start for a, b in itertools.pairwise(chunks))
    kept = Module(source, "file").skeleton
    assert kept.startswith(source.body[: chunks[0].start] if chunks else source.body)
    assert kept.endswith(source.body[chunks[-1].end :] if chunks else source.body)


def test_words_are_found_with_and_without_the_index() -> None:
    text = "naïve = 1\n" + "".join(f"def f_{i}(x):\n    return g(x) + f_{i + 1}(x)\n\n\n" for i in range(20))
    module = Module(Source("m.py", text.encode()), "m")
    words = [*(f"f_{i}" for i in range(22)), "g", "x", "return", "missing", "naïve"]

    def found() -> dict[str, tuple[list[int], list[str]]]:
        return {word: (module.occurrences(word), [scope.qualname for scope in module.scopes_with(word)]) for word in words}

    without = found()
    for _ in range(SEARCHES_WITHOUT_INDEX):
        module.occurrences("g")
    assert without == found()
    assert without["f_3"][1] == ["f_2", "f_3"]
    assert without["naïve"][1] == [""]


def test_functions_that_cannot_be_cut_out_keep_their_place() -> None:
    text = "def a(): return word\nif 1: \n  def b(): word\n\ndef c():\n    word\n\nword = 1; d = lambda: word\n"
    module = Module(Source("m.py", text.encode()), "m")
    assert [scope.qualname for scope in module.scopes_with("word")] == ["", "a", "b", "c"]


@settings(max_examples=300)
@given(text=st.lists(st.sampled_from(("step", "self", "_", "é", ".", "(", ")", " ", "\n", "\\\n", "#(\n", "x")), max_size=14))
def test_calls_are_found_without_a_pattern_for_each_name(text: list[str]) -> None:
    code = "".join(text).encode()
    for name in ("step", "x", "éx"):
        places = [found.start() for found in call_pattern(name).finditer(code)]
        assert list(calls_of(name, code)) == places
        assert is_called(name, code) == bool(places)


@pytest.mark.parametrize(
    ("text", "called"),
    [("self.a(x).b (y)", {"a", "b"}), ("c(x.d)", set()), ("x.\\\n e\n(f.é())", {"e", "é"}), ("x. # why\n g()", {"g"})],
)
def test_which_members_a_function_calls(text: str, called: set[str]) -> None:
    scope = module_of(f"def f(x):\n    return ({text})\n").scopes["f"]
    assert scope.called_members == {name.encode() for name in called}


@pytest.mark.parametrize("text", ["from a import *", "from a import\\\n  *", "from .b import*"])
def test_a_star_import_is_found_in_any_layout(text: str) -> None:
    assert len(module_of(text + "\n").star_imports) == 1
    assert not module_of("from a import b\nx = 3 * 4\n").star_imports


def test_the_text_of_a_lambda_are_its_lines() -> None:
    flow = flow_of(
        module_of("import a\ndef f(x):\n    return [\n        lambda y: (\n            x + y)]\nb = 1\n").scopes["f"]
    )
    (inner,) = flow.inner
    assert flow.inner_scope(inner).text == b"        lambda y: (\n            x + y)]\n"


def test_a_walk_gives_the_nodes_that_ast_gives_in_its_order() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted(FIXTURES.glob("programs/**/*.py"))]
    texts.append(
        "match x:\n    case {'a': [first, *_], **rest} | A(b=1):\n        async def f(*a: int, **k): yield await (b := {**a})\n"
    )
    for text in texts:
        tree = ast.parse(text)
        assert list(walk(tree)) == [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
