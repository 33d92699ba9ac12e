"""What only IPython understands in a cell: magics, shell commands, calls for help. Each line of it gets Python in its place.

What is known to do nothing to the variables and modules of a program is `pass`; all else is a call of `get_ipython()`, of which
nobody knows what it does.
"""

from __future__ import annotations

import ast
import re

from perflint.source.cells import HIDDEN, may_be_mistaken
from perflint.source.chunks import STRING_OR_COMMENT
from perflint.source.words import made, words

_INSTALLS = r"(?:pip3?|conda|mamba)[ \t]+(?:install|uninstall|list|show|update|create)\b"
_UNWRITABLE = made(r"\r(?!\n)|[\0\ud800-\udfff]")
"""What no line of a Python text can hold: such a cell is not shown at all."""

_POSSIBLE = made(rf"^[ \t]*(?:[%!?,;/]|{_INSTALLS})|\?[ \t]*$|=[ \t]*[!%]", re.M)
_LINE = made(rf"([ \t]*)(?:(%%?)(\w*)[ \t]*(.*)|([!?,;/]|{_INSTALLS}).*)", re.S)
_ASSIGNED = made(r"([ \t]*[A-Za-z_*][\w., \t*\[\]]*?)[ \t]*=[ \t]*[!%](?!=)")
_CELL_MAGIC = made(r"%%(\w+)")
_TOKEN = made(STRING_OR_COMMENT.pattern + rb"|[()\[\]{}]|\\\r?\n|\n", re.S)

_QUIET = words("matplotlib config pinfo pinfo2 psource pdoc who whos who_ls")
"""Line magics that neither run code of the program nor change what it computes."""

_RUN_AS_THEY_ARE = words("time capture")
"""Cell magics that run the lines below them like any others."""

_OTHER_LANGUAGES = words("bash sh script html HTML javascript js latex markdown svg SVG writefile file perl ruby")
"""Cell magics below which there is no Python that runs."""

_BINDING = words("run pylab store")
"""Line magics that bind names of which nobody knows what they mean then, those of Python and of torch among them."""

_BINDS = "from __magic__ import *"
UNKNOWN_MAGIC = "get_ipython().run_line_magic()"
_UNKNOWN_CELL = "get_ipython().run_cell_magic()"
_COMMAND = "get_ipython().getoutput()"


def hidden(source: str, runs: str = "") -> str:
    """A cell of which no line is seen; `runs` is what runs in its place."""
    first, *rest = source.split("\n")
    return "\n".join([f"{runs}  {HIDDEN}{first}" if runs else f"{HIDDEN}{first}", *(HIDDEN + line for line in rest)])


def as_python(source: str) -> str:
    """A cell with Python in the place of what is for IPython alone; each line stays in its row."""
    if _UNWRITABLE.search(source):
        return f"{_UNKNOWN_CELL}  {HIDDEN}"
    if may_be_mistaken(source):
        return hidden(source, _UNKNOWN_CELL)
    if _POSSIBLE.search(source) is None:
        return source
    lines = source.split("\n")
    head = _cell_magics(lines)
    if head is None:
        magic = _CELL_MAGIC.match(source.lstrip())
        return hidden(source, "" if magic is not None and magic[1] in _OTHER_LANGUAGES else _UNKNOWN_CELL)
    done = [f"pass  {HIDDEN}{line}" if line.strip() else line for line in lines[:head]]
    text = source.encode()
    at = len("\n".join(lines[:head]).encode()) + bool(head)
    while len(done) < len(lines):
        following = _logical_line(lines, len(done), text, at)
        at += sum(len(line.encode()) + 1 for line in lines[len(done) : len(done) + len(following)])
        done += following
    return "\n".join(done)


def _cell_magics(lines: list[str]) -> int | None:
    """How many lines at the beginning of a cell are magics that run what is below; None for magics that do not."""
    at = 0
    for row, line in enumerate(lines):
        found = _CELL_MAGIC.match(line)
        if found is not None and found[1] not in _RUN_AS_THEY_ARE:
            return None
        if found is None and line.strip():
            break
        at = row + 1 if found is not None else at
    return at


def _logical_line(lines: list[str], row: int, text: bytes, at: int) -> list[str]:
    """A line that begins a statement, which `text` has at `at`, and those that it goes on in."""
    line = lines[row]
    runs = _instead(line)
    if runs is not None:
        done = [f"{runs}  {HIDDEN}{line}"]
        while lines[row + len(done) - 1].rstrip("\r").endswith("\\") and row + len(done) < len(lines):
            done.append(HIDDEN + lines[row + len(done)])
        return done
    depth, covered, end = 0, at, len(text)
    for token in _TOKEN.finditer(text, at):
        kind = token.group()
        if kind == b"\n" and depth <= 0:
            end = token.start()
            break
        depth += (kind in (b"(", b"[", b"{")) - (kind in (b")", b"]", b"}"))
        covered = token.end() if kind[:1] in (b"#", b'"', b"'") else covered
    own = text[at:end]
    count = own.count(b"\n") + 1
    stripped = own.rstrip()
    if stripped.endswith(b"?") and covered < at + len(stripped):
        first = f"{line[: len(line) - len(line.lstrip())]}pass  {HIDDEN}{line}"
        return [first, *(HIDDEN + other for other in lines[row + 1 : row + count])]
    return lines[row : row + count]


def _instead(line: str) -> str | None:
    """What runs in the place of a line that begins as no Python statement does."""
    found = _LINE.fullmatch(line)
    if found is not None:
        indent, percent, name, rest, other = found.groups()
        if other == "?" or (percent and name in _QUIET):
            return f"{indent}pass"
        timed = rest.strip() if percent == "%" and name == "time" else ""
        if timed and "#" not in timed and _is_python(timed):
            return indent + timed
        if not indent and percent == "%" and name in _BINDING:
            return _BINDS
        return indent + UNKNOWN_MAGIC
    found = _ASSIGNED.match(line)
    return f"{found[1]} = {_COMMAND}" if found is not None else None


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
