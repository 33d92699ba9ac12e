"""Changes to a text that leave its statements what they are: comments, white space, line breaks, semicolons."""

from __future__ import annotations

import ast
import itertools
import random
import re
import tokenize

from fuzz.text_tools import (
    Change,
    bracketed,
    indent_of,
    inserted,
    registering,
    simple_lines,
    tokens_of,
    tree_of,
)

CHANGES: dict[str, Change] = {}
"""What may be done to a text, by name."""
change = registering(CHANGES)
RULES = ["item-every-step", "duplicate-item-read", "blocking-h2d-in-loop", "eval-without-no-grad", "zero-grad-late", "no-such"]


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
