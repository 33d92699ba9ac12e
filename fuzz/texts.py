"""Python files for fuzz/text.py: parts of real ones, changed at random, with rare syntax, encodings and line ends.

A text depends on its number and on the sources only. Most texts parse; those that do not show what happens to a file that
somebody is in the middle of writing.
"""

from __future__ import annotations

import ast
import codecs
import contextlib
import io
import itertools
import random
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Change = Callable[[str, random.Random], str]
"""A text and a generator to the changed text; the same text where the change has no place."""

CHANGES: dict[str, Change] = {}
"""What may be done to a text, by name."""

NEWER_SYNTAX: dict[str, tuple[int, int]] = {"fstring_of_fstrings": (3, 12), "type_parameters": (3, 12)}
"""Changes to syntax that only this Python and newer ones know."""

MAX_PIECES = 3
RULES = ["item-every-step", "duplicate-item-read", "blocking-h2d-in-loop", "eval-without-no-grad", "zero-grad-late", "no-such"]


@dataclass(frozen=True)
class Text:
    """The bytes of a file. kind: where it comes from; changes: what was done to it."""

    kind: str
    changes: tuple[str, ...]
    data: bytes


class Texts:
    """Texts by number. sources: texts to begin with, by kind."""

    def __init__(self, sources: Mapping[str, Sequence[str]]) -> None:
        self._sources = {kind: texts for kind, texts in sorted(sources.items()) if texts}

    def text(self, number: int) -> Text:
        """The text with a number."""
        chance = random.Random(number)
        kind = chance.choice(list(self._sources))
        text = extract(chance.choice(self._sources[kind]), chance)
        known = [name for name in CHANGES if sys.version_info >= NEWER_SYNTAX.get(name, (3, 0))]
        names = chance.choices(known, k=chance.choice([0, 1, 2, 2, 3, 4, 6]))
        done = []
        for name in names:
            changed = CHANGES[name](text, chance)
            if changed != text:
                text = changed
                done.append(name)
        data, encoding = encoded(text, chance)
        return Text(kind, (*done, *encoding), data)


# -- where texts come from -----------------------------------------------------------------------------------------------


def repository_sources() -> dict[str, list[str]]:
    """The texts of this checkout: the rules' cases, the whole programs, the tests of what once went wrong."""
    patterns = {
        "cases": "fixtures/*/cases.py",
        "fixed cases": "fixtures/*/cases.fixed.py",
        "programs": "fixtures/*/*/*.py",
        "scripts": "fixtures/*/train.py",
    }
    found = {kind: [text for path in sorted(ROOT.glob(pattern)) if (text := read(path))] for kind, pattern in patterns.items()}
    return {**found, "written for the fixer": list(LOOPS)}


def folder_sources(folders: Iterable[Path]) -> dict[str, list[str]]:
    """The files below folders that use torch in loops, by folder."""
    found: dict[str, list[str]] = {}
    for folder in folders:
        texts = (read(path) for path in sorted(folder.rglob("*.py")) if path.is_file())
        found[folder.name] = [text for text in texts if "torch" in text and "for " in text and len(text) < 200_000]
    return found


