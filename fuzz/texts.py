"""Python files for fuzz/text.py: parts of real ones, changed at random, with rare syntax, encodings and line ends.

A text depends on its number and on the sources only. Most texts parse; those that do not show what happens to a file that
somebody is in the middle of writing.
"""

from __future__ import annotations

import ast
import codecs
import random
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzz import changes_of_code, changes_of_layout
from fuzz.changes_of_code import NEWER_SYNTAX
from fuzz.text_tools import parses, tree_of

ROOT = Path(__file__).resolve().parent.parent
MAX_PIECES = 3
CHANGES = changes_of_layout.CHANGES | changes_of_code.CHANGES


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
