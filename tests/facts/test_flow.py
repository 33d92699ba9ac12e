"""Which definitions reach a use, through every kind of statement; order, blocks and dominance."""

from __future__ import annotations

import ast
import textwrap

import pytest
from ask import Program

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of

REACHING = {
    "straight line": ("x = 1; x = 2\nx  #?", [2]),
    "one branch": ("x = 1\nif c: x = 2\nx  #?", [1, 2]),
    "both branches": ("x = 1\nif c: x = 2\nelse: x = 3\nx  #?", [2, 3]),
    "a branch that leaves": ("x = 1\nif c:\n    x = 2\n    raise E\nx  #?", [1]),
    "a loop's way back": ("x = 1\nfor i in y:\n    x  #?\n    x = 2", [1, 2]),
    "a loop that may not run": ("x = 1\nfor i in y: x = 2\nx  #?", [1, 2]),
    "two loops": ("x = 1\nfor i in y:\n    for j in y:\n        x  #?\n    x = 2", [1, 2]),
    "while true": ("x = 1\nwhile True:\n    x = 2\n    if c: break\n    x = 3\nx  #?", [2]),
    "break": ("x = 1\nfor i in y:\n    x = 2\n    if c: break\n    x = 3\nelse:\n    x = 4\nx  #?", [2, 4]),
    "continue": ("x = 1\nfor i in y:\n    x  #?\n    x = 2\n    if c: continue\n    x = 3", [1, 2, 3]),
    "loop-else": ("x = 1\nfor i in y:\n    x = 2\nelse:\n    x  #?", [1, 2]),
    "three definitions around a loop": (
        "a = b = c = 1\nfor i in y:\n    a  #?\n    a = b\n    b = c\n    c = 2",
        ["b", 1],
    ),
    "try": ("x = 1\ntry:\n    x = 2\n    f()\n    x = 3\nexcept E:\n    x  #?", [1, 2, 3]),
    "behind try": ("x = 1\ntry:\n    x = 2\nexcept E:\n    x = 3\nx  #?", [2, 3]),
    "try-else": ("x = 1\ntry: x = 2\nexcept E: x = 3\nelse: x = 4\nx  #?", [3, 4]),
    "finally": ("x = 1\ntry:\n    x = 2\nfinally:\n    x  #?", [1, 2]),
    "behind finally": ("x = 1\ntry:\n    x = 2\nfinally:\n    f()\nx  #?", [1, 2]),  # more than can be
    "handler that raises, seen by finally": ("x = 1\ntry: f()\nexcept E:\n    x = 2\n    raise\nfinally:\n    x  #?", [1, 2]),
    "finally that assigns": ("x = 1\ntry:\n    x = 2\nfinally:\n    x = 3\nx  #?", [3]),
    "handler seen by finally": ("x = 1\ntry: f()\nexcept E:\n    x = 2\n    f()\nfinally:\n    x  #?", [1, 2]),
    "nested try": ("x = 1\ntry:\n    try:\n        x = 2\n    finally:\n        x = 3\nexcept E:\n    x  #?", [1, 2, 3]),
    "with": ("x = 1\nwith y as z:\n    x = 2\nx  #?", [2]),
    "with that may swallow": ("x = 1\nwith suppress(E):\n    f()\n    x = 2\nx  #?", [1, 2]),
    "augmented": ("x = 1\nx += 2\nx  #?", ["+= 2"]),
    "walrus": ("x = 1\nif (x := 2) and f(): pass\nx  #?", [2]),
    "walrus that may not run": ("x = 1\nc and (x := 2)\nx  #?", [1, 2]),
    "walrus in a conditional expression": ("x = 1\n(x := 2) if c else 3\nx  #?", [1, 2]),
    "walrus in a comprehension": ("x = 1\n[(x := 2) for i in y]\nx  #?", [1, 2]),
    "walrus in the while test": ("x = 1\nwhile (x := 2):\n    x = 3\nx  #?", [2]),
    "comprehension variable": ("x = 1\n[x for x in y]\nx  #?", [1]),
    "match": ("x = 1\nmatch y:\n    case 1: x = 2\n    case {'a': b, **rest}: x = 3\nx  #?", [1, 2, 3]),
    "match with a capture": ("x = 1\nmatch y:\n    case [x, *_]: pass\nx  #?", [1, None]),
    "del in a branch": ("x = 1\nif c:\n    del x\n    x = 2\nx  #?", [1, 2]),
    "unpacking": ("x, (y, *z) = f()\nz  #?", ["f()"]),
    "chained": ("x = y = 1\nx  #?", [1]),
    "annotated": ("x: int = 1\nx  #?", [1]),
    "only annotated": ("x = 1\nx: int\nx  #?", [1]),
    "swap": ("x = 1; y = 2\nx, y = y, x\nx  #?", ["y"]),
    "inner function": ("x = 1\ndef f():\n    x = 2\nx  #?", [1]),
    "attribute": ("s.x = 1\ns.x = 2\ns.x  #?", [2]),
    "attribute of another name": ("s.x = 1\nt.x = 2\ns.x  #?", None),
    "attribute behind a call": ("s.x = 1\nf(s)\ns.x  #?", None),
    "attribute behind a method call": ("s.x = 1\ns.f()\ns.x  #?", None),
    "attribute behind a yield": ("def f(s):\n    s.x = 1\n    yield\n    s.x  #?", None),
    "attribute in a branch": ("s.x = 1\nif c: s.x = 2\ns.x  #?", [1, 2]),
    "attribute set in one branch": ("if c: s.x = 2\ns.x  #?", None),
    "attribute of what is bound anew": ("s.x = 1\ns = f()\ns.x  #?", None),
    "item": ("d['a'] = 1\nd['b'] = 2\nd['a']  #?", [1]),
    "item behind an unknown key": ("d['a'] = 1\nd[k] = 2\nd['a']  #?", None),
    "item behind update": ("d['a'] = 1\nd.update(e)\nd['a']  #?", None),
    "item in a loop": ("d['a'] = 1\nfor i in y:\n    d['a']  #?\n    f(d)", None),
    "deleted attribute": ("s.x = 1\ndel s.x\ns.x  #?", None),
}