def generated_sources(count: int, seed: int) -> dict[str, list[str]]:
    """Sources that hypothesmith makes from the grammar; none where it is not installed."""
    if count < 2:
        return {}
    try:
        import hypothesmith
    except ImportError:
        return {}
    import hypothesis

    made: list[str] = []
    checks = list(hypothesis.HealthCheck)
    for strategy in (hypothesmith.from_node(), hypothesmith.from_grammar()):

        @hypothesis.seed(seed)
        @hypothesis.settings(max_examples=count // 2, deadline=None, database=None, suppress_health_check=checks)
        @hypothesis.given(strategy)
        def collect(text: str) -> None:
            made.append(text)

        collect()
    return {"hypothesmith": [text for text in dict.fromkeys(made) if "\0" not in text and parses(text)]}


def read(path: Path) -> str:
    """The text of a file in UTF-8, or nothing."""
    try:
        return path.read_bytes().decode().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return ""


def parses(text: str) -> bool:
    """Whether a text is Python."""
    return tree_of(text) is not None


@lru_cache(64)
def tree_of(text: str) -> ast.Module | None:
    """The tree of a text, or None where it is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def extract(text: str, chance: random.Random) -> str:
    """A text's own statements and a few of its functions and classes."""
    tree = tree_of(text)
    if tree is None:
        return text
    lines = text.split("\n")
    definitions = [s for s in tree.body if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    kept = set(map(id, chance.sample(definitions, min(len(definitions), chance.randint(1, MAX_PIECES)))))
    at = 0
    pieces: list[str] = []
    for statement in tree.body:
        end = statement.end_lineno or statement.lineno
        if id(statement) in kept or statement not in definitions:
            pieces += lines[at:end]  # the comments above it, too
        at = max(at, end)
    return "\n".join([*pieces, *lines[at:]])


# -- changes -------------------------------------------------------------------------------------------------------------


def change(function: Change) -> Change:
    """Register a change under its function's name."""
    CHANGES[function.__name__] = function
    return function


@lru_cache(64)
def tokens_of(text: str) -> list[tokenize.TokenInfo]:
    """The tokens of a text, up to where it is no Python."""
    found: list[tokenize.TokenInfo] = []
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        found.extend(tokenize.generate_tokens(io.StringIO(text).readline))
    return found


def inserted(text: str, row: int, column: int, what: str) -> str:
    """A text with something put at a place: 1-based row, column in characters."""
    lines = text.split("\n")
    lines[row - 1] = lines[row - 1][:column] + what + lines[row - 1][column:]
    return "\n".join(lines)


def replaced(text: str, token: tokenize.TokenInfo, what: str) -> str:
    """A text with a token of one line replaced."""
    (row, start), (last, end) = token.start, token.end
    lines = text.split("\n")
    if row == last and row <= len(lines):
        lines[row - 1] = lines[row - 1][:start] + what + lines[row - 1][end:]
    return "\n".join(lines)


def simple_lines(text: str) -> list[int]:
    """The 1-based rows that hold one simple statement each and nothing else."""
    tree = tree_of(text)
    statements = [n for n in ast.walk(tree) if isinstance(n, ast.stmt)] if tree is not None else []
    simple = [s for s in statements if not hasattr(s, "body")]
    rows = [s.lineno for s in statements] + [s.end_lineno for s in simple if s.end_lineno != s.lineno]
    return sorted(s.lineno for s in simple if s.lineno == s.end_lineno and rows.count(s.lineno) == 1)


def indent_of(line: str) -> str:
    """The white space that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def bracketed(text: str) -> list[tokenize.TokenInfo]:
    """The tokens inside of brackets that people and formatters break a line behind."""
    depth, found, inside_string = 0, [], 0
    tokens = tokens_of(text)
    for token, following in itertools.pairwise(tokens):
        name = tokenize.tok_name[token.type]
        inside_string += name in ("FSTRING_START", "TSTRING_START")
        inside_string -= name in ("FSTRING_END", "TSTRING_END")
        if token.type == tokenize.OP and not inside_string:
            depth += token.string in "([{"
            depth -= token.string in ")]}"
        if depth <= 0 or inside_string or token.string == "." or token.string + following.string == "()":
            continue
        if token.type == tokenize.OP or (token.type in (tokenize.NAME, tokenize.NUMBER) and following.string not in "("):
            found.append(token)
    return found


@change
def comment_at_line_end(text: str, chance: random.Random) -> str:
    """Comments behind some lines."""
    lines = text.split("\n")
    for row in chance.sample(simple_lines(text), min(len(simple_lines(text)), 4)):
        if "#" not in lines[row - 1]:
            lines[row - 1] += "  # " + chance.choice(
                ["note", "\u00e9 \U0001f600", "x = (", "'quote", "type: ignore", "fmt: skip"]
            )
    return "\n".join(lines)


@change
def comment_between(text: str, chance: random.Random) -> str:
    """Comment lines between statements, with any indentation."""
    for row in sorted(chance.sample(simple_lines(text), min(len(simple_lines(text)), 3)), reverse=True):
        indent = chance.choice([indent_of(text.split("\n")[row - 1]), "", " ", "        ", "\x0c"])
        text = inserted(text, row, 0, f"{indent}# {chance.choice(['above', 'def f():', 'if x:', chr(0x2028) + 'y'])}\n")
    return text


@change
def comment_in_brackets(text: str, chance: random.Random) -> str:
    """Comments, each before a line break inside of brackets."""
    places = bracketed(text)
    for token in sorted(chance.sample(places, min(len(places), 3)), key=lambda t: t.end, reverse=True):
        text = inserted(
            text, *token.end, f"  # in {chance.choice(['here', 'x)', 'a, b', '[1'])}\n{' ' * chance.randint(0, 12)}"
        )
    return text


@change
def line_break_in_brackets(text: str, chance: random.Random) -> str:
    """Line breaks inside of brackets."""
    places = bracketed(text)
    for token in sorted(chance.sample(places, min(len(places), 6)), key=lambda t: t.end, reverse=True):
        text = inserted(text, *token.end, "\n" + " " * chance.randint(0, 12))
    return text


@change
def spacing(text: str, chance: random.Random) -> str:
    """Spaces where most people write none, and none where most write one."""
    pairs = itertools.pairwise(tokens_of(text))
    defined = {t.string for before, t in pairs if before.string == "def" and t.string.isidentifier()}
    for name in sorted(defined):
        text = re.sub(rf"\b{name}\(", lambda m: chance.choice([m[0], f"{m[0][:-1]} ("]), text)
    text = re.sub(r"\b(if|while|in|return|not|and) \(", lambda m: chance.choice([m[0], f"{m[1]}("]), text)
    text = re.sub(r"\b(def|for|with|if|while) (?=\w)", lambda m: chance.choice([m[0], f"{m[1]}  "]), text)
    return re.sub(r" = (?=\w)", lambda m: chance.choice([m[0], "=", "  =  "]), text)


@change
def spread(text: str, chance: random.Random) -> str:
    """White space around each dot, bracket, comma and equals sign."""
    return spread_out(text, chance.choice([" ", "\n ", " \\\n"]), chance.choice([" ", "  ", " \\\n "]))


def spread_out(text: str, inside: str, outside: str) -> str:
    """A text with something around each dot, bracket, comma and equals sign, inside of brackets and outside of them."""
    lines = text.split("\n")
    depth = strings = 0
    places: list[tuple[int, int, str]] = []
    for before, token in itertools.pairwise(tokens_of(text)):
        kinds = {before.type, token.type}
        depth += (before.string in "([{") - (before.string in ")]}") if before.type == tokenize.OP else 0
        strings += tokenize.tok_name[before.type].endswith("STRING_START")
        strings -= tokenize.tok_name[before.type].endswith("STRING_END")
        loose = kinds <= {tokenize.OP, tokenize.NAME, tokenize.NUMBER, tokenize.STRING} and not strings
        if (
            loose
            and before.end == token.start
            and any(t.type == tokenize.OP and t.string in ".()[],=" for t in (before, token))
        ):
            places.append((*token.start, inside if depth else outside))
    for row, column, space in reversed(places):
        lines[row - 1] = lines[row - 1][:column] + space + lines[row - 1][column:]
    return "\n".join(lines)


@change
def backslash(text: str, chance: random.Random) -> str:
    """Lines continued by backslashes."""
    tokens = tokens_of(text)
    spaces = [a for a, b in itertools.pairwise(tokens) if a.end[0] == b.start[0] and a.end[1] < b.start[1]]
    spaces = [t for t in spaces if t.type in (tokenize.OP, tokenize.NAME)]
    for token in sorted(chance.sample(spaces, min(len(spaces), 3)), key=lambda t: t.end, reverse=True):
        if token.string.strip():
            text = inserted(text, *token.end, " \\\n" + " " * chance.randint(0, 9))
    return text


@change
def suppressions(text: str, chance: random.Random) -> str:
    """Comments that silence rules, some of them wrong."""
    lines = text.split("\n")
    rows = [row for row, line in enumerate(lines, 1) if line.strip()]
    for row in sorted(chance.sample(rows, min(len(rows), 3)), reverse=True):
        names = chance.choice(["", "", "[]", "[{}]".format(", ".join(chance.sample(RULES, chance.randint(1, 4))))])
        comment = (
            f"# perflint: {chance.choice(['ignore', 'ignore', 'ignore', 'ignore-file'])}{names}{chance.choice(['', ' why'])}"
        )
        if chance.random() < 0.5:
            lines.insert(row - 1, indent_of(lines[row - 1]) + comment)
        else:
            lines[row - 1] += f"  {comment}"
    return "\n".join(lines)


@change
def semicolons(text: str, chance: random.Random) -> str:
    """Statements of one block joined by semicolons."""
    simple = set(simple_lines(text))
    lines = text.split("\n")
    pairs = [
        r for r in simple if r + 1 in simple and indent_of(lines[r - 1]) == indent_of(lines[r]) and "#" not in lines[r - 1]
    ]
    for row in sorted(chance.sample(pairs, min(len(pairs), 3)), reverse=True):
        lines[row - 1 : row + 1] = [lines[row - 1] + chance.choice(["; ", ";"]) + lines[row].strip()]
    return "\n".join(lines)


@change
def one_line_blocks(text: str, chance: random.Random) -> str:
    """Blocks of one statement on the line of their head."""
    tree = tree_of(text)
    if tree is None:
        return text
    lines = text.split("\n")
    simple = set(simple_lines(text))
    heads = [n for n in ast.walk(tree) if isinstance(n, (ast.If, ast.For, ast.With, ast.While, ast.FunctionDef))]
    heads = [h for h in heads if len(h.body) == 1 and h.body[0].lineno in simple and not getattr(h, "orelse", None)]
    for head in sorted(heads, key=lambda h: -h.lineno):
        above = head.body[0].lineno - 2
        if chance.random() < 0.6 and lines[above].rstrip().endswith(":") and "#" not in lines[above]:
            lines[above : above + 2] = [lines[above] + chance.choice([" ", ""]) + lines[above + 1].strip()]
    return "\n".join(lines)


@change
def decorators(text: str, chance: random.Random) -> str:
    """Decorators and what may stand between them and their function."""
    rows = [row for row, line in enumerate(text.split("\n"), 1) if re.match(r"\s*(async )?(def|class)\b", line)]
    for row in sorted(chance.sample(rows, min(len(rows), 2)), reverse=True):
        indent = indent_of(text.split("\n")[row - 1])
        what = chance.choice(
            [
                "@torch.no_grad()",
                "@staticmethod",
                "@ wraps(\n    f\n)",
                "@(lambda f: f)",
                "@a.b[0](c)  # note",
                "@f\n\n# between",
                "@property",
            ]
        )
        text = inserted(text, row, 0, "".join(f"{indent}{line}\n" if line else "\n" for line in what.split("\n")))
    return text


@change
def walrus(text: str, chance: random.Random) -> str:
    """Calls that bind a name while they are evaluated."""
    tree = tree_of(text)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)] if tree is not None else []
    calls = [c for c in calls if c.lineno == c.end_lineno and text.split("\n")[c.lineno - 1].isascii()]
    for call in chance.sample(calls, min(len(calls), 1)):
        assert call.end_lineno is not None
        assert call.end_col_offset is not None
        text = inserted(text, call.end_lineno, call.end_col_offset, ")")
        text = inserted(text, call.lineno, call.col_offset, f"({chance.choice(['bound', 'loss', 'x'])} := ")
    return text


@change
def fstrings(text: str, chance: random.Random) -> str:
    """Expressions shown by f-strings."""
    tree = tree_of(text)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)] if tree is not None else []
    lines = text.split("\n")
    calls = [c for c in calls if c.lineno == c.end_lineno and lines[c.lineno - 1].isascii()]
    for call in chance.sample(calls, min(len(calls), 1)):
        code = lines[call.lineno - 1][call.col_offset : call.end_col_offset]
        if '"' not in code and "\\" not in code:
            form = chance.choice(['f"{%s}"', 'f"{%s=}"', 'rf"\\d{%s!r:>{10}}"', 'f"{{}}{%s:.3f}" "x"', 'f"""\n{%s}"""'])
            row = lines[call.lineno - 1]
            lines[call.lineno - 1] = row[: call.col_offset] + form % code + row[call.end_col_offset :]
    return "\n".join(lines)


@change
def fstring_of_fstrings(text: str, chance: random.Random) -> str:
    """f-strings with the same quotes inside, comments and line breaks (PEP 701)."""
    rows = simple_lines(text)
    for row in chance.sample(rows, min(len(rows), 2)):
        indent = indent_of(text.split("\n")[row - 1])
        what = [
            'f"{loss.item():{f"{width}"}}"',
            'f"{f"{f"{loss.item()}"}"}"',
            'f"{\n  loss.item()  # in a string\n}"',
            'f"{x["a"]}"',
        ]
        text = inserted(text, row, 0, f"{indent}print({chance.choice(what)})\n")
    return text


@change
def type_parameters(text: str, chance: random.Random) -> str:
    """Type parameters and type statements (PEP 695)."""
    text = re.sub(r"\b(def \w+)\(", lambda m: m[1] + chance.choice(["(", "[T](", "[T: (int, str), *Ts, **P]("]), text)
    return text + chance.choice(["", "\ntype Pair[T] = tuple[T, T]\n"])


@change
def asynchronous(text: str, chance: random.Random) -> str:
    """Functions, loops and with statements that are asynchronous."""
    return re.sub(r"(?m)^(\s*)(def|for|with) ", lambda m: m[1] + chance.choice(["", "async "]) + m[2] + " ", text)


@change
def lambdas(text: str, chance: random.Random) -> str:
    """Expression statements as lambdas."""
    tree = tree_of(text)
    rows = {s.lineno for s in ast.walk(tree) if isinstance(s, ast.Expr)} if tree is not None else set()
    rows &= set(simple_lines(text))
    lines = text.split("\n")
    for row in chance.sample(sorted(rows), min(len(rows), 2)):
        indent = indent_of(lines[row - 1])
        lines[row - 1] = f"{indent}{chance.choice(['f = lambda: ', '(lambda x=1, *a: '])}{lines[row - 1].strip()}"
        lines[row - 1] += ")(2)" if "(lambda" in lines[row - 1] else ""
    return "\n".join(lines)


@change
def indentation(text: str, chance: random.Random) -> str:
    """Tabs, one or two spaces, or form feeds in the place of four spaces."""
    step = chance.choice(["\t", "  ", " ", "\t\t", "\x0c    "])
    return re.sub(
        r"(?m)^(?:    )+", lambda m: step.replace("\x0c", "") * (len(m[0]) // 4) if "\x0c" not in step else "\x0c" + m[0], text
    )


@change
def nesting(text: str, chance: random.Random) -> str:
    """A statement in many blocks, or an expression in many brackets."""
    rows = simple_lines(text)
    if not rows:
        return text
    row = chance.choice(rows)
    lines = text.split("\n")
    line = lines[row - 1]
    depth = chance.choice([5, 18, 60])
    if chance.random() < 0.5:
        heads = [
            indent_of(line) + " " * k + chance.choice(["if x:", "for i in x:", "with x:", "while x:"]) for k in range(depth)
        ]
        lines[row - 1 : row] = [*heads, " " * depth + line]
    elif "=" in line:
        name, _, value = line.partition("=")
        kinds = [("(", ")"), ("[", "][0]"), ("-(", ")"), ("f(", ")"), ("{0: ", "}[0]")]
        opening, closing = chance.choice(kinds)
        lines[row - 1] = f"{name}= {opening * depth}{value.strip()}{closing * depth}"
    return "\n".join(lines)


@change
def long_line(text: str, chance: random.Random) -> str:
    """A very long line."""
    rows = simple_lines(text)
    if not rows:
        return text
    row = chance.choice(rows)
    indent = indent_of(text.split("\n")[row - 1])
    count = chance.choice([100, 2000])
    parts = [
        "table = [" + "1, " * count + "]",
        "text = '" + "a" * count + "'",
        "total = " + " + ".join(["loss.item()"] * (count // 10)),
    ]
    parts += ["y = x" + ".cuda()" * (count // 20), "z = {" + ", ".join(f"'{i}': x.item()" for i in range(count // 10)) + "}"]
    return inserted(text, row, 0, f"{indent}{chance.choice(parts)}\n")


@change
def names(text: str, chance: random.Random) -> str:
    """A name in other letters, some of which Python takes for the same."""
    used = sorted({t.string for t in tokens_of(text) if t.type == tokenize.NAME and t.string.isascii() and len(t.string) > 2})
    used = [name for name in used if name not in ("torch", "for", "and", "not", "def", "from", "import", "with", "return")]
    if not used:
        return text
    name = chance.choice(used)
    other = chance.choice(
        [
            "\u00e9t\u00e9",
            "\u6a21\u578b",
            "_",
            name.upper(),
            "\ufb01" + name,
            "x" * 300,
            "match",
            "type",
            "\U0001d4ea",
            name + "\u0301",
        ]
    )
    spelled = [name, other] if chance.random() < 0.1 else [other]
    return re.sub(rf"(?<![\w.]){name}\b", lambda m: chance.choice(spelled), text)


@change
def strings(text: str, chance: random.Random) -> str:
    """Strings that are hard to print or to skip."""
    rows = simple_lines(text)
    values = [
        "'\\ud800'",
        "'''\n    def f():\n        pass\n'''",
        "'\\x00'",
        "b'\\xff'",
        "'\u2028\x0c\x85'",
        "r'\\'",
        "'\\\n'",
        "'\\N{BULLET}'",
    ]
    values += [
        '"""\n# perflint: ignore-file\n"""',
        "'a' \\\n  'b'",
        "'\U0001f600' '\u202e'",
        "'\\'\"'",
        "'\x1b[31m'",
        "'\x7f\x01'",
    ]
    for row in sorted(chance.sample(rows, min(len(rows), 2)), reverse=True):
        line = text.split("\n")[row - 1]
        value = chance.choice(values)
        if chance.random() < 0.5:
            text = inserted(text, row, 0, f"{indent_of(line)}s = {value}\n")
        elif "#" not in line:
            text = inserted(text, row, len(line), f"; {value}")
    return text


@change
def wrapped(text: str, chance: random.Random) -> str:
    """The body of a function, or a part of it, inside of another statement."""
    tree = tree_of(text)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)] if tree is not None else []
    functions = [f for f in functions if f.body[0].lineno > f.lineno]
    if not functions:
        return text
    body = chance.choice(functions).body
    first = chance.randrange(len(body))
    last = chance.randrange(first, len(body))
    lines = text.split("\n")
    start, end = body[first].lineno, body[last].end_lineno or body[last].lineno
    start = min([start, *(d.lineno for d in getattr(body[first], "decorator_list", []))])
    indent = indent_of(lines[start - 1])
    heads = [
        "if x:",
        "try:",
        "with x as y:",
        "with (\n  a,\n  b,\n):",
        "class A:",
        "def inner(self=None):",
        "async def inner():",
        "while True:",
    ]
    heads += ["for _ in range(3):", "else", "match x:"]
    head = chance.choice(heads)
    moved = ["    " + line if line.strip() else line for line in lines[start - 1 : end]]
    if head == "try":
        tail = chance.choice(
            ["except E as e:\n    raise", "finally:\n    pass", "except* E:\n    pass", "except E:\n    pass\nelse:\n    pass"]
        )
    else:
        tail = ""
    if head == "try:":
        tail = chance.choice(["except E as e:\n    raise", "finally:\n    pass", "except E:\n    pass\nelse:\n    pass"])
    elif head == "else":
        head = "if x:\n    pass\nelse:"
    elif head == "match x:":
        head = "match x:\n    case {'a': [1, *_], **rest} if rest:\n        pass\n    case _:"
        moved = ["    " + line if line.strip() else line for line in moved]
    wrap = [indent + line for line in head.split("\n")]
    lines[start - 1 : end] = [*wrap, *moved, *([indent + line for line in tail.split("\n")] if tail else [])]
    return "\n".join(lines)


