"""Changes to a text that make other code of it: rare syntax, other names, moved and missing pieces."""

from __future__ import annotations

import ast
import random
import re
import tokenize

from fuzz.text_tools import (
    Change,
    indent_of,
    inserted,
    registering,
    replaced,
    simple_lines,
    tokens_of,
    tree_of,
)

CHANGES: dict[str, Change] = {}
"""What may be done to a text, by name."""
change = registering(CHANGES)
NEWER_SYNTAX: dict[str, tuple[int, int]] = {"fstring_of_fstrings": (3, 12), "type_parameters": (3, 12)}
"""Changes to syntax that only this Python and newer ones know."""


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
