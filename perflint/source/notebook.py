"""Notebooks: the Python text of a file's code cells, and the way back from an edited text to the file.

What is written back are the JSON strings of changed source lines. All other bytes of the file stay as they are.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from perflint.source.cells import CannotWriteBack, Cell, Problem, joined, parted, restored
from perflint.source.lines import common
from perflint.source.magics import as_python, hidden
from perflint.source.records import dataclass
from perflint.source.words import made

_OLDEST = 3
"""The oldest version of the format that is read: those before it are older than torch."""

_TOKEN = made(rb'[ \t\r\n]*(?:("[^"\\]*(?:\\.[^"\\]*)*")|([{}\[\]:,])|[^\s{}\[\]:,"]+)', re.S)
_LINE = made(r"[^\n]*\n|[^\n]+")
_LINE_END = ("\\n", "\\u000a", "\\u000A")
_PIECE = made(r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|\\u\w{4}|\\.|[^\\]", re.S)


class NotebookError(Exception):
    """The bytes of a file are no notebook; the message says why."""


class Token(NamedTuple):
    """A JSON string of a cell's source, quotes included."""

    start: int
    end: int


@dataclass(frozen=True)
class Notebook:
    """A notebook's bytes with its code cells: none if it is not about Python."""

    data: bytes
    cells: tuple[Cell, ...]

    @classmethod
    def parse(cls, data: bytes) -> Notebook:
        """Read a notebook.

        Raises:
            NotebookError: the bytes are no notebook.

        """
        if not data.strip():
            return cls(data, ())
        content = _json(data)
        return cls(data, tuple(_code_cells(content)) if _is_python(content) else ())

    @cached_property
    def text(self) -> bytes:
        """The code cells as one Python text, in which they can be told apart: see `cells`."""
        may_matter = b"torch" in self.data
        return joined((cell.number, *_shown(cell.source, may_matter)) for cell in self.cells)

    def with_text(self, text: bytes) -> bytes:
        """The file's bytes with an edited text in the place of `text`.

        Raises:
            CannotWriteBack: an edit crosses the border of a cell, or the text of the new file would be another one.

        """
        edited, before = parted(text), parted(self.text)
        if [number for number, _ in edited] != [number for number, _ in before]:
            raise CannotWriteBack("an edit crosses the border of a cell")
        pieces: list[bytes] = []
        last = 0
        for (number, new), (_, old) in zip(edited, before, strict=True):
            if new == old:
                continue
            tokens = self.strings.get(number, [])
            if not tokens:
                raise CannotWriteBack("an empty cell gets text")
            pieces += [self.data[last : tokens[0].start], self._rewritten(tokens, restored(new))]
            last = tokens[-1].end
        written = b"".join([*pieces, self.data[last:]])
        try:
            agrees = Notebook.parse(written).text == text
        except NotebookError:
            agrees = False
        if not agrees:
            raise CannotWriteBack("the file would say something else than the text")
        return written

    @cached_property
    def strings(self) -> dict[int, list[Token]]:
        """Where the JSON strings of each code cell's source stand in the bytes, by the cell's number."""
        return _source_tokens(self.data)

    def offset(self, number: int, row: int, column: int) -> int:
        """Where a character of a code cell stands in the bytes; row and column are 1-based.

        The end of the line where it is shorter, the end of the cell where that is; 0 for a cell without text.
        """
        at_row, at_column, at = 1, 1, 0
        for token in self.strings.get(number, ()):
            at = token.start + 1
            for piece in _PIECE.findall(self.data[at : token.end - 1].decode()):
                is_line_end = piece in _LINE_END
                if at_row == row and (at_column >= column or is_line_end):
                    return at
                at += len(piece.encode())
                at_row, at_column = (at_row + 1, 1) if is_line_end else (at_row, at_column + 1)
        return at

    def _rewritten(self, tokens: Sequence[Token], source: str) -> bytes:
        """The bytes from the first token of a cell's source to the last for another source."""
        written = [self.data[token.start : token.end] for token in tokens]
        texts = [json.loads(token) for token in written]
        above = self._above(tokens[0])
        if above is not None and _LINE.findall("".join(texts)) == texts:
            between = [self.data[a.end : b.start] for a, b in pairwise(tokens)] or [b"," + above if b"\n" in above else b", "]
            return self._with_lines(tokens, texts, _LINE.findall(source), between)
        return self._with_pieces(tokens, source)

    def _above(self, token: Token) -> bytes | None:
        """The white space between the bracket of a list and its first string; None if that is the first of none."""
        at = token.start
        while self.data[at - 1 : at].isspace():
            at -= 1
        return self.data[at : token.start] if self.data[at - 1 : at] == b"[" else None

    def _with_lines(self, tokens: Sequence[Token], before: list[str], after: list[str], between: Sequence[bytes]) -> bytes:
        """A list with a string for each line: a string that is the same keeps its bytes, and what is behind it.

        between: what stands behind each string but the last.
        """
        pieces: list[bytes] = []
        for line, place in zip(after, _places(before, after), strict=True):
            if place is not None and before[place] == line:
                pieces.append(self.data[tokens[place].start : tokens[place].end])
            else:
                pieces.append(self._escaped(line))
            pieces.append(between[place] if place is not None and place < len(between) else between[0])
        return b"".join(pieces[:-1])

    def _with_pieces(self, tokens: Sequence[Token], source: str) -> bytes:
        """Strings that hold several lines: the lines that are the same keep their characters as they are written."""
        lines: list[list[tuple[int, str]]] = [[]]  # of each line the characters as they are written, and in which string
        for index, token in enumerate(tokens):
            for piece in _PIECE.findall(self.data[token.start + 1 : token.end - 1].decode()):
                lines[-1].append((index, piece))
                if piece in _LINE_END:
                    lines.append([])
        lines = [line for line in lines if line]
        before, after = [_text("".join(piece for _, piece in line)) for line in lines], _LINE.findall(source)
        strings: list[list[str]] = [[] for _ in tokens]
        string = 0
        for line, place in zip(after, _places(before, after), strict=True):
            if place is not None and before[place] == line:
                for string, piece in lines[place]:
                    strings[string].append(piece)
            else:
                string = lines[place][0][0] if place is not None else string
                strings[string].append(self._escaped(line).decode()[1:-1])
        written: list[bytes] = []
        for index, token in enumerate(tokens):
            following = tokens[index + 1].start if index + 1 < len(tokens) else token.end
            written += [f'"{"".join(strings[index])}"'.encode(), self.data[token.end : following]]
        return b"".join(written)

    def _escaped(self, text: str) -> bytes:
        """A JSON string in the manner of the file: with escapes for what is not ASCII where nothing else is in it."""
        return json.dumps(text, ensure_ascii=self.data.isascii()).encode()