@change
def reordered(text: str, chance: random.Random) -> str:
    """The file's statements in another order, one of them twice."""
    tree = tree_of(text)
    if tree is None or len(tree.body) < 2:
        return text
    lines = text.split("\n")
    starts = [min([s.lineno, *(d.lineno for d in getattr(s, "decorator_list", []))]) - 1 for s in tree.body]
    if len(set(starts)) < len(starts):
        return text
    parts = ["\n".join(lines[a:b]) for a, b in zip(starts, [*starts[1:], len(lines)], strict=True)]
    defs = [k for k, s in enumerate(tree.body) if hasattr(s, "body")]
    if len(defs) > 1:
        a, b = chance.sample(defs, 2)
        parts[a], parts[b] = parts[b], parts[a]
    if defs and chance.random() < 0.5:
        parts.insert(chance.randrange(len(parts) + 1), parts[chance.choice(defs)])
    return "\n".join([*lines[: starts[0]], *parts])


@change
def lines_moved(text: str, chance: random.Random) -> str:
    """Lines removed, doubled or swapped."""
    lines = text.split("\n")
    for _ in range(chance.randint(1, 3)):
        rows = simple_lines(text)
        if len(rows) < 2 or chance.random() < 0.2:
            rows = list(range(1, len(lines) + 1))
        a, b = chance.choice(rows) - 1, chance.choice(rows) - 1
        match chance.choice(["remove", "double", "swap"]):
            case "remove" if len(lines) > 3:
                del lines[a]
            case "double":
                lines.insert(a, lines[a])
            case "swap":
                lines[a], lines[b] = indent_of(lines[a]) + lines[b].strip(), indent_of(lines[b]) + lines[a].strip()
        text = "\n".join(lines)
    return text


