"""What every page has: one HTML file that needs nothing else, no font, no address; its parts, and text that stays text."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Literal

Kind = Literal["good", "bad", "unclear", "plain"]
"""What a figure says to its reader; the style sheet has a colour for each."""

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that turn the direction of text (code must read as it runs), and halves of characters."""

_FOLDERS = re.compile(
    r"""(?<![\w.<>~/\\-])(?:[A-Za-z]:)?[/\\](?:[^\s/\\"'<>|:,;=()]+[/\\])+"""  # "/home/ann/" and "C:\\Users\\Ann\\"
)
_KNOWN = re.compile(r"(?:.*[/\\])?(?:site-packages|dist-packages|python3\.\d+)[/\\]")

MOST_DIFF_LINES = 2000
"""A longer diff is cut: the page is for reading."""


def document(title: str, body: Iterable[str], *, script: str = "") -> str:
    """A whole HTML file. Nothing is loaded, and no script runs but `script`, of which the page's policy has the digest."""
    style = files("perflint.page").joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = "default-src 'none'; style-src 'unsafe-inline'" + (f"; script-src 'sha256-{digest}'" if script else "")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escaped(title)}</title>",
            f"<style>\n{style}</style></head><body>",
            *body,
            f"<script>{script}</script>" if script else "",
            "</body></html>\n",
        ]
    )


def script(name: str) -> str:
    """The text of a script of this package."""
    return files("perflint.page").joinpath(name).read_text(encoding="utf-8")


def escaped(text: object) -> str:
    """Text that stays text in a page, whatever it holds."""
    return html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(text)))


def prose(text: str) -> str:
    """A message, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped(text))


def without_folders(text: str) -> str:
    """Text in which whole paths keep what tells a reader something: what stands below Python's packages, else the name."""
    return _FOLDERS.sub(lambda found: _KNOWN.sub("", found[0]) if _KNOWN.match(found[0]) else "\N{HORIZONTAL ELLIPSIS}/", text)


def anchor(*parts: object) -> str:
    """An `id` for a place of the page, the same in each page that has it: of readable characters, and unique by a digest."""
    text = "-".join(map(str, parts))
    words = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:60]
    if words == text:
        return words
    return f"{words}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def card(name: str, value: str, more: str, kind: Kind = "plain") -> str:
    """One figure of a page's head."""
    return (
        f'<div class="card {kind}"><div class="name">{escaped(name)}</div><div class="value">{escaped(value)}</div>'
        f'<div class="soft">{escaped(more)}</div></div>'
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, figures: Iterable[int] = ()) -> Iterator[str]:
    """A table of cells that are HTML already. figures: the columns that hold numbers."""
    numeric = frozenset(figures)

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(f"<{tag}{' class=figure' if at in numeric else ''}>{cell}" for at, cell in enumerate(row))

    yield f'<div class="scroll"><table><thead><tr>{cells("th", [escaped(name) for name in head])}</tr></thead><tbody>'
    yield from (f"<tr>{cells('td', row)}</tr>" for row in rows)
    yield "</tbody></table></div>"


def changed_lines(lines: Sequence[str]) -> Iterator[str]:
    """The lines of a unified diff."""
    shown = "".join(f'<span class="{_kind_of_line(line)}">{escaped(line) or " "}</span>' for line in lines[:MOST_DIFF_LINES])
    yield f"<pre>{shown}</pre>"
    if len(lines) > MOST_DIFF_LINES:
        yield f'<p class="soft">And {len(lines) - MOST_DIFF_LINES} lines more.</p>'


def _kind_of_line(line: str) -> str:
    return {"+": "added", "-": "removed", "@": "chunk"}.get(line[:1], "same")