def _places(before: Sequence[str], after: Sequence[str]) -> list[int | None]:
    """For each line of a text the one of an earlier text whose place it takes, which may be the same; in order."""
    head = common(before, after)
    tail = common(before[head:][::-1], after[head:][::-1])
    places: list[int | None] = [*range(head)]
    middle = SequenceMatcher(None, before[head : len(before) - tail], after[head : len(after) - tail])
    for _, i, end_i, j, end_j in middle.get_opcodes():
        places += [head + i + k if i + k < end_i else None for k in range(end_j - j)]
    return [*places, *range(len(before) - tail, len(before))]


def _text(escaped: str) -> str:
    """What is written in a JSON string."""
    text: str = json.loads(f'"{escaped}"')
    return text


def python_text(data: bytes) -> bytes | None:
    """The Python text of a notebook's bytes; None if they are none."""
    try:
        return Notebook.parse(data).text
    except NotebookError:
        return None


def _shown(source: str, may_matter: bool) -> tuple[str, Problem | None]:
    """What stands for a cell in the text, and why it is no Python; only where it may matter is each cell parsed by itself."""
    text = as_python(source)
    if not may_matter:
        return text, None
    try:
        ast.parse(text)
    except SyntaxError as error:
        if isinstance(error, IndentationError) and _is_indented(text):
            return hidden(source, "get_ipython().run_cell()"), None  # IPython takes the indentation of the first line away
        return hidden(source), Problem(error.lineno or 1, max(error.offset or 1, 1), error.msg)
    except (ValueError, RecursionError, MemoryError):
        pass  # the whole text says so again
    return text, None


