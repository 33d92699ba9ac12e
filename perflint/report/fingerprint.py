"""What a finding is known by from run to run, however its lines move or are laid out."""

from __future__ import annotations

import hashlib
import keyword
import os
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from perflint.rule.finding import Finding
from perflint.run.outcome import Checked
from perflint.run.result import Result
from perflint.source.source import tokens

LONGEST_CODE = 160
"""So many characters of normalised code are kept as they are; of longer code the beginning, and a digest of all."""

_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_OPENS_STRING = {getattr(tokenize, name, None) for name in ("FSTRING_START", "TSTRING_START")} - {None}
_CLOSES_STRING = {getattr(tokenize, name, None) for name in ("FSTRING_END", "TSTRING_END")} - {None}
_STRING = re.compile(r"(\w*)('''|\"\"\"|'|\")(.*)\2", re.S)
_ESCAPED_QUOTE = re.compile(r"\\(['\"])")
_BLOCKS = {"async", "class", "def", "except", "for", "if", "match", "try", "while", "with"}


class Fingerprint(NamedTuple):
    """A finding's rule, its file's path with slashes, the qualified name of its function, and the flawed code."""

    rule: str
    path: str
    function: str
    code: str

    def digest(self, occurrence: int = 0) -> str:
        """32 hexadecimal digits. occurrence: how many alike come before it in the file."""
        return _digest("\0".join([*self, str(occurrence)]))[:32]


def fingerprint(checked: Checked, finding: Finding, root: str) -> Fingerprint:
    """A finding's fingerprint. root: the folder that the path is relative to."""
    return Fingerprint(finding.rule, relative(checked.path, root), finding.function, _code(checked, finding))


def digests(result: Result, root: str) -> Iterator[str]:
    """A digest for each finding of a result, in order; no two are the same."""
    seen: Counter[Fingerprint] = Counter()
    for checked, finding in result.findings:
        found = fingerprint(checked, finding, root)
        yield found.digest(seen[found])
        seen[found] += 1


def relative(path: str, root: str) -> str:
    """A path as it is written below a folder, with slashes."""
    try:
        return os.path.relpath(path, root).replace(os.sep, "/")
    except ValueError:  # another drive of Windows
        return os.path.abspath(path).replace(os.sep, "/")


def _code(checked: Checked, finding: Finding) -> str:
    """The flawed code; nothing of a file that cannot be parsed, wherever it is that the parser stops."""
    if checked.source is None:
        return ""
    text = checked.source.text(finding.start, finding.end)
    code = normalised(text) or " ".join(text.split())
    return code if len(code) <= LONGEST_CODE else f"{code[:LONGEST_CODE]}... {_digest(code)[:16]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def normalised(text: str) -> str:
    """Code in one line, the same for all that a formatter makes of it; nothing if it is no Python.

    It is without comments, line breaks, parentheses that only group, and commas before a closing bracket; strings have double
    quotes. Of a block it is the head.
    """
    try:
        return "".join(_joined(_essential(text)))
    except (tokenize.TokenError, SyntaxError):
        return ""


def _joined(pieces: list[str]) -> Iterator[str]:
    """Pieces with a blank where they would run into each other, and behind commas."""
    before = " "
    for piece in pieces:
        if before == "," or (_is_word(before[-1]) and _is_word(piece[0])):
            yield " "
        yield piece
        before = piece


def _is_word(character: str) -> bool:
    return character.isalnum() or character in "_\"'"


def _essential(text: str) -> list[str]:
    pieces: list[str] = []
    groups: list[bool] = []  # of each open parenthesis, whether it only groups
    for piece in _pieces(text):
        match piece:
            case "(" | "[" | "{":
                groups.append(piece == "(" and not (pieces and _is_operand(pieces[-1])))
                if groups[-1]:
                    continue
            case ")" | "]" | "}" if groups:
                if pieces and pieces[-1] == ",":
                    pieces.pop()
                if groups.pop():
                    continue
            case ":" if not groups and pieces and pieces[0] in _BLOCKS:
                break
        pieces.append(piece)
    return pieces


def _is_operand(piece: str) -> bool:
    """Whether a parenthesis behind it begins the arguments of a call."""
    return piece in (")", "]", "}") or ((piece[-1].isalnum() or piece[-1] in '_"') and not keyword.iskeyword(piece))


def _pieces(text: str) -> Iterator[str]:
    """The tokens of code that need not be a whole statement; a string with fields is one."""
    wrapped = "(" + text.replace("\r\n", "\n") + "\n)"  # in parentheses no line has an indent, and none ends a statement
    found = [token for token in tokens(wrapped.encode()) if token.type not in _LAYOUT]
    lines = [line + "\n" for line in wrapped.split("\n")]
    first: tuple[int, int] | None = None
    depth = 0
    for token in found[1:-1]:
        if token.type in _OPENS_STRING:
            first = first or token.start
            depth += 1
        elif token.type in _CLOSES_STRING:
            depth -= 1
            if not depth and first is not None:
                yield _in_double_quotes(_between(lines, first, token.end))
                first = None
        elif not depth:
            is_string, is_number = token.type == tokenize.STRING, token.type == tokenize.NUMBER
            yield _in_double_quotes(token.string) if is_string else token.string.lower() if is_number else token.string


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    rows = lines[start[0] - 1 : end[0]]
    rows[-1] = rows[-1][: end[1]]
    rows[0] = rows[0][start[1] :]
    return "".join(rows)


def _in_double_quotes(string: str) -> str:
    found = _STRING.fullmatch(string)
    if found is None:
        return string
    prefix, body = found[1].lower().replace("u", ""), found[3]
    if "f" in prefix:
        body = body.replace("'", '"')  # as in the fields
    elif "r" not in prefix:
        body = _ESCAPED_QUOTE.sub(r"\1", body)
    return f'{prefix}"{body}"'