@change
def tokens_moved(text: str, chance: random.Random) -> str:
    """Tokens removed, doubled or swapped for others."""
    for _ in range(chance.randint(1, 2)):
        found = [t for t in tokens_of(text) if t.type in (tokenize.OP, tokenize.NAME, tokenize.NUMBER, tokenize.STRING)]
        if not found:
            break
        token, other = chance.choice(found), chance.choice(found)
        if other.type != token.type and chance.random() < 0.9:
            other = chance.choice([t for t in found if t.type == token.type])
        text = replaced(text, token, chance.choice(["", f"{token.string} {token.string}", other.string, other.string]))
    return text


@change
def cut_off(text: str, chance: random.Random) -> str:
    """A file that ends in its middle."""
    return (
        text[: chance.randrange(len(text) // 2, len(text))]
        if chance.random() < 0.5 and text
        else text + chance.choice(["\\", "(", "  ", "\x0c", "\\\n", "\x1a", "    x"])
    )


@change
def blank_lines(text: str, chance: random.Random) -> str:
    """Blank lines with and without white space, and trailing white space."""
    lines = text.split("\n")
    tokens = tokens_of(text)
    ends = sorted({t.end[0] for t in tokens if t.type == tokenize.NEWLINE})
    for row in sorted(chance.sample(ends, min(len(ends), 5)), reverse=True):
        if row <= len(lines):
            lines[row - 1] += chance.choice(["", " ", "\t", " \x0c"])
            lines.insert(row, chance.choice(["", "   ", "\x0c", "\t\t\t\t"]))
    return "\n".join(lines)


# -- bytes ---------------------------------------------------------------------------------------------------------------


def encoded(text: str, chance: random.Random) -> tuple[bytes, tuple[str, ...]]:
    """A text in an encoding and with line ends, and the names of what is special about them."""
    done: list[str] = []
    ends = chance.choices(["\n", "\r\n", "\r", "mixed"], [6, 2, 1, 1])[0]
    if ends == "mixed":
        text = re.sub("\n", lambda m: chance.choice(["\n", "\r\n", "\r"]), text)
    elif ends != "\n":
        text = text.replace("\n", ends)
    if ends != "\n":
        done.append({"\r\n": "CRLF", "\r": "CR"}.get(ends, "mixed line ends"))
    if chance.random() < 0.15:
        text = text.rstrip("\r\n")
        done.append("no final newline")
    if chance.random() < 0.7:
        return text.encode("utf-8", "surrogatepass"), tuple(done)
    how = chance.choice(
        ["latin-1", "cp1252", "cp1251", "shift_jis", "utf-16", "mark", "wrong", "declared utf-8", "nul", "bytes"]
    )
    done.append(f"encoding: {how}")
    newline = "\n" if ends == "mixed" else ends
    match how:
        case "mark":
            return codecs.BOM_UTF8 + text.encode(), tuple(done)
        case "utf-16":
            return text.encode("utf-16"), tuple(done)
        case "wrong":
            return (
                f"# coding: {chance.choice(['klingon', 'ascii', 'utf-16', 'rot13', 'latin-1'])}{newline}{text}".encode(),
                tuple(done),
            )
        case "declared utf-8":
            name = chance.choice(["utf-8", "UTF8", "utf-8-sig", "u8", "utf_8"])
            return f"#!/usr/bin/env python{newline}# -*- coding: {name} -*-{newline}{text}".encode(), tuple(done)
        case "nul":
            at = chance.randrange(len(text) + 1)
            return (text[:at] + "\0" + text[at:]).encode(), tuple(done)
        case "bytes":
            data = bytearray(text.encode())
            for _ in range(3):
                data.insert(chance.randrange(len(data) + 1), chance.randrange(256))
            return bytes(data), tuple(done)
    word = {"cp1251": "\u0436\u0416", "shift_jis": "\u8868\u30bd"}.get(how, "\u00e9\u00df")
    text = re.sub(r"#(?= )", lambda m: chance.choice(["#", f"# {word}"]), text)
    return f"# vim: set fileencoding={how} :{newline}{text}".encode(how, "replace"), tuple(done)


# -- written for the fixer -----------------------------------------------------------------------------------------------

LOOPS = (
    '''"""Doc."""
import torch
device = torch.device('cuda')
def train(model: torch.nn.Module, loader, optimizer):
    model.cuda()
    total, losses, best = 0, [], 0
    for x, y in loader:
        loss = model(x.to(device)).sum()
        total = total + loss.item()
        print(loss.item(), loss.item())
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        mask = torch.zeros(2, 3).to(device)
        scale = torch.tensor([1.0, 2.0]).to(device)
        losses.append(loss.item())
        if loss.item() > best: best = loss.item()
    with torch.no_grad: y = model(x.cuda())
    return total
''',
    """import torch
def evaluate(model, loader, device):
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            x = x.to(device); y = y.to(device)
            out = model(x)
            correct += (out.argmax(1) == y).sum().item()
            text = f'{out.mean().item():.3f} {correct}'
    return correct


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 8)

    def forward(self, x):
        h = torch.zeros(1, x.size(1), 8).to(x.device)
        c = torch.zeros(1, x.size(1), 8).to(x.device)
        out, _ = self.lstm(x, (h, c))
        return out


if __name__ == "__main__":
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for x, y in torch.utils.data.DataLoader(data, num_workers=2):
            out = model(x.cuda())
            loss = torch.nn.functional.mse_loss(out, y.cuda())
            loss.backward()
            optimizer.zero_grad()
            optimizer.step()
            if torch.isnan(loss):
                raise ValueError(loss)
    print(evaluate(model, data, 'cuda'))
""",
)