def _is_indented(text: str) -> bool:
    first = next((line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
    return first[:1] in (" ", "\t")


# -- reading -------------------------------------------------------------------------------------------------------------


def _json(data: bytes) -> dict[str, Any]:
    encoding = json.detect_encoding(data)
    if not encoding.startswith("utf-8"):
        raise NotebookError(f"the notebook is {encoding.upper()}; save it as UTF-8")
    try:
        content = json.loads(data.decode(encoding))
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise NotebookError(f"the notebook is not UTF-8: byte 0x{data[error.start]:02x} (line {row})") from None
    except json.JSONDecodeError as error:
        raise NotebookError(f"the notebook is no valid JSON: {error.msg} (line {error.lineno})") from None
    except (ValueError, RecursionError) as error:
        raise NotebookError(f"the notebook is no valid JSON: {error}") from None
    if not isinstance(content, dict) or not ("cells" in content or "worksheets" in content or "nbformat" in content):
        raise NotebookError("this is no notebook: it has no list of cells")
    return content


def _is_python(content: dict[str, Any]) -> bool:
    """Whether the kernel runs Python, as far as the notebook says; one that says nothing does."""
    if isinstance(content.get("nbformat"), int) and content["nbformat"] < _OLDEST:
        return False
    metadata = _dictionary(content.get("metadata"))
    kernel = _dictionary(metadata.get("kernelspec"))
    language = _dictionary(metadata.get("language_info")).get("name") or kernel.get("language")
    if isinstance(language, str):
        return language.lower().startswith(("python", "ipython"))
    name = kernel.get("name")
    return not isinstance(name, str) or name not in _OTHER_KERNELS


_OTHER_KERNELS = frozenset(("ir", "julia", "scala", "bash", "octave", "javascript", "sas", "rust", "go"))
"""Names of kernels by which notebooks without a language are known not to be about Python."""


def _dictionary(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _code_cells(content: dict[str, Any]) -> Iterator[Cell]:
    for number, cell in enumerate(_all_cells(content), 1):
        if not isinstance(cell, dict):
            raise NotebookError(f"cell {number} of the notebook is none")
        vscode = _dictionary(_dictionary(cell.get("metadata")).get("vscode"))
        language = cell.get("language") or vscode.get("languageId") or "python"
        if cell.get("cell_type") != "code" or language != "python":
            continue
        source = cell.get("source", cell.get("input", ""))
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if not isinstance(source, str):
            raise NotebookError(f"cell {number} of the notebook has no text")
        yield Cell(number, source)


def _all_cells(content: dict[str, Any]) -> list[Any]:
    found = content.get("cells")
    if found is None:
        sheets = content.get("worksheets", [])
        found = [cell for sheet in sheets for cell in _dictionary(sheet).get("cells", [])] if isinstance(sheets, list) else None
    if not isinstance(found, list):
        raise NotebookError("this is no notebook: it has no list of cells")
    return found


def _source_tokens(data: bytes) -> dict[int, list[Token]]:
    """Where the strings of each cell's source stand, by the number of the cell."""
    found: dict[int, list[Token]] = {}
    path: list[Any] = []  # of an object the key, of a list the index
    key: str | None = None
    is_object: list[bool] = []
    number = 0
    for token in _TOKEN.finditer(data, 3 if data.startswith(b"\xef\xbb\xbf") else 0):
        string, mark = token.groups()
        if string is not None:
            if is_object and is_object[-1] and key is None:
                key = path[-1] = json.loads(string)
            elif _is_source(path):
                found.setdefault(number, []).append(Token(token.start(1), token.end(1)))
        elif mark in (b"{", b"["):
            if mark == b"{" and _is_cell(path):
                number += 1
            path.append(None if mark == b"{" else 0)
            is_object.append(mark == b"{")
            key = None
        elif mark in (b"}", b"]"):
            path.pop()
            is_object.pop()
            key = path[-1] if is_object and is_object[-1] else None
        elif mark == b",":
            if is_object[-1]:
                key = path[-1] = None
            else:
                path[-1] += 1
    return found


def _is_cell(path: list[Any]) -> bool:
    """Whether a path leads to a cell, in the present format or in one with worksheets."""
    return path[:-1] == ["cells"] or (len(path) == 4 and path[0] == "worksheets" and path[2] == "cells")


def _is_source(path: list[Any]) -> bool:
    """Whether a path leads to a string of a cell's source."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    return bool(path) and path[-1] in ("source", "input") and _is_cell(path[:-1])