def bound(program: Program) -> list[object] | None:
    """The values that reach the marked expression, as source or constant; None if none is known."""
    scope, node = program.at()
    found = flow_of(scope).reaching.get(node)
    if not found:
        return None
    return sorted({_shown(d.kind, d.value) for d in found}, key=str)


def _shown(kind: str, value: ast.expr | None) -> object:
    if kind == "other" or value is None:
        return None
    text = ast.unparse(value)
    return f"+= {text}" if kind == "augmented" else value.value if isinstance(value, ast.Constant) else text


@pytest.mark.parametrize("name", REACHING)
def test_reaching_definitions(name: str) -> None:
    text, expected = REACHING[name]
    assert bound(Program(text)) == (expected and sorted(expected, key=str))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("x", "x"),
        ("a.b.c", "a.b.c"),
        ("a['k'].b", "a['k'].b"),
        ("a[0]", "a[0]"),
        ("a[i]", None),
        ("f().x", None),
        ("a[1:2]", None),
    ],
)
def test_paths(text: str, path: str | None) -> None:
    assert path_of(ast.parse(text, mode="eval").body) == path


def calls(program: Program) -> dict[str, ast.Call]:
    """The calls of the module's code by the name of what they call."""
    return {ast.unparse(call.func): call for call in program.flow().calls}


DOMINANCE = """
a()
if t() and u():
    b()
    with v() as w:
        c()
    d()
for i in l():
    e()
    if x: continue
    f()
try:
    g()
except E:
    h()
finally:
    i()
j() if k() else m()
"""


def test_dominance() -> None:
    program = Program(DOMINANCE)
    flow, call = program.flow(), calls(program)
    yes = ["ab", "at", "tb", "bc", "cd", "bd", "ae", "ef", "ag", "ah", "ai", "tu", "kj", "km", "vc", "lf"]
    assert [pair for pair in yes if not flow.dominates(call[pair[0]], call[pair[1]])] == []
    no = ["ba", "bj", "ub", "ue", "ej", "gh", "gi", "jm", "fe", "fa", "ce"]
    assert [pair for pair in no if flow.dominates(call[pair[0]], call[pair[1]])] == []


BINDINGS = """
import os.path, sys as system
def f(a, *b, c=1, **d):
    match a:
        case [first, *rest] as whole: pass
        case {"k": value, **others}: pass
    try: pass
    except E as error: pass
    with a as opened, b as (left, right): pass
    for i, j in a: (w := i)
    class C: pass
    async def g(): pass
    a.x, a[0] = a, b
    a.x += 1
"""


def test_each_binding_has_a_place() -> None:
    program = Program(BINDINGS)
    for scope in program.scopes():
        flow = flow_of(scope)
        for definition in flow.definitions:
            assert definition.node in flow.block
            assert definition.node in flow.order


def test_order_is_that_of_evaluation() -> None:
    program = Program("f(a(), k=b())[c()].d = e() + g()")
    flow = program.flow()
    names = [ast.unparse(n.func) for n in sorted(flow.calls, key=flow.order.__getitem__)]
    assert names == ["e", "g", "a", "b", "f", "c"]


def test_loops_and_what_leaves_them() -> None:
    flow = Program("for a in x:\n    for b in y:\n        if c: break\n    [d for d in z]\nwhile e: f()").flow()
    assert sorted((ast.unparse(loop.node.target) if loop.iterated else "while") for loop in flow.loops) == [
        "a",
        "b",
        "d",
        "while",
    ]
    inner = next(loop for loop in flow.loops if loop.iterated is not None and ast.unparse(loop.iterated) == "y")
    assert inner.parent is not None
    assert [flow.leaves.get(loop, False) for loop in (inner, inner.parent)] == [True, False]


@pytest.mark.parametrize(
    ("body", "falls"),
    [
        ("pass", True),
        ("return 1", False),
        ("if c: return 1", True),
        ("if c: return 1\n    else: raise E", False),
        ("while True: pass", False),
        ("while True:\n        break", True),
        ("try: return 1\n    except E: pass", True),
        ("try: return 1\n    finally: f()", False),
        ("with x: return 1", False),
        ("with suppress(E): return f()", True),
        ("match x:\n        case 1: return 1", True),
        ("for i in x: return 1", True),
    ],
)
def test_whether_a_function_reaches_its_end(body: str, falls: bool) -> None:
    program = Program(f"def f(x):\n    {body}\n")
    assert program.flow("f").falls_through is falls


def test_names_of_inner_and_outer_functions() -> None:
    program = Program(
        """
        def f(a):
            global g
            g = lambda: a + 1
            def h():
                nonlocal a
                b = a
            class C:
                c = a
        """
    )
    flow = program.flow("f")
    assert flow.outer_names == {"g"}
    assert {"a", "c"} <= flow.inner_names
    assert "b" not in flow.inner_names  # the function inside binds it itself
    assert [scope.qualname for scope in map(flow.inner_scope, flow.inner)] == ["f.<locals>.<lambda>", "f.<locals>.h"]


@pytest.mark.parametrize(
    ("inside", "seen"),
    [
        ("def h(x):\n    return x", False),
        ("def h():\n    x = 1\n    return x", False),
        ("def h():\n    for x in y:\n        print(x)", False),
        ("h = lambda x: x", False),
        ("def h(z=x):\n    x = z", True),
        ("@x\ndef h(x):\n    pass", True),
        ("def h():\n    nonlocal x\n    x = 1", True),
        ("def h():\n    return [x for x in x]", True),
        ("def h():\n    return [y for y in x]", True),
        ("def h():\n    def i():\n        x = 1\n    return x", True),
        ("def h():\n    x = 1\n    class C:\n        x = x", True),
        ("class C:\n    x = 1", True),
    ],
)
def test_a_name_that_an_inner_function_binds_is_its_own(inside: str, seen: bool) -> None:
    program = Program(f"def f(x, y):\n{textwrap.indent(inside, '    ')}\n")
    assert ("x" in program.flow("f").inner_names) is seen
